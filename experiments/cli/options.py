"""Definition of command-line options, the options that several commands share, and lazily imported commands."""

import json
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
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
from fl_audit.experiments.cli.option_groups import with_single_options
from fl_audit.experiments.names import Engine
from fl_audit.privacy.names import MultiplierReference


class _PlainTextHelp(Command):
    def get_help(self, ctx: Context) -> str:
        return super().get_help(ctx).replace("\\[", "[")


class PlainHelpCommand(_PlainTextHelp, TyperCommand):
    """A command whose help is plain text, because typer would escape brackets as markup.

    Before the command runs, every option or argument that is a path is checked: pipes, devices etc. are refused.
    """

    def invoke(self, ctx: Context) -> Any:
        """Refuse paths that are no ordinary files or directories, and run the command."""
        for parameter in self.params:
            if not isinstance(parameter.type, click.Path):
                continue
            given = ctx.params.get(str(parameter.name))
            flag = parameter.opts[0] if parameter.param_type_name == "option" else parameter.make_metavar(ctx)
            for value in given if isinstance(given, (list, tuple)) else filter(None, [given]):
                require_ordinary(f"{flag} {value}", Path(value))
        return super().invoke(ctx)


class _Commands(UserDict[str, Command]):
    """Mapping from names to commands; the module of a command is imported when it is first looked up."""

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
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
            module, short_help = self._places[name]
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            function = getattr(import_module(module), name.replace("-", "_"))
            alone.command(name, cls=PlainHelpCommand, short_help=short_help)(with_single_options(function))
            self.data[name] = typer.main.get_command(alone)
        return self.data[name]


class LazyGroup(_PlainTextHelp, TyperGroup):
    """A command group that imports a command's module only when the command is run or its own help is shown.

    The group's help is plain text. For a misspelt command, the nearest name is suggested only once.
    """

    places: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """The commands in the order of the help: the module of each, and its help in one line."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands = _Commands(self.places)

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of all commands, without importing any."""
        return list(self.places)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands with one line of help each, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, short_help) in self.places.items()])

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Return the named command; typer suggests no other name where click (from 8.4) does so itself."""
        self.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")
        return super().resolve_command(ctx, args)


def option(
    metavar: str | None, said: str, among: Iterable[str] = (), names: tuple[str, ...] = (), **more: Any
) -> OptionInfo:
    """Return an option that takes a value.

    Parameters
    ----------
    metavar
        Name of the option's value in the help.
    said
        Help of the option.
    among
        Values that shell completion offers.
    names
        Flags of the option; if empty, the flag follows from the parameter's name, such as `--data-dir` for `data_dir`.
    more
        Further arguments of `typer.Option`.
    """
    return typer.Option(..., *names, metavar=metavar, help=said, **_completed(among), **more)


def switch(name: str, said: str) -> OptionInfo:
    """Return a boolean option, which takes no value; parameters as in `option`."""
    return typer.Option(name, help=said)


def argument(metavar: str, said: str, among: Iterable[str] = (), **more: Any) -> ArgumentInfo:
    """Return a positional argument; parameters as in `option`."""
    return typer.Argument(metavar=metavar, help=said, **_completed(among), **more)


def _completed(among: Iterable[str]) -> dict[str, Any]:
    if not (words := list(among)):
        return {}
    return {"autocompletion": lambda incomplete: [word for word in words if word.startswith(incomplete)]}


def print_json(values: object) -> None:
    """Print a value as JSON; it must not contain NaN or infinite numbers."""
    print(json.dumps(values, allow_nan=False))


def complete_setting(incomplete: str) -> list[str]:
    """Return shell completions of `section.key=value`: keys of settings, or after `=` the values of the setting."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{one.key}=" for one in lazy_imports.settings_reference.settings() if one.key.startswith(key)]
    words = next((one.choices or () for one in lazy_imports.settings_reference.settings() if one.key == key), ())
    return [f"{key}={word}" for word in words if word.startswith(value)]


def engine_for(engine: str, ray_address: str | None) -> Engine:
    """Return the named engine; raises `InputError` if a cluster address is given for another engine than Ray.

    Parameters
    ----------
    engine
        Name of the engine.
    ray_address
        Address of a running Ray cluster, or None.
    """
    chosen = choice(Engine, "--engine", engine)
    fits = ray_address is None or chosen is Engine.RAY
    require(fits, f"--ray-address {ray_address!r} with --engine {engine}: it goes with --engine ray")
    return chosen


def noise_over_of(noise_over: str, noise_multiplier: float | None, flag: str) -> MultiplierReference:
    """Return the quantity that a noise multiplier refers to; `InputError` if it is given without a noise multiplier.

    Parameters
    ----------
    noise_over
        Name of the quantity that was given.
    noise_multiplier
        Noise multiplier that was given, or None.
    flag
        Flag that sets the noise multiplier.
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
    """Options of the output: its directory, and JSON instead of text."""

    out: Annotated[Path | None, option("DIR", "Write report.html and summary.json there.")] = None
    as_json: JsonOption = False

    def show(self, values: object, lines: Iterable[str], report: object) -> None:
        """Print a result as JSON, or as lines of text followed by the path of its page.

        Parameters
        ----------
        values
            The result as JSON values.
        lines
            The result as lines of text.
        report
            Path of the result's page; None where none was written.
        """
        if self.as_json:
            print_json(values)
            return
        for line in (*lines, *([] if report is None else [f"report: {report}"])):
            print(line)

    def show_screen(self, found: Mapping[str, Any]) -> None:
        """Print a result as JSON, or as its headline and the lines of its first screen."""
        named = (f"* {about}: {said}" for about, said in found["screen"])
        self.show(found, [found["headline"], *named], found.get("report"))
