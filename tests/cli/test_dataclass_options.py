"""Groups of options: every field of a group is an option of the command, in the place of the group."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from fl_audit.cli.lazy_commands import with_single_options
from fl_audit.runs.option_declarations import option, switch


@dataclass(frozen=True)
class Sizes:
    """Sizes."""

    width: Annotated[int, option("N", "Width.")]
    depth: Annotated[int | None, option("N", "Depth.")] = None
    is_deep: Annotated[bool, switch("--deep", "Deep.")] = False


def measure(
    place: Annotated[Path, typer.Argument()], *, sizes: Sizes, unit: Annotated[str, option("NAME", "Unit.")] = "m"
) -> None:
    """Measure."""
    typer.echo(f"{place} {sizes} {unit}")


def test_a_group_is_made_of_its_options_and_is_shown_in_its_place() -> None:
    app = typer.Typer()
    app.command()(with_single_options(measure))
    run = CliRunner()
    made = run.invoke(app, ["here", "--width", "3", "--deep"])
    assert made.stdout.split(" ", 1)[1].strip() == f"{Sizes(3, None, True)} m"
    assert run.invoke(app, ["here", "--depth", "3"]).exit_code == 2  # the width has no default
    flags = [word for word in run.invoke(app, ["--help"]).stdout.split() if word.startswith("--")]
    places = [flags.index(flag) for flag in ("--width", "--depth", "--deep", "--unit")]
    assert places == sorted(places)


def test_a_command_without_groups_keeps_its_parameters() -> None:
    def plain(count: Annotated[int, option("N", "Count.")] = 2) -> None:
        typer.echo(count * 2)

    app = typer.Typer()
    app.command()(with_single_options(plain))
    assert CliRunner().invoke(app, ["--count", "4"]).stdout == "8\n"
