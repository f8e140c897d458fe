"""Power of the verdict: every kind of breach, in synthetic and in real federations, with the tests that find it.

    python -m tests.validation breaches [--runs 1000] [--real 20] [--only WORDS] [--journal FILE] [--minutes M]
        [--out FILE]

Made-up federations are numpy arrays, whose truth is known and does not rest on the code that is studied. Real ones run
on the local engine, trained, noised and measured as in any audit: logistic regression on digits, 100 trials of 30
rounds. A breach is found where the verdict is `violated`. Breaches that are smaller than a stated limit of detection
are marked; beside each stands one of twice that size, which must be found. Breaches of what the challenger opens, as of
samples and shares, are made up of raw draws, and are real where a server of ours can be made to do them.

With `--journal` every run is kept in a file that only grows, and a second call goes on after it; `--minutes` ends a
call early. `--runs` and `--real` are then how many runs each kind gets in all, and 0 plays no more of them: the tables
show all that the journal holds. `--out FILE` writes the table of the documentation: what is claimed of each kind, its
true epsilon where it is known, the verdict, and the test that found it with its limit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.verdict.judging import FAMILY, run_family
from fl_audit.verdict.run_measurements import NoiseMeasurements
from tests.validation.breach_kinds import BREACHES, Breach
from tests.validation.breach_table import Line, write
from tests.validation.engine_runs import breach_plan, measured_run, parties_of
from tests.validation.held_back_breaches import HELD_BACK
from tests.validation.journal import append, blocks, read, until
from tests.validation.opened_breaches import OPENED_BREACHES, OpenedBreach
from tests.validation.synthetic_noise import DrawnRun, NoiseSetting, draw_run, play_drawn

REQUIRED_SHARE = 0.99
EVERY: tuple[Breach | OpenedBreach, ...] = (*BREACHES, *OPENED_BREACHES, *HELD_BACK)
"""Every kind that is played."""

Play = Callable[[int], NoiseMeasurements]


class BreachStudy(NamedTuple):
    """Runs of one breach."""

    breach: Breach | OpenedBreach  # the breach
    runs: int  # number of runs with the breach
    found: int  # number of runs in which any test found the breach
    # Number of runs in which each of the tests made for it found it, or any other where none of those did; the most
    # frequent first.
    by_test: tuple[tuple[str, int], ...]

    @property
    def row(self) -> tuple[str, int, int, str, str]:
        """Its name, runs, in how many it was found, the three tests that found it most often, and a remark."""
        best = ", ".join(f"{name} {count}" for name, count in self.by_test[:3])
        return self.breach.name, self.runs, self.found, best, self.breach.below

    @property
    def expected(self) -> int:
        """The number of runs in which the best of the breach's own tests found it."""
        return max((dict(self.by_test).get(str(name), 0) for name in self.breach.tests), default=0)

    def problems(self, required_share: float) -> list[str]:
        """Return the contradictions to the claims: a breach above its limit found in too small a share of runs."""
        if self.breach.below or self.found >= required_share * self.runs:
            return []
        return [f"{self.breach.name}: found in {self.found} of {self.runs} runs"]


def _study_breach(breach: Breach | OpenedBreach, play_run: Play, runs: Iterable[int]) -> BreachStudy:
    """Judge runs of a breach."""
    return _study_of(breach, [_found_by(breach, play_run(number)) for number in runs])


def _study_of(breach: Breach | OpenedBreach, broken: Sequence[Sequence[str]]) -> BreachStudy:
    """Count the tests that found a breach in each run."""
    counts = Counter(name for names in broken for name in names)
    return BreachStudy(breach, len(broken), sum(map(bool, broken)), tuple(counts.most_common()))


def _found_by(breach: Breach | OpenedBreach, measured: NoiseMeasurements) -> list[str]:
    """Return the tests that find a breach: of those made for it, else of all."""
    broken = [test for test in run_family(measured, breach.tests)[0] if test.violated]
    return [str(test.name) for test in broken or run_family(measured)[0] if test.violated]


def synthetic_run(breach: Breach | OpenedBreach, number: int) -> NoiseMeasurements:
    """Play a synthetic run of a breach."""
    if isinstance(breach, OpenedBreach):
        return breach.made_up(number)
    run = _drawn_run(number, breach.trials, breach.parameters)
    return play_drawn(run, breach.multiplier or run.setting.multiplier, breach)


@lru_cache(maxsize=1)
def _drawn_run(number: int, trials: int, parameters: int) -> DrawnRun:
    """Make the honest draws of a run, which all kinds of one size share."""
    setting = NoiseSetting((("weight", parameters - 10), ("bias", 10)), trials)
    return draw_run(np.random.default_rng((1, number)), setting)


def _size(breach: Breach | OpenedBreach) -> tuple[int, int]:
    """Return the size of its made-up runs: those of one size that follow each other share their draws."""
    return (breach.trials, breach.parameters) if isinstance(breach, Breach) else (0, 0)


def _real_run(breach: Breach | OpenedBreach, number: int) -> NoiseMeasurements:
    """Play a real run of a breach."""
    if isinstance(breach, OpenedBreach):
        return breach.real(number)
    changes: dict[str, dict[str, Any]] = {}
    if breach.target is not None:
        trials = max(100, breach.trials)
        changes = {"audit": {"trials": trials}, "run": {"trials-per-batch": trials}}
    if breach.multiplier is not None:
        changes["privacy"] = {"noise-multiplier": breach.multiplier}
    return measured_run(breach_plan(number + 1, **changes), parties_of(breach))


def _is_playable(breach: Breach | OpenedBreach) -> bool:
    """Return whether a breach has a real form."""
    return isinstance(breach, Breach) or breach.strategy is not None


def _played(
    federations: str, breaches: Sequence[Breach | OpenedBreach], count: int, path: Path | None, over: Callable[[], bool]
) -> list[BreachStudy]:
    """Play the runs that a journal lacks until the time is over, and return the studies of all that it holds."""
    run = synthetic_run if federations == "made-up" else _real_run
    by_name = {breach.name: breach for breach in sorted(breaches, key=_size)}
    results: dict[str, dict[int, list[str]]] = {name: {} for name in by_name}
    for row in read(path, tests=len(FAMILY)):
        if row["federations"] == federations and row["breach"] in results:
            results[row["breach"]][row["number"]] = row["found"]
    every = list(blocks(by_name, count, 1))
    remaining_runs = [(name, number) for name, number in every if number not in results[name]]
    for name, number in track(remaining_runs, f"{federations} federations"):
        if over():
            break
        tests = results[name][number] = _found_by(by_name[name], run(by_name[name], number))
        record = {"breach": name, "federations": federations, "number": number, "tests": len(FAMILY), "found": tests}
        append(path, record)
    return [_study_of(breach, list(results[breach.name].values())) for breach in breaches if results[breach.name]]


def _lines(studies: dict[str, list[BreachStudy]]) -> list[Line]:
    """Return the lines of the table, of all kinds with a made-up run."""
    real = {study.breach.name: (study.found, study.runs) for study in studies["real"]}
    return [
        Line(
            study.breach,
            synthetic_run(study.breach, 0),
            (study.found, study.runs),
            real.get(study.breach.name, (0, 0)),
            next((name for name, _ in study.by_test), ""),
        )
        for study in studies["made-up"]
    ]


def main() -> None:
    """Print the tables; the exit status is 1 where a breach is found too rarely."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="made-up runs of every breach; 0 plays none")
    parser.add_argument("--real", type=int, default=20, help="real runs of every breach; 0 plays none")
    parser.add_argument("--only", default="", help="breaches whose name holds these words")
    parser.add_argument("--journal", type=Path, help="file that keeps every run")
    parser.add_argument("--out", type=Path, help="file for the table with true epsilons, as Markdown")
    parser.add_argument("--minutes", type=float, help="minutes after which no further run begins")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=150)
    problems = list[str]()
    over = until(options.minutes)
    studies: dict[str, list[BreachStudy]] = {"made-up": [], "real": []}
    breaches = [breach for breach in EVERY if options.only in breach.name]
    study_kinds = (("made-up", options.runs, REQUIRED_SHARE), ("real", options.real, 1.0))
    for kind, count, required_share in study_kinds:
        chosen = breaches if kind == "made-up" else [item for item in breaches if _is_playable(item)]
        kind_studies = studies[kind] = _played(kind, chosen, count, options.journal, over)
        columns = ("breach", "runs", "found", "found by", "remark")
        rows = [[*map(str, item.row)] for item in kind_studies]
        console.print(table_of(columns, f"Breaches by {kind} federations", columns, rows))
        problems += [f"{kind}: {problem}" for study in kind_studies for problem in study.problems(required_share)]
    if options.out is not None:
        write(_lines(studies), len(FAMILY), datetime.now(tz=UTC).strftime("%d %B %Y"), options.out)
    exit_with(
        problems, f"every breach was found in at least {REQUIRED_SHARE:.0%} of its made-up runs and all real ones"
    )
