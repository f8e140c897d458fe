"""The commands: each module is imported only when its command is used, and fields of a dataclass become options."""

import ast
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from pkgutil import get_data
from typing import Annotated, Any, ClassVar, get_type_hints

import click
import typer
from click import Command, Context, HelpFormatter
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from fl_audit.errors import require
from fl_audit.ordinary_files import require_ordinary


def with_single_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a function like the command, in which each dataclass parameter is replaced by one parameter per field.

    The parameters of the command are options, or frozen dataclasses whose fields are options. Typer, which reads the
    command line, needs one parameter per option.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters = list[Parameter]()
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += _parameters_of(groups[name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def grouped(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    grouped.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    grouped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return grouped


def _parameters_of(group: type[Any]) -> list[Parameter]:
    """Return the fields of a dataclass as keyword-only parameters, which become options of a command.

    They stand together in the help, under the name in the class attribute `HELP_GROUP`, if there is one.
    """
    hints = get_type_hints(group, include_extras=True)
    name = getattr(group, "HELP_GROUP", None)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=_grouped(hints[field.name], name),
        )
        for field in fields(group)
    ]


def _grouped(hint: Any, name: str | None) -> Any:
    """Return the annotation of an option under the name of its group in the help; unchanged without a name."""
    declared = next((metadata for metadata in hint.__metadata__ if isinstance(metadata, OptionInfo)), None)
    if name is None or declared is None:
        return hint
    grouped = copy(declared)
    grouped.rich_help_panel = name
    return Annotated[hint.__origin__, grouped]


class _PlainTextHelp(Command):
    def get_help(self, ctx: Context) -> str:
        return super().get_help(ctx).replace("\\[", "[")


class PlainHelpCommand(_PlainTextHelp, TyperCommand):
    """A command whose help is plain text, and which refuses paths of special files, such as pipes and devices.

    By itself typer would take square brackets in the help for markup.
    """

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Return the words that are no options; raise `InputError` for a word with a character that no path has."""
        odd = next((word for word in args if "\0" in word), "")
        require(not odd, f"{odd[:40]!r} has the character NUL: accepted are words and paths without it")
        return super().parse_args(ctx, args)

    argument_helps: ClassVar[Mapping[str, str]] = {}
    """Help of each argument by its name."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write arguments and options into the help; the options of a group stand together under its name."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            is_option = parameter.param_type_name == "option"
            group = (getattr(parameter, "rich_help_panel", None) or "Options") if is_option else "Arguments"
            record = parameter.get_help_record(ctx)
            if record is not None and not is_option:
                # With click 8.5, typer loses the help of arguments.
                help_text = self.argument_helps.get(str(parameter.name), "")
                record = (
                    record[0],
                    record[1] if record[1].startswith(help_text) else f"{help_text}  {record[1]}".strip(),
                )
            if record is not None:
                groups.setdefault(group, []).append(record)
        groups["Options"] = groups.pop("Options", [])  # options of no group stand last
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)

    def invoke(self, ctx: Context) -> Any:
        """Run the command; raise `InputError` first if a path in its options or arguments is a special file."""
        for parameter in self.params:
            if not isinstance(parameter.type, click.Path):
                continue
            arguments = ctx.params.get(str(parameter.name))
            flag = parameter.opts[0] if parameter.param_type_name == "option" else parameter.make_metavar(ctx)
            for value in arguments if isinstance(arguments, (list, tuple)) else filter(None, [arguments]):
                require_ordinary(f"{flag} {value}", Path(value))
        return super().invoke(ctx)


class _LazyCommandMap(UserDict[str, Command]):
    """The commands by name; the module of a command is imported when the command is first looked up."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        super().__init__()
        self._places = modules

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
            help_text = _first_line(function.__doc__)
            single = with_single_options(function)
            helps = {"argument_helps": _argument_helps(single)}
            alone.command(name, cls=type("_Command", (PlainHelpCommand,), helps), short_help=help_text)(single)
            self.data[name] = typer.main.get_command(alone)
        return self.data[name]


def _argument_helps(function: Callable[..., Any]) -> dict[str, str]:
    """Return the help of each argument of a command from the annotations of its function, by name."""
    hints = get_type_hints(function, include_extras=True)
    metadata_by_name = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {
        name: metadata.help
        for name, declared in metadata_by_name.items()
        for metadata in declared
        if isinstance(metadata, ArgumentInfo) and metadata.help
    }


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
            formatter.write_dl([(name, _help_in_source(module)[name]) for name, module in self.places.items()])

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


@cache
def _help_in_source(module: str) -> dict[str, str]:
    """Return the first line of each command's help from the source of a module, whose import may take seconds."""
    source = get_data(module.rpartition(".")[0], f"{module.rpartition('.')[2]}.py")
    assert source is not None, "the commands are files of this package"
    functions = (statement for statement in ast.parse(source).body if isinstance(statement, ast.FunctionDef))
    return {function.name.replace("_", "-"): _first_line(ast.get_docstring(function)) for function in functions}


def _first_line(help_text: str | None) -> str:
    return (help_text or "").partition("\n")[0]
