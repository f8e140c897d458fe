"""Noise and effects of records, as they are measured from gradients: against numbers that are known beforehand."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2

from fl_audit.app_audits.local_training.gradient_statistics import (
    is_moved,
    noise_samples,
    noise_scales,
    smallest_ball_radius,
)
from fl_audit.app_audits.local_training.pitfalls import LEVEL
from fl_audit.app_audits.local_training.record_versions import located

SIZES = (300, 40)


def _redraws(draws: np.random.Generator, scales: np.ndarray, count: int = 6) -> list[list[np.ndarray]]:
    """Return gradients of steps with noise of some scales, (steps, tensors), around the same fixed vectors."""
    fixed = [draws.normal(0, 5, sum(SIZES)) for _ in scales]
    return [
        [
            vector + np.repeat(row, SIZES) * draws.normal(size=sum(SIZES))
            for vector, row in zip(fixed, scales, strict=True)
        ]
        for _ in range(count)
    ]


def test_samples_are_the_noise_alone_and_independent() -> None:
    redraws = _redraws(np.random.default_rng(0), np.array([[2.0, 2.0]]), 201)
    samples = np.array([sample[0] for sample in noise_samples(redraws)])
    squares = float((samples**2).sum()) / 4
    assert 1e-3 < chi2.cdf(squares, samples.size) < 1 - 1e-3
    products = samples.T @ samples / len(samples) / 4
    assert np.abs(products - np.diag(np.diag(products))).max() < 6 / math.sqrt(len(samples))
    assert np.abs(np.corrcoef(samples)[np.triu_indices(len(samples), 1)]).max() < 6 / math.sqrt(sum(SIZES))


@pytest.mark.parametrize(
    ("scales", "degrees"),
    [
        ([[1.0, 1.0], [1.0, 1.0]], 2 * sum(SIZES)),  # all together
        ([[1.0, 3.0], [1.0, 3.0]], 2 * SIZES[1]),  # each tensor by itself
        ([[1.0, 3.0], [2.0, 6.0]], SIZES[1]),  # each tensor of each step by itself
        ([[1.0, 0.0], [1.0, 0.0]], 2 * SIZES[0]),  # a tensor without noise
    ],
)
def test_scales_are_pooled_over_what_is_alike(scales: list[list[float]], degrees: int) -> None:
    redraws = _redraws(np.random.default_rng(1), np.array(scales))
    estimate = noise_scales(noise_samples(redraws), SIZES, redraws[0])
    assert estimate.degrees == 5 * degrees
    assert estimate.scales == pytest.approx(np.array(scales), rel=4 / math.sqrt(2 * estimate.degrees))
    assert (estimate.scales == 0).tolist() == (np.array(scales) == 0).tolist()


def test_the_largest_factor_is_exceeded_at_the_level_of_a_test() -> None:
    redraws = _redraws(np.random.default_rng(2), np.array([[1.0, 1.0]]))
    estimate = noise_scales(noise_samples(redraws), SIZES, redraws[0])
    # The estimate is the root of a chi-square number over its degrees of freedom.
    assert chi2.cdf(estimate.degrees / estimate.largest_factor**2, estimate.degrees) == pytest.approx(LEVEL, rel=1e-6)


def test_rounding_is_no_difference() -> None:
    values = np.array([1e3, 1.0], dtype=np.float32)
    assert not is_moved(values, values + np.float32(5e-4))
    assert is_moved(values, values + np.float32(5e-3))


@pytest.mark.parametrize("count", [2, 3, 6, 20])
def test_the_radius_of_the_smallest_ball_is_that_of_a_general_optimiser(count: int) -> None:
    points = np.random.default_rng(count).normal(size=(count, 4))
    optimum = minimize(
        lambda ball: ball[4],
        [*points.mean(axis=0), 9.0],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
        constraints={"type": "ineq", "fun": lambda ball: ball[4] ** 2 - ((points - ball[:4]) ** 2).sum(axis=1)},
    )
    assert smallest_ball_radius(points) == pytest.approx(optimum.fun, rel=2e-3)
    assert smallest_ball_radius(points) <= optimum.fun * (1 + 1e-6)


def test_the_ball_around_gradients_of_all_labels_has_the_clipping_norm_as_its_radius() -> None:
    """Of a saturated layer before a softmax, clipped gradients of all labels lie around zero: it is in their midst."""
    chances = np.array([0.5, 0.3, 0.2])
    gradients = chances - np.eye(3)
    clipped = gradients / np.linalg.norm(gradients, axis=1, keepdims=True)
    assert smallest_ball_radius(7.0 + clipped) == pytest.approx(1.0, abs=1e-4)


def test_a_record_with_an_effect_is_located() -> None:
    queries = list[int]()

    def has_effect(chosen: object) -> bool:
        queries.append(1)
        return 37 in chosen  # type: ignore[operator]

    assert located(has_effect, range(100)) == 37
    assert len(queries) <= 8
    assert located(has_effect, range(37)) is None
    assert located(has_effect, ()) is None
