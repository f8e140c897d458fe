"""Public trainings with Opacus, looked into: `python -m tests.validation public_trainings --copies DIR [--only WORDS]
[--as-it-is]`.

`DIR` has a folder for each clone, at the commit that `trainings.TRAININGS` names; what is not there is skipped, with
the reason. Every training is looked into as it is, once and in all rounds of its program. Into two of them every
pitfall of `edits.PLANTED` is planted, and three that need no edit. The exit status is 1 where a planted pitfall is not
named, or breaks a claim that is not called violated.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

from fl_audit.app_audits.local_training.assessment import Assessment
from fl_audit.app_audits.local_training.pitfalls import Pitfall, Severity, severity_of
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.verdict.verdict import Verdict
from tests.validation.public_trainings.copies import Edit
from tests.validation.public_trainings.edits import PLANTED, SITES
from tests.validation.public_trainings.trainings import TRAININGS, PublicTraining


class _Case(NamedTuple):
    """The training that is looked into."""

    training: PublicTraining
    planted: Pitfall | None  # None for the training as it is
    options: TrainingAuditOptions
    edits: tuple[Edit, ...] = ()
    records: int | None = None  # None for the usual number

    @property
    def name(self) -> str:
        """Its name."""
        rounds = "" if self.options.rounds == 1 else f", {self.options.rounds} rounds"
        return f"{self.training.name}{rounds}" + ("" if self.planted is None else f", planted: {self.planted.value}")


def _as_it_is() -> Iterator[_Case]:
    for training in TRAININGS:
        yield _Case(training, None, TrainingAuditOptions(1, 2))
        if training.rounds > 1:
            yield _Case(training, None, TrainingAuditOptions(training.rounds, 2))


def _planted() -> Iterator[_Case]:
    once = TrainingAuditOptions(1, 2)
    for training in (training for training in TRAININGS if training.name in SITES):
        for pitfall, lines in PLANTED.items():
            yield _Case(training, pitfall, once, SITES[training.name].edits(lines))
        yield _Case(training, Pitfall.FRESH_ACCOUNTANT, TrainingAuditOptions(3, 2))
        yield _Case(training, Pitfall.CLAIMED_EPSILON, TrainingAuditOptions(1, 2, epsilon=0.5))
        yield _Case(training, Pitfall.PRIVATE_SIZE, once, records=100)


def _looked_into(case: _Case, copies: Path) -> Assessment:
    train, model = case.training.opened(copies, case.edits)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        data = case.training.data(case.records or case.training.records)
        return audit_training(train, "train", model, data, case.options)


def _problem(case: _Case, assessment: Assessment) -> str:
    named_pitfalls = {finding.pitfall for finding in assessment.pitfalls}
    planted = case.planted
    if planted is None:
        return ""
    if planted not in named_pitfalls:
        return f"{case.name}: not named; the verdict is {assessment.verdict}"
    is_wrong = severity_of(planted) is Severity.BREAKS and assessment.verdict is not Verdict.VIOLATED
    return f"{case.name}: the verdict is {assessment.verdict}" if is_wrong else ""


def main() -> None:
    """Look into all trainings, print a table, and tell what was missed."""
    parser = parser_of(__doc__)
    parser.add_argument("--copies", type=Path, required=True, help="folder of the clones")
    parser.add_argument("--only", default="", help="these trainings and pitfalls: a part of their names")
    parser.add_argument("--as-it-is", action="store_true", help="plant nothing")
    options = parser.parse_args()
    columns = ("training", "verdict", "epsilon of the steps", "named")
    console = Console(width=200)
    table = table_of(columns, words=columns)
    problems = list[str]()
    played = 0
    for case in [*_as_it_is(), *(() if options.as_it_is else _planted())]:
        if options.only not in case.name:
            continue
        if reason := case.training.missing(options.copies):
            console.print(f"skipped: {case.name}: {reason}")
            continue
        assessment = _looked_into(case, options.copies)
        composed = "none" if assessment.composed is None else f"{assessment.composed.epsilon:.4g}"
        pitfall_names = ", ".join(finding.pitfall.value for finding in assessment.pitfalls) or "nothing"
        table.add_row(case.name, str(assessment.verdict), composed, pitfall_names)
        console.print(f"{case.name}: {assessment.verdict}: {pitfall_names}", style="dim")
        played += 1
        if problem := _problem(case, assessment):
            problems.append(problem)
    console.print(table)
    exit_with(problems, f"{played} played: every planted pitfall is named")
