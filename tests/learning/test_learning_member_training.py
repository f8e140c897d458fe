"""Trials with members of their own: each ends where a plain loop of torch ends that trains on its members alone."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from fl_audit.learning.local_training import (
    LocalOptimizer,
    LocalSchedule,
    local_batches,
    local_updates,
    member_batches,
    member_updates,
)
from fl_audit.learning.stacked_model import StackedModel

_NETS = {
    "chain": lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)),
    "chain-without-bias": lambda: nn.Sequential(nn.Linear(5, 7, bias=False), nn.Sigmoid(), nn.Linear(7, 3, bias=False)),
    "generic": lambda: nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 3)),
}


def _loop(
    model: StackedModel, start: torch.Tensor, batches: list[torch.Tensor], schedule: LocalSchedule, data: tuple
) -> torch.Tensor:
    weights = start.clone().requires_grad_()
    adam = schedule.optimizer is LocalOptimizer.ADAM
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)([weights], lr=schedule.learning_rate)
    for batch in batches:
        views = {name: value[0] for name, value in model.layout.views(weights.unsqueeze(0)).items()}
        optimizer.zero_grad()
        F.cross_entropy(functional_call(model.template, views, (data[0][batch],)), data[1][batch]).backward()
        optimizer.step()
    return weights.detach()


@pytest.mark.parametrize("net", _NETS)
@pytest.mark.parametrize("optimizer", LocalOptimizer)
def test_every_trial_ends_where_a_plain_loop_ends(net: str, optimizer: LocalOptimizer) -> None:
    torch.manual_seed(0)
    model = StackedModel(_NETS[net](), (5,))
    source = torch.Generator().manual_seed(1)
    data = torch.randn(23, 5, generator=source), torch.randint(3, (23,), generator=source)
    models = torch.randn(4, model.layout.size, generator=source) * 0.3
    present = np.random.default_rng(2).random((4, 23)) < 0.5
    present[3] = False
    present[3, :2] = True  # so few members that most steps of an epoch are empty
    schedule = LocalSchedule(0.05, 4, epochs=3, optimizer=optimizer)
    batches = member_batches(present, schedule, np.random.default_rng(3))
    moved = member_updates(model, models, *data, schedule, batches)
    for trial in range(4):
        trial_batches = [torch.from_numpy(batch[trial][batch[trial] >= 0]) for batch in batches]
        trial_batches = [batch for batch in trial_batches if len(batch)]
        assert sorted(torch.cat(trial_batches).tolist()) == sorted(np.flatnonzero(present[trial]).tolist() * 3)
        end = _loop(model, models[trial], trial_batches, schedule, data)
        assert torch.allclose(models[trial] - moved[trial], end, rtol=1e-4, atol=1e-5)


def test_with_all_records_sgd_is_that_of_clients() -> None:
    model = StackedModel(_NETS["chain"](), (5,))
    source = torch.Generator().manual_seed(1)
    data = torch.randn(11, 5, generator=source), torch.randint(3, (11,), generator=source)
    models = torch.randn(2, model.layout.size, generator=source)
    schedule = LocalSchedule(0.1, 4, epochs=2)
    batches = member_batches(np.ones((2, 11), dtype=np.bool_), schedule, np.random.default_rng(5))
    alone = local_batches(11, schedule, np.random.default_rng(5))
    assert all(
        np.array_equal(member_batch[0][member_batch[0] >= 0], batch)
        for member_batch, batch in zip(batches, alone, strict=True)
    )
    expected = local_updates(model, models, *data, schedule, alone)
    assert torch.allclose(member_updates(model, models, *data, schedule, batches), expected, rtol=1e-4, atol=1e-6)


@given(st.integers(0, 30), st.integers(1, 5), st.integers(1, 9), st.integers(1, 3), st.integers(0, 2**32))
def test_an_epoch_takes_every_member_once(records: int, trials: int, batch: int, epochs: int, seed: int) -> None:
    source = np.random.default_rng(seed)
    present = source.random((trials, records)) < source.random()
    batches = member_batches(present, LocalSchedule(0.1, batch, epochs=epochs), source)
    for trial in range(trials):
        positions = (
            np.concatenate([member_batch[trial] for member_batch in batches])
            if batches
            else np.empty(0, dtype=np.int64)
        )
        assert np.array_equal(np.bincount(positions[positions >= 0], minlength=records), epochs * present[trial])
    assert all(member_batch.shape == (trials, batch) for member_batch in batches)


def test_trials_do_not_depend_on_those_beside_them() -> None:
    model = StackedModel(_NETS["chain"](), (5,))
    source = torch.Generator().manual_seed(1)
    data = torch.randn(40, 5, generator=source), torch.randint(3, (40,), generator=source)
    models = torch.randn(6, model.layout.size, generator=source)
    present = np.random.default_rng(2).random((6, 40)) < 0.5
    schedule = LocalSchedule(0.05, 8, epochs=2, optimizer=LocalOptimizer.ADAM)
    together = member_updates(
        model, models, *data, schedule, member_batches(present, schedule, np.random.default_rng(3))
    )
    for trial in range(6):
        trial_batches = member_batches(present[[trial]], schedule, np.random.default_rng(3))
        alone = member_updates(model, models[[trial]], *data, schedule, trial_batches)
        assert torch.allclose(alone[0], together[trial], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("net", ["chain", "generic"])
def test_trials_with_records_of_their_own_train_on_them(net: str) -> None:
    model = StackedModel(_NETS[net](), (5,))
    source = torch.Generator().manual_seed(1)
    features = torch.randint(2, (4, 23, 5), generator=source, dtype=torch.uint8)
    labels = torch.randint(3, (4, 23), generator=source)
    models = torch.randn(4, model.layout.size, generator=source) * 0.3
    present = np.random.default_rng(2).random((4, 23)) < 0.5
    schedule = LocalSchedule(0.05, 4, epochs=2, optimizer=LocalOptimizer.ADAM)
    batches = member_batches(present, schedule, np.random.default_rng(3))
    moved = member_updates(model, models, features, labels, schedule, batches)
    for trial in range(4):
        trial_batches = tuple(batch[[trial]] for batch in batches)
        alone = member_updates(model, models[[trial]], features[trial].float(), labels[trial], schedule, trial_batches)
        assert torch.allclose(moved[trial], alone[0], rtol=1e-4, atol=1e-6)
