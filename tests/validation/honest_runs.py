"""Whole verdicts of honest runs of all kinds, as they are and with post-processing: none of them may be accused.

    python -m tests.validation honest_runs [--runs 200] [--processed 40] [--journal FILE] [--minutes M]

Units, relations, noises, participations, clipping, views and kinds of audits vary. Of each run the verdict is taken
that its report states: of all tests, all exact questions and all readings. In the runs with post-processing the server
rounds, clamps, wraps, projects or thins out the noised sums, by the rules of `post_processing`. A run is accused if its
verdict is `violated`; a part of the report that could not be computed counts as a problem too, and so does a reading
that its printed interval does not support, or that is called broken.

With `--journal` every run is kept in a file that only grows, and a second call goes on after it; `--minutes` ends a
call early. The tables show all that the journal holds.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import HONEST, ClientAppAndStrategy
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.exact_questions import ExactQuestion
from fl_audit.verdict.verdict import Verdict
from tests.builders.mechanisms import MECHANISMS
from tests.builders.settings import small_settings
from tests.validation.journal import Row, append, read, until
from tests.validation.post_processing import RULES, with_rule
from tests.validation.readings import honest_readings, problems_of

_TRIALS = (4, 20, 60)


def plans_of(count: int, directory: Path) -> Iterator[tuple[str, RunPlan]]:
    """Yield honest runs with their kinds: two of three are those of `readings`, the others are of `MECHANISMS`."""
    reading_plans = honest_readings(count, directory)
    for number in range(count):
        if number % 3 < 2:
            yield next(reading_plans)
            continue
        turn = number // 3
        name = list(MECHANISMS)[turn % len(MECHANISMS)]
        trials = _TRIALS[turn // len(MECHANISMS) % len(_TRIALS)]
        settings = small_settings(**MECHANISMS[name])
        settings["audit"] |= {"trials": trials}
        settings["run"] |= {"seed": int(np.random.default_rng((6, number)).integers(2**32)), "trials-per-batch": trials}
        yield name, plan_run(parse_config(settings))


def processed_plans(count: int, directory: Path) -> Iterator[tuple[str, str, RunPlan]]:
    """Yield honest runs whose server adds the noise, each with its kind and the rule of its post-processing."""
    number = 0
    for kind, plan in plans_of(20 * count, directory):
        if number == count:
            return
        if plan.guarantee is not None and plan.federation.mechanism.noise.origin is NoiseOrigin.SERVER:
            yield kind, list(RULES)[number % len(RULES)], plan
            number += 1


def _row_of(contents: ReportContents, record: dict[str, Any]) -> Row:
    """Return what a journal keeps of a run."""
    summary = contents.summary
    tests = [] if summary["noise"] is None else summary["noise"]["tests"]
    violated_names = [test["name"] for test in tests if test["violated"]]
    violated_names += [test["name"] for test in summary["exact"] if test["violated"]]
    steps = [test["found"] or test["not_asked"] for test in summary["exact"] if test["name"] == ExactQuestion.STEP]
    return record | {
        "tests": len(TestName),
        "verdict": summary["verdict"],
        "found": violated_names,
        "errors": [*(f"{test['part']}: {test['reason']}" for test in summary["not_computed"]), *problems_of(contents)],
        "step": " ".join(steps),
    }


def _problems(rows: list[Row]) -> list[str]:
    """Return the runs that are accused, parts of reports that could not be computed, and wrong readings."""
    wrong = []
    for row in rows:
        name = f"{row['federations']} run {row['number']} ({row['kind']}{', ' * bool(row['rule'])}{row['rule']})"
        if row["verdict"] == str(Verdict.VIOLATED) or row["found"]:
            wrong.append(f"{name} is {row['verdict']}: {', '.join(row['found'])}")
        wrong += [f"{name}: {error}" for error in row["errors"]]
    return wrong


def main() -> None:
    """Print the verdicts; the exit status is 1 if a run is accused."""
    console = Console(width=120)
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=200, help="honest runs as they are")
    parser.add_argument("--processed", type=int, default=40, help="honest runs with post-processing")
    parser.add_argument("--journal", type=Path, help="file that keeps every run")
    parser.add_argument("--minutes", type=float, help="minutes after which no further run begins")
    options = parser.parse_args()
    torch.set_num_threads(1)
    over = until(options.minutes)
    rows = read(options.journal, tests=len(TestName))
    played = {(row["federations"], row["number"]) for row in rows}
    with tempfile.TemporaryDirectory() as directory:
        run_directory = Path(directory)
        plain = (("plain", kind, "", plan) for kind, plan in plans_of(options.runs, run_directory))
        processed = (("processed", *item) for item in processed_plans(options.processed, run_directory))
        for name, runs in (("plain", plain), ("processed", processed)):
            for number, (_, kind, rule, plan) in enumerate(track(runs, f"{name} runs")):
                if over():
                    break
                if (name, number) in played:
                    continue
                parties = ClientAppAndStrategy(strategy=with_rule(RULES[rule])) if rule else HONEST
                record = {"federations": name, "number": number, "kind": kind, "rule": rule}
                rows.append(_row_of(results_of_run(plan, parties), record))
                append(options.journal, rows[-1])
    verdicts = {
        name: Counter(row["verdict"] for row in rows if row["federations"] == name) for name in ("plain", "processed")
    }
    lines = [
        (name, str(often.total()), *(str(often[str(item)]) for item in Verdict)) for name, often in verdicts.items()
    ]
    columns = ("runs", "played", *map(str, Verdict))
    kinds = len({row["kind"] for row in rows})
    console.print(table_of(columns, f"Verdicts of honest runs of {kinds} kinds", columns[:1], lines))
    exit_with(_problems(rows), "no honest run is accused")
