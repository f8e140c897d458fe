"""Log-odds of two hypotheses against log-densities of mixtures, and scores against the normal distribution.

Chance: each Kolmogorov-Smirnov test raises a false alarm with a probability of 1e-3, at fixed seeds.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import special, stats

from fl_audit.mechanisms.likelihood_ratio import Hypotheses, ReleaseLlrs
from fl_audit.mechanisms.noises.gaussian_likelihood import gaussian_llr
from fl_audit.privacy.accounting_enums import VectorNorm


class Simulated(NamedTuple):
    """Releases of which one side is true in each trial, float64."""

    release: np.ndarray
    hypotheses: Hypotheses
    sigma: np.ndarray
    bits: np.ndarray


def simulate(seed: int, trials: int, size: int, weight: float, replaces: bool, distance: float) -> Simulated:
    draw = np.random.default_rng(seed)
    shared, present, replacement = (draw.standard_normal((trials, size)).astype(np.float32) for _ in range(3))
    present *= np.float32(distance / np.sqrt(size))
    absent = replacement * np.float32(distance / np.sqrt(size)) if replaces else np.zeros_like(replacement)
    sigma = draw.uniform(0.5, 2.0, trials)
    bits = draw.random(trials) < 0.5
    contribution = np.where(bits[:, None], present, absent) * (draw.random(trials) < weight)[:, None]
    release = shared + contribution + sigma[:, None] * draw.standard_normal((trials, size))
    hypotheses = Hypotheses(*(torch.from_numpy(array) for array in (shared, present, absent)), weight)
    return Simulated(release, hypotheses, sigma, bits)


def weighed(simulation: Simulated) -> ReleaseLlrs:
    sigma = torch.from_numpy(simulation.sigma)
    hypotheses = simulation.hypotheses
    distance = torch.from_numpy(hypotheses.sensitivity_in(VectorNorm.L2))
    llrs = [
        gaussian_llr(comparison, sigma[comparison.rows], distance[comparison.rows], hypotheses)
        for comparison in hypotheses.compare_with(torch.from_numpy(simulation.release))
    ]
    return ReleaseLlrs(torch.cat([llr.log_odds for llr in llrs]), torch.cat([llr.scores for llr in llrs]))


def log_densities(simulation: Simulated) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-densities of the releases under D and under D', each a mixture."""
    shared = simulation.hypotheses.shared.numpy()
    scale = simulation.sigma[:, None]
    weight = simulation.hypotheses.weight

    def log_density(contribution: np.ndarray) -> np.ndarray:
        inside = stats.norm.logpdf(simulation.release, shared + contribution, scale).sum(axis=1)
        outside = stats.norm.logpdf(simulation.release, shared, scale).sum(axis=1)
        with np.errstate(divide="ignore"):
            return special.logsumexp([inside, outside], axis=0, b=[[weight], [1 - weight]])

    return log_density(simulation.hypotheses.present.numpy()), log_density(simulation.hypotheses.absent.numpy())


@pytest.mark.parametrize("weight", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("replaces", [True, False])
def test_log_odds_are_those_of_the_densities(weight: float, replaces: bool) -> None:
    simulation = simulate(4, 40, 9, weight, replaces, 3.0)
    present, absent = log_densities(simulation)
    np.testing.assert_allclose(weighed(simulation).log_odds.numpy(), present - absent, atol=1e-5)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("weight", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("distance", [0.5, 6.0])
def test_scores_of_the_true_hypothesis_are_standard_normal(weight: float, replaces: bool, distance: float) -> None:
    simulation = simulate(5, 4000, 6, weight, replaces, distance)
    scores = weighed(simulation).scores.numpy()
    true, false = (np.where(bits, scores[:, 0], scores[:, 1]) for bits in (simulation.bits, ~simulation.bits))
    for truth in (simulation.bits, ~simulation.bits):
        assert stats.kstest(true[truth], "norm").pvalue > 1e-3
    if distance > 1 and weight > 0.3:
        assert stats.kstest(false, "norm").pvalue < 1e-6


def test_scores_hold_far_out_where_probabilities_vanish() -> None:
    """Sixty standard deviations out a distribution function is 0 or 1; its normal score is still a number."""
    zero = torch.zeros(2, 3)
    unit_rows = torch.tensor([[1.0, 0.0, 0.0]] * 2)
    release = torch.tensor([[60.0, 0.0, 0.0], [-60.0, 0.0, 0.0]], dtype=torch.float64)
    hypotheses = Hypotheses(zero, unit_rows, zero, 0.25)
    simulation = Simulated(release.numpy(), hypotheses, np.ones(2), np.array([True, True]))
    scores = weighed(simulation).scores.numpy()
    assert np.isfinite(scores).all()
    # Under D' the score is the place itself; under D in the upper tail that of 1/4 of a normal distribution around 1.
    np.testing.assert_allclose(scores[:, 1], [60.0, -60.0], rtol=1e-9)
    np.testing.assert_allclose(special.log_ndtr(-scores[0, 0]), np.log(0.25) + special.log_ndtr(-59.0), rtol=1e-9)
    np.testing.assert_allclose(special.log_ndtr(scores[1, 0]), np.log(0.75) + special.log_ndtr(-60.0), rtol=1e-9)


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize("replaces", [True, False])
def test_what_is_seen_beside_the_sum_is_one_more_coordinate(weight: float, replaces: bool) -> None:
    """Bits with noise of their own, weighed as sides, say what one more coordinate of the release says."""
    simulation = simulate(6, 50, 7, weight, replaces, 3.0)
    sigma = torch.from_numpy(simulation.sigma)
    whole = simulation.hypotheses
    tensors = [tensor.double() for tensor in (whole.shared, whole.present, whole.absent)]
    residual = torch.from_numpy(simulation.release[:, -1]) - tensors[0][:, -1]
    last = [tensor[:, -1] for tensor in tensors[1:]]
    sides = tuple((residual - coordinate / 2) * coordinate / sigma.square() for coordinate in last)
    shorter = Hypotheses(whole.shared[:, :-1], whole.present[:, :-1], whole.absent[:, :-1], weight, sides)  # type: ignore[arg-type]
    llrs = weighed(Simulated(simulation.release[:, :-1], shorter, simulation.sigma, simulation.bits))
    np.testing.assert_allclose(llrs.log_odds.numpy(), weighed(simulation).log_odds.numpy(), atol=1e-5)


@pytest.mark.parametrize("weight", [1.0, 0.4])
def test_a_round_in_which_nothing_differs_tells_nothing(weight: float) -> None:
    simulation = simulate(7, 5, 4, weight, True, 2.0)
    same = Hypotheses(
        simulation.hypotheses.shared, simulation.hypotheses.present, simulation.hypotheses.present, weight
    )
    llrs = weighed(simulation._replace(hypotheses=same))
    assert (llrs.log_odds == 0).all()
    assert llrs.scores.isnan().all()
