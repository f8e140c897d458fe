"""Private training with Opacus: its limit without privacy, its draws, its samples and its accountant."""

import json
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fl_audit.learning.local_training import LocalSchedule, local_batches, local_updates
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.private_training import LocalDPSGDSettings, opacus_epsilon, private_updates, torch_generator
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.privacy.accounting import Accountant, client_epsilons
from fl_audit.randomness import Purpose, generator
from tests.builders.refusals import assert_refused

RECORDS = 12


def problem(name: str = "adult-mlp", shape: tuple[int, ...] = (5,), trials: int = 3):  # type: ignore[no-untyped-def]
    spec = ModelSpec(name, shape, 3)
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(RECORDS, *shape, generator=draw)
    labels = torch.randint(3, (RECORDS,), generator=draw)
    return StackedModel.of(spec), initial_models(spec, 0, range(trials)), features, labels


def sources(trials: list[int], seed: int = 1) -> list[np.random.Generator]:
    return [generator(seed, Purpose.CLIENT_TRAINING, trial=trial, round=1) for trial in trials]


@pytest.mark.parametrize(("name", "shape"), [("adult-mlp", (5,)), ("mnist-cnn", (1, 12, 12))])
def test_without_noise_and_clipping_full_batches_are_plain_local_training(name: str, shape: tuple[int, ...]) -> None:
    model, models, features, labels = problem(name, shape)
    schedule = LocalSchedule(0.3, batch=100, steps=3)
    training_result = private_updates(
        model, models, features, labels, LocalDPSGDSettings(schedule, 1e6, 0.0), sources([0, 1, 2])
    )
    batches = local_batches(RECORDS, schedule, np.random.default_rng(0))
    plain = local_updates(model, models, features, labels, schedule, batches)
    torch.testing.assert_close(training_result.updates, plain, rtol=1e-4, atol=1e-6)


def test_draws_are_those_of_the_trial_alone_and_leave_the_shared_generators_as_they_are() -> None:
    model, models, features, labels = problem()
    steps = LocalDPSGDSettings(LocalSchedule(0.3, batch=4, epochs=2), 1.0, 1.0)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    together = private_updates(model, models, features, labels, steps, sources([0, 1, 2])).updates
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(5)
    alone = private_updates(model, models[2:], features, labels, steps, sources([2])).updates
    assert torch.equal(together[2:], alone)
    other_updates = private_updates(model, models[2:], features, labels, steps, sources([2], seed=2)).updates
    assert not torch.allclose(alone, other_updates, atol=1e-3)


def test_threads_that_train_one_model_at_once_have_the_updates_of_each_alone() -> None:
    """Threads of the local engine share a model, and change places here after almost every instruction."""
    model, models, features, labels = problem(shape=(7,), trials=2)
    steps = LocalDPSGDSettings(LocalSchedule(0.3, batch=4, epochs=1), 1.0, 1.0)

    def updates(seed: int) -> Tensor:
        return private_updates(model, models, features, labels, steps, sources([0, 1], seed=seed)).updates

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as threads:
            together = list(threads.map(updates, range(6)))
    finally:
        sys.setswitchinterval(interval)
    for seed in range(6):
        assert torch.equal(together[seed], updates(seed))


def test_a_training_changes_parameters_of_its_own_alone() -> None:
    model, models, features, labels = problem(shape=(8,))
    before = [parameter.clone() for parameter in model.template.parameters()]
    steps = LocalDPSGDSettings(LocalSchedule(0.3, batch=4, epochs=1), 1.0, 1.0)
    private_updates(model, models, features, labels, steps, sources([0, 1, 2]))
    for parameter, value in zip(model.template.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
        assert not parameter.requires_grad


def test_noise_of_a_step_has_the_claimed_spread() -> None:
    """An update of one step of records with no gradient is noise: lr z C over the mean batch, N(0, 1) without it."""
    model, _, features, labels = problem()
    models = torch.zeros(200, model.layout.size)
    steps = LocalDPSGDSettings(LocalSchedule(0.5, batch=4, steps=1), 1e-9, 1e9)
    updates = private_updates(model, models, features, labels, steps, sources(list(range(200)))).updates / (0.5 / 4)
    values = updates.flatten().numpy()
    assert abs(values.mean()) < 4 / np.sqrt(values.size)
    assert abs(values.std() - 1) < 4 / np.sqrt(2 * values.size)
    assert steps.update_variance(RECORDS) == pytest.approx((0.5 / 4) ** 2)


def test_an_absent_record_changes_neither_the_others_draws_nor_rate_nor_mean_batch() -> None:
    """11 records would make 3 batches of 4 as 12 do, but a mean batch of 3; and one record alone leaves none."""
    model, models, features, labels = problem(trials=2)
    steps = LocalDPSGDSettings(LocalSchedule(0.3, batch=4, epochs=2), 1e6, 0.0)
    silent = features.clone()
    silent[5] = float("nan")
    present = np.ones((2, RECORDS), dtype=np.bool_)
    present[:, 5] = False
    run = [
        private_updates(model, models, record_features, labels, steps, sources([0, 1]), present).updates
        for record_features in (features, silent)
    ]
    assert torch.equal(run[0], run[1])
    assert torch.isfinite(run[0]).all()
    noisy = LocalDPSGDSettings(LocalSchedule(0.3, batch=4, epochs=2), 1.0, 1.0)
    nobody = private_updates(
        model, models, features[:1], labels[:1], noisy, sources([0, 1]), np.zeros((2, 1), dtype=np.bool_)
    )
    assert torch.isfinite(nobody.updates).all()
    assert (nobody.updates != 0).all()


def test_sums_of_portions_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model, models, features, labels = problem()
    steps = LocalDPSGDSettings(LocalSchedule(0.3, batch=6, epochs=2), 1.0, 1.0)
    whole = private_updates(model, models, features, labels, steps, sources([0, 1, 2]))
    monkeypatch.setattr("fl_audit.learning.private_training.GRADIENT_BUDGET", 2 * model.layout.size)
    portion_result = private_updates(model, models, features, labels, steps, sources([0, 1, 2]))
    torch.testing.assert_close(portion_result.updates, whole.updates, rtol=1e-4, atol=1e-6)
    assert portion_result.accountant == whole.accountant


@pytest.mark.parametrize("records", [12, 11, 1])
def test_accountant_goes_on_over_rounds_and_is_what_the_guarantee_says(records: int) -> None:
    model, models, features, labels = problem(trials=2)
    steps = LocalDPSGDSettings(LocalSchedule(0.1, batch=4, epochs=2), 1.0, 1.1)
    state, rounds = None, 3
    for number in range(1, rounds + 1):
        training_result = private_updates(
            model, models, features[:records], labels[:records], steps, sources([0, 1]), accountant=state
        )
        state = training_result.accountant
        assert json.loads(state) == json.loads(steps.accountant_after(number, records))
    assert state is not None
    (claimed,) = client_epsilons([records], 4, rounds, 1.1, 1e-3, Accountant.RDP, epochs=2)
    (history_entry,) = json.loads(state)["history"]
    assert opacus_epsilon(*history_entry, 1e-3) == pytest.approx(claimed, rel=1e-9)


def test_no_step_is_lost_where_opacus_sampler_is_one_short() -> None:
    """Opacus takes int(1 / (1 / 49)) = 48 batches for an epoch of 49, and int(49 / 49) = 0 records for a mean batch."""
    model, models, features, labels = problem(trials=1)
    repeated_features = features.repeat(5, 1)[:49]
    classes = labels.repeat(5)[:49]
    steps = LocalDPSGDSettings(LocalSchedule(0.1, batch=1, epochs=1), 1.0, 1.0)
    training_result = private_updates(model, models, repeated_features, classes, steps, sources([0]))
    assert json.loads(training_result.accountant)["history"] == [[1.0, 1 / 49, 49]]
    assert torch.isfinite(training_result.updates).all()


def test_generators_whose_seeds_agree_in_32_bits_differ() -> None:
    draws = [torch.randn(5, generator=torch_generator(np.random.default_rng(seed))) for seed in (1, 1, 2, 1 + 2**32)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[3])


def test_nothing_is_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    model, models, features, labels = problem(trials=1)
    steps = LocalDPSGDSettings(LocalSchedule(0.1, batch=1, steps=30), 1.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = private_updates(model, models, features, labels, steps, sources([0])).accountant
        opacus_epsilon(*json.loads(state)["history"][0], 1e-12)
    assert capfd.readouterr().err == ""


class WithBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 5))
        self.register_buffer("shift", torch.ones(3))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features @ self.weight.T + self.shift


def test_what_opacus_cannot_train_is_refused_in_a_line() -> None:
    _, _, features, labels = problem()
    model = StackedModel(WithBuffer(), (5,))
    steps = LocalDPSGDSettings(LocalSchedule(0.1, batch=4, steps=1), 1.0, 1.0)
    assert_refused(
        "Opacus cannot train",
        lambda: private_updates(model, torch.zeros(1, model.layout.size), features, labels, steps, sources([0])),
    )
    assert_refused(
        "holds no record",
        lambda: private_updates(
            model, torch.zeros(1, model.layout.size), features[:0], labels[:0], steps, sources([0])
        ),
    )
