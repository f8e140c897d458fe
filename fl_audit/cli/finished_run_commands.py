"""The commands about finished runs: `compare` shows them side by side, `export` writes them for other tools."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Column, Table

from fl_audit.atomic_files import write_text
from fl_audit.cli.options import JsonOption, print_json
from fl_audit.errors import InputError
from fl_audit.run_files import read_summary
from fl_audit.runs.comparison.rows import differences, rows
from fl_audit.runs.exports.badge import badge
from fl_audit.runs.option_declarations import argument, option
from fl_audit.runs.terminal import console as console_for
from fl_audit.runs.verbosity import printable
from fl_audit.value_checks import choice
from fl_audit.words import SPACE, number_text, percent, rounded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fl_audit.runs.comparison.rows import RunRow

_NAMES = 29
_CELL = 10
"""Widths of the column of names and of that of a run: five runs fit side by side into 80 characters."""
_MARKS = {
    "no contradiction": "~",
    "too few trials to tell": "?",
    "broken": "!",
    "shows no breach by itself": "=",
    "the claim excludes nothing": "#",
}
"""Marks behind a number whose reading is not kept; written out, because the enumeration takes a second to import."""


def compare(
    runs: Annotated[list[Path], argument("DIR...", "Directories of finished runs or other audits.")],
    plot: Annotated[Path | None, option("FILE", "Draw it to a PNG, PDF or SVG.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Set finished runs or other audits side by side: guarantee, what was shown, accuracy and Epsilon*.

    Epsilon* is the privacy risk of a released model. The command prints a table with a column for each run. It says
    whether delta, adjacency or the cut of Epsilon* differ, because runs are then not directly comparable.
    """

    run_rows = rows(runs)
    if plot is not None:
        from fl_audit.cli.figures.figure_files import save_figure
        from fl_audit.runs.comparison.figure import comparison_figure

        save_figure(comparison_figure(run_rows), plot)
    if as_json:
        print_json({"runs": [row.to_json() for row in run_rows], "differences": differences(run_rows)})
        return
    _print(run_rows)
    if sum(row.epsilon is not None and row.kind == "run" for row in run_rows) > 1:
        console_for().print(_selection_text(runs), highlight=False)
    if plot is not None:
        print(f"figure: {plot}")


def _selection_text(runs: list[Path]) -> str:
    """Return a sentence on what the best of the private runs spends, with numbers if their plans can be read."""
    from fl_audit.privacy.private_selection import selection_cost_of, selection_text
    from fl_audit.runs.config import parse_config
    from fl_audit.runs.planning import guarantee_of
    from fl_audit.runs.run_directory import read_public

    try:
        stored = [read_public(run) for run in runs]
        guarantees = [
            guarantee_of(federation.mechanism, parse_config(configuration)) for federation, configuration in stored
        ]
    except InputError:  # a summary alone has no plan
        return selection_text(None)
    return selection_text(selection_cost_of(guarantees))


def _print(rows: "list[RunRow]") -> None:
    """Print a list of the runs, then tables of their values, each with as many runs as fit the width."""

    console = console_for()

    from fl_audit.privacy.guarantee_line import guarantee_line

    for index, row in enumerate(rows, start=1):
        console.print(f"{index:>2}  {printable(row.run)}: {row.outcome}")
        if row.guarantee is not None:
            console.print(f"    {guarantee_line(row.guarantee)}", highlight=False)
    columns = [_in_words(row) for row in rows]
    names = list(dict.fromkeys(name for column in columns for name in column))
    per_table = max(1, (console.width - _NAMES - 1) // _CELL)
    for start in range(0, len(rows), per_table):
        columns_shown = columns[start : start + per_table]
        table = Table(Column("run", width=_NAMES), box=None, padding=(0, 1, 0, 0), row_styles=["", "dim"])
        for index in range(start, start + len(columns_shown)):
            table.add_column(str(index + 1), width=_CELL - 1)
        for name in names:
            if any(name in column for column in columns_shown):
                table.add_row(name, *(column.get(name, "-") for column in columns_shown))
        console.print(table)
    used = {mark: words for words, mark in _MARKS.items() if any(mark in "".join(c.values()) for c in columns)}
    for mark, words in used.items():
        console.print(f"{mark} {words}")
    for difference in differences(rows):
        console.print(difference, highlight=False)


def _in_words(row: "RunRow") -> dict[str, str]:
    """Return the guarantee and the findings of a run as texts to print, keyed by their names."""

    def text(value: float | None, is_share: bool = False) -> str:
        return "-" if value is None else percent(value).replace(SPACE, "") if is_share else number_text(value, 3)

    def cell(entry: "Mapping[str, Any]") -> str:
        mark = _MARKS.get(entry["reading"] or "", "")
        claimed = entry["claimed"]
        if claimed is None or entry["value"] is None:
            return text(entry["value"], entry["is_share"]) + mark
        # As in the report, so that the text lies on the side of the claim on which the number lies.
        interval = rounded(entry["value"], entry["low"], entry["high"], claimed, entry["is_share"])
        value_text, claim = (text.replace(SPACE, "") for text in (interval.value, interval.claim))
        return f"{value_text}{mark} {'≥' if entry.get('is_least') else '≤'}{claim}"

    guarantee = {
        "belief at most": text(row.belief, True),
        "epsilon": text(row.epsilon),
        "delta": text(row.delta),
        "noise over sensitivity": text(row.noise_multiplier),
    }
    return guarantee | {name: cell(entry) for name, entry in row.findings.items()}


class _ExportFormat(StrEnum):
    """The tool for which finished runs are exported."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    BADGE = "badge"


def export(
    runs: Annotated[list[Path], argument("DIR...", "Directories of finished runs or other audits.")],
    to: Annotated[str, option("NAME", f"One of {', '.join(_ExportFormat)}.")],
    out: Annotated[
        str,
        option(
            "PLACE", "tensorboard: log directory; mlflow: tracking URI, such as sqlite:///mlflow.db; badge: SVG file."
        ),
    ],
    experiment: Annotated[str, option("NAME", "MLflow's experiment.")] = "fl-audit",
) -> None:
    """Write rounds, findings and figures of finished runs for TensorBoard or MLflow, or the verdict as a badge.

    A badge is an SVG image of the verdict of a single run.
    """

    if choice(_ExportFormat, "--to", to) is _ExportFormat.BADGE:
        _write_badge(runs, Path(out))
        return

    from fl_audit.runs.exports.trackers import to_mlflow, to_tensorboard
    from fl_audit.runs.stored_run import read_run

    for run in [read_run(path) for path in runs]:
        if to == _ExportFormat.TENSORBOARD:
            print(f"tensorboard: {to_tensorboard(run, Path(out))}")
        else:
            stored = to_mlflow(run, out, experiment)
            print(f"mlflow: run {stored} in experiment {experiment} at {out}")


def _write_badge(runs: list[Path], out: Path) -> None:
    """Write the verdict of a single run as an SVG badge."""
    if len(runs) > 1:
        raise InputError(f"--to badge with {len(runs)} runs: accepted is one run")
    summary = read_summary(runs[0])
    write_text(out, badge(summary))
    print(f"badge: {out}")
