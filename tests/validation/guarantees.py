"""Validation of every guarantee of a federation against exact theory.

    python -m tests.validation guarantees [--quick] [--trials N] [--seed N] [--only TEXT]

One table has every combination of strategy, adjacency, clipping, participation, noise and adversary, and of view and
optimizer. Those that are refused are left out. The others are played, and the log-odds, the advantage, the measured
noise and the lower bound on epsilon are compared with exact theory (`guarantee_settings` says why it applies). For
clients that train by DP-SGD there is no likelihood ratio: bounds from scores must not exceed the guarantee, and the
accountant of Opacus, which every client keeps, must agree with ours. All p-values together are corrected by Holm's
method; the exit status is 1 where one is under .01 after that, or where a lower bound falls short.

Trials are independent repetitions of the federation, so a run falls into audits of ten trials each (of four where
clients train by DP-SGD), and each gets the verdict that a run of these trials alone would get. A verdict is to be
`violated` in at most one of a thousand audits; here at most 5 % are allowed, and what chance adds to that: the exit
status is 1 where a mechanism is accused more often. The sensitivities are the largest that the guarantee allows, so
audits stand at its edge.

A last table compares adversaries who know more with those who know less, on the same trials (`knowledge`).
"""

import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import assert_never

import numpy as np
import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from scipy.stats import norm

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.audits.sections import VERDICT
from fl_audit.errors import InputError
from fl_audit.experiments.studies.study_commands import exit_with, parser_of
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_tables import RunTables
from fl_audit.verdict.verdict import Verdict
from tests.validation import guarantee_settings as settings
from tests.validation.adversary_knowledge import compare, comparisons, knowledge_table
from tests.validation.choices import allowed
from tests.validation.guarantee_evidence import Evidence, Scored, ShownLoss, evidence_of
from tests.validation.guarantee_settings import COLUMNS, Combination

ALARM = 0.01  # level of all tests together, after correction

_CLAIMED = {"epsilon": 2.0}
_MOST_PRIVATE_TRIALS = 500
"""Trials of a combination whose clients train with Opacus, which takes about a quarter of a second a trial."""
_AUDITED, _AUDITED_PRIVATE = 10, 4  # trials of an audit
_NO_RATIO = "no likelihood ratio"
_WIDTHS = {
    "log-odds held against": 23,
    "noise measurement": 25,
    "lower bound": 12,
}  # columns that are to be read in one line

QUICK = (
    Combination("dp-fedsgd", Adjacency.ADD_REMOVE_RECORD, "sampled in secret"),
    Combination("dp-fedsgd", Adjacency.REPLACE_RECORD, noise="local", adversary="server"),
    Combination("dp-fedsgd", Adjacency.REPLACE_RECORD, noise="tree", release="sums, adam"),
    Combination("dp-fedsgd", Adjacency.REPLACE_RECORD, noise="central, local sensitivity", release="models, momentum"),
    Combination("dp-fedavg", Adjacency.ADD_REMOVE_CLIENT, "sampled, seen"),
    Combination("dp-fedavg", Adjacency.ADD_REMOVE_CLIENT, "sampled in secret", clipping="adaptive"),
    Combination("dp-fedavg", Adjacency.ADD_REMOVE_CLIENT, "cohort", "banded"),
    Combination("dp-fedavg", Adjacency.REPLACE_CLIENT, noise="distributed", adversary="3 clients"),
    Combination("dp-fedavg", Adjacency.REPLACE_CLIENT, "sampled in secret"),
    Combination("dp-fedavg", Adjacency.REPLACE_CLIENT, clipping="adaptive"),
    Combination("dp-sgd-clients", Adjacency.ADD_REMOVE_RECORD, noise="inside-training", adversary="server"),
)
"""A few combinations in which every part occurs."""


@dataclass(frozen=True)
class CombinationRow:
    """A combination with its evidence, or the reason why it is refused; and the time in seconds."""

    combination: Combination
    found: Evidence | None
    reason: str = ""
    seconds: float = 0.0
    verdicts: tuple[Verdict, ...] = ()  # of its audits, where its view and optimizer are the usual ones

    @property
    def violated(self) -> int:
        """Number of audits that accuse it."""
        return self.verdicts.count(Verdict.VIOLATED)

    @property
    def is_accused(self) -> bool:
        """Whether that is more than chance explains."""
        return self.violated > allowed(len(self.verdicts))


def _audits_of(run: FinishedRun, trials: int) -> Iterator[FinishedRun]:
    """Cut a run into runs of a number of trials each, without the remainder."""
    numbers = run.tables.trials["trial"].to_numpy()
    tables = {table_field.name: getattr(run.tables, table_field.name) for table_field in fields(RunTables)}
    for start in range(0, len(numbers) - trials + 1, trials):
        chosen = numbers[start : start + trials]
        trial_tables = {
            name: None
            if table is None or "trial" not in table
            else table[table["trial"].isin(chosen)].reset_index(drop=True)
            for name, table in tables.items()
        }
        yield replace(run, tables=RunTables(**trial_tables))  # type: ignore[arg-type]


def verdict_of(run: FinishedRun) -> Verdict:
    """Return the verdict that the report of a run states."""
    numbers = VERDICT.measure(run, Findings({}))
    assert numbers is not None, "every run has a verdict"
    return numbers.verdict


def study(combination: Combination, records: Path, trials: int, seed: int) -> CombinationRow | None:
    """Play a combination, or return why it is refused.

    `records` is the path of the file that `write_records` wrote. None is returned if the combination is offered and
    equals another one.
    """
    began = time.monotonic()
    try:
        plan = settings.plan_of(combination, records, trials, seed, _CLAIMED)
    except InputError as error:
        return CombinationRow(combination, None, str(error))
    if settings.is_repetition(plan):
        return None
    contents = results_of_run(plan)
    audited = _AUDITED_PRIVATE if combination.strategy == "dp-sgd-clients" else _AUDITED
    verdicts = tuple(map(verdict_of, _audits_of(contents.run, audited))) if combination.is_usual else ()
    return CombinationRow(combination, evidence_of(plan, contents), "", time.monotonic() - began, verdicts)


def holm(p_values: Floats) -> Floats:
    """Return p-values corrected for their number by Holm's method.

    Examples
    --------
    >>> holm(np.array([0.01, 0.5, 0.02])).tolist()
    [0.03, 0.5, 0.04]
    """
    order = np.argsort(p_values)
    steps = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(1.0, steps)
    return corrected


def _corrected_tests(rows: Sequence[CombinationRow]) -> list[tuple[str, float, float]]:
    """Return every test by name with its p-value, before and after correction for their number."""
    tests = [
        (f"{row.combination}: {name}", p)
        for row in rows
        if row.found is not None
        for name, p in row.found.p_values().items()
    ]
    corrected = holm(np.array([p for _, p in tests])) if tests else np.empty(0)
    return [(name, p, float(after)) for (name, p), after in zip(tests, corrected, strict=True)]


def problems(rows: Sequence[CombinationRow]) -> list[str]:
    """Return the contradictions to theory, all tests together at level `ALARM`."""
    found_wrong = [
        f"{name} contradicts theory, p {p:.2g}, corrected {after:.2g}"
        for name, p, after in _corrected_tests(rows)
        if after <= ALARM
    ]
    found_wrong += [f"{row.combination} is accused too often" for row in rows if row.is_accused]
    return found_wrong + [
        f"{row.combination}: {problem}" for row in rows if row.found is not None for problem in row.found.problems()
    ]


def _in_short(rows: Sequence[CombinationRow]) -> str:
    """Return the results that are closest to contradicting theory, in a few lines."""
    tests = _corrected_tests(rows)
    evidence = [row.found for row in rows if row.found is not None]
    if not tests:
        return "nothing was played"
    name, p, after = min(tests, key=lambda test: test[1])
    lines = [f"{len(evidence)} combinations, {len(tests)} tests; smallest p {p:.2g}, corrected {after:.2g}: {name}"]
    if weighed := [evidence_item for evidence_item in evidence if isinstance(evidence_item, ShownLoss)]:
        off = max(
            (abs(evidence_item.advantage_z) for evidence_item in weighed if evidence_item.advantage_z is not None),
            default=0.0,
        )
        meters = [evidence_item.meter[0] for evidence_item in weighed]
        shares = [evidence_item.share for evidence_item in weighed]
        lines.append(
            f"advantages within {off:.1f} standard errors of theory, noise measurements {min(meters):.4f} to "
            f"{max(meters):.4f}, lower bounds at {min(shares):.0%} to {max(shares):.0%} of epsilon"
        )
    accused = sum(row.violated for row in rows)
    audits = sum(len(row.verdicts) for row in rows)
    return "\n".join([*lines, f"{accused} of {audits} audits are violated"])


def guarantee_table(rows: Sequence[CombinationRow]) -> Table:
    """Return the table of all combinations that are offered."""
    title = "Every combination of the parts of a mechanism, with those who attack it"
    table = Table(title=title, box=SIMPLE, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, no_wrap=True)
    head_columns = (
        "trials",
        "log-odds held against",
        "scores p",
        "distribution p",
        "advantage",
        "theory",
        "z",
        "noise measurement",
    )
    for column in (*head_columns, "epsilon", "lower bound", "audits violated", "s"):
        table.add_column(column, min_width=_WIDTHS.get(column))
    for row in rows:
        if row.found is not None:
            audits = f"{row.violated} of {len(row.verdicts)}" if row.verdicts else ""
            table.add_row(*row.combination.parts(), *_cells(row.found), audits, f"{row.seconds:.0f}")
    return table


def _cells(evidence: Evidence) -> tuple[str, ...]:
    bound = f"{evidence.lower_bound:.3f} ({evidence.share:.0%})"
    match evidence:
        case ShownLoss():
            distribution = evidence.distribution_p
            exact = evidence.advantage_exact
            z = evidence.advantage_z
            ratio, low, high = evidence.meter
            tested = (
                f"{evidence.scores_p:.3f}",
                "" if distribution is None else f"{distribution:.3f}",
                f"{evidence.advantage:.4f}",
            )
            expected = ("" if exact is None else f"{exact:.4f}", "" if z is None else f"{z:+.1f}")
            meter = f"{ratio:.4f} ({low:.4f} to {high:.4f})"
            return (str(evidence.trials), evidence.theory, *tested, *expected, meter, f"{evidence.epsilon:.3f}", bound)
        case Scored():
            rdp, opacus = max(zip(evidence.epsilon_rdp, evidence.epsilon_opacus, strict=True))
            advantage = f"{evidence.advantage:.4f} ({evidence.advantage_low:.4f} to {evidence.advantage_high:.4f})"
            advantage_texts = (f"at most {evidence.advantage_most:.4f}", f"{norm.isf(evidence.advantage_p):+.1f}")
            epsilons = f"{evidence.epsilon:.3f}; rdp {rdp:.3f}, Opacus {opacus:.3f}"
            return (str(evidence.trials), *[_NO_RATIO] * 3, advantage, *advantage_texts, _NO_RATIO, epsilons, bound)
        case _:
            assert_never(evidence)


def _study_all(console: Console, chosen: Iterable[Combination], trials: int, seed: int) -> list[CombinationRow]:
    """Study combinations one after the other, printing their names.

    The seeds of runs follow from the names of combinations, so that one more changes nothing for the others.
    """
    rows = list[CombinationRow]()
    with tempfile.TemporaryDirectory() as directory:
        records = Path(directory) / "records.npz"
        settings.write_records(records)
        for combination in chosen:
            largest_trials = _MOST_PRIVATE_TRIALS if combination.strategy == "dp-sgd-clients" else trials
            row = study(
                combination, records, min(trials, largest_trials), zlib.crc32(f"{seed}: {combination}".encode())
            )
            rows += [] if row is None else [row]
            if row is not None and row.found is not None:
                console.print(f"{combination}: {row.seconds:.0f} s", highlight=False)
    return rows


def main() -> None:
    """Print the tables; the exit status is 1 where something contradicts theory."""
    parser = parser_of(__doc__, "a few combinations in 400 trials")
    parser.add_argument("--trials", type=int, help="trials a combination (default: 2000, with --quick 400)")
    parser.add_argument("--only", help="combinations whose name contains this text; nothing on knowledge")
    parser.add_argument("--seed", type=int, default=0, help="another number plays other federations (default: 0)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=280)
    progress = Console(stderr=True, width=120)
    trials = options.trials or (400 if options.quick else 2000)
    chosen = [
        item for item in (QUICK if options.quick else settings.combinations()) if (options.only or "") in str(item)
    ]
    rows = _study_all(progress, chosen, trials, options.seed)
    console.print(guarantee_table(rows))
    print(_in_short(rows))
    contradictions = problems(rows)
    if options.only is None:
        comparison_results = [compare(item, trials) for item in comparisons(options.quick)]
        console.print(knowledge_table(comparison_results, trials))
        contradictions += [problem for item in comparison_results for problem in item.problems()]
    exit_with(contradictions, "nothing contradicts theory")
