"""Tests of runs on randomised graphs and pixelated images: refused settings, and the report on each record."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fl_audit.audits.common.sections_record_guarantee import advantage_of, measured_advantage
from fl_audit.data.packed_graphs import unpack_graph
from fl_audit.data.randomizers import LaplacePixelation, RandomisedEdges
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.local_dpsgd import ClientRandomness
from fl_audit.federation.locally_randomised_records import randomised_records, randomised_shard, record_pair
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.identifiability_bounds import response_advantage
from fl_audit.randomness import Purpose, generator
from fl_audit.run_files import read_json
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_report import rebuild_report
from fl_audit.strategies.secret_draws import OF_FIRST, OF_SECOND, SeededChallenger, record_draws
from fl_audit.trial_batches import TrialBatch
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings
from tests.data.test_data_graph_records import collab, random_graphs
from tests.federation.test_federation_randomised_records import ALONE, MEMBERS, NOT_PRIVATE, bits, carts_plan


@pytest.fixture
def graphs_directory(tmp_path: Path) -> Path:
    """A data directory with 40 graphs of 6 to 9 nodes in COLLAB's format."""
    return collab(tmp_path, random_graphs([6 + number % 4 for number in range(40)]))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """An archive with 60 grey images of 8x8."""
    source = np.random.default_rng(1)
    np.savez(tmp_path / "images.npz", x=source.integers(0, 256, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 3)
    return tmp_path / "images.npz"


def graphs_plan(directory: Path, **changes: dict[str, Any]) -> RunPlan:
    base: dict[str, dict[str, Any]] = {
        "data": {
            "name": "fl_audit.experiments.papers.bernau2019.collab:collab",
            "data-dir": str(directory),
            "records": 20,
            "test-records": 10,
            "clients": 2,
        },
        "model": {"name": "fl_audit.experiments.papers.bernau2019.graph_convolutions:dgcnn"},
        "training": {"rounds": 1, "learning-rate": 0.1},
        "privacy": NOT_PRIVATE | {"local-randomizer": "randomised-edges", "record-epsilon": 1.0},
        "audit": ALONE | {"trials": 2},
        "run": {"trials-per-batch": 2},
    }
    return small_plan(**changed_settings(base, changes))


def images_plan(path: Path, **changes: dict[str, Any]) -> RunPlan:
    pixels = {"local-randomizer": "pixelation", "record-epsilon": 40.0, "pixelation-pixels": 16, "pixelation-block": 2}
    base: dict[str, dict[str, Any]] = {
        "data": {"name": "npz", "path": str(path), "records": 20, "test-records": 10, "clients": 2},
        "training": {"rounds": 2, "learning-rate": 0.1},
        "privacy": NOT_PRIVATE | pixels,
        "audit": ALONE,
    }
    return small_plan(**changed_settings(base, changes))


def test_clients_train_on_graphs_with_randomised_edges(graphs_directory: Path, tmp_path: Path) -> None:
    plan = graphs_plan(graphs_directory)
    contents = run_locally(plan, tmp_path / "run")
    federation = load_federation(plan.federation)
    shard = federation.shards[1]
    randomised = randomised_records(federation, 1, 5, trial=3)
    source = generator(5, Purpose.LOCAL_RANDOMIZER, trial=3, client=1)
    for packed, record in zip(randomised, federation.training.features[shard].numpy(), strict=False):
        assert np.array_equal(packed, RandomisedEdges(1.0).perturb(record[np.newaxis], source)[0])
    guarantee = contents.summary["record_guarantee"]
    # All pairs of one of up to nine nodes, and all pairs of nodes.
    assert (guarantee["unit"], guarantee["counted"], guarantee["whole_epsilon"]) == ("pair of nodes", 8, 36)
    pair = record_pair(federation)
    assert pair is not None
    first = unpack_graph(pair.first.features)
    second = unpack_graph(pair.second.features)
    assert pair.differing == guarantee["pair"]["differing"] == np.count_nonzero(np.triu(first ^ second)) > 0
    assert guarantee["pair"]["advantage"] == pytest.approx(response_advantage(1.0, pair.differing))
    assert guarantee["pair"]["is_exact"] is False


def test_clients_train_on_pixelated_images(images: Path, tmp_path: Path) -> None:
    plan = images_plan(images)
    contents = run_locally(plan, tmp_path / "run")
    federation = load_federation(plan.federation)
    pixelation = LaplacePixelation(40.0, 16, 2)
    assert federation.public.local_randomizer == pixelation
    expected = pixelation.perturb(
        federation.training.features[federation.shards[1]].numpy(),
        generator(5, Purpose.LOCAL_RANDOMIZER, trial=3, client=1),
    )
    released_records = randomised_records(federation, 1, 5, trial=3)
    assert np.array_equal(released_records[: len(expected)], expected)
    guarantee = contents.summary["record_guarantee"]
    # The paper counts 16 blocks of epsilon 40 each; a whole image of 64 pixels is 4 neighbourhoods of 16.
    assert guarantee["counted_epsilon"] == pytest.approx(16 * 40)
    assert guarantee["whole_epsilon"] == pytest.approx(64 * 40 / 16)
    assert guarantee["unit"] == "change of 16 pixels"
    pair = record_pair(federation)
    assert pair is not None
    means = [pair_record.features.reshape(4, 2, 4, 2).mean(axis=(1, 3)) for pair_record in (pair.first, pair.second)]
    tight = np.abs(means[0] - means[1]).sum() / pixelation.scale
    assert tight * (1 - 1e-6) <= guarantee["pair"]["epsilon"] <= tight * 1.1
    assert guarantee["pair"]["epsilon"] < guarantee["whole_epsilon"]


def test_a_frozen_core_reads_what_became_of_the_records(images: Path) -> None:
    federation = load_federation(images_plan(images).federation)
    core = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    behind = replace(federation, core=core)
    released_features = randomised_shard(behind, 0, ClientRandomness(5, (3, 4))).shard.features
    for row, trial in enumerate((3, 4)):
        records = randomised_records(behind, 0, 5, trial)[: len(federation.shards[0])]
        assert torch.allclose(released_features[row], core(torch.from_numpy(records)).detach(), atol=1e-6)
    # What is kept of a federation is its own.
    assert randomised_shard(federation, 0, ClientRandomness(5, (3, 4))).shard.features.shape[2:] == (1, 8, 8)


def _drawn(plan: RunPlan, trials: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    columns = record_draws(load_federation(plan.federation), SeededChallenger(3), TrialBatch(0, 0, trials)).trials
    return columns[OF_FIRST], columns[OF_SECOND]


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("adjacency", ["replace-record", "add-remove-record"])
@pytest.mark.parametrize("epsilon", [0.05, 0.1])
def test_the_optimal_test_on_the_draws_of_a_run_is_as_good_as_theory_says(epsilon: float, adjacency: str) -> None:
    plan = carts_plan(privacy=NOT_PRIVATE | bits(epsilon) | {"adjacency": adjacency})
    pair = record_pair(load_federation(plan.federation))
    assert pair is not None
    # Four settings, each with an interval that misses once in 10,000 times.
    advantage = measured_advantage(*_drawn(plan, 1500), 1 - 1e-4)
    assert advantage.low <= response_advantage(epsilon, pair.differing) <= advantage.high
    assert advantage.high - advantage.low < 0.25


def test_the_measured_advantage_stays_under_the_bound_where_theory_is_one(images: Path) -> None:
    privacy = {"record-epsilon": 10.0}
    plan = images_plan(images, privacy=privacy)
    advantage = measured_advantage(*_drawn(plan, 1500), 1 - 1e-4)
    federation = load_federation(plan.federation)
    pair = record_pair(federation)
    pixelation = federation.public.local_randomizer
    assert pair is not None
    assert isinstance(pixelation, LaplacePixelation)
    exact = advantage_of(pixelation.pair_events(pair.first.features, pair.second.features))
    coarse = advantage_of(pixelation.pair_events(pair.first.features, pair.second.features, 64))
    assert advantage.low <= exact <= advantage.high
    assert exact <= coarse <= exact * 1.05


def test_the_interval_of_an_advantage_covers_it() -> None:
    source = np.random.default_rng(2)
    truth = (0.7, 0.4)
    missed = 0
    for _ in range(400):
        first, second = (np.where(source.random(30) < share, 1.0, -1.0) for share in truth)
        advantage = measured_advantage(first, second, 0.9)
        missed += not advantage.low <= 0.3 <= advantage.high
    # At most one in ten misses; more than 70 of 400 would happen once in 10^6 times.
    assert missed <= 70
    assert measured_advantage(np.zeros(5), np.zeros(5), 0.9).advantage == 0


def test_a_report_says_what_each_record_is_claimed(tmp_path: Path) -> None:
    plan = carts_plan(audit=MEMBERS | {"targets": 20}, run={"trials-per-batch": 24})
    run_audit(plan, tmp_path / "run", Engine.LOCAL)
    guarantee = read_json(tmp_path / "run" / "summary.json")["record_guarantee"]
    assert (guarantee["epsilon"], guarantee["counted"], guarantee["counted_epsilon"]) == (1.0, 600, 600.0)
    assert (guarantee["accountant"], guarantee["delta"], guarantee["unit"]) == ("pure epsilon", 0.0, "feature")
    assert guarantee["pair"]["is_exact"]
    assert guarantee["pair"]["measured"]["trials"] == 24
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "claimed by itself" in page
    assert "probability 73.1" in page
    assert "without any protection" not in page
    rebuild_report(tmp_path / "run")
    assert read_json(tmp_path / "run" / "summary.json")["record_guarantee"] == guarantee


def test_where_nothing_is_randomised_nothing_is_said(tmp_path: Path) -> None:
    plan = small_plan(audit={"trials": 2, "insider": False}, privacy={"sensitivity": None})
    contents = run_audit(plan, tmp_path / "run", Engine.LOCAL)
    assert contents.summary["record_guarantee"] is None
    stored = read_json(tmp_path / "run" / "public" / "configuration.json")["configuration"]["privacy"]
    assert not {"local-randomizer", "record-epsilon", "pixelation-pixels", "pixelation-block"} & set(stored)
    assert "claimed by itself" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_randomizer_leaves_the_insider_out() -> None:
    plan = carts_plan()
    assert plan.config.audit.insider is False
    assert carts_plan(audit=MEMBERS | {"targets": 5}).config.audit.insider is False
    assert Federation.from_json(plan.federation.to_json()) == plan.federation
    stored = plan.config.as_dict()["privacy"]
    assert (stored["local-randomizer"], stored["record-epsilon"]) == ("randomised-response", 1.0)
    assert "pixelation-pixels" not in stored


def test_graphs_and_images_take_their_own_randomizer_alone(graphs_directory: Path, images: Path) -> None:
    for expected_message, change in (
        (r"graphs: .*'randomised-edges'", {"local-randomizer": "randomised-response"}),
        ("accepted are grey", {"local-randomizer": "pixelation", "pixelation-pixels": 3}),
    ):
        assert_refused(expected_message, graphs_plan, graphs_directory, privacy=change)
    for expected_message, wrong in (
        (r"multiples .*block.* 3\b", {"pixelation-block": 3}),
        ("pixelation-pixels is 65: accepted are 1 to 64", {"pixelation-pixels": 65}),
    ):
        assert_refused(expected_message, images_plan, images, privacy=wrong)
