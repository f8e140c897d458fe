"""Natural clients, from the configuration to the shards of the federation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_audit.federation.loaded_federation import load_federation
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.planning import plan_run
from tests.builders.refusals import assert_refused
from tests.builders.settings import small_settings


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of 200 records of the clinics 1, 2, 4 and 8."""
    draw = np.random.default_rng(0)
    path = tmp_path / "clinics.npz"
    np.savez(path, x=draw.random((200, 5)), y=draw.integers(0, 2, 200), clinic=draw.choice([1, 2, 4, 8], 200))
    return path


def _config(archive: Path, **data: Any) -> RunConfig:
    settings = {"name": "npz", "path": str(archive), "owner": "clinic", "partition": "natural", "clients": None}
    return parse_config(small_settings(data=settings | data))


def test_every_owner_is_a_client(archive: Path) -> None:
    config = _config(archive)
    assert config.data.clients is None
    plan = plan_run(config)
    assert plan.config.data.clients == plan.federation.clients == 4
    assert plan_run(_config(archive, clients=4)).federation == plan.federation
    assert parse_config(plan.config.as_dict()) == plan.config
    shards = load_federation(plan.federation).shards
    assert len(shards) == 4
    assert np.array_equal(np.sort(np.concatenate(shards)), np.arange(60))


def test_another_number_of_clients_is_refused_with_both_numbers(archive: Path) -> None:
    named = r"clients is 5, .*\b4 owners"
    assert_refused(named, lambda: load_federation(plan_run(_config(archive, clients=5)).federation))


def test_data_without_owners_has_no_natural_clients(archive: Path) -> None:
    assert_refused("whose each record", lambda: plan_run(_config(archive, owner=None)))


def test_other_partitions_have_ten_clients_unless_told() -> None:
    assert parse_config(small_settings(data={"clients": None})).data.clients == 10
    assert parse_config(small_settings(data={"clients": None, "partition": "iid"})).data.clients == 10
