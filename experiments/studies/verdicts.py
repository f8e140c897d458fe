"""Do verdicts raise false alarms? Honest federations of many kinds, which must not be called violated.

    python -m experiments.studies.verdicts [--runs 500] [--only made-up|real]

The share that is called violated is held against the binomial bound of 0.1 %, and the p-values of every test against
the uniform law. Made-up federations are numpy arrays whose truth is known and does not rest on the code that is
studied; real ones run on the local engine, in all laws and in nasty settings. Breaches are studied by
`experiments.studies.breaches`.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import binom, kstest

from experiments.cli.main import guarded
from experiments.studies.adaptive_logistic import OddFeature, play_odd_feature
from experiments.studies.engine_runs import honest_plans, measured_run
from experiments.studies.synthetic_noise import NoiseSetting, play
from fl_audit.arrays import Floats
from fl_audit.evidence.belief.family import FAMILY_LEVEL, TestName
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.verdict import run_family

ALARM = 1e-3  # probability with which the study itself may raise a false alarm, over all that it checks

_REQUIRED_SHARE = 0.99
_MODELS = ((("weight", 640), ("bias", 10)), (("weight", 60), ("bias", 2)), (("first", 300), ("b", 6), ("last", 14)))
_WORLDS = (2, 5, 20, 60)
NEVER_TOO_SMALL = (
    TestName.NOISE_TENSOR,
    TestName.NOISE_PLACE,
    TestName.NOISE_ROUND,
    TestName.SHAPE,
    TestName.TAILS,
    TestName.SHAPE_ALONG_RECORD,
    TestName.EQUAL_VALUES,
    TestName.SHIFTED_COPIES,
    TestName.LOW_BITS,
    TestName.GRID,
    TestName.SECRET_PLACE,
    TestName.DISTINGUISHER,
)
"""Tests whose p-values are Bonferroni's, or of a count."""
NOT_RANDOM = (TestName.SENSITIVITY,)


@dataclass(frozen=True)
class HonestTest:
    """The p-values of one test over honest runs."""

    name: str  # which test
    p_values: Floats  # one a run that offers it

    @property
    def law(self) -> str:
        """What the p-values must be."""
        if self.name in NOT_RANDOM:
            return "always 1"
        return "never too small" if self.name in NEVER_TOO_SMALL else "uniform"

    @property
    def ks(self) -> float:
        """Kolmogorov-Smirnov p-value of that law."""
        if self.name in NOT_RANDOM:
            return float((self.p_values == 1).all())
        one_sided = self.name in NEVER_TOO_SMALL
        return float(kstest(self.p_values, "uniform", alternative="greater" if one_sided else "two-sided").pvalue)


def _honest_runs(count: int, seed: int = 0) -> Iterator[Measured]:
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
        yield play(rng, NoiseSetting(tensors, worlds, rounds=int(rng.integers(2, 21)), replace=relation, local=scaling))


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


def _honest_table(study: HonestStudy, kind: str) -> Table:
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


def _honest_part(console: Console, kind: str, runs: Iterator[Measured]) -> list[str]:
    study = study_honest(runs)
    console.print(_honest_table(study, kind))
    return [f"honest {kind}: {problem}" for problem in study.problems()]


def _real_part(console: Console, count: int) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        return _honest_part(console, "real", map(measured_run, honest_plans(count, Path(directory))))


def _parts(console: Console, count: int) -> dict[str, Callable[[], list[str]]]:
    """Return what the study consists of, each part returning what contradicts the claims."""
    return {
        "made-up": lambda: _honest_part(console, "made-up", _honest_runs(4 * count)),
        "real": lambda: _real_part(console, count),
    }


def main() -> None:
    """Print the tables; the exit status is 1 where something contradicts the claims."""
    console = Console(width=140)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="real runs; of made-up ones four times as many")
    parser.add_argument("--only", choices=list(_parts(console, 1)), help="one part instead of both")
    options = parser.parse_args()
    parts = _parts(console, options.runs)
    found = [problem for name, part in parts.items() if options.only in (None, name) for problem in part()]
    print("\n".join(found) or "nothing contradicts the claims")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    guarded(main)
