"""Tests of clients of one trial that train together: their contributions and runs equal those of separate training."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fl_audit.federation.contributions import RoundContext, contributed, contributed_together, trains_together
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.learning.local_training import LocalSchedule, accepts_batches_per_trial, local_batches, local_updates
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.runs import run as runs
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
    source, records = torch.Generator().manual_seed(3), 11
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
        other = local_updates(model, start, features[client], labels[client], schedule, orders[client - 1])
        assert not torch.equal(alone, other)


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
    for client, found in zip(clients, contributed_together(federation, clients, models, moment), strict=True):
        alone = contributed(federation, client, federation.shard_without_targets(client), models, moment)
        assert torch.equal(found.total, alone.total)
        assert (found.within is None) == (alone.within is None) == (clipping == "fixed")
        assert found.within is None or torch.equal(found.within, alone.within)


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
