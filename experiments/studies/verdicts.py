"""Do verdicts err? Honest federations that must not be called violated, and breaches that must be.

    python -m experiments.studies.verdicts [--quick] [--only PART]

Honest federations of many kinds: the share that is called violated against the binomial bound of 0.1 %, and the
p-values of every test against the uniform law. Breaches: one batch of 20 worlds and 30 rounds each, the share in which
every test that is made for it finds it.

Each is done twice: with federations that are made up in numpy, whose truth is known and does not rest on the code that
is studied, and with real ones on the local engine, trained, noised and measured as in any audit.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import binom, kstest

from experiments.cli.main import guarded
from experiments.runs.run import Parties
from experiments.studies.adaptive_logistic import OddFeature, play_odd_feature
from experiments.studies.breaches import BREACHES
from experiments.studies.engine_runs import ENGINE_BREACHES, breach_plan, honest_plans, measured_run
from experiments.studies.synthetic_noise import Federation, Setting, play
from fl_audit.evidence.belief.family import FAMILY_LEVEL, TestName
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.verdict import run_family

ALARM = 1e-3
"""Probability with which the study itself may raise a false alarm, over all that it checks."""

_REQUIRED_SHARE = 0.99
_MODELS = ((("weight", 640), ("bias", 10)), (("weight", 60), ("bias", 2)), (("first", 300), ("b", 6), ("last", 14)))
_WORLDS = (2, 5, 20, 60)
_NEVER_TOO_SMALL = (TestName.NOISE_TENSOR, TestName.LOW_BITS)
_NOT_RANDOM = (TestName.SENSITIVITY,)


@dataclass(frozen=True)
class HonestTest:
    """The p-values of one test over honest runs.

    Parameters
    ----------
    name
        Which test.
    p_values
        One a run that offers it.
    """

    name: str
    p_values: NDArray[np.float64]

    @property
    def law(self) -> str:
        """What the p-values must be."""
        if self.name in _NOT_RANDOM:
            return "always 1"
        return "never too small" if self.name in _NEVER_TOO_SMALL else "uniform"

    @property
    def ks(self) -> float:
        """Kolmogorov-Smirnov p-value of that law."""
        if self.name in _NOT_RANDOM:
            return float((self.p_values == 1).all())
        one_sided = self.name in _NEVER_TOO_SMALL
        return float(kstest(self.p_values, "uniform", alternative="greater" if one_sided else "two-sided").pvalue)


def honest_runs(count: int, seed: int = 0) -> Iterator[Measured]:
    """Play honest federations of both scalings and relations, three models and 2 to 60 worlds, one after the other.

    Every tenth is the logistic model whose sensitivities follow the secret.
    """
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        worlds = _WORLDS[number % len(_WORLDS)]
        if number % 10 == 9:
            yield play_odd_feature(rng, OddFeature(worlds=worlds, mu=3.0 + number % 3))
            continue
        tensors = _MODELS[number % len(_MODELS)]
        relation, scaling = bool(rng.integers(2)), bool(rng.integers(2))
        yield play(rng, Setting(tensors, worlds, rounds=int(rng.integers(2, 21)), replace=relation, local=scaling))


@dataclass(frozen=True)
class HonestStudy:
    """Honest runs: how many, how many were called violated, and every test's p-values."""

    runs: int
    violated: int
    tests: tuple[HonestTest, ...]

    @property
    def allowed(self) -> int:
        """Number of violated runs that chance explains but for `ALARM`."""
        return int(binom.ppf(1 - ALARM, self.runs, FAMILY_LEVEL))

    def problems(self) -> list[str]:
        """Return what contradicts the claims."""
        found = [] if self.violated <= self.allowed else [f"{self.violated} of {self.runs} honest runs are violated"]
        limit = ALARM / len(self.tests)
        return found + [f"the p-values of {test.name} are not {test.law}" for test in self.tests if test.ks < limit]


def study_honest(runs: Iterator[Measured]) -> HonestStudy:
    """Judge honest runs."""
    violated, number, p_values = 0, 0, {str(name): list[float]() for name in TestName}
    for measured in runs:
        tests = run_family(measured)[0]
        number += 1
        violated += any(test.violated for test in tests)
        for test in tests:
            p_values[test.name].append(test.p_value)
    parts = tuple(HonestTest(name, np.array(values)) for name, values in p_values.items() if values)
    return HonestStudy(number, violated, parts)


@dataclass(frozen=True)
class BreachStudy:
    """Runs of one breach: in how many it was found by any test, and by each that is to find it."""

    name: str
    runs: int
    found: int
    by_test: tuple[tuple[str, int], ...]

    def problems(self) -> list[str]:
        """Return the tests that find the breach too rarely."""
        least = _REQUIRED_SHARE * self.runs
        return [f"{self.name}: {test} finds {count} of {self.runs}" for test, count in self.by_test if count < least]


Play = Callable[[int], Measured]


def study_breach(name: str, play_run: Play, expected: tuple[TestName, ...], runs: int) -> BreachStudy:
    """Judge runs of a breach.

    Parameters
    ----------
    name
        What the breach is.
    play_run
        Plays the run of a number, one batch of 20 worlds and 30 rounds.
    expected
        The tests that are to find it.
    runs
        How many.
    """
    counts, found = dict.fromkeys(map(str, expected), 0), 0
    for number in range(runs):
        broken = {str(test.name) for test in run_family(play_run(number))[0] if test.violated}
        found += bool(broken)
        for test in broken & set(counts):
            counts[test] += 1
    return BreachStudy(name, runs, found, tuple(counts.items()))


def _synthetic(federation: Federation, number: int) -> Measured:
    return play(np.random.default_rng((1, number)), Setting(), federation)


def _real(parties: Parties, number: int) -> Measured:
    return measured_run(breach_plan(number), parties)


def honest_table(study: HonestStudy, kind: str) -> Table:
    """Return the table of honest runs."""
    table = Table(
        title=f"Honest {kind} federations: {study.violated} of {study.runs} violated, {study.allowed} allowed"
    )
    for column in ("test", "runs", "p-values are", "KS p", "smallest p", "level"):
        table.add_column(column)
    for test in study.tests:
        smallest, level = f"{test.p_values.min():.2g}", f"{TestName(test.name).level:.2g}"
        table.add_row(test.name, str(test.p_values.size), test.law, f"{test.ks:.3f}", smallest, level)
    return table


def breach_table(studies: list[BreachStudy], kind: str) -> Table:
    """Return the table of breaches."""
    table = Table(title=f"Breaches by {kind} federations: 20 worlds, 30 rounds")
    for column in ("breach", "runs", "found", "by the tests made for it"):
        table.add_column(column)
    for study in studies:
        said = ", ".join(f"{name} {count}" for name, count in study.by_test)
        table.add_row(study.name, str(study.runs), str(study.found), said)
    return table


def _honest_part(console: Console, kind: str, runs: Iterator[Measured]) -> list[str]:
    study = study_honest(runs)
    console.print(honest_table(study, kind))
    return [f"honest {kind}: {problem}" for problem in study.problems()]


def _breach_part(
    console: Console, kind: str, breaches: Sequence[tuple[str, Play, tuple[TestName, ...]]], runs: int
) -> list[str]:
    studies = [study_breach(*breach, runs=runs) for breach in breaches]
    console.print(breach_table(studies, kind))
    return [f"{kind}: {problem}" for study in studies for problem in study.problems()]


def _parts(console: Console, is_quick: bool) -> dict[str, Callable[[], list[str]]]:
    """Return what the study consists of, each part returning what contradicts the claims."""
    honest, breaches = (40, 3) if is_quick else (500, 100)
    made_up = [(one.name, partial(_synthetic, one), tests) for one, tests in BREACHES]
    real = [(name, partial(_real, parties), tests) for name, parties, tests in ENGINE_BREACHES]
    return {
        "honest": lambda: _honest_part(console, "made-up", honest_runs(honest)),
        "breaches": lambda: _breach_part(console, "made-up", made_up, breaches),
        "real-honest": lambda: _honest_part(console, "real", map(measured_run, honest_plans(honest))),
        "real-breaches": lambda: _breach_part(console, "real", real, breaches),
    }


def main() -> None:
    """Print the tables; the exit status is 1 where something contradicts the claims."""
    console = Console(width=140)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="40 honest runs and 3 of each breach, not 500 and 100")
    parser.add_argument("--only", choices=list(_parts(console, True)), help="one part instead of all")
    options = parser.parse_args()
    parts = _parts(console, options.quick)
    found = [problem for name, part in parts.items() if options.only in (None, name) for problem in part()]
    print("\n".join(found) or "nothing contradicts the claims")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    guarded(main)
