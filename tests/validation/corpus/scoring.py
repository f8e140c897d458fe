"""Scores of auditors: what each found, missed, and accused wrongly, as rows of a file and as tables of a page."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np

from fl_audit.atomic_files import atomic_file
from tests.validation.corpus.auditors import Auditor
from tests.validation.corpus.case import VERSION, Case, Store


class Row(NamedTuple):
    """Verdict of one auditor about one case; all values are text, as a file holds them."""

    case: str
    auditor: str
    version: str  # of the corpus
    trials: str  # number of trials that each auditor had
    kind: str  # honest or faulty
    claimed: str  # the epsilon of the claim
    true: str  # the true one; empty where it is not known
    said: str  # found, missed, in doubt; accused or cleared of honest cases
    bound: str  # the epsilon that was certified, with its delta


def score(case: Case, auditors: dict[str, Auditor], trials: int) -> list[Row]:
    """Show the trials of a case to auditors, and return what each says of it; all of them see the same trials."""
    seed = crc32(case.name.encode())
    rows = list[Row]()
    store = Store(case, np.random.default_rng(seed))
    true = "" if case.true_epsilon is None else f"{case.true_epsilon:.2f}"
    for name, auditor in auditors.items():
        finding = auditor(store.case(), trials, np.random.default_rng([seed, 1]))
        if finding is None:
            continue
        kind, *words = ("honest", "accused", "cleared") if case.is_honest else ("faulty", "found", "missed")
        outcome = words[0] if finding.is_found else "in doubt" if finding.is_in_doubt else words[1]
        bound = f"{finding.epsilon:.2f} at {finding.delta:.2g}"
        rows.append(Row(case.name, name, VERSION, str(trials), kind, f"{case.claim.epsilon:.2f}", true, outcome, bound))
    return rows


def read(path: Path) -> list[Row]:
    """Return the rows that a file has of cases as they are in this version of the corpus; none without such a file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = [Row(**entry) for entry in csv.DictReader(file)]
    return [row for row in rows if row.version.split(".")[0] == VERSION.split(".")[0]]


def write(rows: Sequence[Row], path: Path) -> None:
    """Write rows as comma-separated values, and the tables of them as Markdown beside.

    `path` is that of the Markdown file. The values go to the file of the same name that ends in `.csv`.
    """
    with atomic_file(path.with_suffix(".csv")) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows(rows)
    with atomic_file(path) as temporary:
        temporary.write_text("\n".join([*summary(rows), "", *by_case(rows)]) + "\n", encoding="utf-8")


def merged(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return old rows, of which new ones of the same case and auditor take the place."""
    return list({(row.case, row.auditor): row for row in (*old, *new)}.values())


def summary(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table of all auditors, one for every family of cases."""
    lines = [
        "| cases | trials | auditor | found | in doubt | missed | false alarms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for family in dict.fromkeys(_family(row) for row in rows):
        family_rows = [row for row in rows if _family(row) == family]
        for auditor in dict.fromkeys(row.auditor for row in family_rows):
            outcomes = [row.said for row in family_rows if row.auditor == auditor]
            trials = ", ".join(dict.fromkeys(row.trials for row in family_rows if row.auditor == auditor))
            honest = [row for row in family_rows if row.auditor == auditor and _is_honest(row)]
            faulty = len(outcomes) - len(honest)
            doubts = sum(
                row.said == "in doubt" for row in family_rows if row.auditor == auditor and not _is_honest(row)
            )
            alarms = f"{outcomes.count('accused')} of {len(honest)}"
            lines.append(
                f"| {family} | {trials} | {auditor} | {outcomes.count('found')} of {faulty} | {doubts} "
                f"| {outcomes.count('missed')} | {alarms} |"
            )
    return lines


def by_case(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table of all cases, with what each auditor said and certified."""
    auditors = list(dict.fromkeys(row.auditor for row in rows))
    lines = [f"| case | claimed | true | {' | '.join(auditors)} |", f"| --- | --- | --- |{' --- |' * len(auditors)}"]
    cell_texts = {(row.case, row.auditor): f"{row.said}, {row.bound}" for row in rows}
    for case in dict.fromkeys(row.case for row in rows):
        first = next(row for row in rows if row.case == case)
        cells = [cell_texts.get((case, auditor), "") for auditor in auditors]
        true = "none" if first.true == str(math.inf) else first.true or "not known"
        lines.append(f"| {case} | {first.claimed} | {true} | {' | '.join(cells)} |")
    return lines


def _family(row: Row) -> str:
    return row.case.split("/", maxsplit=1)[0]


def _is_honest(row: Row) -> bool:
    return row.kind == "honest"
