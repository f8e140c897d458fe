"""DP-SGD without Opacus, whose gradients are made of noised sums or have noise of another kind: none is misjudged."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fl_audit.app_audits.local_training.assessment import Assessment
from fl_audit.app_audits.local_training.gradient_statistics import is_normal, step_correlation
from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.verdict.verdict import Verdict
from tests.validation.faulty_mechanisms.hand_written_trainings import (
    DELTA,
    EPSILON,
    EXPECTED,
    NORM,
    Gradients,
    by_vmap,
    clipped,
    gaussian_noise,
    poisson_loader,
    records,
    right,
    trained,
)


def _audited(train: Callable[[Any], Any], epsilon: float = EPSILON) -> Assessment:
    return audit_training(train, "train", None, records(), TrainingAuditOptions(1, 2, epsilon=epsilon, delta=DELTA))


def _changed(change: Callable[[list[Tensor]], list[Tensor]]) -> Callable[[Any], nn.Module]:
    """Return a training that applies what `change` makes of the noised sums, which costs no privacy."""

    def apply(model: nn.Module, gradients: Gradients) -> None:
        right(model, gradients)
        values = list(model.parameters())
        for value, changed in zip(values, change([value.grad for value in values]), strict=True):
            value.grad = changed

    return lambda dataset: trained(dataset, apply=apply)


def _clipped_again(noised: list[Tensor]) -> list[Tensor]:
    factor = (0.05 / torch.cat([tensor.flatten() for tensor in noised]).norm()).clamp(max=1)
    return [factor * tensor for tensor in noised]


def _largest(noised: list[Tensor]) -> list[Tensor]:
    smallest = torch.cat([tensor.flatten() for tensor in noised]).abs().topk(6).values[-1]
    return [torch.where(tensor.abs() >= smallest, tensor, 0.0) for tensor in noised]


POST_PROCESSED: dict[str, Callable[[list[Tensor]], list[Tensor]]] = {
    "signs": lambda noised: [tensor.sign() for tensor in noised],
    "clipped again": _clipped_again,
    "the largest": _largest,
    "rounded": lambda noised: [torch.round(tensor * 640) / 640 for tensor in noised],
    "soft threshold": lambda noised: [nn.functional.softshrink(tensor, 0.03) for tensor in noised],
}


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("name", POST_PROCESSED)
def test_what_is_made_of_noised_sums_is_named_and_not_accused(name: str) -> None:
    assessment = _audited(_changed(POST_PROCESSED[name]))
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)
    assert any("no sum with noise" in reason for reason in assessment.unseen)


@pytest.mark.long
def test_signs_of_sums_without_noise_are_found() -> None:
    def apply(model: nn.Module, gradients: Gradients) -> None:
        for value, total in zip(model.parameters(), clipped(gradients).values(), strict=True):
            value.grad = total.sign()

    assessment = _audited(lambda dataset: trained(dataset, apply=apply))
    assert assessment.verdict is Verdict.VIOLATED
    assert Pitfall.NO_NOISE in {pitfall.pitfall for pitfall in assessment.pitfalls}


def _matrix_factorised(dataset: Any) -> nn.Module:
    """Add z(t) - z(t-1) / 2 to each sum: every record is in one step, and moves C x by at most the root of 4/3."""
    before: list[dict[str, Tensor]] = []

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = clipped(gradients)
        noise = {name: (4 / 3) ** 0.5 * gaussian_noise(value) for name, value in model.named_parameters()}
        for name, value in model.named_parameters():
            earlier = before[-1][name] / 2 if before else 0.0
            value.grad = (sums[name] + noise[name] - earlier) / EXPECTED
        before.append(noise)

    def batches(data: Any) -> Any:
        return iter(DataLoader(data, batch_size=EXPECTED, shuffle=True, drop_last=True))

    return trained(dataset, apply=apply, batches=batches)


def _averaged_over_steps(dataset: Any) -> nn.Module:
    before: list[list[Tensor]] = []

    def change(noised: list[Tensor]) -> list[Tensor]:
        before.append(noised)
        return [(first + second) / 2 for first, second in zip(before[-1], before[max(len(before) - 2, 0)], strict=True)]

    return _changed(change)(dataset)


@pytest.mark.long
@pytest.mark.parametrize(("train", "epsilon"), [(_matrix_factorised, 3.139), (_averaged_over_steps, EPSILON)])
def test_noise_that_is_correlated_between_steps_is_named_and_not_accused(
    train: Callable[[Any], Any], epsilon: float
) -> None:
    assessment = _audited(train, epsilon)
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)
    assert any("noise is not independent (correlation" in reason for reason in assessment.unseen)
    assert assessment.composed is None


@pytest.mark.long
def test_noise_that_is_not_normal_is_named_and_not_accused() -> None:
    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = clipped(gradients)
        for name, value in model.named_parameters():
            noise = torch.distributions.Laplace(0.0, 4.0).sample(value.shape)
            value.grad = (sums[name] + noise) / EXPECTED

    assessment = _audited(lambda dataset: trained(dataset, apply=apply))
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)
    assert any("it is not normal with one scale" in reason for reason in assessment.unseen)


def _with_adaptive_norm(dataset: Any) -> nn.Module:
    """Let the norm follow a noised count of the gradients within it, as Andrew et al. 2021 do."""
    model = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norm = NORM
    for inputs, labels in poisson_loader(dataset):
        gradients = by_vmap(model, inputs, labels)
        scaled = {name: gradient / norm for name, gradient in gradients.items()}
        for name, value in model.named_parameters():
            value.grad = norm * (clipped(scaled)[name] + (16 / 15) ** 0.5 * gaussian_noise(value)) / EXPECTED
        lengths = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
        count = float(((lengths <= norm).float() - 0.5).sum() + 2.0 * torch.randn(()))
        norm *= float(np.exp(-0.2 * count / EXPECTED))
        optimizer.step()
    return model


@pytest.mark.long
def test_a_norm_that_follows_a_noised_count_is_not_accused() -> None:
    assessment = _audited(_with_adaptive_norm)
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)


@pytest.mark.long
def test_momentum_of_sums_before_the_noise_is_found() -> None:
    """A record acts on all later steps, for which it was not drawn: nothing amplifies."""
    momentum: list[Gradients] = []

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = clipped(gradients)
        momentum.append({name: sums[name] + (0.9 * momentum[-1][name] if momentum else 0.0) for name in sums})
        for name, value in model.named_parameters():
            value.grad = (momentum[-1][name] + gaussian_noise(value)) / EXPECTED

    def train(dataset: Any) -> nn.Module:
        momentum.clear()
        return trained(dataset, apply=apply)

    assessment = _audited(train)
    assert {pitfall.pitfall for pitfall in assessment.pitfalls} == {Pitfall.CLAIMED_EPSILON}
    # Five steps of multiplier 1 that every record acts on.
    assert assessment.composed is not None
    assert assessment.composed.epsilon > 2 * EPSILON


@pytest.mark.long
def test_noise_of_drawn_coordinates_alone_is_found() -> None:
    """Noise on what the records of a sample move tells which coordinates they move."""

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = clipped(gradients)
        for name, value in model.named_parameters():
            is_moved = (gradients[name].abs().amax(0) > 0.6).float() if len(gradients[name]) else 0.0
            value.grad = (sums[name] + is_moved * gaussian_noise(value)) / EXPECTED

    assessment = _audited(lambda dataset: trained(dataset, apply=apply))
    assert assessment.verdict is Verdict.VIOLATED


@pytest.mark.parametrize("is_correlated", [False, True])
def test_correlated_steps_are_told_from_independent_ones(is_correlated: bool) -> None:
    draws = np.random.default_rng(5)
    redraws = []
    for _ in range(12):
        steps = draws.standard_normal((4, 18))
        redraws.append([steps[0], steps[1], steps[2] - 0.8 * steps[1] * is_correlated, steps[3]])
    found = step_correlation(redraws)
    assert (found is not None) is is_correlated
    assert found is None or (found[:2] == (1, 2) and found[2] < -0.3)


@pytest.mark.parametrize("is_gaussian", [False, True])
def test_laplace_noise_is_told_from_normal_noise(is_gaussian: bool) -> None:
    draws = np.random.default_rng(5)
    noise = draws.standard_normal((12, 5, 40)) if is_gaussian else draws.laplace(0, 0.5**0.5, (12, 5, 40))
    assert is_normal([list(redraw) for redraw in noise]) is is_gaussian
