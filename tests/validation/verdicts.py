"""False alarms of verdicts: honest federations of many kinds, none of which may be called violated.

    python -m tests.validation verdicts [--runs 500] [--only made-up|real] [--journal FILE] [--minutes M]

The share that is called violated is held against the binomial bound of 0.1 %, and the p-values of every test against
the uniform distribution. Made-up federations are numpy arrays whose truth is known and does not rest on the code that
is studied; real ones run on the local engine, under all mechanisms and in nasty settings. Breaches are studied by
`tests.validation.breaches`. With `--journal` every run is kept in a file that only grows, and a second call goes on
after it; `--minutes` ends a call early.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy.stats import binom, kstest

from fl_audit.array_types import Floats
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.verdict.declared_tests import FAMILY_LEVEL, OF_OPENED
from fl_audit.verdict.declared_tests import TestName as T
from fl_audit.verdict.judging import FAMILY, run_family
from fl_audit.verdict.run_measurements import NoiseMeasurements
from tests.validation.engine_runs import honest_plans, measured_run
from tests.validation.journal import append, read, until
from tests.validation.opened_breaches import measured_of
from tests.validation.synthetic_noise import NoiseSetting, OddFeature, play, play_odd_feature
from tests.validation.synthetic_opened import OpenedSetting

ALARM = 1e-3  # probability with which the study itself may raise a false alarm, over all that it checks
_MODELS = ((("weight", 640), ("bias", 10)), (("weight", 60), ("bias", 2)), (("first", 300), ("b", 6), ("last", 14)))
_TRIALS = (2, 5, 20, 60)
NEVER_TOO_SMALL = (
    T.NOISE_TENSOR,
    T.NOISE_ROUND,
    T.SHAPE,
    T.REPEATED_NOISE,
    T.CORRELATED_NOISE,
    T.DISTINGUISHER,
    T.NOISE_TRIAL,
    T.SIGNAL_ROUND,
    T.SIGNAL_TRIAL,
    T.DRIFT_PLACE,
    *(name for name in OF_OPENED if name is not T.EXACT_STEPS),
)
"""Tests whose p-values are Bonferroni's, or those of a count."""
NOT_RANDOM = (T.SENSITIVITY, T.EXACT_STEPS)


def _distribution_of(name: T, p_values: Floats) -> tuple[str, float]:
    """Return the required distribution of a test's p-values over honest runs, and its Kolmogorov-Smirnov p-value."""
    if name in NOT_RANDOM:
        return "always 1", float((p_values == 1).all())
    if name in NEVER_TOO_SMALL:
        return "never too small", float(kstest(p_values, "uniform", alternative="greater").pvalue)
    return "uniform", float(kstest(p_values, "uniform").pvalue)


def _made_up_run(number: int, seed: int = 0) -> NoiseMeasurements:
    """Play an honest federation of either scaling and relation, of three models and 2 to 60 trials.

    Every tenth is the logistic model whose sensitivities depend on the secret, and another tenth opens samples, shares
    of the noise, quantile bits and last bits.
    """
    rng = np.random.default_rng((seed, number))
    trials = _TRIALS[number % len(_TRIALS)]
    if number % 10 == 9:
        return play_odd_feature(rng, OddFeature(trials=trials, mu=3.0 + number % 3))
    if number % 10 == 8 and trials > 2:
        return measured_of(rng, OpenedSetting(trials=trials, rounds=int(rng.integers(2, 21)), rate=0.3))
    tensors = _MODELS[number % len(_MODELS)]
    relation = bool(rng.integers(2))
    scaling = bool(rng.integers(2))
    return play(rng, NoiseSetting(tensors, trials, rounds=int(rng.integers(2, 21)), replace=relation, local=scaling))


class Judged(NamedTuple):
    """The results of the family for one honest run."""

    violated: list[str]  # the tests that refute it
    p_values: dict[str, float]


def _played(
    kind: str, count: int, run: Callable[[int], NoiseMeasurements], path: Path | None, over: Callable[[], bool]
) -> list[Judged]:
    """Judge the runs that a journal lacks until the time is over, and return all that it holds."""
    rows = [row for row in read(path, tests=len(FAMILY)) if row["federations"] == kind]
    judged_runs = {row["number"]: Judged(row["violated"], row["p"]) for row in rows}
    for number in track([index for index in range(count) if index not in judged_runs], f"{kind} federations"):
        if over():
            break
        tests = run_family(run(number))[0]
        p_values = {str(test.name): float(test.p_value) for test in tests}
        judged_runs[number] = Judged([str(test.name) for test in tests if test.violated], p_values)
        record = {"federations": kind, "number": number, "tests": len(FAMILY)}
        append(path, record | {"violated": judged_runs[number].violated, "p": p_values})
    return list(judged_runs.values())


def _judged(kind: str, judged: Sequence[Judged], console: Console) -> list[str]:
    """Print the table of honest runs, and return the contradictions to the claims."""
    number = len(judged)
    violated = sum(bool(judged_run.violated) for judged_run in judged)
    offered = {
        name: np.array([judged_run.p_values[name] for judged_run in judged if name in judged_run.p_values])
        for name in T
        if any(name in judged_run.p_values for judged_run in judged)
    }
    distributions = {name: _distribution_of(name, values) for name, values in offered.items()}
    allowed_count = int(binom.ppf(1 - ALARM, number, FAMILY_LEVEL))  # more than chance explains
    columns = ("test", "runs", "p-values are", "KS p", "smallest p", "level")
    title = f"Honest {kind} federations: {violated} of {number} violated, {allowed_count} allowed"
    rows = [
        (
            name,
            str(values.size),
            distributions[name][0],
            f"{distributions[name][1]:.3f}",
            f"{values.min():.2g}",
            f"{name.level:.2g}",
        )
        for name, values in offered.items()
    ]
    console.print(table_of(columns, title, columns, rows))
    problems = [] if violated <= allowed_count else [f"{violated} of {number} honest runs are violated"]
    problems += [
        f"the p-values of {name} are not {distribution}"
        for name, (distribution, ks) in distributions.items()
        if ks < ALARM / len(distributions)
    ]
    return [f"honest {kind}: {problem}" for problem in problems]


def main() -> None:
    """Print the tables; the exit status is 1 where something contradicts the claims."""
    console = Console(width=140)
    parser = parser_of(__doc__)
    problems = list[str]()
    parser.add_argument("--runs", type=int, default=500, help="real runs; of made-up ones four times as many")
    parser.add_argument("--only", choices=("made-up", "real"), help="one part instead of both")
    parser.add_argument("--journal", type=Path, help="file that keeps every run")
    parser.add_argument("--minutes", type=float, help="minutes after which no further run begins")
    options = parser.parse_args()
    path = options.journal
    over = until(options.minutes)
    if options.only != "real":
        problems += _judged("made-up", _played("made-up", 4 * options.runs, _made_up_run, path, over), console)
    if options.only != "made-up":
        with tempfile.TemporaryDirectory() as directory:
            plans = list(honest_plans(options.runs, Path(directory)))
            judged_runs = _played("real", options.runs, lambda number: measured_run(plans[number]), path, over)
            problems += _judged("real", judged_runs, console)
    exit_with(problems, "nothing contradicts the claims")
