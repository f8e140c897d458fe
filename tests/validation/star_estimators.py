"""Errors of the estimators of Epsilon*, on pairs of distributions of losses whose Epsilon* is known.

    python -m tests.validation star_estimators [--quick] [--losses N] [--pairs]

Twenty pairs of distributions of losses, of members and of the population, are drawn from again and again. Each way to
Epsilon* (`fl_audit.released_model.star_methods`) estimates it from the draws, over all thresholds and within the cuts
of Negoescu et al. 2023, and its distance from the truth is averaged: first from Epsilon* over all thresholds, which is
what the name says, and then from Epsilon* within the same cut. The draws in which a normal fits both sets of scores are
counted apart from those in which it is rejected. The last line is what `fl-audit epsilon-star` prints where no method
is named.

Monotone maps of the losses change no error rate, so the truth is found on whatever scale the distributions are given.
The supremum is bracketed on a grid of logarithms of tail probabilities, and then found.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, cast

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from scipy import stats
from scipy.optimize import minimize_scalar

from fl_audit.array_types import Floats
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.released_model.empirical_star import empirical_epsilon_star
from fl_audit.released_model.mixture_star import epsilon_star_mixtures
from fl_audit.released_model.normal_mixture import NormalMixture, choose_mixture
from fl_audit.released_model.parametric_star import epsilon_star_gaussian, fit_normal, scores_of_pair
from fl_audit.released_model.star_methods import EMPIRICAL_CUT, PARAMETRIC_CUT, StarMethod
from fl_audit.released_model.star_warnings import fit_is_rejected, fit_p_value

DELTA = 1e-5
LOSSES = 1000
REPETITIONS = 20
QUICK_REPETITIONS = 2
_SHARE = 1.2  # losses of the population for each of members
CUTS = (0.0, PARAMETRIC_CUT, EMPIRICAL_CUT)
_GRID = 2000
_FARTHEST = 150.0  # thresholds are searched up to tail probabilities of e to the minus so much
HEADLINE = "by the fit"


class LossDistribution(Protocol):
    """A distribution of losses on some scale: logarithms of its tails, quantiles and draws."""

    def logsf(self, t: Floats) -> Floats:
        """Return the logarithm of the probability of more than t."""

    def logcdf(self, t: Floats) -> Floats:
        """Return the logarithm of the probability of at most t."""

    def ppf(self, p: Floats) -> Floats:
        """Return quantiles."""

    def isf(self, p: Floats) -> Floats:
        """Return quantiles, counted from above."""

    def rvs(self, size: int, random_state: np.random.Generator) -> Floats:
        """Return draws."""


class DistributionPair(NamedTuple):
    """The distributions of the losses of members and of the population, on one scale."""

    name: str
    members: LossDistribution
    population: LossDistribution
    losses: Callable[[Floats], Floats] = lambda drawn: drawn  # increasing: from that scale to losses of 0 or more


class MixtureDistribution:
    """A mixture of two distributions; the second is drawn from with a probability."""

    def __init__(self, first: LossDistribution, second: LossDistribution, share: float) -> None:
        self.parts, self.weights = (first, second), np.log([1 - share, share])

    def logsf(self, t: Floats) -> Floats:
        """Return the logarithm of the probability of more than t."""
        return np.logaddexp(
            *(weight + component.logsf(t) for component, weight in zip(self.parts, self.weights, strict=True))
        )

    def logcdf(self, t: Floats) -> Floats:
        """Return the logarithm of the probability of at most t."""
        return np.logaddexp(
            *(weight + component.logcdf(t) for component, weight in zip(self.parts, self.weights, strict=True))
        )

    def ppf(self, p: Floats) -> Floats:
        """Return quantiles, as accurate as the grid."""
        return self._quantiles(np.log(p), self.logcdf, 1)

    def isf(self, p: Floats) -> Floats:
        """Return quantiles, counted from above, as accurate as the grid."""
        return self._quantiles(np.log(p), self.logsf, -1)

    def rvs(self, size: int, random_state: np.random.Generator) -> Floats:
        """Return draws."""
        first_draws, second_draws = (component.rvs(size=size, random_state=random_state) for component in self.parts)
        return np.where(random_state.random(size) < math.exp(self.weights[1]), second_draws, first_draws)

    def _quantiles(self, logs: Floats, tail: Callable[[Floats], Floats], sign: int) -> Floats:
        p = np.geomspace(math.exp(-_FARTHEST), 0.5, 200_000)
        grid = np.unique(np.concatenate([end(p) for component in self.parts for end in (component.ppf, component.isf)]))
        log_tails = tail(grid)
        return np.asarray(np.interp(logs, log_tails[::sign], grid[::sign]), dtype=np.float64)


def _cross_entropy(minus_logit: Floats) -> Floats:
    """Return the cross-entropy of the right class from its negative logit."""
    return np.logaddexp(0.0, minus_logit)


def pairs() -> tuple[DistributionPair, ...]:
    """Return the twenty pairs, of members and of the population."""

    def distribution(frozen_distribution: object) -> LossDistribution:
        return cast("LossDistribution", frozen_distribution)

    def of(name: str, members: object, population: object) -> DistributionPair:
        return DistributionPair(name, distribution(members), distribution(population))

    def logits(name: str, members: object, population: object) -> DistributionPair:
        return DistributionPair(
            f"cross-entropy, logits {name}", distribution(members), distribution(population), _cross_entropy
        )

    gamma = stats.gamma
    beta = stats.beta
    normal = stats.norm
    weibull = stats.weibull_min
    usual = normal(-1, 1.5)
    return (
        of("Gamma(2, 3), Gamma(2, 5)", gamma(2, scale=3), gamma(2, scale=5)),
        of("Gamma(2, 1), Gamma(3, 1)", gamma(2), gamma(3)),
        of("Gamma(2, 1), Gamma(2.2, 1)", gamma(2), gamma(2.2)),
        of("Gamma(0.5, 1), Gamma(1, 1)", gamma(0.5), gamma(1)),
        of("exponential, means 1 and 2", stats.expon(), stats.expon(scale=2)),
        of("exponential, means 1 and 1.1", stats.expon(), stats.expon(scale=1.1)),
        of("Weibull(0.7), scales 1 and 1.5", weibull(0.7), weibull(0.7, scale=1.5)),
        of("Weibull(2), scales 1 and 1.3", weibull(2), weibull(2, scale=1.3)),
        of("lognormal(0, 1), (0.5, 1)", stats.lognorm(1), stats.lognorm(1, scale=math.exp(0.5))),
        of("lognormal(-1, 1.5), (0, 1)", stats.lognorm(1.5, scale=math.exp(-1)), stats.lognorm(1)),
        of("half-normal, scales 1 and 1.5", stats.halfnorm(), stats.halfnorm(scale=1.5)),
        of("Pareto II (3), scales 1 and 1.5", stats.lomax(3), stats.lomax(3, scale=1.5)),
        of("Beta(2, 5), Beta(3, 4)", beta(2, 5), beta(3, 4)),
        of("Beta(0.5, 3), Beta(1, 3)", beta(0.5, 3), beta(1, 3)),
        of("Beta(2, 2) twice: nothing leaks", beta(2, 2), beta(2, 2)),
        logits("N(2, 1), N(1, 1)", normal(-2, 1), normal(-1, 1)),
        logits("N(4, 2), N(2, 2)", normal(-4, 2), normal(-2, 2)),
        logits("N(6, 2), N(2, 3)", normal(-6, 2), normal(-2, 3)),
        logits(
            "N(1, 1.5), a tenth of members N(8, 0.5)",
            MixtureDistribution(distribution(usual), distribution(normal(-8, 0.5)), 0.1),
            usual,
        ),
        logits(
            "N(1, 2) and N(6, 1): 1/2 and 1/5",
            *(
                MixtureDistribution(distribution(normal(-1, 2)), distribution(normal(-6, 1)), share)
                for share in (0.5, 0.2)
            ),
        ),
    )


def true_epsilon_star(pair: DistributionPair, delta: float, cut: float) -> float:
    """Return Epsilon* of a pair of distributions over the thresholds within a cut.

    The cut is from 0 to below 1/2.
    """
    distributions = (pair.members, pair.population)
    p = np.geomspace(math.exp(-_FARTHEST), 0.5, _GRID)
    grid = np.unique(
        np.concatenate([end(p) for distribution in distributions for end in (distribution.ppf, distribution.isf)])
    )
    grid = grid[np.isfinite(grid)]
    if cut:
        ends = [
            max(float(distribution.ppf(np.array(cut))) for distribution in distributions),
            min(float(distribution.isf(np.array(cut))) for distribution in distributions),
        ]
        grid = np.unique(np.concatenate([grid[(grid > ends[0]) & (grid < ends[1])], ends]))
    return max(
        0.0,
        *(
            _supremum(numerator, denominator, delta, grid)
            for numerator in distributions
            for denominator in distributions
            if numerator is not denominator
        ),
    )


def _supremum(numerator: LossDistribution, denominator: LossDistribution, delta: float, grid: Floats) -> float:
    """Return the largest log of (tail of one - delta) / tail of the other, over both tails, near points of a grid."""

    def ratio(t: Floats, upper: bool) -> Floats:
        over, under = (
            (distribution.logsf if upper else distribution.logcdf)(t) for distribution in (numerator, denominator)
        )
        remainder = -np.expm1(np.minimum(math.log(delta) - over, 0.0))
        return np.where(remainder > 0, over + np.log(remainder) - under, -math.inf)

    best = 0.0
    with np.errstate(all="ignore"):
        for upper in (True, False):
            values = np.nan_to_num(ratio(grid, upper), nan=-math.inf)
            at = int(values.argmax())
            low = grid[max(at - 1, 0)]
            high = grid[min(at + 1, grid.size - 1)]
            inner = minimize_scalar(
                lambda t, upper=upper: -float(ratio(np.array(t), upper)),
                bounds=(low, high),
                method="bounded",
                options={"xatol": 1e-12},
            )
            best = max(best, float(values[at]), -float(inner.fun) if np.isfinite(inner.fun) else 0.0)
    return best


def estimates(members: Floats, population: Floats, draw: np.random.Generator) -> Iterator[tuple[str, float, float]]:
    """Yield the estimate of every method for one draw of losses: its name, its cut, its value.

    `draw` seeds the fits of mixtures and the check of the fit.
    """
    scores = scores_of_pair(members, population)
    distributions: list[NormalMixture] = [choose_mixture(sample, draw) for sample in scores]
    poor = any(fit_is_rejected(fit_p_value(sample, 1, draw)) for sample in scores)
    for cut in CUTS:
        fitted = float(epsilon_star_gaussian(*fit_normal(scores[0]), *fit_normal(scores[1]), DELTA, cut))
        yield StarMethod.PARAMETRIC, cut, fitted
        yield (
            StarMethod.MIXTURE,
            cut,
            epsilon_star_mixtures(distributions[0], distributions[1], DELTA, cut, 1e-6).epsilon_star,
        )
        empirical_estimate = float(empirical_epsilon_star(members, population, DELTA, cut))
        yield StarMethod.EMPIRICAL, cut, empirical_estimate
        if cut == (EMPIRICAL_CUT if poor else PARAMETRIC_CUT):
            yield HEADLINE, cut, empirical_estimate if poor else fitted
    yield "poor", 0.0, float(poor)


def study(repetitions: int, losses: int) -> pd.DataFrame:
    """Return a row an estimate: pair, method, cut, poor (whether a normal is rejected), value, and the two truths.

    So many draws are made from each pair, each with so many members' losses.
    """
    rows = []
    for number, pair in enumerate(track(pairs(), "pairs of distributions", console=Console(stderr=True))):
        truth = {cut: true_epsilon_star(pair, DELTA, cut) for cut in CUTS}
        for repetition in range(repetitions):
            draw = np.random.default_rng([number, repetition, losses])
            sizes = ((pair.members, losses), (pair.population, round(_SHARE * losses)))
            loss_samples = [pair.losses(distribution.rvs(size=size, random_state=draw)) for distribution, size in sizes]
            estimate_rows = list(estimates(loss_samples[0], loss_samples[1], draw))
            poor = bool(estimate_rows.pop()[2])
            rows += [
                (pair.name, method, cut, poor, value, truth[0.0], truth[cut]) for method, cut, value in estimate_rows
            ]
    columns = ["pair", "method", "cut", "poor", "value", "truth", "truth_within_cut"]
    return pd.DataFrame(rows, columns=columns)


def _said(values: "pd.Series[float]") -> str:
    if values.empty:
        return "-"
    return f"{values.mean():.2f}" if np.isfinite(values.mean()) else "unbounded"


def main() -> None:
    """Print a line an estimator, and with `--pairs` one a pair."""
    parser = parser_of(__doc__, f"{QUICK_REPETITIONS} draws from each pair, not {REPETITIONS}")
    parser.add_argument("--losses", type=int, default=LOSSES, help=f"losses of members in a draw (default: {LOSSES})")
    parser.add_argument(
        "--pairs", action="store_true", help="print the truth and the mean estimates of every pair, too"
    )
    options = parser.parse_args()
    frame = study(QUICK_REPETITIONS if options.quick else REPETITIONS, options.losses)
    frame["error"] = (frame["value"] - frame["truth"]).abs()
    frame["within"] = (frame["value"] - frame["truth_within_cut"]).abs()
    draws = frame[frame["method"] == HEADLINE]
    title = (
        f"Mean distance from Epsilon* in nats, delta {DELTA:g}, {options.losses:,} and {_SHARE * options.losses:,.0f} "
        f"losses; {len(draws)} draws from {draws['pair'].nunique()} pairs of distributions, a normal rejected in "
        f"{int(draws['poor'].sum())}"
    )
    columns = ("estimator", "cut", "all", "fit holds", "fit rejected", "largest", "within its cut", "rejected there")
    table = table_of(columns, title, columns[:1])
    for (method, cut), rows in [
        *frame[frame["method"] != HEADLINE].groupby(["method", "cut"]),
        ((HEADLINE, None), draws),
    ]:
        fitting_rows = rows[~rows["poor"]]
        poor = rows[rows["poor"]]
        cells = [
            _said(rows["error"]),
            _said(fitting_rows["error"]),
            _said(poor["error"]),
            f"{rows['error'].max():.2f}",
            _said(rows["within"]),
            _said(poor["within"]),
        ]
        table.add_row(str(method), "its own" if cut is None else f"{cut:g}", *cells)
    Console(width=160).print(table)
    if options.pairs:
        Console(width=160).print(_of_pairs(frame))


def _of_pairs(frame: pd.DataFrame) -> object:
    """Return a table with a line a pair: the truth, over all thresholds and within cuts, and the mean estimates."""
    truths = [f"true, cut {cut:g}" for cut in CUTS]
    estimators = [
        (StarMethod.PARAMETRIC, PARAMETRIC_CUT),
        (StarMethod.MIXTURE, PARAMETRIC_CUT),
        (StarMethod.EMPIRICAL, EMPIRICAL_CUT),
    ]
    columns = ("pair", "rejected", *truths, *(f"{method}, {cut:g}" for method, cut in estimators))
    table = table_of(columns, None, columns[:1])
    for pair, rows in frame.groupby("pair", sort=False):
        of = dict(list(rows.groupby(["method", "cut"])))
        true = [f"{of[StarMethod.PARAMETRIC, cut]['truth_within_cut'].iloc[0]:.2f}" for cut in CUTS]
        table.add_row(str(pair), f"{rows['poor'].mean():.0%}", *true, *(_said(of[key]["value"]) for key in estimators))
    return table
