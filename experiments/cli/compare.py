"""The command that sets finished runs side by side: compare."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import JsonOption

if TYPE_CHECKING:
    from experiments.comparisons.rows import Row

_SIDE_BY_SIDE = 4
"""Up to so many runs are columns of a table, which then fits a terminal; more of them are its rows."""

RunsArgument = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Directories of finished runs.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw it to a PNG, PDF or SVG.")]


def compare(runs: RunsArgument, plot: PlotOption = None, as_json: JsonOption = False) -> None:
    """Set finished runs side by side: promise, what was shown, accuracy and Epsilon*."""
    from experiments.comparisons.rows import rows

    found = rows(runs)
    if plot is not None:
        _draw(found, plot)
    if as_json:
        print(json.dumps({"runs": [row.to_json() for row in found]}, allow_nan=False))
        return
    _print(found)
    if plot is not None:
        print(f"figure: {plot}")


def _draw(found: "list[Row]", plot: Path) -> None:
    from experiments.comparisons.figure import comparison_figure
    from fl_audit.report.style import require_figure_path
    from fl_audit.whole_files import whole_file

    require_figure_path(plot)
    with whole_file(plot) as file:
        comparison_figure(found).savefig(file)


def _print(found: "list[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    columns = [_in_words(row) for row in found]
    if len(found) > _SIDE_BY_SIDE:
        table = Table(*columns[0])
        for column in columns:
            table.add_row(*column.values())
    else:
        table = Table("run", *(column["run"] for column in columns))
        for name in list(columns[0])[1:]:
            table.add_row(name, *(column[name] for column in columns))
    Console(markup=False).print(table)


def _in_words(row: "Row") -> dict[str, str]:
    """Return what is shown of a run, by name."""
    from experiments.talk import printable
    from fl_audit.report.wording import number_text, percent

    def number(value: float | None) -> str:
        return "-" if value is None else number_text(value, 3)

    def share(value: float | None) -> str:
        return "-" if value is None else percent(value)

    bound = "" if row.advantage_bound is None else f" of {percent(row.advantage_bound)}"
    return {
        "run": printable(row.run),
        "verdict": row.verdict,
        "belief at most": share(row.belief),
        "epsilon": number(row.epsilon),
        "delta": number(row.delta),
        "noise multiplier": number(row.noise_multiplier),
        "epsilon shown": number(row.shown),
        "advantage counted": f"{share(row.advantage)}{'' if row.advantage is None else bound}",
        "accuracy": share(row.accuracy),
        "Epsilon*": number(row.epsilon_star),
        "shown by attacks": number(row.attack),
    }
