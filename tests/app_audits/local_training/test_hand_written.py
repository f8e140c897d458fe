"""DP-SGD without Opacus: honest forms of it are not accused, and what its steps do not keep is found."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from opacus.accountants import RDPAccountant
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fl_audit.app_audits.local_training.assessment import Assessment
from fl_audit.app_audits.local_training.assessment_messages import assessment_json, headline, report_lines
from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.verdict.verdict import Verdict
from tests.validation.faulty_mechanisms.hand_written_trainings import (
    BROKEN,
    DELTA,
    EPSILON,
    EXPECTED,
    HONEST,
    NOISE,
    NORM,
    Gradients,
    added_to_the_last,
    by_loop,
    by_vmap,
    clipped,
    gaussian_noise,
    loss,
    no_noise,
    poisson_loader,
    records,
    right,
    trained,
)


def _audited(train: Callable[[Any], Any], data: Any = None, calls: int = 2, **claim: Any) -> Assessment:
    options = TrainingAuditOptions(1, calls, **({"epsilon": EPSILON, "delta": DELTA} | claim))
    return audit_training(train, "train", None, records() if data is None else data, options)


def _names(assessment: Assessment) -> set[Pitfall]:
    return {finding.pitfall for finding in assessment.pitfalls}


QUICK = ("vmap",)


def _long_but(quick: tuple[str, ...], names: Iterable[str]) -> list[Any]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.mark.parametrize("name", _long_but(QUICK, HONEST))
def test_an_honest_form_is_consistent(name: str) -> None:
    assessment = _audited(HONEST[name])
    assert (assessment.pitfalls, assessment.unseen, assessment.verdict) == ((), (), Verdict.CONSISTENT)
    # Twenty redraws of 18 numbers in five steps know the noise to 1.7 %; a record moves a step by the clipping norm.
    assert assessment.trainings.measured is not None
    smallest_composition = assessment.trainings.composed_of(is_least=True)
    assert smallest_composition is not None
    assert smallest_composition.epsilon < EPSILON
    assert f"as little as {smallest_composition.epsilon:.4g}" in dict(report_lines(assessment))["Composed"]
    for step in assessment.trainings.measured.steps:
        assert step.multiplier == pytest.approx(1.0, rel=0.1)
        assert step.multiplier < step.largest_multiplier < 1.3


@pytest.mark.parametrize("name", _long_but(("plain gradient of a tensor", "added to the plain gradient"), BROKEN))
def test_steps_that_break_the_claim_are_found(name: str) -> None:
    apply, pitfalls, minimum_epsilon = BROKEN[name]
    gradients_of = by_loop if apply is added_to_the_last else by_vmap
    assessment = _audited(lambda data: trained(data, gradients_of, apply))
    assert assessment.verdict is Verdict.VIOLATED
    assert _names(assessment) >= pitfalls
    json.dumps(assessment_json(assessment), allow_nan=False)  # effects without noise beside them are infinite
    if minimum_epsilon is None:
        assert assessment.composed is None
    else:
        assert assessment.composed is not None
        assert assessment.composed.epsilon >= minimum_epsilon


def _noise_that_ends(dataset: Any) -> nn.Module:
    steps = [0]

    def apply(model: nn.Module, gradients: Gradients) -> None:
        steps[0] += 1
        (right if steps[0] <= 3 else no_noise)(model, gradients)

    return trained(dataset, apply=apply)


def _seeded(dataset: Any) -> nn.Module:
    torch.manual_seed(0)
    return trained(dataset)


def _from_a_known_generator(dataset: Any) -> nn.Module:
    source = torch.Generator().manual_seed(0)

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = clipped(gradients)
        for name, value in model.named_parameters():
            value.grad = (sums[name] + torch.randn(value.shape, generator=source)) / EXPECTED

    return trained(dataset, apply=apply)


def _beside_a_plain_model(dataset: Any) -> Any:
    plain = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)

    def apply(model: nn.Module, gradients: Gradients) -> None:
        right(model, gradients)
        optimizer.zero_grad()
        torch.autograd.backward(loss(plain, *dataset.tensors))
        optimizer.step()

    return {"private": trained(dataset, apply=apply).state_dict(), "plain": plain.state_dict()}


def _by_hand(dataset: Any, noise: Callable[[Tensor], Tensor]) -> nn.Module:
    """Train without an optimizer of torch."""
    model = nn.Linear(5, 3)
    for inputs, labels in poisson_loader(dataset):
        sums = clipped(by_vmap(model, inputs, labels))
        with torch.no_grad():
            for name, value in model.named_parameters():
                value -= 0.1 * (sums[name] + noise(value)) / EXPECTED
    return model


def _with_mean(dataset: Any, noise: float) -> Any:
    weights = trained(dataset).state_dict()
    return {"weights": weights, "mean": dataset.tensors[0].mean(0) + noise * torch.randn(5)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("train", "pitfall"),
    [
        (_noise_that_ends, Pitfall.NO_NOISE),
        (_seeded, Pitfall.SEEDED_NOISE),
        (_from_a_known_generator, Pitfall.NO_NOISE),
        (_beside_a_plain_model, Pitfall.NO_NOISE),
        (lambda data: _by_hand(data, torch.zeros_like), Pitfall.BARE_OUTPUT),
        (lambda data: _with_mean(data, 0.0), Pitfall.BARE_OUTPUT),
    ],
    ids=["noise that ends", "seeded", "known generator", "plain model", "no optimizer, no noise", "bare mean"],
)
def test_what_leaves_without_noise_is_found(train: Callable[[Any], Any], pitfall: Pitfall) -> None:
    assessment = _audited(train)
    assert assessment.verdict is Verdict.VIOLATED
    assert pitfall in _names(assessment)


def _drawn_by_hand(dataset: Any) -> Iterator[Any]:
    inputs, labels = dataset.tensors
    for _ in range(5):
        is_drawn = torch.rand(len(inputs)) < 0.2
        yield inputs[is_drawn], labels[is_drawn]


def _with_noise_of_weights(dataset: Any) -> nn.Module:
    """Apply sums without noise, and add the noise to the weights."""
    model = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in poisson_loader(dataset):
        no_noise(model, by_vmap(model, inputs, labels))
        optimizer.step()
        with torch.no_grad():
            for value in model.parameters():
                value += 0.1 * gaussian_noise(value) / EXPECTED
    return model


def _drawn_at_once(dataset: Any) -> Iterator[Any]:
    return iter(list(poisson_loader(dataset)))


def _from_secret_numpy(dataset: Any, seed: int | None) -> nn.Module:
    source = np.random.default_rng(seed)

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = clipped(gradients)
        for name, value in model.named_parameters():
            noise = torch.from_numpy(source.normal(0, NOISE * NORM, tuple(value.shape))).float()
            value.grad = (sums[name] + noise) / EXPECTED

    return trained(dataset, apply=apply)


@pytest.mark.long
@pytest.mark.parametrize(
    ("train", "reason"),
    [
        (lambda data: trained(data, batches=_drawn_by_hand), "drew their records"),
        (lambda data: trained(data, batches=_drawn_at_once), "how 5 of 5 steps drew their records"),
        (lambda data: _by_hand(data, gaussian_noise), "no optimizer of torch took one"),
        (_with_noise_of_weights, "the noise of weights"),
        (lambda data: _with_mean(data, 1.0), "the noise of mean"),
        (lambda data: {"mean": data.tensors[0].mean(0) + torch.randn(5)}, "the noise of mean"),
        (lambda data: _from_secret_numpy(data, None), "takes other steps when it is called again"),
        (lambda data: _from_secret_numpy(data, 0), "arrays of numpy"),
    ],
    ids=[
        "samples drawn by hand",
        "drawn at once",
        "no optimizer",
        "noised weights",
        "noised mean",
        "nothing but a mean",
        "secret numpy",
        "numpy of its own",
    ],
)
def test_what_cannot_be_measured_is_named_and_not_accused(train: Callable[[Any], Any], reason: str) -> None:
    assessment = _audited(train)
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)
    assert any(reason in sentence for sentence in assessment.unseen)


@pytest.mark.long
def test_samples_that_are_drawn_by_hand_hide_no_missing_noise() -> None:
    assessment = _audited(lambda data: trained(data, apply=no_noise, batches=_drawn_by_hand))
    assert (_names(assessment), assessment.verdict) == ({Pitfall.NO_NOISE}, Verdict.VIOLATED)


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "verdict"), [(3.139, Verdict.CONSISTENT), (2.267, Verdict.VIOLATED)])
def test_batches_of_a_shuffled_epoch_are_not_amplified(epsilon: float, verdict: Verdict) -> None:
    def batches(dataset: Any) -> DataLoader[Any]:
        return DataLoader(dataset, batch_size=20, shuffle=True, drop_last=True)

    # One Gaussian release of multiplier 1: epsilon is 3.139 at 0.001.
    assert _audited(lambda data: trained(data, batches=batches), epsilon=epsilon).verdict is verdict


@pytest.mark.long
@pytest.mark.parametrize(("noise_multiplier", "verdict"), [(1.0, Verdict.CONSISTENT), (2.0, Verdict.VIOLATED)])
def test_an_accountant_that_is_used_by_hand_makes_the_claim(noise_multiplier: float, verdict: Verdict) -> None:
    def train(dataset: Any) -> nn.Module:
        model = trained(dataset)
        accountant = RDPAccountant()
        for _ in range(5):
            accountant.step(noise_multiplier=noise_multiplier, sample_rate=0.2)
        accountant.get_epsilon(delta=DELTA)
        return model

    assessment = _audited(train, epsilon=None, delta=None)
    assert assessment.verdict is verdict
    assert (Pitfall.WRONG_NOISE_COUNTED in _names(assessment)) is (verdict is Verdict.VIOLATED)


def test_without_a_claim_steps_are_not_audited_and_the_remedy_is_named() -> None:
    assessment = _audited(trained, epsilon=None, delta=None)
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.NOT_AUDITED)
    assert "5 of SGD" in headline(assessment)
    assert "--claim-epsilon" in headline(assessment)
