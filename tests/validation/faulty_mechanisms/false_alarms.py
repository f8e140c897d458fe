"""False alarms: `python -m tests.validation false_alarms [--audits 200] [--only NAME,...]
[--journal FILE]`.

Every honest mechanism of the catalogue is audited many times, with trials of its own each time; an audit plays some
scenarios, the next audit others, so that all kinds have their turn. At a confidence of 95 % at
most 5 % of the audits may call it violated, but for chance: of 200, up to 18 (with probability 0.99 or more if each is
called with probability 5 %). With `--journal` every verdict is kept in a file that only grows, and a second call goes
on after it.

Trainings with the software's own strategy (`fl_audit.strategies.trial_batch_strategy`) cannot be played here: its
clients hold data, compute gradients of stacked trials and answer in records of their own, where black-box trials send
model updates.
Its mechanisms are audited by `python -m tests.validation verdicts`; the honest mechanisms here follow the same
mechanisms: central, distributed and local Gaussian noise, adaptive clipping, sampled records, and both relations.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.value_checks import require_number
from fl_audit.verdict.verdict import Verdict
from tests.validation.choices import allowed, selected_values
from tests.validation.faulty_mechanisms.honest_twins import HONEST
from tests.validation.journal import append, read

_SMALL = TrialBudget(pilot=40, stages=(120,), shares=(1.0,), fewest_tests=2, most_tests=3, deep=1)
"""Budget of one audit: the number of audits counts here, not the power of one of them."""
_KINDS_AT_ONCE, _FIRST_SEED = 3, 1_000_000
_BY_NAME = {honest_mechanism.name: honest_mechanism for honest_mechanism in HONEST}
Verdicts = dict[tuple[str, int], str]
"""The verdicts by mechanism and number of the audit."""


def _audit(mechanism_and_number: tuple[str, int]) -> tuple[tuple[str, int], str]:
    """Audit an honest mechanism with the trials of a number."""
    name, number = mechanism_and_number
    honest = _BY_NAME[name]
    kinds = _BY_NAME[name].trials
    only = [kinds[(_KINDS_AT_ONCE * number + index) % len(kinds)] for index in range(_KINDS_AT_ONCE)]
    result = audit_system(honest.system, honest.claim, budget=_SMALL, seed=_FIRST_SEED + number, include=only)
    return mechanism_and_number, str(result.verdict)


def _audits(audits: list[tuple[str, int]], processes: int) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield the verdicts of audits as they come."""
    if processes == 1:
        yield from map(_audit, audits)
        return
    # One that dies ends the others with an error, and is not waited for.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_audit, audit) for audit in audits]):
            yield done.result()


def _counts_table(verdicts: Verdicts, names: Sequence[str]) -> tuple[Table, list[str]]:
    """Return the table of counts of some mechanisms, and the names of those that were accused too often."""
    columns = ("honest mechanism", "audits", "violated", "allowed", "consistent", "inconclusive")
    table = table_of(columns, words=columns)
    accused = []
    for name in names:
        own_verdicts = [verdict for (audited_name, _), verdict in verdicts.items() if audited_name == name]
        violated = own_verdicts.count(Verdict.VIOLATED)
        allowed_count = allowed(len(own_verdicts))
        if own_verdicts and violated > allowed_count:
            accused.append(name)
        counts = (
            len(own_verdicts),
            violated,
            allowed_count,
            own_verdicts.count(Verdict.CONSISTENT),
            own_verdicts.count(Verdict.INCONCLUSIVE),
        )
        table.add_row(name, *map(str, counts))
    return table, accused


def main() -> None:
    """Audit, and print the counts.

    `InputError` is raised if no audit is asked for, or a mechanism is not known.
    """
    parser = parser_of(__doc__)
    parser.add_argument("--audits", type=int, default=200, help="audits of every honest mechanism")
    parser.add_argument("--only", metavar="NAME,...", help="these mechanisms instead of all")
    parser.add_argument("--processes", type=int, default=2, help="audits at the same time")
    parser.add_argument("--journal", type=Path, help="file that keeps every verdict")
    options = parser.parse_args()
    for option_name in ("audits", "processes"):
        require_number(f"{option_name} are", getattr(options, option_name), "whole numbers from 1")
    names = [mechanism.name for mechanism in selected_values(options.only, _BY_NAME, "honest mechanism")]
    verdicts: Verdicts = {(row["mechanism"], row["audit"]): row["verdict"] for row in read(options.journal)}
    missing = [(name, number) for number in range(options.audits) for name in names if (name, number) not in verdicts]
    console = Console(width=140)
    with console.status("starting") as status:
        for (name, number), verdict in _audits(missing, options.processes):
            verdicts[name, number] = verdict
            status.update(f"{len(verdicts)} audits, the last of {name}: {verdict}")
            append(options.journal, {"mechanism": name, "audit": number, "verdict": verdict})
    table, accused = _counts_table(verdicts, names)
    console.print(table)
    exit_with([f"{name} is accused too often" for name in accused], "nobody honest is accused too often")
