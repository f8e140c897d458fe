"""Command-line options: functions that define them, and options that several commands share.

The module also has the group of all commands, which imports a command only when it is used.
"""

import ast
import json
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import get_data
from typing import Annotated, Any, ClassVar

import click
import typer
from click import Command, Context, HelpFormatter
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from fl_audit.adjacency import Adjacency
from fl_audit.atomic_files import require_ordinary
from fl_audit.errors import choice, require
from fl_audit.experiments import lazy_imports
from fl_audit.experiments.cli.dataclass_options import with_single_options
from fl_audit.experiments.names import VIOLATED, Engine
from fl_audit.privacy.accounting_enums import MultiplierReference


class _PlainTextHelp(Command):
    def get_help(self, ctx: Context) -> str:
        return super().get_help(ctx).replace("\\[", "[")


class PlainHelpCommand(_PlainTextHelp, TyperCommand):
    """A command whose help is plain text, and which refuses paths of special files, such as pipes and devices.

    By itself typer would take square brackets in the help for markup.
    """

    def invoke(self, ctx: Context) -> Any:
        """Run the command; raise `InputError` first if a path in its options or arguments is a special file."""
        for parameter in self.params:
            if not isinstance(parameter.type, click.Path):
                continue
            given = ctx.params.get(str(parameter.name))
            flag = parameter.opts[0] if parameter.param_type_name == "option" else parameter.make_metavar(ctx)
            for value in given if isinstance(given, (list, tuple)) else filter(None, [given]):
                require_ordinary(f"{flag} {value}", Path(value))
        return super().invoke(ctx)


class _LazyCommandMap(UserDict[str, Command]):
    """The commands by name; the module of a command is imported when the command is first looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        super().__init__()
        self._places = places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Command:
        if name not in self.data:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            function = getattr(import_module(self._places[name]), name.replace("-", "_"))
            said = _first_line(function.__doc__)
            alone.command(name, cls=PlainHelpCommand, short_help=said)(with_single_options(function))
            self.data[name] = typer.main.get_command(alone)
        return self.data[name]


class LazyGroup(_PlainTextHelp, TyperGroup):
    """A group of commands that imports the module of a command only to run the command or to show its help."""

    places: ClassVar[Mapping[str, str]] = {}
    """The module of each command, in the order of the help."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands = _LazyCommandMap(self.places)

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(self.places)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the names of all commands with their one-line help into the help of the group."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _help_in_source(module, name)) for name, module in self.places.items()])

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Return the name and the command that a command line begins with, and the remaining words.

        The error message about a misspelt name suggests the nearest name once. Click makes this suggestion from version
        8.4 on, and typer makes it with earlier versions of click.

        Parameters
        ----------
        ctx
            Context of the command group, as click passes it.
        args
            Words of the command line.
        """
        self.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")
        return super().resolve_command(ctx, args)


def _help_in_source(module: str, command: str) -> str:
    """Return the first line of a command's help from the source of its module, whose import may take seconds."""
    source = get_data(module.rpartition(".")[0], f"{module.rpartition('.')[2]}.py")
    assert source is not None, "the commands are files of this package"
    found = (one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef))
    return _first_line(next(ast.get_docstring(one) for one in found if one.name == command.replace("-", "_")))


def _first_line(help_text: str | None) -> str:
    return (help_text or "").partition("\n")[0]


def option(
    metavar: str | None, said: str, among: Iterable[str] = (), names: tuple[str, ...] = (), **more: Any
) -> OptionInfo:
    """Return a command-line option that takes a value.

    Parameters
    ----------
    metavar
        Placeholder for the value in the help, such as "FILE"; None for typer's own.
    said
        Explanation in the help.
    among
        Values that shell completion offers.
    names
        Names of the option, such as "--set". If empty, typer makes `--data-dir` from a parameter `data_dir`.
    more
        Further arguments of `typer.Option`.
    """
    return typer.Option(..., *names, metavar=metavar, help=said, **_completed(among), **more)


def switch(name: str, said: str) -> OptionInfo:
    """Return a boolean command-line option, which takes no value.

    Parameters
    ----------
    name
        Name of the option, such as "--json".
    said
        Explanation in the help.
    """
    return typer.Option(name, help=said)


def argument(metavar: str, said: str, among: Iterable[str] = (), **more: Any) -> ArgumentInfo:
    """Return a positional command-line argument.

    Parameters
    ----------
    metavar
        Name in the help, such as "DIR".
    said
        Explanation in the help.
    among
        Values that shell completion offers.
    more
        Further arguments of `typer.Argument`.
    """
    return typer.Argument(metavar=metavar, help=said, **_completed(among), **more)


def _completed(among: Iterable[str]) -> dict[str, Any]:
    if not (words := list(among)):
        return {}
    return {"autocompletion": lambda incomplete: [word for word in words if word.startswith(incomplete)]}


def print_json(values: object) -> None:
    """Print a value as JSON in one line; raise `ValueError` if it contains NaN or infinite numbers."""
    print(json.dumps(values, allow_nan=False))


def end_if_violated(verdict: str, is_failure: bool) -> None:
    """End the command with exit status 4 if the verdict is "violated" and this counts as a failure.

    Parameters
    ----------
    verdict
        The verdict, as reports name it.
    is_failure
        Whether the user asked for this exit status.
    """
    if is_failure and verdict == "violated":
        raise typer.Exit(VIOLATED)


def complete_setting(incomplete: str) -> list[str]:
    """Return the shell completions of a text that begins a setting of the form `section.key=value`.

    Before "=", keys are completed; after "=", values of settings that accept a fixed list of words.
    """
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{one.key}=" for one in lazy_imports.settings_reference.settings() if one.key.startswith(key)]
    words = next((one.choices or () for one in lazy_imports.settings_reference.settings() if one.key == key), ())
    return [f"{key}={word}" for word in words if word.startswith(value)]


def engine_for(engine: str, ray_address: str | None) -> Engine:
    """Return the engine of the given name.

    Raises `InputError` if there is no such engine, or if a Ray cluster is named for the local engine.

    Parameters
    ----------
    engine
        "ray" or "local".
    ray_address
        HOST:PORT of a running Ray cluster, or None.
    """
    chosen = choice(Engine, "--engine", engine)
    fits = ray_address is None or chosen is Engine.RAY
    require(fits, f"--ray-address {ray_address!r} with --engine {engine}: it goes with --engine ray")
    return chosen


def noise_over_of(noise_over: str, noise_multiplier: float | None, flag: str) -> MultiplierReference:
    """Return the quantity, sensitivity or clipping norm, to which a noise multiplier is relative.

    Raises `InputError` if there is no such quantity, or if the clipping norm is named without a noise multiplier.

    Parameters
    ----------
    noise_over
        "sensitivity" or "clipping-norm".
    noise_multiplier
        Given noise multiplier, or None.
    flag
        Name of the option that gives the noise multiplier, for the message.
    """
    over = choice(MultiplierReference, "--noise-over", noise_over)
    fits = noise_multiplier is not None or over is MultiplierReference.SENSITIVITY
    require(fits, f"--noise-over {over} without {flag}: accepted is it beside {flag}")
    return over


ConfigArgument = Annotated[Path, argument("CONFIG.toml", "Configuration of the run.")]
DirectoryArgument = Annotated[Path, argument("DIR", "Directory of a run.")]
SetOption = Annotated[
    list[str] | None,
    option(
        "SECTION.KEY=VALUE",
        "Replace a setting of the file; may be repeated.",
        names=("--set",),
        autocompletion=complete_setting,
    ),
]
EngineOption = Annotated[str, option("ray|local", "Flower's runtime on Ray, or this process.", among=Engine)]
AddressOption = Annotated[str | None, option("ADDRESS", "Address of a running Ray cluster (HOST:PORT).")]
DataDirOption = Annotated[Path | None, option("DIR", "Data directory.  [default: FL_AUDIT_DATA]")]
ADJACENCY_HELP = f"How neighbours differ: one of {', '.join(Adjacency)}."
AdjacencyOption = Annotated[str, option("NAME", ADJACENCY_HELP, among=Adjacency)]
NoiseOverOption = Annotated[
    str,
    option(
        "NAME",
        "What the noise multiplier multiplies: the sensitivity, which is 2 x clipping norm where a unit is replaced, "
        "or the clipping-norm, as Opacus, TensorFlow Privacy, dp-accounting and Flower quote it.",
        among=MultiplierReference,
    ),
]
JsonOption = Annotated[bool, switch("--json", "Print one JSON object and nothing else.")]


@dataclass(frozen=True)
class ResultOptions:
    """Command-line options of the output: a directory for files, and JSON instead of text."""

    out: Annotated[Path | None, option("DIR", "Write report.html and summary.json there.")] = None
    as_json: JsonOption = False

    def show(self, values: object, lines: Iterable[str], report: object) -> None:
        """Print a result: as JSON with `--json`, else as lines of text and the path of a page.

        Parameters
        ----------
        values
            The result as JSON values.
        lines
            The result as text.
        report
            Path of the HTML page with the result, or None.
        """
        if self.as_json:
            print_json(values)
            return
        for line in (*lines, *([] if report is None else [f"report: {report}"])):
            print(line)

    def show_screen(self, found: Mapping[str, Any]) -> None:
        """Print a result: as JSON with `--json`, else as a headline, its main findings and the path of a page.

        Parameters
        ----------
        found
            The result, with the keys `headline`, `screen` (pairs of a name and a text) and perhaps `report` (path of
            the page).
        """
        named = (f"* {about}: {said}" for about, said in found["screen"])
        self.show(found, [found["headline"], *named], found.get("report"))
