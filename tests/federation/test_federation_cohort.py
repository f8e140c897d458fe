"""Federations of cohorts, of many nodes, and of clients that are named by a column."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message, RecordDict

from fl_audit.experiments.studies.participation_inference import (
    _client_and_class_guess_rates,
    _who_took_part,
    is_share_above_median,
    plan_of,
)
from fl_audit.federation.contributions import RoundContext, contributed, contributed_together, trains_together
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.learning.local_training import LocalSchedule, accepts_batches_per_trial, local_batches, local_updates
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.runs import run as runs
from fl_audit.server import reply_timeout_grid
from fl_audit.server.reply_timeout_grid import ReplyTimeoutGrid
from fl_audit.strategies.simulated_grid import InProcessGrid
from tests.builders.runs import run_locally, small_plan
from tests.federation.test_federation_engines import assert_same

_CLIENTS = {
    "data": {"clients": 8, "records": 80, "test-records": 40},
    "model": {"name": "dense-128"},
    "training": {"strategy": "dp-fedavg", "rounds": 3, "learning-rate": 1.0, "local-batch": 4, "local-epochs": 2}
    | {"learning-rate-decay": 0.5},
    "privacy": {"clipping-norm": 1.0, "sensitivity": "global", "adjacency": "add-remove-client"},
    "run": {"trials-per-batch": 1, "actors": 2},
}


@pytest.mark.parametrize("schedule", [LocalSchedule(0.1, 4, epochs=2), LocalSchedule(0.1, 7, steps=5)])
def test_stacked_clients_end_where_each_ends_alone(schedule: LocalSchedule) -> None:
    model = StackedModel.of(ModelSpec("dense-128", (20,), 3))
    source = torch.Generator().manual_seed(3)
    records = 11
    start = initial_models(ModelSpec("dense-128", (20,), 3), 0, [0])
    features = torch.randn(5, records, 20, generator=source)
    labels = torch.randint(3, (5, records), generator=source)
    orders = [local_batches(records, schedule, np.random.default_rng(client)) for client in range(5)]
    assert accepts_batches_per_trial(model, records, schedule)
    steps = [np.stack(step) for step in zip(*orders, strict=True)]
    together = local_updates(model, start.expand(5, -1), features, labels, schedule, steps)
    for client, order in enumerate(orders):
        alone = local_updates(model, start, features[client], labels[client], schedule, order)
        assert torch.equal(together[client], alone[0])
        # That the order matters shows that each client's own was used.
        other_update = local_updates(model, start, features[client], labels[client], schedule, orders[client - 1])
        assert not torch.equal(alone, other_update)


def test_too_many_records_for_one_stretch_do_not_train_together() -> None:
    model = StackedModel.of(ModelSpec("logistic", (4,), 2))
    assert accepts_batches_per_trial(model, 256, LocalSchedule(0.1, 10, epochs=1))
    assert not accepts_batches_per_trial(model, 257, LocalSchedule(0.1, 10, epochs=1))
    assert not accepts_batches_per_trial(model, 30, LocalSchedule(0.1, 10, steps=2))


@pytest.mark.parametrize("clipping", ["fixed", "adaptive"])
def test_a_cohort_contributes_what_its_clients_do(clipping: str) -> None:
    federation = load_federation(
        small_plan(**(_CLIENTS | {"privacy": _CLIENTS["privacy"] | {"clipping": clipping}})).federation
    )
    clients = [client for client in range(8) if client != federation.victim]
    moment = RoundContext(2, torch.tensor([0.3], dtype=torch.float64) if clipping == "adaptive" else None)
    models = initial_models(ModelSpec("dense-128", federation.model.feature_shape, federation.classes), 0, [0])
    assert trains_together(federation, clients)
    assert not trains_together(federation, range(8)), "the victim holds nothing in common with D'"
    for client, contribution in zip(clients, contributed_together(federation, clients, models, moment), strict=True):
        alone = contributed(federation, client, federation.shard_without_targets(client), models, moment)
        assert torch.equal(contribution.total, alone.total)
        assert (contribution.within is None) == (alone.within is None) == (clipping == "fixed")
        assert contribution.within is None or torch.equal(contribution.within, alone.within)


@pytest.mark.long
@pytest.mark.parametrize("training", [{}, {"cohort": 6}, {"sampling-rate": 0.7}])
def test_runs_are_the_same_whether_clients_train_together_or_not(
    training: dict[str, int | float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(**(_CLIENTS | {"training": _CLIENTS["training"] | training}), audit={"trials": 3})
    sizes: list[int] = []
    announce_calls = runs.announce_calls

    def noting(calls: object) -> None:
        sizes.append(len(calls))  # type: ignore[arg-type]
        announce_calls(calls)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "announce_calls", noting)
    together = run_locally(plan, tmp_path / "together")
    assert max(sizes) > 1
    monkeypatch.setattr(runs, "announce_calls", lambda calls: None)
    alone = run_locally(plan, tmp_path / "alone")
    assert_same(together, alone)


class _WakingGrid(InProcessGrid):
    """Grid that notes the number of messages that are sent at a time, and wakes the server when replies arrive."""

    pushed: tuple[int, ...] = ()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        listed = list(messages)
        self.pushed = (*self.pushed, len(listed))
        return super().push_messages(listed)


class _PolledGrid(_WakingGrid):
    """Grid that has to be asked for replies, as Flower's own grids are."""

    wait_for_replies = None  # type: ignore[assignment]


@pytest.mark.parametrize(("kind", "pushed"), [(_PolledGrid, (4, 4, 2)), (_WakingGrid, (10,))])
def test_only_so_many_messages_are_under_way_on_a_grid_that_is_asked(
    kind: type[_WakingGrid], pushed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All messages are answered nevertheless."""
    monkeypatch.setattr(reply_timeout_grid, "_UNDER_WAY", 4)
    grid = kind(10, lambda message: Message(RecordDict(), reply_to=message))
    messages = [Message(RecordDict(), node, "query.ask") for node in grid.get_node_ids()]
    replies = ReplyTimeoutGrid(grid, 60.0).send_and_receive(messages)
    assert sorted(reply.metadata.src_node_id for reply in replies) == sorted(grid.get_node_ids())
    assert grid.pushed == pushed


SITES, EACH = 6, 20


def sites_in(path: Path, are_alike: bool) -> dict[str, Any]:
    """Return the section [data] for six sites with the same records, or with nothing in common."""
    x = 30 * (np.tile(np.eye(EACH), (SITES, 1)) if are_alike else np.eye(SITES * EACH))
    owners = np.repeat(np.arange(SITES), EACH)
    base_labels = np.tile(np.arange(EACH) % 5 > 0, SITES)
    labels = base_labels if are_alike else base_labels ^ (owners % 2 == 0)
    np.savez(path / "sites.npz", x=x, y=labels, site=owners, x_test=x, y_test=labels)
    data = {"name": "npz", "path": str(path / "sites.npz"), "owner": "site", "partition": "natural"}
    return data | {"records": len(x), "test-records": 20}


def test_sites_that_hold_the_same_are_not_told_apart_from_models(tmp_path: Path) -> None:
    """The AUC is 1/2 within intervals of 99.9 %."""
    results = _who_took_part(sites_in(tmp_path, are_alike=True), None, 64).achieved
    assert set(results) == {"loss", "lira", "rmia"}
    for result in results.values():
        assert result.rates.auc.low <= 0.5 <= result.rates.auc.high < 0.75


def test_sites_that_have_nothing_in_common_are_told_apart_without_noise(tmp_path: Path) -> None:
    results = _who_took_part(sites_in(tmp_path, are_alike=False), None, 64).achieved
    assert all(result.rates.auc.value > 0.99 for result in results.values())


@pytest.mark.long
def test_noise_keeps_all_answers_within_the_guarantee(tmp_path: Path) -> None:
    """Six intervals begin below their bounds, each except for one seed in 2,000. Answers are better than chance."""
    data = sites_in(tmp_path, are_alike=False)
    attacked = _who_took_part(data, 4.0, 64)
    assert set(attacked.achieved) == {"loss", "lira", "rmia", "insider"}
    for name, result in attacked.achieved.items():
        largest = attacked.largest_auc_of(name)
        assert largest is not None
        assert result.rates.auc.low <= largest < 0.9
    assert attacked.achieved["insider"].rates.auc.low > 0.5
    class_mask = is_share_above_median(load_federation(plan_of(data, 4.0, {"kind": "reconstruction"}).federation))
    assert np.array_equal(class_mask, np.arange(SITES)[:, None] % 2 == [0, 1])
    client_rates, classes = _client_and_class_guess_rates(data, 4.0, 400)
    assert client_rates.chance == pytest.approx(1 / SITES)
    assert classes.chance == 0.5
    for answer in (client_rates, classes):
        assert answer.chance < answer.low < answer.bound < 0.9
