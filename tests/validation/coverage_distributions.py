"""Simulated runs whose truth is known, for intervals of trials, beliefs and noise, and of reproductions.

A play draws one run and returns what the product would print, with the truth beside it. The grids reach where intervals
fail first: few trials, rates near 0 and 1, equal scores, groups of unequal size, effects of none and of very much.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import ndtri

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.online_guessing import guessed_epsilon
from fl_audit.array_types import Floats
from fl_audit.audits.identifiability import bernau_empirical_epsilons
from fl_audit.experiments.papers import statistics
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.likelihood_ratio import ReleaseUnderHypotheses
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.identifiability_bounds import epsilon_from_advantage
from fl_audit.statistics import advantage
from fl_audit.verdict import noise_estimate
from fl_audit.verdict.noise_measurement import NoiseMeasurer
from fl_audit.verdict.noise_scale import SquareSum
from fl_audit.verdict.run_measurements import NoiseMeasurements

CONFIDENCE = 0.95


class PrintedStatement(NamedTuple):
    """The statement that one run printed, and the true value."""

    low: float
    high: float
    truth: float


Play = Callable[[np.random.Generator], PrintedStatement]
Plays = dict[str, Play]
Axis = Sequence[Any] | dict[str, Any]


def over(label: str, **axes: Axis) -> Callable[[Callable[..., PrintedStatement]], Callable[..., Plays]]:
    """Return a decorator that turns a function for one run into runs at every point of a grid, with labels.

    The new function takes axes, too: those that were left open, or that replace others. `label` is the name of a
    setting, in which the values of the axes stand by their names. The axes are the function's arguments besides its
    source of randomness; a dictionary has words for the values.
    """

    def of_function(play: Callable[..., PrintedStatement]) -> Callable[..., Plays]:
        def plays(**replaced_axes: Axis) -> Plays:
            every = axes | replaced_axes
            listed = [
                axis.items() if isinstance(axis, dict) else zip(axis, axis, strict=True) for axis in every.values()
            ]
            runs_by_label: Plays = {}
            for point in product(*listed):
                labels, values = (
                    dict(zip(every, axis_values, strict=True)) for axis_values in zip(*point, strict=True)
                )
                runs_by_label[label.format(**labels)] = partial(play, **values)
            return runs_by_label

        return plays

    return of_function


def at_least(low: float, truth: float) -> PrintedStatement:
    """Return a lower bound as a statement."""
    return PrintedStatement(low, math.inf, truth)


_of_counts = over("n = {size}, rate {rate:g}", size=(1, 7, 20, 100, 1000), rate=(0.002, 0.03, 0.2, 0.5, 0.9, 0.995))
"""Grid of runs with a number of trials, each of which succeeds with a probability."""


@_of_counts
def shares(draw: np.random.Generator, size: int, rate: float) -> PrintedStatement:
    """Play the Clopper-Pearson interval of a share."""
    return PrintedStatement(*advantage.clopper_pearson(int(draw.binomial(size, rate)), size, CONFIDENCE), rate)


@_of_counts
def won_trials(draw: np.random.Generator, size: int, rate: float) -> PrintedStatement:
    """Play the advantage from won trials."""
    interval = advantage.empirical_advantage(np.arange(size) < draw.binomial(size, rate), CONFIDENCE)
    return PrintedStatement(interval.low, interval.high, 2 * rate - 1)


@_of_counts
def epsilon_of_trials(draw: np.random.Generator, size: int, rate: float) -> PrintedStatement:
    """Play the epsilon of Eq. (6) from won trials."""
    interval = bernau_empirical_epsilons.advantage_interval(int(draw.binomial(size, rate)), size, 1e-3, CONFIDENCE)
    truth = epsilon_from_advantage(2 * rate - 1, 1e-3) if rate > 0.5 else 0.0
    return PrintedStatement(interval.low, interval.high, truth)


@over(
    "{size} guesses, epsilon {epsilon:g}, delta {delta:g}",
    size=(5, 20, 180, 500),
    epsilon=(0.0, 0.1, 1.0, 4.0),
    delta=(0.0, 1e-2),
)
def epsilon_of_guesses(draw: np.random.Generator, size: int, epsilon: float, delta: float) -> PrintedStatement:
    """Play the bound from guessed coins, at the largest rate of right guesses that an epsilon allows."""
    right = draw.binomial(size, min(1.0, (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)))
    return at_least(guessed_epsilon(int(right), size, delta, CONFIDENCE), epsilon)


_RATES = {f"{p:g} and {p + leak:g}": (p, leak) for p, leak in ((0.0, 0.004), (0.0, 0.03), (0.03, 0.0), (0.4, 0.3))}


@over("{trials} trials of {records} records, rates {rates}", trials=(2, 5, 20, 100, 400), records=(2, 50), rates=_RATES)
def mean_rates(draw: np.random.Generator, trials: int, records: int, rates: tuple[float, float]) -> PrintedStatement:
    """Play the mean advantage over trials, each a difference of two shares of few records."""
    rate, leak = rates
    shares = [draw.binomial(records, p, trials) / records for p in (rate + leak, rate)]
    interval = advantage.mean_advantage(shares[0] - shares[1], CONFIDENCE)
    return PrintedStatement(interval.low, interval.high, leak)


_BOUNDED = {f"ones with probability {b:g}": (0.0, b) for b in (0.003, 0.05, 0.5)}
_BOUNDED |= {f"Beta({a:g}, {b:g})": (a, b) for a, b in ((0.05, 1.0), (5.0, 5.0))}


@over("{size} numbers, {distribution}", size=(1, 5, 50, 500), distribution=_BOUNDED)
def bounded_means(draw: np.random.Generator, size: int, distribution: tuple[float, float]) -> PrintedStatement:
    """Play the betting interval on rare ones, and on beta distributions."""
    a, b = distribution
    values = draw.beta(a, b, size) if a else (draw.random(size) < b).astype(np.float64)
    interval = advantage.mean_interval(values, CONFIDENCE)
    return PrintedStatement(interval.low, interval.high, a / (a + b) if a else b)


@over("{trials} trials, mu {mu:g}", mu=(0.1, 1.0, 4.0), trials=(1, 5, 20, 500))
def largest_belief(draw: np.random.Generator, mu: float, trials: int, is_mu_known: bool) -> PrintedStatement:
    """Play the interval of the largest belief: of the found one where mu is known, else of its median."""
    log_odds = mu**2 / 2 + mu * draw.normal(size=trials)
    interval = bernau_empirical_epsilons.belief_interval(log_odds, CONFIDENCE, mu if is_mu_known else None)
    median = max(0.0, mu**2 / 2 + mu * float(ndtri(0.5 ** (1 / trials))))
    return PrintedStatement(interval.low, interval.high, interval.epsilon if is_mu_known else median)


@over("{freedom} degrees of freedom, ratio {ratio:g}", freedom=(1, 2, 10, 1000), ratio=(0.3, 1.0))
def noise_ratios(draw: np.random.Generator, freedom: int, ratio: float) -> PrintedStatement:
    """Play the interval of the real over the claimed noise."""
    square_sum = SquareSum(float(ratio**2 * draw.chisquare(freedom)), freedom, STANDARD_GAUSSIAN)
    return PrintedStatement(*noise_estimate.ratio_interval(square_sum, CONFIDENCE), ratio)


@over(
    "sampled at {rate:g}, mu {mu:g}, {trials} trials x 10 rounds, ratio {ratio:g}",
    rate=(0.05, 0.3),
    mu=(0.3, 3.0),
    trials=(5, 40),
    ratio=(0.5, 1.0, 2.0),
)
def sampled_noise(draw: np.random.Generator, rate: float, mu: float, trials: int, ratio: float) -> PrintedStatement:
    """Play the same of the noise along a target that takes part in secret, as the noise measurement opens it."""
    rows = trials * 10
    size = 5
    target = draw.standard_normal((rows, size))
    shared = draw.standard_normal((rows, size))
    target *= mu / np.linalg.norm(target, axis=1, keepdims=True)
    side = np.where(draw.random(rows) < rate, np.repeat(draw.integers(2, size=trials), 10), 2)
    release = shared + np.where((side == 0)[:, None], target, 0.0) + ratio * draw.standard_normal((rows, size))
    tensors = (torch.from_numpy(array) for array in (release, shared, target, np.zeros_like(target)))
    meter = NoiseMeasurer(
        ParameterLayout(("weight",), ((size,),)), torch.empty(size, 0), CentralGaussian(1.0), with_neither=True
    )
    lengths = torch.full((rows,), mu, dtype=torch.float64)
    measurement = meter.measure(ReleaseUnderHypotheses(slice(None), *tensors), torch.ones_like(lengths), lengths)
    opened = measurement.of_true_hypothesis(side.astype(np.int64)).signal[:, 0, 0]
    return PrintedStatement(
        *noise_estimate.ratio_interval(SquareSum(float(opened @ opened), rows, STANDARD_GAUSSIAN), CONFIDENCE), ratio
    )


_NOISY = Claim(Adjacency.ADD_REMOVE_RECORD, gaussian_rounds(4.0, 10), 1e-3, 0.5, Accountant.GDP)


@over("{trials} trials, ratio {ratio:g}", trials=(1, 5, 50), ratio=(0.5, 1.0, 2.0))
def epsilon_of_noise(draw: np.random.Generator, trials: int, ratio: float) -> PrintedStatement:
    """Play the bound on epsilon from the noise along the record."""
    bits = np.arange(trials) % 2 == 0
    mu = 0.25
    noise = ratio * draw.normal(size=(trials, 10))
    increments = np.where(bits, 0.5, -0.5)[:, np.newaxis] * mu**2 + mu * noise
    ones = np.ones_like(increments)
    measured = NoiseMeasurements(bits, increments, ones, 4.0 * ones, 4.0, noise_kind=STANDARD_GAUSSIAN)
    low = noise_estimate.epsilon_lower_bound_from_noise(measured, CONFIDENCE, _NOISY)
    return at_least(low, gdp_epsilon(1e-3, math.sqrt(10) / 4 / ratio))


@_of_counts
def repeated_shares(draw: np.random.Generator, size: int, rate: float) -> PrintedStatement:
    """Play the interval of a share on reproduction pages."""
    return PrintedStatement(*statistics.share_interval(int(draw.binomial(size, rate)), size), rate)


@over("{size} {skewed} values", size=(5, 20, 100), skewed={"normal": False, "very skewed": True})
def repetitions(draw: np.random.Generator, size: int, skewed: bool, kind: str) -> PrintedStatement:
    """Play the other intervals of reproduction pages: "t", "Welch" or "bootstrap"."""
    values: Floats = draw.exponential(size=size) ** 2 - 2 if skewed else draw.normal(size=size)
    match kind:
        case "t":
            interval = statistics.t_interval(values)
        case "Welch":
            interval = statistics.welch_interval(values, draw.normal(size=size))
        case _:
            interval = statistics.bootstrap(values, np.mean, draw)
    return PrintedStatement(interval.low, interval.high, 0.0)
