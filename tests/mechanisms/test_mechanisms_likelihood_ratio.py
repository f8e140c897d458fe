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
from tests.builders.refusals import assert_refused


class Simulated(NamedTuple):
    """Releases of which one side is true in each trial, float64."""

    release: np.ndarray
    hypotheses: Hypotheses
    sigma: np.ndarray
    bits: np.ndarray


def simulate(seed: int, trials: int, size: int, weight: float, replaces: bool, distance: float) -> Simulated:
    draw = np.random.default_rng(seed)
    shared, present, other = (draw.standard_normal((trials, size)).astype(np.float32) for _ in range(3))
    present *= np.float32(distance / np.sqrt(size))
    absent = other * np.float32(distance / np.sqrt(size)) if replaces else np.zeros_like(other)
    sigma, bits = draw.uniform(0.5, 2.0, trials), draw.random(trials) < 0.5
    own = np.where(bits[:, None], present, absent) * (draw.random(trials) < weight)[:, None]
    release = shared + own + sigma[:, None] * draw.standard_normal((trials, size))
    hypotheses = Hypotheses(*(torch.from_numpy(part) for part in (shared, present, absent)), weight)
    return Simulated(release, hypotheses, sigma, bits)


def weighed(seen: Simulated) -> ReleaseLlrs:
    sigma, hypotheses = torch.from_numpy(seen.sigma), seen.hypotheses
    distance = torch.from_numpy(hypotheses.sensitivity_in(VectorNorm.L2))
    found = [
        gaussian_llr(part, sigma[part.rows], distance[part.rows], hypotheses)
        for part in hypotheses.compare_with(torch.from_numpy(seen.release))
    ]
    return ReleaseLlrs(torch.cat([one.log_odds for one in found]), torch.cat([one.scores for one in found]))


def log_densities(seen: Simulated) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-densities of the releases under D and under D', each a mixture."""
    shared, scale, weight = seen.hypotheses.shared.numpy(), seen.sigma[:, None], seen.hypotheses.weight

    def log_density(own: np.ndarray) -> np.ndarray:
        inside = stats.norm.logpdf(seen.release, shared + own, scale).sum(axis=1)
        outside = stats.norm.logpdf(seen.release, shared, scale).sum(axis=1)
        with np.errstate(divide="ignore"):
            return special.logsumexp([inside, outside], axis=0, b=[[weight], [1 - weight]])

    return log_density(seen.hypotheses.present.numpy()), log_density(seen.hypotheses.absent.numpy())


@pytest.mark.parametrize("weight", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("replaces", [True, False])
def test_log_odds_are_those_of_the_densities(weight: float, replaces: bool) -> None:
    seen = simulate(4, 40, 9, weight, replaces, 3.0)
    present, absent = log_densities(seen)
    np.testing.assert_allclose(weighed(seen).log_odds.numpy(), present - absent, atol=1e-5)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("weight", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("distance", [0.5, 6.0])
def test_scores_of_the_true_hypothesis_are_standard_normal(weight: float, replaces: bool, distance: float) -> None:
    seen = simulate(5, 4000, 6, weight, replaces, distance)
    scores = weighed(seen).scores.numpy()
    true, false = (np.where(bits, scores[:, 0], scores[:, 1]) for bits in (seen.bits, ~seen.bits))
    for given in (seen.bits, ~seen.bits):
        assert stats.kstest(true[given], "norm").pvalue > 1e-3
    if distance > 1 and weight > 0.3:
        assert stats.kstest(false, "norm").pvalue < 1e-6


def test_scores_hold_far_out_where_probabilities_vanish() -> None:
    """Sixty standard deviations out a distribution function is 0 or 1; its normal score is still a number."""
    zero, one = torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 0.0]] * 2)
    release = torch.tensor([[60.0, 0.0, 0.0], [-60.0, 0.0, 0.0]], dtype=torch.float64)
    hypotheses = Hypotheses(zero, one, zero, 0.25)
    seen = Simulated(release.numpy(), hypotheses, np.ones(2), np.array([True, True]))
    scores = weighed(seen).scores.numpy()
    assert np.isfinite(scores).all()
    # Under D' the score is the place itself; under D in the upper tail that of 1/4 of a normal distribution around 1.
    np.testing.assert_allclose(scores[:, 1], [60.0, -60.0], rtol=1e-9)
    np.testing.assert_allclose(special.log_ndtr(-scores[0, 0]), np.log(0.25) + special.log_ndtr(-59.0), rtol=1e-9)
    np.testing.assert_allclose(special.log_ndtr(scores[1, 0]), np.log(0.75) + special.log_ndtr(-60.0), rtol=1e-9)


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize("replaces", [True, False])
def test_what_is_seen_beside_the_sum_is_one_more_coordinate(weight: float, replaces: bool) -> None:
    """Bits with noise of their own, weighed as sides, say what one more coordinate of the release says."""
    seen = simulate(6, 50, 7, weight, replaces, 3.0)
    sigma, whole = torch.from_numpy(seen.sigma), seen.hypotheses
    parts = [part.double() for part in (whole.shared, whole.present, whole.absent)]
    rest, last = torch.from_numpy(seen.release[:, -1]) - parts[0][:, -1], [part[:, -1] for part in parts[1:]]
    sides = tuple((rest - one / 2) * one / sigma.square() for one in last)
    shorter = Hypotheses(whole.shared[:, :-1], whole.present[:, :-1], whole.absent[:, :-1], weight, sides)  # type: ignore[arg-type]
    found = weighed(Simulated(seen.release[:, :-1], shorter, seen.sigma, seen.bits))
    np.testing.assert_allclose(found.log_odds.numpy(), weighed(seen).log_odds.numpy(), atol=1e-5)


@pytest.mark.parametrize("weight", [1.0, 0.4])
def test_a_round_in_which_nothing_differs_tells_nothing(weight: float) -> None:
    seen = simulate(7, 5, 4, weight, True, 2.0)
    same = Hypotheses(seen.hypotheses.shared, seen.hypotheses.present, seen.hypotheses.present, weight)
    found = weighed(seen._replace(hypotheses=same))
    assert (found.log_odds == 0).all()
    assert found.scores.isnan().all()


@pytest.mark.parametrize("weight", [0.0, -0.1, 1.1])
def test_refuses_weights_that_are_no_probability(weight: float) -> None:
    zero = torch.zeros(1, 2)
    assert_refused("weight is", Hypotheses, zero, zero, zero, weight)
