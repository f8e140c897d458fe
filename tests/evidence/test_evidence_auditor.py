"""The audited auditor, quickly; the full table is `python -m experiments.benchmarks.auditor`."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import binom, norm

from experiments.benchmarks.auditor import MECHANISMS, KnownMechanism, audit, subsampled_gaussian
from fl_audit.evidence.bounds import lower_bounds
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.evidence.bounds.split import ScorePart, ScoreSplit, split_scores

RUNS = 160
"""At this number a promised bound shows more than 20 false certificates with probability below 1e-4."""


@pytest.mark.parametrize(
    "mechanism",
    [pytest.param(one, id=one.name, marks=[pytest.mark.long] * (one.name != "Gaussian, mu = 1")) for one in MECHANISMS],
)
def test_no_promised_bound_exceeds_the_truth_too_often(mechanism: KnownMechanism) -> None:
    """Fixed seed; at most 12 promised lines in all, so a sound auditor fails with probability below 0.001."""
    lines = audit(mechanism, tuple(BoundMethod), RUNS, 300, np.random.default_rng([5, len(mechanism.name)]))
    assert not [line for line in lines if line.too_many]
    assert {line.method for line in lines if line.assumption_holds == "yes"} == {str(one) for one in mechanism.holds}
    for line in lines:
        if line.truth and line.assumption_holds == "yes":
            assert 0 < line.share_of_truth < 1
        if line.assumption_holds == "no":
            assert line.warned > 0.3


def test_what_errs_is_shown_to_err() -> None:
    lines = audit(MECHANISMS[4], (BoundMethod.GAUSSIAN_SHIFT,), 20, 300, np.random.default_rng(6))
    assert lines[0].false_rate == 1
    assert lines[0].share_of_truth > 3
    assert not lines[0].too_many


@pytest.mark.parametrize("method", [BoundMethod.GDP, BoundMethod.ORDER_STATISTIC])
def test_an_auditor_that_does_not_pay_for_its_threshold_is_caught(
    monkeypatch: pytest.MonkeyPatch, method: BoundMethod
) -> None:
    """The peers' mistake on purpose: the scores that choose the threshold measure, too."""

    def all_in_both(members: NDArray[np.float64], nonmembers: NDArray[np.float64], *which: int) -> ScoreSplit:
        parts = split_scores(members, nonmembers, *which)
        both = [(parts.choosing.first, parts.measuring.first), (parts.choosing.second, parts.measuring.second)]
        together = ScorePart(*(np.sort(np.concatenate(pair)) for pair in both))
        return ScoreSplit(together, together, parts.values)

    monkeypatch.setattr(lower_bounds, "split_scores", all_in_both)
    (line,) = audit(MECHANISMS[0], (method,), RUNS, 300, np.random.default_rng(7))
    assert line.too_many


def hockey_stick(p: Callable[[float], float], q: Callable[[float], float], epsilon: float, knots: list[float]) -> float:
    def above(x: float) -> float:
        return max(0.0, p(x) - math.exp(epsilon) * q(x))

    return quad(above, -12, 12, points=knots, limit=800, epsabs=1e-13)[0]


def test_epsilon_of_the_subsampled_gaussian_by_integration() -> None:
    rate, sigma = 0.25, 0.5
    for delta in (1e-5, 0.01):
        epsilon = subsampled_gaussian(rate, sigma).epsilon(delta)

        def absent(x: float) -> float:
            return float(norm.pdf(x, 0, sigma))

        def sampled(x: float) -> float:
            return (1 - rate) * absent(x) + rate * float(norm.pdf(x, 1, sigma))

        knots = list(np.linspace(-6, 6, 49))
        both = hockey_stick(sampled, absent, epsilon, knots), hockey_stick(absent, sampled, epsilon, knots)
        assert max(both) == pytest.approx(delta, rel=1e-4)


def test_scores_are_the_log_likelihood_ratios() -> None:
    """The mean of e^-L under D is 1, and of e^L under D' (outputs all have both densities positive)."""
    for number, mechanism in enumerate(MECHANISMS[1:]):
        one, zero = mechanism.draw(np.random.default_rng([8, number]), 200_000)
        assert np.mean(np.exp(-one)) == pytest.approx(1, abs=0.02)
        if number != 1:  # heavy under subsampling: e^L has too large a variance
            assert np.mean(np.exp(zero)) == pytest.approx(1, abs=0.02)


def test_the_line_knows_the_binomial_error() -> None:
    assert binom.ppf(1 - 1e-4, RUNS, 0.05) == 20
