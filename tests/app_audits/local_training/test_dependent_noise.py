"""Noise that is drawn in a space of few dimensions and multiplied out: an honest training with it is not accused."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fl_audit.app_audits.local_training.assessment import Assessment
from fl_audit.app_audits.local_training.assessment_messages import assessment_json, headline, report_lines
from fl_audit.app_audits.local_training.gradient_statistics import dependence_p_value, dependent_tensors
from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.array_types import Floats
from fl_audit.verdict.verdict import Verdict
from tests.validation.faulty_mechanisms.hand_written_trainings import (
    DELTA,
    EPSILON,
    EXPECTED,
    NOISE,
    NORM,
    Gradients,
    by_vmap,
    clipped,
    records,
    trained,
)

_RANK = 1


def _factors(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return orthonormal left and right factors of a matrix of weights, (rows, rank) and (rank, columns)."""
    left_factor, _, right = torch.linalg.svd(weight.detach())
    return left_factor[:, :_RANK], right[:_RANK]


def _of_factors(model: nn.Module, gradients: Gradients) -> Gradients:
    """Return the gradients of the factors of each matrix, and those of the vectors as they are."""
    gradients_of_factors = Gradients()
    for name, value in model.named_parameters():
        if value.ndim < 2:
            gradients_of_factors[name] = gradients[name]
            continue
        left_factor, right = _factors(value)
        gradients_of_factors[f"{name}, left"] = gradients[name] @ right.T
        gradients_of_factors[f"{name}, right"] = left_factor.T @ gradients[name]
    return gradients_of_factors


def _apply(model: nn.Module, gradients: Gradients, noise: Callable[[str, Tensor], Tensor], clip: Any = clipped) -> None:
    """Clip and noise the gradients of the factors, and multiply them out."""
    sums = clip(_of_factors(model, gradients))
    noised = {name: total + noise(name, total) for name, total in sums.items()}
    for name, value in model.named_parameters():
        if value.ndim < 2:
            value.grad = noised[name] / EXPECTED
            continue
        left_factor, right = _factors(value)
        of_left = noised[f"{name}, left"]
        of_right = noised[f"{name}, right"]
        value.grad = (
            of_left @ right + left_factor @ of_right - left_factor @ (left_factor.T @ of_left) @ right
        ) / EXPECTED


def _right(_: str, total: Tensor) -> Tensor:
    return NOISE * NORM * torch.randn_like(total)


def _none_on_vectors(name: str, total: Tensor) -> Tensor:
    return (0.0 if name.endswith("bias") else 1.0) * _right(name, total)


def _always_the_same(name: str, total: Tensor) -> Tensor:
    return torch.randn(total.shape, generator=torch.Generator().manual_seed(len(name)))


def _unclipped(gradients: Gradients) -> Gradients:
    return {name: record_gradients.sum(0) for name, record_gradients in gradients.items()}


def _model() -> nn.Module:
    return nn.Linear(5, 12)


def _audited(noise: Callable[[str, Tensor], Tensor], clip: Any = clipped) -> Assessment:
    apply = partial(_apply, noise=noise, clip=clip)
    options = TrainingAuditOptions(1, 2, epsilon=EPSILON, delta=DELTA)
    return audit_training(lambda data: trained(data, by_vmap, apply, _model()), "train", None, records(), options)


def test_an_honest_training_on_factors_is_inconclusive_and_says_why() -> None:
    assessment = _audited(_right)
    assert assessment.verdict is Verdict.INCONCLUSIVE
    assert assessment.pitfalls == ()
    assert assessment.composed is None
    assert len(assessment.unseen) == 1
    assert assessment.unseen[0] in headline(assessment)
    assert dict(report_lines(assessment))["Composed"] == "epsilon is not known."
    measured = assessment_json(assessment)["measured"]
    for step in measured["steps"]:
        assert step["noise_multiplier"] is None
        assert 1 in step["tensors_with_dependent_noise"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("noise", "clip", "pitfall"),
    [
        (_none_on_vectors, clipped, Pitfall.NO_NOISE),
        (_always_the_same, clipped, Pitfall.NO_NOISE),
        (_right, _unclipped, Pitfall.OVER_NORM),
    ],
    ids=["no noise on vectors", "the same noise always", "no clipping"],
)
def test_a_broken_training_on_factors_is_found(noise: Any, clip: Any, pitfall: Pitfall) -> None:
    assessment = _audited(noise, clip)
    assert assessment.verdict is Verdict.VIOLATED
    assert pitfall in {pitfall_found.pitfall for pitfall_found in assessment.pitfalls}


def _products(draws: np.random.Generator, rows: int, columns: int, rank: int, redraws: int) -> Floats:
    """Return noise of factors, multiplied out: (redraws, rows * columns)."""
    left_factor = np.linalg.qr(draws.normal(size=(rows, rank)))[0]
    right = np.linalg.qr(draws.normal(size=(columns, rank)))[0].T
    noises = [
        draws.normal(size=(rows, rank)) @ right + left_factor @ draws.normal(size=(rank, columns))
        for _ in range(redraws)
    ]
    return np.array(noises).reshape(redraws, -1)


@pytest.mark.parametrize(
    ("rows", "columns", "rank", "redraws"),
    [(64, 64, 16, 2), (64, 64, 32, 2), (300, 280, 16, 2), (30, 20, 8, 2), (5, 3, 1, 20), (5, 3, 2, 20)],
)
def test_products_of_factors_are_told_from_independent_noise(rows: int, columns: int, rank: int, redraws: int) -> None:
    draws = np.random.default_rng(rank)
    shapes = ((7,), (rows, columns))
    steps = [_products(draws, rows, columns, rank, redraws) for _ in range(5)]
    samples = [[np.concatenate([draws.normal(size=7), noise[number]]) for noise in steps] for number in range(redraws)]
    assert set(dependent_tensors(samples, shapes)) == {1}


def test_noise_projected_onto_half_of_the_dimensions_is_told_from_independent_noise() -> None:
    draws = np.random.default_rng(0)
    bases = [np.linalg.qr(draws.normal(size=(1000, 500)))[0] for _ in range(5)]
    assert dependence_p_value([draws.normal(size=(10, 500)) @ basis.T for basis in bases]) < 1e-6


@pytest.mark.parametrize(("vectors", "coordinates"), [(120, 3), (24, 20), (70, 64), (6, 300), (20, 25)])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_independent_noise_is_rejected_at_most_at_the_level(vectors: int, coordinates: int, is_scaled: bool) -> None:
    """The scale of each coordinate is its own: that is no dependence."""
    draws = np.random.default_rng(vectors)
    scales = np.exp(draws.normal(size=coordinates)) if is_scaled else np.ones(coordinates)
    p_values = np.array(
        [dependence_p_value([scales * draws.normal(size=(vectors, coordinates)) for _ in range(2)]) for _ in range(400)]
    )
    for level in (0.2, 0.05, 0.01):
        # Five standard deviations of the count above its expectation.
        largest_count = 400 * level + 5 * math.sqrt(400 * level)
        assert (p_values < level).sum() <= largest_count


def test_coordinates_without_noise_are_no_dependence() -> None:
    draws = np.random.default_rng(4)
    steps = [draws.normal(size=(40, 6)) * np.array([1, 0, 1, 1, 0, 1]) for _ in range(3)]
    assert dependence_p_value(steps) > 1e-3
    assert dependence_p_value([np.zeros((4, 6))]) == 1.0
