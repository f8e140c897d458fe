"""The command that sets finished runs side by side: compare."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import JsonOption

if TYPE_CHECKING:
    from experiments.comparisons.rows import Row

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

    from fl_audit.report.wording import number_text, percent

    columns = ("run", "verdict", "epsilon", "delta", "noise", "shown", "advantage", "accuracy", "Epsilon*", "attack")
    table = Table(*columns)
    for row in found:
        bound = "" if row.advantage_bound is None else f" of {percent(row.advantage_bound)}"
        table.add_row(
            row.run,
            row.verdict,
            *(
                "-" if value is None else number_text(value, 3)
                for value in (row.epsilon, row.delta, row.noise_multiplier, row.shown)
            ),
            "-" if row.advantage is None else f"{percent(row.advantage)}{bound}",
            "-" if row.accuracy is None else percent(row.accuracy),
            "-" if row.epsilon_star is None else number_text(row.epsilon_star, 3),
            "-" if row.attack is None else number_text(row.attack, 3),
        )
    Console().print(table)
