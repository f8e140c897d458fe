"""Groups of command-line options: a command takes a frozen dataclass, and each of its fields becomes an option."""

from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

from typer.models import OptionInfo


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
