"""The audited auditor: bounds beside the truth; worst settings are those of `tests.validation.coverage`."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import binom, norm

from fl_audit.array_types import Floats
from fl_audit.statistics import lower_bounds
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import epsilon_lower_bound
from fl_audit.statistics.score_split import ScoreSplit, TwoSampleScores, split_scores
from tests.validation.known_mechanisms import MECHANISMS, KnownMechanism, gaussian, subsampled_gaussian

RUNS = 160
MOST = int(binom.ppf(1 - 1e-4, RUNS, 0.05))
"""A claimed bound shows more false certificates than these with probability below 1e-4."""


def shares(mechanism: KnownMechanism, method: BoundMethod, runs: int, scores: int, seed: int) -> Floats:
    """Return the bounds of so many runs over the truth, or over 1 where that is 0."""
    draw = np.random.default_rng([seed, len(mechanism.name)])
    bounds = [epsilon_lower_bound(*mechanism.draw(draw, scores), 1e-5, 0.95, method) for _ in range(runs)]
    if method not in mechanism.holds:
        assert sum("certify too much" in " ".join(lower_bound.warnings) for lower_bound in bounds) > 0.3 * runs
    return np.array([lower_bound.epsilon for lower_bound in bounds]) / (mechanism.epsilon(1e-5) or 1.0)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("method", sorted(BoundMethod))
@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(
            known_mechanism,
            id=known_mechanism.name,
            marks=[pytest.mark.long] * (known_mechanism.name != "Gaussian, mu = 1"),
        )
        for known_mechanism in MECHANISMS
    ],
)
def test_no_claimed_bound_exceeds_the_truth_too_often(mechanism: KnownMechanism, method: BoundMethod) -> None:
    """Fixed seed; at most 13 claimed lines in all, so sound bounds fail with probability below 0.0014."""
    ratios = shares(mechanism, method, RUNS, 300, 5)
    truth = mechanism.epsilon(1e-5)
    if method in mechanism.holds:
        assert np.count_nonzero(ratios > (truth > 0)) <= MOST
        assert truth == 0 or 0 < ratios.mean() < 1


def test_what_errs_is_shown_to_err() -> None:
    assert shares(MECHANISMS[4], BoundMethod.GAUSSIAN_SHIFT, 20, 300, 6).min() > 1


@pytest.mark.parametrize(
    ("method", "smallest_share"),
    [(BoundMethod.GAUSSIAN_SHIFT, 0.85), (BoundMethod.GDP, 0.72), (BoundMethod.ORDER_STATISTIC, 0.26)],
)
def test_a_bound_shows_much_of_the_truth(method: BoundMethod, smallest_share: float) -> None:
    """Mean bounds over the truth, Gaussian mechanism with mu = 1, 500 + 500 scores."""
    assert shares(gaussian(1.0), method, 60, 500, 9).mean() > smallest_share


@pytest.mark.parametrize("method", [BoundMethod.GDP, BoundMethod.ORDER_STATISTIC])
def test_an_auditor_that_does_not_pay_for_its_threshold_is_caught(
    monkeypatch: pytest.MonkeyPatch, method: BoundMethod
) -> None:
    """The peers' mistake on purpose: the scores that choose the threshold measure, too."""

    def all_in_both(members: NDArray[np.float64], nonmembers: NDArray[np.float64], *which: int) -> ScoreSplit:
        score_split = split_scores(members, nonmembers, *which)
        pairs = [
            (score_split.choosing.first, score_split.measuring.first),
            (score_split.choosing.second, score_split.measuring.second),
        ]
        together = TwoSampleScores(*(np.sort(np.concatenate(pair)) for pair in pairs))
        return ScoreSplit(together, together, score_split.values)

    monkeypatch.setattr(lower_bounds, "split_scores", all_in_both)
    assert np.count_nonzero(shares(MECHANISMS[0], method, RUNS, 300, 7) > 0) > MOST


def hockey_stick(p: Callable[[float], float], q: Callable[[float], float], epsilon: float, knots: list[float]) -> float:
    def above(x: float) -> float:
        return max(0.0, p(x) - math.exp(epsilon) * q(x))

    return quad(above, -12, 12, points=knots, limit=800, epsabs=1e-13)[0]


@pytest.mark.long
def test_epsilon_of_the_subsampled_gaussian_by_integration() -> None:
    rate, sigma = 0.25, 0.5
    for delta in (1e-5, 0.01):
        epsilon = subsampled_gaussian(rate, sigma).epsilon(delta)

        def absent(x: float) -> float:
            return float(norm.pdf(x, 0, sigma))

        def sampled(x: float) -> float:
            return (1 - rate) * absent(x) + rate * float(norm.pdf(x, 1, sigma))

        knots = list(np.linspace(-6, 6, 49))
        deltas = hockey_stick(sampled, absent, epsilon, knots), hockey_stick(absent, sampled, epsilon, knots)
        assert max(deltas) == pytest.approx(delta, rel=1e-4)


def test_scores_are_the_log_likelihood_ratios() -> None:
    """The mean of e^-L under D is 1, and of e^L under D' (outputs all have both densities positive)."""
    for number, mechanism in enumerate(MECHANISMS[1:]):
        member_scores, nonmember_scores = mechanism.draw(np.random.default_rng([8, number]), 200_000)
        assert np.mean(np.exp(-member_scores)) == pytest.approx(1, abs=0.02)
        if number != 1:  # heavy under subsampling: e^L has too large a variance
            assert np.mean(np.exp(nonmember_scores)) == pytest.approx(1, abs=0.02)
