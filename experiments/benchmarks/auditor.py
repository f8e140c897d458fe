"""The audited auditor: how often each lower bound on epsilon exceeds the truth, on mechanisms whose epsilon is known.

    python -m experiments.benchmarks.auditor [--runs 2000] [--scores 500] [--quick] [--sorted] [--out FILE.csv]

Each run draws outputs of a mechanism under D and under D', scores them with the exact log-likelihood ratio, and asks
every method for a bound at delta 1e-5 and confidence 95 %. A bound above the mechanism's epsilon is a false
certificate; where a method's assumption holds, at most 5 % of runs may show one, up to the binomial error of the count.
With --sorted every run sorts its scores first, as the lines of a file may be: nothing may change. The lines of the
Gaussian mechanism show the power (mu = 1; targets at 500 + 500 scores). `warned` is the share of runs in which the
product said that the bound may certify too much. Takes about three minutes on one core.
"""

import argparse
import csv
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import brentq
from scipy.special import expit, ndtr
from scipy.stats import binom

from fl_audit.arrays import Floats
from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.evidence.bounds.lower_bounds import epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.privacy.gaussian import gdp_epsilon

DELTA = 1e-5
CONFIDENCE = 0.95
SEED = 20211
QUICK_RUNS = 200
FALSE_ALARM = 1e-4
"""Probability with which a bound of exactly the promised confidence would be called too frequent, per line."""
POWER_TARGETS = {BoundMethod.GAUSSIAN_SHIFT: 0.85, BoundMethod.GDP: 0.72, BoundMethod.ORDER_STATISTIC: 0.26}
"""Least mean bound as a share of the truth, Gaussian mechanism with mu = 1, 500 + 500 scores."""

_ASSUMES_NOTHING = frozenset({BoundMethod.CLOPPER_PEARSON, BoundMethod.ORDER_STATISTIC})
_GAUSSIAN = frozenset(BoundMethod) - {BoundMethod.BAYES}


@dataclass(frozen=True)
class KnownMechanism:
    """A mechanism with known epsilon."""

    name: str  # its name and parameters
    epsilon: Callable[[float], float]  # its exact epsilon at a delta, the larger of both directions
    # Log-likelihood ratios of so many outputs under D and as many under D'.
    draw: Callable[[np.random.Generator, int], tuple[Floats, Floats]]
    holds: frozenset[BoundMethod]  # the methods whose assumption holds; `bayes` promises nothing anywhere


@dataclass(frozen=True)
class AuditorLine:
    """One line of the table: a method on a mechanism."""

    method: str
    mechanism: str
    truth: float
    assumption_holds: str
    runs: int
    false_certificates: int
    false_rate: float
    false_rate_low: float
    false_rate_high: float
    mean_bound: float
    share_of_truth: float
    limit_of_detection: float
    warned: float
    milliseconds: float

    @property
    def too_many(self) -> bool:
        """Whether a promise is broken beyond the binomial error of the count."""
        most = binom.ppf(1 - FALSE_ALARM, self.runs, 1 - CONFIDENCE)
        return self.assumption_holds == "yes" and self.false_certificates > most


def noise() -> KnownMechanism:
    """Return scores that tell nothing: epsilon is 0."""
    return KnownMechanism(
        "pure noise", lambda delta: 0.0, lambda rng, n: (rng.standard_normal(n), rng.standard_normal(n)), _GAUSSIAN
    )


def gaussian(mu: float) -> KnownMechanism:
    """Return a Gaussian mechanism: log-odds N(+-mu^2/2, mu^2); epsilon by Balle & Wang 2018, theorem 8."""
    return KnownMechanism(
        f"Gaussian, mu = {mu:g}",
        lambda delta: gdp_epsilon(delta, mu),
        lambda rng, n: (rng.normal(mu * mu / 2, mu, n), rng.normal(-mu * mu / 2, mu, n)),
        _GAUSSIAN,
    )


def subsampled_gaussian(rate: float, sigma: float) -> KnownMechanism:
    """Return one Poisson-sampled Gaussian release: (1 - q) N(0, s^2) + q N(1, s^2) against N(0, s^2).

    With x(t) where the log-likelihood ratio is t, delta is P(x > x(eps)) - e^eps Q(x > x(eps)) in one direction and
    Q(x < x(-eps)) - e^eps P(x < x(-eps)) in the other.

    Parameters
    ----------
    rate, sigma
        q, in (0, 1]; and s, positive.
    """

    def ratio(x: Floats) -> Floats:
        return np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * sigma**2))

    def cut(t: float) -> float:
        inside = math.exp(t) - (1 - rate)
        return -math.inf if inside <= 0 else sigma**2 * math.log(inside / rate) + 0.5

    def tails(x: float) -> tuple[float, float]:
        absent, there = float(ndtr(-x / sigma)), float(ndtr((1 - x) / sigma))
        return (1 - rate) * absent + rate * there, absent

    def delta_of(epsilon: float) -> float:
        p, q = tails(cut(epsilon))
        p_low, q_low = tails(cut(-epsilon))
        return max(p - math.exp(epsilon) * q, (1 - q_low) - math.exp(epsilon) * (1 - p_low))

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        present = rng.random(n) < rate
        return ratio(rng.normal(0, sigma, n) + present), ratio(rng.normal(0, sigma, n))

    return KnownMechanism(
        f"subsampled Gaussian, q = {rate:g}, sigma = {sigma:g}",
        lambda delta: float(brentq(lambda epsilon: delta_of(epsilon) - delta, 0.0, 50.0, xtol=1e-12)),
        draw,
        _ASSUMES_NOTHING,
    )


def laplace(epsilon: float) -> KnownMechanism:
    """Return a Laplace mechanism; delta(eps') = 1 - e^((eps' - eps)/2) (Balle, Barthe & Gaboardi 2018, theorem 3)."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        outputs = [rng.laplace(centre, 1 / epsilon, n) for centre in (1.0, 0.0)]
        # |x| - |x - 1| would show beyond 0 and 1 by its rounding where x came from, and so tell more than epsilon.
        one, zero = (epsilon * np.clip(2 * x - 1, -1.0, 1.0) for x in outputs)
        return one, zero

    return KnownMechanism(
        f"Laplace, epsilon = {epsilon:g}",
        lambda delta: max(0.0, epsilon + 2 * math.log1p(-delta)),
        draw,
        _ASSUMES_NOTHING,
    )


def randomised_response(epsilon: float) -> KnownMechanism:
    """Return randomised response: true with probability p = e^eps / (1 + e^eps); delta(eps') = p - e^eps' (1 - p)."""
    honest = float(expit(epsilon))

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        one, zero = (np.where(rng.random(n) < p, epsilon, -epsilon) for p in (honest, 1 - honest))
        return one, zero

    return KnownMechanism(
        f"randomised response, epsilon = {epsilon:g}",
        lambda delta: max(0.0, math.log((honest - delta) / (1 - honest))),
        draw,
        _ASSUMES_NOTHING,
    )


MECHANISMS = (noise(), gaussian(1.0), subsampled_gaussian(0.25, 0.5), laplace(1.0), randomised_response(1.0))


def audit(
    mechanism: KnownMechanism,
    methods: tuple[BoundMethod, ...],
    runs: int,
    scores: int,
    rng: np.random.Generator,
    delta: float = DELTA,
    in_order: bool = False,
    progress: Callable[[range], Iterator[int]] = iter,
) -> tuple[AuditorLine, ...]:
    """Return one line a method; all methods see the same scores.

    Parameters
    ----------
    mechanism
        What is audited.
    methods
        Who audits.
    runs, scores
        Repetitions, and scores a group in each.
    rng
        Where all randomness comes from.
    delta
        Of the bounds.
    in_order
        Whether the scores of either group are sorted before they are looked at.
    progress
        Wraps the range of runs.
    """
    bounds, seconds = np.zeros((runs, len(methods))), np.zeros(len(methods))
    warned, limits = np.zeros(len(methods)), np.zeros(len(methods))
    for run in progress(range(runs)):
        members, nonmembers = mechanism.draw(rng, scores)
        if in_order:
            members, nonmembers = np.sort(members), np.sort(nonmembers)
        for column, method in enumerate(methods):
            start = time.perf_counter()
            found = epsilon_lower_bound(members, nonmembers, delta, CONFIDENCE, method)
            seconds[column] += time.perf_counter() - start
            bounds[run, column], limits[column] = found.epsilon, found.limit_of_detection
            warned[column] += any("certify too much" in one for one in found.warnings)
    truth = mechanism.epsilon(delta)
    lines = []
    for column, method in enumerate(methods):
        false = int(np.count_nonzero(bounds[:, column] > truth))
        low, high = clopper_pearson(false, runs, 0.95)
        mean = float(np.mean(bounds[:, column]))
        lines.append(
            AuditorLine(
                method=str(method),
                mechanism=mechanism.name,
                truth=truth,
                assumption_holds="not promised" if method is BoundMethod.BAYES else _yes(method in mechanism.holds),
                runs=runs,
                false_certificates=false,
                false_rate=false / runs,
                false_rate_low=low,
                false_rate_high=high,
                mean_bound=mean,
                share_of_truth=mean / truth if truth else math.nan,
                limit_of_detection=float(limits[column]),
                warned=float(warned[column]) / runs,
                milliseconds=float(1000 * seconds[column] / runs),
            )
        )
    return tuple(lines)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def table_of(lines: list[AuditorLine], scores: int) -> Table:
    """Return the table of all lines.

    Parameters
    ----------
    lines
        What was counted of each bound.
    scores
        Scores on each side.
    """
    setting = f"{scores} + {scores} scores, {lines[0].runs} runs"
    title = f"Lower bounds at delta {DELTA:g}, confidence {CONFIDENCE:.0%}, {setting}"
    table = Table(title=title)
    heads = (
        "mechanism (true epsilon)",
        "method",
        "assumption holds",
        "false certificates [95 %]",
        "mean bound",
        "of truth",
        "limit of detection",
        "warned",
        "ms",
    )
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < 3 else "right")
    for line in lines:
        table.add_row(
            f"{line.mechanism} ({line.truth:.4g})",
            line.method,
            line.assumption_holds,
            f"{line.false_rate:.1%} [{line.false_rate_low:.1%}, {line.false_rate_high:.1%}]"
            + (" TOO MANY" if line.too_many else ""),
            f"{line.mean_bound:.3f}",
            "-" if math.isnan(line.share_of_truth) else f"{line.share_of_truth:.0%}",
            f"{line.limit_of_detection:.2f}",
            f"{line.warned:.1%}",
            f"{line.milliseconds:.1f}",
            end_section=line.method == str(list(BoundMethod)[-1]),
        )
    return table


def main() -> None:
    """Print the table; exit with status 1 where a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="runs of each mechanism (default: 2000)")
    parser.add_argument("--scores", type=int, default=500, help="scores of each group (default: 500)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs")
    parser.add_argument("--sorted", action="store_true", help="sort the scores of every run first")
    parser.add_argument("--out", type=Path, help="write the table as CSV, too")
    options = parser.parse_args()
    runs = QUICK_RUNS if options.quick else options.runs
    if runs < 1 or options.scores < 2:
        parser.error(f"runs is {runs}, scores is {options.scores}: accepted are at least 1 run and 2 scores")
    shown = Console(stderr=True)
    lines: list[AuditorLine] = []
    for number, mechanism in enumerate(MECHANISMS):
        lines += audit(
            mechanism,
            tuple(BoundMethod),
            runs,
            options.scores,
            np.random.default_rng([SEED, number]),
            in_order=options.sorted,
            progress=lambda steps, name=mechanism.name: iter(track(steps, description=name, console=shown)),  # type: ignore[misc]
        )
    Console(width=160).print(table_of(lines, options.scores))
    for method, target in POWER_TARGETS.items():
        share = next(x.share_of_truth for x in lines if x.method == str(method) and x.mechanism == MECHANISMS[1].name)
        print(f"power, {MECHANISMS[1].name}: {method} certifies {share:.1%} of the truth, target {target:.0%}")
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(asdict(lines[0])))
            writer.writeheader()
            writer.writerows(asdict(line) for line in lines)
    if broken := [line for line in lines if line.too_many]:
        names = ", ".join(f"{line.method} on {line.mechanism}" for line in broken)
        sys.exit(f"more false certificates than promised: {names}")


if __name__ == "__main__":
    main()
