"""Score auditors on the corpus: `python -m tests.validation corpus [--auditor NAME,...] [--trials N] [--only TEXT]
[--out FILE]`.

Every auditor sees the same trials of every case, of which half have the target. Prints what was found, missed and
accused wrongly. With `--out` it writes the tables as Markdown and the rows beside them as comma-separated values, as
they come; a second call goes on after them. A public package that is not installed is named and left out.
"""

from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from fl_audit.errors import InputError
from fl_audit.experiments.studies.study_commands import parser_of
from fl_audit.value_checks import require_number
from tests.validation.choices import selected_values
from tests.validation.corpus.auditors import AUDITORS, Auditor
from tests.validation.corpus.catalogue import case, names
from tests.validation.corpus.scoring import Row, merged, read, score, summary, write


def _usable(auditor_names: str | None, console: Console) -> dict[str, Auditor]:
    """Return the auditors that are asked for and installed."""
    chosen = dict(
        zip(
            auditor_names.split(",") if auditor_names else AUDITORS,
            selected_values(auditor_names, AUDITORS, "auditor"),
            strict=True,
        )
    )
    for name in list(chosen):
        try:
            chosen[name](case("made-up/honest"), 100, np.random.default_rng(0))
        except InputError as error:
            console.print(str(error))
            del chosen[name]
    return chosen


def main() -> None:
    """Score, print the table, and write it."""
    parser = parser_of(__doc__)
    parser.add_argument("--auditor", metavar="NAME,...", help=f"instead of all of {', '.join(AUDITORS)}")
    parser.add_argument("--trials", type=int, default=1000, help="trials of each case, at least 100")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this text")
    parser.add_argument("--out", type=Path, help="file for the tables")
    options = parser.parse_args()
    require_number("trials are", options.trials, "whole numbers from 100")
    torch.set_num_threads(1)
    console = Console(width=150)
    chosen = names(options.only)
    auditors = _usable(options.auditor, console)
    rows = list[Row]() if options.out is None else read(options.out.with_suffix(".csv"))
    for name in track(chosen, "cases", console=console):
        done = {row.auditor for row in rows if (row.case, row.trials) == (name, str(options.trials))}
        remaining_auditors = {key: auditor for key, auditor in auditors.items() if key not in done}
        if not remaining_auditors:
            continue
        rows = merged(rows, score(case(name), remaining_auditors, options.trials))
        if options.out is not None:
            write(rows, options.out)
    console.print("\n".join(summary(rows)), markup=False)
