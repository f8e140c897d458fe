"""Simulated runs whose truth is known, for intervals of games, beliefs and noise, and of reproductions.

A play draws one run and returns what the product would print, with the truth beside it. The grids reach where intervals
fail first: few worlds, rates near 0 and 1, equal scores, groups of unequal size, effects of none and of very much.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from experiments.reproductions import statistics
from fl_audit.adjacency import Adjacency
from fl_audit.arrays import Flags, Floats
from fl_audit.evidence.belief import advantage, calibration, empirical_epsilon, expected, noise_estimate
from fl_audit.evidence.belief.advantage import mean_interval
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.noise_scale import SquareSum
from fl_audit.laboratory.guesses import guessed_epsilon
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_delta, gdp_epsilon
from fl_audit.privacy.scores import epsilon_from_advantage, gaussian_advantage

CONFIDENCE = 0.95


class PrintedStatement(NamedTuple):
    """What one run printed, and the truth that it is about."""

    low: float
    high: float
    truth: float


Play = Callable[[np.random.Generator], PrintedStatement]
Plays = dict[str, Play]


def over(play: Callable[..., PrintedStatement], label: str, **axes: Sequence[Any] | dict[str, Any]) -> Plays:
    """Return a play at every point of a grid, by names that a label makes.

    Parameters
    ----------
    play, label
        The play, and the label, in which the values of the axes stand by their names.
    axes
        What the play takes beside its source of randomness; a dictionary has words for the values.
    """
    listed = [list(one.items() if isinstance(one, dict) else zip(one, one, strict=True)) for one in axes.values()]
    plays: Plays = {}
    for point in product(*listed):
        said, values = ({name: one[place] for name, one in zip(axes, point, strict=True)} for place in (0, 1))
        plays[label.format(**said)] = partial(play, **values)
    return plays


def at_least(low: float, truth: float) -> PrintedStatement:
    """Return a bound from below as a statement.

    Parameters
    ----------
    low, truth
        The bound that is printed, and the number that it is about.
    """
    return PrintedStatement(low, math.inf, truth)


def _counted(interval: Callable[[int, int], tuple[float, float]], truth: Callable[[float], float]) -> Plays:
    """Return plays of intervals of so many successes in so many trials, about a function of their probability."""

    def play(draw: np.random.Generator, size: int, rate: float) -> PrintedStatement:
        return PrintedStatement(*interval(int(draw.binomial(size, rate)), size), truth(rate))

    return over(play, "n = {size}, rate {rate:g}", size=(1, 7, 20, 100, 1000), rate=(0.002, 0.03, 0.2, 0.5, 0.9, 0.995))


def shares() -> Plays:
    """Return plays of the Clopper-Pearson interval of a share."""
    return _counted(lambda hits, size: advantage.clopper_pearson(hits, size, CONFIDENCE), lambda rate: rate)


def won_games() -> Plays:
    """Return plays of the advantage from won games."""

    def interval(wins: int, size: int) -> tuple[float, float]:
        found = advantage.empirical_advantage(np.arange(size) < wins, CONFIDENCE)
        return found.low, found.high

    return _counted(interval, lambda rate: 2 * rate - 1)


def epsilon_of_games() -> Plays:
    """Return plays of the epsilon of Eq. (6) from won games."""

    def interval(wins: int, size: int) -> tuple[float, float]:
        found = empirical_epsilon.advantage_interval(wins, size, 1e-3, CONFIDENCE)
        return found.low, found.high

    return _counted(interval, lambda rate: epsilon_from_advantage(2 * rate - 1, 1e-3) if rate > 0.5 else 0.0)


def epsilon_of_guesses() -> Plays:
    """Return plays of the bound from guessed coins, at the largest rate of right guesses that an epsilon allows."""

    def play(draw: np.random.Generator, size: int, epsilon: float, delta: float) -> PrintedStatement:
        right = draw.binomial(size, min(1.0, (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)))
        return at_least(guessed_epsilon(int(right), size, delta, CONFIDENCE), epsilon)

    label, sizes = "{size} guesses, epsilon {epsilon:g}, delta {delta:g}", (5, 20, 180, 500)
    return over(play, label, size=sizes, epsilon=(0.0, 0.1, 1.0, 4.0), delta=(0.0, 1e-2))


def mean_rates() -> Plays:
    """Return plays of the mean advantage over worlds, each a difference of two shares of few records."""

    def play(draw: np.random.Generator, worlds: int, records: int, rates: tuple[float, float]) -> PrintedStatement:
        rate, leak = rates
        shares = [draw.binomial(records, p, worlds) / records for p in (rate + leak, rate)]
        found = advantage.mean_advantage(shares[0] - shares[1], CONFIDENCE)
        return PrintedStatement(found.low, found.high, leak)

    rates = {f"{p:g} and {p + leak:g}": (p, leak) for p, leak in ((0.0, 0.004), (0.0, 0.03), (0.03, 0.0), (0.4, 0.3))}
    label = "{worlds} worlds of {records} records, rates {rates}"
    return over(play, label, worlds=(2, 5, 20, 100, 400), records=(2, 50), rates=rates)


def bounded_means() -> Plays:
    """Return plays of the betting interval on rare ones, and on beta laws."""

    def play(draw: np.random.Generator, size: int, law: tuple[float, float]) -> PrintedStatement:
        a, b = law
        values = draw.beta(a, b, size) if a else (draw.random(size) < b).astype(np.float64)
        found = mean_interval(values, CONFIDENCE)
        return PrintedStatement(found.low, found.high, a / (a + b) if a else b)

    laws = {f"ones with probability {b:g}": (0.0, b) for b in (0.003, 0.05, 0.5)}
    laws |= {f"Beta({a:g}, {b:g})": (a, b) for a, b in ((0.05, 1.0), (5.0, 5.0))}
    return over(play, "{size} numbers, {law}", size=(1, 5, 50, 500), law=laws)


class _Pair(NamedTuple):
    """A law of log-odds of D against D': normal of a mu, or a secret that is told outright with a probability."""

    mu: float
    told: float = 0.0

    def draw(self, draw: np.random.Generator, worlds: int) -> tuple[Floats, Flags]:
        bits = np.arange(worlds) % 2 == 0
        sign = np.where(bits, 1.0, -1.0)
        if self.told:
            return 30.0 * sign * (draw.random(worlds) < self.told), bits
        return sign * self.mu**2 / 2 + self.mu * draw.normal(size=worlds), bits

    @property
    def advantage(self) -> float:
        return self.told or gaussian_advantage(self.mu)

    def delta(self, epsilon: float) -> float:
        return self.told * -math.expm1(epsilon - 30) if self.told else gdp_delta(epsilon, self.mu)

    def epsilon(self, delta: float) -> float:
        if self.told:
            return 30 + math.log1p(-delta / self.told) if self.told > delta else 0.0
        return gdp_epsilon(delta, self.mu) if self.mu else 0.0


def of_log_odds(kind: str) -> Plays:
    """Return plays of what follows from log-odds: "advantage", "delta", "counted delta" or "epsilon"."""

    def play(draw: np.random.Generator, pair: _Pair, worlds: int) -> PrintedStatement:
        log_odds, bits = pair.draw(draw, worlds)
        match kind:
            case "advantage":
                mean = expected.advantage_from_beliefs(log_odds, CONFIDENCE)
                return PrintedStatement(mean.low, mean.high, pair.advantage)
            case "epsilon":
                found, truth = expected.epsilon_from_beliefs(log_odds, bits, 0.01, CONFIDENCE), pair.epsilon(0.01)
            case "delta":
                found, truth = expected.delta_from_beliefs(log_odds, bits, 0.5, CONFIDENCE), pair.delta(0.5)
            case _:
                found, truth = expected.counted_delta(log_odds, bits, 0.5, CONFIDENCE), pair.delta(0.5)
        return PrintedStatement(found.low, found.high, truth)

    pairs = {f"mu {mu:g}": _Pair(mu) for mu in (0.1, 0.5, 1.0, 3.0)}
    pairs |= {f"told outright in {told:.0%}": _Pair(0.0, told) for told in (0.02, 0.2)}
    return over(play, "{worlds} worlds, {pair}", pair=pairs, worlds=(2, 6, 30, 200))


def reliability() -> Plays:
    """Return plays of the share of D in the bins of a reliability diagram, beside what the beliefs say of it."""

    def play(draw: np.random.Generator, mu: float, worlds: int, place: int) -> PrintedStatement:
        bits = draw.random(worlds) < 0.5
        log_odds = np.where(bits, 1, -1) * mu**2 / 2 + mu * draw.normal(size=worlds)
        one = calibration.calibration(log_odds, bits, CONFIDENCE).bins[place]
        return PrintedStatement(one.low, one.high, one.mean_belief)

    label = "{worlds} worlds, mu {mu:g}, bin {place}"
    return over(play, label, mu=(0.5, 1.0, 3.0, 5.0), worlds=(10, 40, 300), place=(0, -1))


def largest_belief(known: bool) -> Plays:
    """Return plays of the interval of the largest belief: of what is found where mu is known, else of its median."""

    def play(draw: np.random.Generator, mu: float, worlds: int) -> PrintedStatement:
        log_odds = mu**2 / 2 + mu * draw.normal(size=worlds)
        found = empirical_epsilon.belief_interval(log_odds, CONFIDENCE, mu if known else None)
        median = max(0.0, mu**2 / 2 + mu * float(ndtri(0.5 ** (1 / worlds))))
        return PrintedStatement(found.low, found.high, found.epsilon if known else median)

    return over(play, "{worlds} worlds, mu {mu:g}", mu=(0.1, 1.0, 4.0), worlds=(1, 5, 20, 500))


def noise_ratios() -> Plays:
    """Return plays of the interval of the real over the claimed noise."""

    def play(draw: np.random.Generator, freedom: int, ratio: float) -> PrintedStatement:
        found = SquareSum(float(ratio**2 * draw.chisquare(freedom)), freedom)
        return PrintedStatement(*noise_estimate.ratio_interval(found, CONFIDENCE), ratio)

    return over(play, "{freedom} degrees of freedom, ratio {ratio:g}", freedom=(1, 2, 10, 1000), ratio=(0.3, 1.0))


def epsilon_of_noise() -> Plays:
    """Return plays of the bound on epsilon from the noise along the record."""
    claim = Claim(Adjacency.ADD_REMOVE_RECORD, gaussian_rounds(4.0, 10), 1e-3, 0.5, Accountant.GDP)

    def play(draw: np.random.Generator, worlds: int, ratio: float) -> PrintedStatement:
        bits, mu = np.arange(worlds) % 2 == 0, 0.25
        noise = ratio * draw.normal(size=(worlds, 10))
        increments = np.where(bits, 0.5, -0.5)[:, np.newaxis] * mu**2 + mu * noise
        ones = np.ones_like(increments)
        measured = Measured(bits, increments, ones, 4.0 * ones, 4.0)
        low = noise_estimate.epsilon_lower_bound_from_noise(measured, CONFIDENCE, claim)
        return at_least(low, gdp_epsilon(1e-3, math.sqrt(10) / 4 / ratio))

    return over(play, "{worlds} worlds, ratio {ratio:g}", worlds=(1, 5, 50), ratio=(0.5, 1.0, 2.0))


def repetitions(kind: str) -> Plays:
    """Return plays of the intervals of reproduction pages: "t", "Welch", "share" or "bootstrap"."""

    def play(draw: np.random.Generator, size: int, skewed: bool) -> PrintedStatement:
        def values() -> Floats:
            return draw.exponential(size=size) ** 2 - 2 if skewed else draw.normal(size=size)

        match kind:
            case "t":
                found = statistics.t_interval(values())
            case "Welch":
                found = statistics.welch_interval(values(), draw.normal(size=size))
            case _:
                found = statistics.bootstrap(values(), np.mean, draw)
        return PrintedStatement(found.low, found.high, 0.0)

    if kind == "share":
        return _counted(statistics.share_interval, lambda rate: rate)
    return over(play, "{size} {skewed} values", size=(5, 20, 100), skewed={"normal": False, "very skewed": True})
