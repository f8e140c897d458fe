"""The command that lists every setting of a configuration: settings."""

import json
import shutil
import textwrap
from typing import TYPE_CHECKING, Annotated

from experiments.cli.options import JsonOption, argument, print_json

if TYPE_CHECKING:
    from experiments.runs.config.described import Setting


def _complete_place(incomplete: str) -> list[str]:
    """Return the sections and keys that a word may go on with."""
    from experiments.runs.config.described import settings as described

    keys = [one.key for one in described()]
    places = dict.fromkeys([key.partition(".")[0] for key in keys] + keys)
    return [place for place in places if place.startswith(incomplete)]


def settings(
    place: Annotated[
        str | None,
        argument(
            "SECTION[.KEY]",
            "A section, one of its keys, or a key alone.  [default: all]",
            autocompletion=_complete_place,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the settings of a configuration: type, default, what each is for, and what it accepts."""
    from experiments.runs.config.described import settings as described

    found = described(place)
    if as_json:
        print_json({"settings": [one.to_json() for one in found]})
        return
    section = ""
    for one in found:
        of, _, name = one.key.partition(".")
        if of != section:
            print(f"{'' if not section else chr(10)}[{of}]")
            section = of
        _print(name, one)


def _print(name: str, setting: "Setting") -> None:
    default = "left out" if setting.default is None else f"default {_toml(setting.default)}"
    print(f"{name}  ({setting.type}; {default})")
    width = shutil.get_terminal_size().columns
    for said in (setting.explanation, f"Accepted: {setting.accepted}"):
        print(textwrap.fill(said, width, initial_indent="    ", subsequent_indent="    "))


def _toml(value: object) -> str:
    return "{ }" if value == {} else json.dumps(value)
