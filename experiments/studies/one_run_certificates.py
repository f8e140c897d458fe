"""One-run bounds on mechanisms whose privacy is known: how much do they certify, and how often too much?

    python -m experiments.studies.one_run_certificates [--quick]

Two tables. The first: what 1000 ideal Gaussian canaries certify, by number of guesses, beside a limit that no bound by
counted guesses can pass if it is to hold for mechanisms that leak coins together. The second: how often certificates
at 95 % are false in 5000 runs of each mechanism. Where a method's assumption holds at most 5 % may be, and the exit
status is 1 where a count is larger than that and chance explain; where it does not hold the share is shown as well.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import brentq
from scipy.special import bdtrc, logit, ndtri
from scipy.stats import binom

from experiments.cli.main import guarded
from experiments.studies.membership_releases import gaussian_mean
from experiments.studies.one_run_mechanisms import OneRunMechanism, mechanisms, partial_response_tpr
from fl_audit.arrays import Flags, Floats
from fl_audit.canaries.bounds import bound_of_guesses
from fl_audit.canaries.guesses import Guesses, guesses_of_scores
from fl_audit.canaries.methods import OneRunMethod
from fl_audit.canaries.order_statistic import order_statistic_p_value
from fl_audit.canaries.steinke import one_run_p_value
from fl_audit.canaries.tradeoff import approximate_inverse, gaussian_inverse, is_possible
from fl_audit.confidence.shift import gaussian_shift
from fl_audit.privacy.gaussian import gdp_epsilon, gdp_mu

RUNS, QUICK_RUNS = 5000, 300
POWER_RUNS, QUICK_POWER_RUNS = 2000, 30
COINS, DELTA, LEVEL = 1000, 1e-5, 0.05
ALARM = 1e-3  # probability, at most, with which the study may raise a false alarm over all lines
TRUTHS = (4.38, 10.0)
GUESSED = (500, 250, 100)
_SHARES = np.exp(np.linspace(np.log(LEVEL * 1.001), 0.0, 120))
_RATES = np.exp(np.linspace(np.log(1e-12), np.log(0.5), 4000))
_SURE = 1 - 1e-12

IsFalse = Callable[[Floats, Flags], bool]


@dataclass(frozen=True)
class CertificateLine:
    """How often one certificate about one mechanism was false."""

    # `mechanism`, `certificate`: which.
    mechanism: str
    certificate: str
    truth: float  # what must not be certified to be exceeded
    holds: bool  # whether the method's assumption holds for the mechanism
    # `runs`, `false`: how many there were, and how many were false.
    runs: int
    false: int


def false_certificates(mechanism: OneRunMechanism, runs: int, seed: int) -> list[CertificateLine]:
    """Return how often each certificate about a mechanism is false.

    Parameters
    ----------
    mechanism
        What is played.
    runs
        How many runs of 1000 coins.
    seed
        Seed of the runs.
    """
    draw = np.random.default_rng((seed, 26))
    tests = _tests(mechanism.mu, mechanism.epsilon(DELTA))
    false = dict.fromkeys(tests, 0)
    for _ in range(runs):
        coins = draw.random((1, COINS)) < 0.5
        scores = mechanism.tell(draw, coins)
        for name, (_, _, is_false) in tests.items():
            false[name] += is_false(scores[0], coins[0])
    independent, gaussian = mechanism.is_independent, mechanism.is_gaussian
    holds = {"any": True, "independent": independent, "gaussian": gaussian}
    return [
        CertificateLine(mechanism.name, name, truth, holds[needs], runs, false[name])
        for name, (truth, needs, _) in tests.items()
    ]


def _tests(mu: float, epsilon: float) -> dict[str, tuple[float, str, IsFalse]]:
    """Return for each certificate the truth, what it asks for, and whether it certifies more than the truth.

    A bound lies above the truth exactly where the truth itself is rejected, which is much faster to say.
    """
    fifth, half = COINS // 10, COINS // 4
    mu_of_epsilon = gdp_mu(epsilon, DELTA)

    @cache
    def by_steinke(guesses: Guesses) -> bool:
        return one_run_p_value(guesses, epsilon, DELTA) < LEVEL

    @cache
    def by_tradeoff(guesses: Guesses) -> bool:
        return not is_possible(guesses, LEVEL, approximate_inverse(epsilon, DELTA))

    @cache
    def by_tradeoff_mu(guesses: Guesses) -> bool:
        return not is_possible(guesses, LEVEL, gaussian_inverse(mu))

    @cache
    def by_order(guesses: Guesses, tested: float) -> bool:
        return order_statistic_p_value(guesses, tested) < LEVEL

    def counted(number: int, decide: Callable[[Guesses], bool]) -> IsFalse:
        return lambda scores, coins: decide(guesses_of_scores(scores, coins, number, number))

    def by_shift(scores: Floats, coins: Flags) -> bool:
        return gaussian_shift(scores[coins], scores[~coins], 1 - LEVEL).low > mu

    return {
        "steinke, epsilon": (epsilon, "any", counted(fifth, by_steinke)),
        "trade-off, epsilon": (epsilon, "any", counted(fifth, by_tradeoff)),
        "trade-off, mu": (mu, "any", counted(fifth, by_tradeoff_mu)),
        "order-statistic, mu": (mu, "independent", counted(half, lambda one: by_order(one, mu))),
        "order-statistic, epsilon": (epsilon, "gaussian", counted(half, lambda one: by_order(one, mu_of_epsilon))),
        "shift, mu": (mu, "gaussian", by_shift),
    }


def problems(lines: list[CertificateLine]) -> list[str]:
    """Return what contradicts the claims."""
    allowed = binom.ppf(1 - ALARM / max(1, len(lines)), lines[0].runs, LEVEL)
    return [
        f"{line.certificate} on {line.mechanism}: {line.false} of {line.runs} are false, {allowed:g} allowed"
        for line in lines
        if line.holds and line.false > allowed
    ]


def limit_under_dependence(guesses: Guesses) -> float:
    """Return a mu that no bound from these counts can certify more of, if it holds for coins that leak together.

    A mechanism that with probability p tells, by randomised response, of r of the m coins chosen at random, and
    otherwise of none, is mu-GDP with a mu in closed form; where p times the probability of v right guesses of r is at
    least the level, a bound above that mu would be false too often.
    """
    return min(_mu_of_a_leak(guesses, float(share)) for share in _SHARES)


def _mu_of_a_leak(guesses: Guesses, share: float) -> float:
    """Return the mu at which a leak with probability `share` passes the count with the level's probability."""
    r, needed = guesses.guessed, LEVEL / share

    def missing(right: float) -> float:
        return float(bdtrc(guesses.right - 1, r, right)) - needed

    if missing(_SURE) < 0:
        return np.inf
    epsilon = float(logit(brentq(missing, 0.5, _SURE)))
    curve = partial_response_tpr(_RATES, share * r / guesses.coins, epsilon)
    return float(np.max(ndtri(curve) - ndtri(_RATES)))


def power(truth: float, guessed: int, runs: int) -> tuple[float, ...]:
    """Return the means of the columns of `power_table`: what 1000 ideal Gaussian canaries certify.

    Parameters
    ----------
    truth
        True epsilon at delta 1e-5.
    guessed
        Number of guesses.
    runs
        How many runs the means are over.
    """
    draw, seconds = np.random.default_rng(guessed), []
    mechanism = gaussian_mean(gdp_mu(truth, DELTA))

    @cache
    def others(one: Guesses) -> tuple[float, ...]:
        tradeoff = bound_of_guesses(one, DELTA, 1 - LEVEL)
        steinke = bound_of_guesses(one, DELTA, 1 - LEVEL, OneRunMethod.STEINKE)
        read_off = gdp_epsilon(DELTA, tradeoff.mu or 0.0)
        return steinke.epsilon, tradeoff.epsilon, read_off, gdp_epsilon(DELTA, limit_under_dependence(one))

    @cache
    def by_order(one: Guesses) -> float:
        began = time.perf_counter()
        bound = bound_of_guesses(one, DELTA, 1 - LEVEL, OneRunMethod.ORDER_STATISTIC)
        seconds.append(time.perf_counter() - began)
        return bound.epsilon

    found = []
    for _ in range(runs):
        coins = draw.random(COINS) < 0.5
        guesses = guesses_of_scores(mechanism.tell(draw, coins), coins, guessed // 2, guessed // 2)
        found.append((*others(Guesses(COINS, guessed, guesses.right)), by_order(guesses)))
    return (truth, guessed, *np.mean(found, axis=0), 1e3 * float(np.mean(seconds)))


def power_table(rows: list[tuple[float, ...]]) -> Table:
    """Return the table of what is certified."""
    table = Table(title=f"Mean epsilon at {DELTA:g} that {COINS} ideal Gaussian canaries certify at {1 - LEVEL:.0%}")
    names = "true", "guesses", "steinke", "trade-off", "trade-off, by mu", "limit where coins may leak together"
    for column in (*names, "order-statistic", "milliseconds"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(f"{row[0]:g}", f"{row[1]:g}", *(f"{mean:.2f}" for mean in row[2:-1]), f"{row[-1]:.0f}")
    return table


def certificates_table(lines: list[CertificateLine]) -> Table:
    """Return the table of false certificates."""
    table = Table(title=f"False certificates at {1 - LEVEL:.0%}, {COINS} coins a run")
    for column in ("mechanism", "certificate", "truth", "assumption", "runs", "false", "share"):
        table.add_column(column, justify="left" if column in ("mechanism", "certificate", "assumption") else "right")
    for line in lines:
        holds = "holds" if line.holds else "does not hold"
        counts = (str(line.runs), str(line.false), f"{line.false / line.runs:.1%}")
        table.add_row(line.mechanism, line.certificate, f"{line.truth:.3f}", holds, *counts)
    return table


def main() -> None:
    """Print both tables; the exit status is 1 where more certificates are false than may be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs of each mechanism, not {RUNS}")
    runs, power_runs = (QUICK_RUNS, QUICK_POWER_RUNS) if parser.parse_args().quick else (RUNS, POWER_RUNS)
    progress, console = Console(stderr=True), Console(width=160)
    asked = [(truth, guessed) for truth in TRUTHS for guessed in GUESSED]
    console.print(power_table([power(*one, power_runs) for one in track(asked, "power", console=progress)]))
    played = enumerate(track(mechanisms(), "false certificates", console=progress))
    lines = [line for seed, mechanism in played for line in false_certificates(mechanism, runs, seed)]
    console.print(certificates_table(lines))
    found = problems(lines)
    print("\n".join(found) or "nothing contradicts the claims")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    guarded(main)
