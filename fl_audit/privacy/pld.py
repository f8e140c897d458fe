"""Pessimistic privacy loss distributions (PLD) for any composition of releases, with a bound on their error.

The privacy loss L = log P(o)/Q(o), with o drawn from P, adds up over releases. The distribution of each release's L is
discretised on a grid of width h by "connect the dots" (Doroshenko et al. 2022, arXiv:2207.04380): the mass at a loss
between two grid points is split between them so that both its P-mass and its Q-mass are preserved. The split only
spreads the likelihood ratio and keeps its mean, so the discretised pair dominates the exact pair. The module
`loss_distributions` computes and convolves the distributions.

dp-accounting takes second differences of delta(epsilon) instead. Their cancellation creates mass of about 1e-16 / h at
every grid point, which thousands of weak releases multiply. The masses of grid cells have no such cancellation.

Error bound: discretisation moves each of the K losses by less than h and preserves the mean of e^L under Q, so under P
it moves each loss by at most h^2 / 8 on average. By Hoeffding's inequality it moves the sum by more than tau = K h^2 /
8 + h sqrt(K ln(1/theta) / 2) with probability at most theta, and never by more than K h. Hence true epsilon(delta) <=
`epsilon(delta)` <= true epsilon(delta - theta) + tau with theta = `MISPLACED_MASS`.

Below `PrivacyCurvePair.smallest_delta` the tails are lost to rounding, and the result is the smaller of two upper
bounds. One follows from Renyi divergences, if all releases are Gaussian. The other is the closed form of the Gaussian
releases with full participation, plus the epsilons of releases with pure DP.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy.accounting_enums import Accountant
from fl_audit.privacy.events import ReleaseEvent, full_participation_mu
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity, gaussian_log_odds_bound
from fl_audit.privacy.loss_distributions import DiscreteLossDistribution, LossDistribution, loss_distributions
from fl_audit.privacy.renyi import rdp_epsilon, renyi_divergences

MISPLACED_MASS = 1e-12
"""theta, the largest mass that is misplaced by truncation, FFT rounding and the tail of Hoeffding's inequality."""
_MASS_PER_RELEASE = 2e-15
FINE = 200
COARSE = 40
FINEST = 800
"""Grid points per standard deviation of one release's loss: FINE for results, COARSE for the first steps of a search,
and FINEST for quantiles of distributions with few grid points."""
_SLACK_SHARE = 1e-3  # share of a probability that is reserved for sums of losses beyond `PrivacyCurvePair.slack`
_LARGEST_LOSS = 1e20
_MOST_RELEASES = 10**9  # for more releases, rounding alone misplaces mass of the size of a delta of 1e-5
_STAGED = 1000
_LARGEST_GRID = 2**22
_WIDEST_INTERVAL = 4e-3  # largest grid width of results, so that an epsilon in the hundreds is right to 0.1 % too
_Tail = Callable[[float, float], float]  # bound under Gaussian noise without sampling, from a probability and mu
_LARGEST_STEP_GRID = 2**19


@dataclass(frozen=True, eq=False)
class PrivacyCurve:
    """Curve delta(epsilon) of one direction, P against Q, computed from a loss distribution on a grid."""

    losses: Floats  # grid of losses, evenly spaced
    interval: float  # h, the width of the grid
    probabilities: Floats  # P-mass at each loss
    infinity: float  # P-mass beyond the grid
    deltas: Floats  # delta at each loss of the grid; between grid points delta is linear in e^epsilon
    lower_masses: Floats  # at each loss a, the sum over losses b > a of the mass at b times e^-(b - a)

    def delta(self, epsilon: float) -> float:
        """Return delta, 0 to 1, at `epsilon`."""
        index = int(np.searchsorted(self.losses, epsilon, side="right")) - 1
        if index < 0:
            above = self.losses - epsilon
            return min(1.0, self.infinity + float(np.dot(self.probabilities, -np.expm1(-above))))
        fall = math.expm1(min(epsilon - float(self.losses[index]), self.interval)) * float(self.lower_masses[index])
        return min(1.0, max(float(self.deltas[index]) - fall, self.infinity))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon, at least 0, at which the curve is at most `delta`.

        `delta` must exceed `infinity`, the probability of losses beyond the grid.
        """
        if self.delta(0.0) <= delta:
            return 0.0
        index = int(np.searchsorted(-self.deltas, -delta, side="left")) - 1
        if index < 0:
            return float(self.losses[0])
        left_loss = float(self.losses[index])
        lower = float(self.lower_masses[index])
        if lower <= 0:
            return max(0.0, left_loss + self.interval)
        return max(0.0, left_loss + min(math.log1p((float(self.deltas[index]) - delta) / lower), self.interval))

    def composed_quantile(self, probability: float) -> float:
        """Return a loss that is exceeded with at most the given probability, derived from the curve delta(eps) alone.

        The result holds for every composition, also an adaptive one, whose privacy profile is at most delta(eps). The
        reason is that delta(eps) = E[(1 - e^(eps - L))+] for the privacy loss L. So for every eps below x, P(L > x) <=
        delta(eps) / (1 - e^(eps - x)). The result is the smallest x for which some eps of the grid makes this bound at
        most `probability`. `probability` must exceed `infinity`, the P-mass beyond the grid.
        """
        is_below = self.deltas < probability
        return float(np.min(self.losses[is_below] - np.log1p(-self.deltas[is_below] / probability)))

    def quantile(self, probability: float) -> float:
        """Return the smallest grid point that the loss exceeds with at most the given probability.

        `probability` must exceed `infinity`, the probability under P of losses beyond the grid.
        """
        above = np.append(np.cumsum(self.probabilities[::-1])[::-1][1:], 0.0) + self.infinity
        return float(self.losses[int(np.argmax(np.maximum.accumulate(above[::-1])[::-1] <= probability))])


@dataclass(frozen=True, eq=False)
class PrivacyCurvePair:
    """Curves delta(epsilon) of a composition, of D against D' and of D' against D.

    Every method returns the worse value of the two directions.
    """

    curves: tuple[PrivacyCurve, ...]  # one curve, or two if the directions differ
    interval: float  # h, the width of the grid
    error: float  # tau: largest excess of `epsilon(delta)` over the true epsilon at delta - `MISPLACED_MASS`
    count: int  # K, the number of composed losses
    events: tuple[ReleaseEvent, ...]  # the composed releases
    adjacency: Adjacency

    @property
    def size(self) -> int:
        """Number of points of the longest grid."""
        return max(curve.losses.size for curve in self.curves)

    def slack(self, probability: float) -> float:
        """Return a bound on the error of the sum of all losses that comes from rounding each loss to the grid.

        The grid lowers the sum by more than this bound with at most the given probability.
        """
        return _rounding_bound(self.count, self.interval, probability)

    @property
    def smallest_delta(self) -> float:
        """Smallest delta for which the curves are used: twice the mass beyond the grid."""
        return 2 * max(curve.infinity for curve in self.curves)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at `epsilon`, the larger one of the deltas of both directions."""
        return max(curve.delta(epsilon) for curve in self.curves)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at `delta`.

        For a `delta` of at least `smallest_delta`, let e be the true epsilon at `delta` - `MISPLACED_MASS`. The bound
        then exceeds e by at most `error`.
        """
        if delta < self.smallest_delta:
            return _epsilon_bound(self.events, self.adjacency, delta)
        return max(curve.epsilon(delta) for curve in self.curves)

    def _log_odds_at(self, delta: float, adaptivity: SignalToNoiseAdaptivity) -> float:
        """Return a bound on the log-odds of the true training set, in nats.

        The log-odds exceed the bound with probability at most `delta`.
        """
        return self.quantile(delta) if adaptivity is SignalToNoiseAdaptivity.FIXED else self.composed_quantile(delta)

    def quantile(self, probability: float) -> float:
        """Return a loss that the composition exceeds with at most the given probability, if sensitivities are fixed.

        Rounding to the grid may lower the sum of the losses. Therefore a bound on this error, `slack`, is added.
        """
        if probability < self.smallest_delta:
            return _log_odds_bound(self.events, self.adjacency, probability)
        misplaced = probability * _SLACK_SHARE
        fixed = max(curve.quantile(probability - misplaced) for curve in self.curves) + self.slack(misplaced)
        return min(fixed, self.composed_quantile(probability))

    def composed_quantile(self, probability: float) -> float:
        """Return a loss, at least 0, that the composition exceeds with at most this probability.

        Unlike the result of `quantile`, this loss is valid even if sensitivities depend on earlier releases.
        """
        if probability < self.smallest_delta:
            return _log_odds_bound(self.events, self.adjacency, probability)
        return max(0.0, *(curve.composed_quantile(probability) for curve in self.curves))

    def tradeoff(self, alpha: float) -> float:
        """Return a lower bound on the type II error of tests with type I error `alpha`.

        Let delta be `delta(epsilon)`. The bound is the supremum over epsilon >= 0 of the larger of two terms: 1 - delta
        - e^epsilon alpha, and e^-epsilon (1 - delta - alpha) (Dong, Roth & Su 2022, proposition 2.12).
        """
        best = 0.0
        for curve in self.curves:
            is_used = (curve.losses >= 0) & (curve.losses < 700)
            epsilons = np.append(0.0, curve.losses[is_used])
            grown = np.append(1.0, np.exp(curve.losses[is_used]))
            deltas = np.array([self.delta(float(epsilons[0])), *curve.deltas[is_used]])
            if len(self.curves) > 1:
                curve_deltas = (
                    np.interp(epsilons, other_curve.losses, other_curve.deltas, right=other_curve.infinity)
                    for other_curve in self.curves
                )
                deltas = np.maximum.reduce([deltas, *curve_deltas])
            best = max(best, float(np.max(1 - deltas - grown * alpha)), float(np.max((1 - deltas - alpha) / grown)))
        return best


def _interval(distributions: Sequence[tuple[LossDistribution, int]], points: int, count: int, longest: float) -> float:
    """Return the width of the grid on which privacy losses are composed.

    There are at least `points` grid points per standard deviation of one release's loss, unless a grid for losses up to
    `longest` would then be too large. `count` is the number of releases.
    """
    deviation = math.sqrt(sum(times * distribution.deviation**2 for distribution, times in distributions))
    width = deviation / (points * math.sqrt(count))
    if points >= FINE:
        width = min(width, _WIDEST_INTERVAL)
    interval = max(width, 20 * deviation / _LARGEST_GRID, longest / _LARGEST_STEP_GRID)
    pure = [distribution.span[1] for distribution, _ in distributions if distribution.is_pure]
    if len(pure) == len(distributions) and len(set(pure)) == 1:
        return pure[0] / max(1, math.ceil(pure[0] / interval)) * (1 + 1e-13)
    return interval


def _self_compose(distribution: DiscreteLossDistribution, count: int) -> DiscreteLossDistribution:
    """Return the distribution of the sum of `count` independent losses, each with the given distribution.

    From 1,000 losses on, groups of about sqrt(count) are composed first: in one step Chernoff's bound would be far too
    wide.
    """
    if count < _STAGED:
        return distribution if count == 1 else distribution.times(count)
    stage = math.isqrt(count)
    composed = distribution.times(stage).times(count // stage)
    remaining = count % stage
    return composed.plus(_self_compose(distribution, remaining)) if remaining else composed


def _curve(distribution: DiscreteLossDistribution, interval: float, misplaced: float) -> PrivacyCurve:
    """Return the curve delta(epsilon) of a composed distribution; `misplaced` is added to its mass at infinity.

    Delta at grid point j is the mass at infinity plus the mass above j, minus S_j. Here S_j = e^-h (S_{j+1} + p_{j+1}),
    where h is the width of the grid, `interval`, and p_j the mass at grid point j.
    """
    probabilities = distribution.probabilities
    infinity = distribution.infinity + misplaced
    occupied = np.flatnonzero(probabilities > 1e-25)
    start, stop = (int(occupied[0]), int(occupied[-1]) + 1) if occupied.size else (0, probabilities.size)
    probabilities = probabilities[start:stop]
    losses = (distribution.first + start + np.arange(probabilities.size, dtype=np.float64)) * interval
    above = np.append(probabilities[1:], 0.0)[::-1]
    lower = _decaying_sums(above, math.exp(-interval))[::-1]
    upper = np.cumsum(above)[::-1]
    deltas = np.maximum.accumulate((upper - lower + infinity)[::-1])[::-1]
    return PrivacyCurve(losses, interval, probabilities, infinity, np.minimum(deltas, 1.0), np.maximum(lower, 0.0))


def _decaying_sums(values: Floats, decay: float) -> Floats:
    """Return y with y_i = decay (values_i + y_{i-1}) and y_{-1} = 0, by recursive doubling."""
    sums = decay * values
    reach = 1
    while reach < sums.size and (weight := decay**reach) > 0:
        sums[reach:] = sums[reach:] + weight * sums[:-reach]
        reach *= 2
    return sums


def _rounding_bound(count: int, interval: float, probability: float) -> float:
    """Return how far rounding to the grid can move the sum of `count` losses away from its mean.

    Each loss is rounded by at most `interval`. The sum moves farther with at most the given probability.
    """
    return min(count * interval, interval * math.sqrt(-count * math.log(probability) / 2))


@lru_cache(maxsize=16)
def loss_curves(events: tuple[ReleaseEvent, ...], adjacency: Adjacency, points: int = FINE) -> PrivacyCurvePair:
    """Return the privacy curves of a composition of releases: delta as a function of epsilon.

    Raises `InputError` if a loss is above 1e20, or if there are more than 1e9 releases.

    `events`: All Gaussian releases without sampling are composed exactly into one.

    `adjacency`: For replace, the pair is (1-q) N(0) + q N(+Delta/2) against (1-q) N(0) + q N(-Delta/2), as in
    dp-accounting.
    """
    distributions = loss_distributions(events, adjacency)
    longest = max(high - low for low, high in (distribution.span for distribution, _ in distributions))
    count = sum(times for _, times in distributions)
    limit_text = f"accepted by pld are up to {_MOST_RELEASES:,}"
    require(count <= _MOST_RELEASES, f"{count:,} releases are composed: {limit_text}")
    accepted = f"accepted by pld are losses up to {_LARGEST_LOSS:g}"
    require(longest < _LARGEST_LOSS, f"the noise is so weak that losses reach {longest:.3g}: {accepted}")
    interval = _interval(distributions, points, count, longest)
    directions = (False,) if all(distribution.symmetric for distribution, _ in distributions) else (False, True)
    misplaced = _MASS_PER_RELEASE * count + (MISPLACED_MASS if count > 1 else 0.0)
    curves = []
    for reverse in directions:
        with np.errstate(over="ignore"):  # Chernoff bounds that overflow are never the smallest
            composed = [
                _self_compose(distribution.masses(interval, reverse), times) for distribution, times in distributions
            ]
        curves.append(_curve(reduce(DiscreteLossDistribution.plus, composed), interval, misplaced))
    error = min(count * interval, count * interval**2 / 8 + _rounding_bound(count, interval, MISPLACED_MASS))
    return PrivacyCurvePair(tuple(curves), interval, error, count, events, adjacency)


def _epsilon_bound(events: tuple[ReleaseEvent, ...], adjacency: Adjacency, delta: float) -> float:
    """Return an upper bound on epsilon: the smaller of a bound by Renyi DP and one by the epsilon without sampling.

    The conversion of Renyi DP is theorem 21 of Balle et al. 2020. The bound also holds for deltas that are too small
    for the numerical loss distributions.
    """
    return _tail_bound(events, adjacency, delta, Accountant.RDP, gdp_epsilon)


def _log_odds_bound(events: tuple[ReleaseEvent, ...], adjacency: Adjacency, probability: float) -> float:
    """Return log-odds, at least 0, that are exceeded with at most the given probability.

    The bound also holds with adaptive sensitivities. It follows from Rényi DP by Mironov 2017, proposition 3: Markov's
    inequality for e^((alpha - 1) L).
    """

    def unsampled(probability: float, mu: float) -> float:
        return gaussian_log_odds_bound(mu, probability, SignalToNoiseAdaptivity.ADAPTIVE)

    return _tail_bound(events, adjacency, probability, Accountant.RDP_CLASSIC, unsampled)


def _tail_bound(
    events: tuple[ReleaseEvent, ...], adjacency: Adjacency, probability: float, accountant: Accountant, unsampled: _Tail
) -> float:
    mu = math.hypot(*(full_participation_mu(event) or 0.0 for event in events))
    pure = [event.count * event.pure_epsilon for event in events if event.pure_epsilon is not None]
    closed = sum(pure) + (unsampled(probability, mu) if mu > 0 else 0.0)
    if pure:
        return closed
    return min(closed, rdp_epsilon(accountant, renyi_divergences(events, None, adjacency), probability))
