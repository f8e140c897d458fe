"""Reading of a configuration from a TOML file, with settings that override the file."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fl_audit.data.catalogue import PREFIX
from fl_audit.errors import InputError
from fl_audit.ordinary_files import read_text_file
from fl_audit.privacy.targets import DETAILS
from fl_audit.runs.config import PRIVACY_TARGETS, RunConfig, parse_config
from fl_audit.runs.config.data_section import DATA_PATHS
from fl_audit.runs.config.model_section import MODEL_PATH
from fl_audit.runs.config_errors import shortened_toml
from fl_audit.value_checks import expanded_path

_BARE_DECIMAL = re.compile(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?")
"""Numbers such as .5 and 5., which people write and TOML does not accept."""


def load_config(path: Path, overrides: Sequence[str] = (), data_dir: str | None = None) -> RunConfig:
    """Read a configuration file, check its values, and return the configuration.

    Raises `InputError` if the file cannot be read, or a key or value is not accepted.

    `path`: Relative paths in the file are relative to its directory.
    """
    return parse_config(load_values(path, overrides, data_dir))


def load_values(path: Path, overrides: Sequence[str] = (), data_dir: str | None = None) -> dict[str, Any]:
    """Read a configuration file, and return its values by section and key without checking them.

    `path`: Relative paths in the file are relative to its directory.
    """
    return values_of(read_toml(path), f"configuration {path}", path.absolute().parent, overrides, data_dir)


def read_toml(path: Path) -> str:
    """Return the text of a configuration file, without checking that it is TOML."""
    try:
        # Some editors begin a file with a byte-order mark, which TOML does not know.
        return read_text_file(path, "utf-8-sig")
    except InputError as error:
        raise InputError(f"configuration {error}") from error
    except OSError as error:
        raise InputError(f"configuration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"configuration {path} is no valid TOML: {_first_sentence(error)}") from error


def values_of(
    text: str, source_name: str, path: Path, overrides: Sequence[str] = (), data_dir: str | None = None
) -> dict[str, Any]:
    """Parse a configuration in TOML, and return its values by section and key without checking them.

    `data_dir`: None leaves the text's directory.
    """
    try:
        values = tomllib.loads(text)
    # ValueError: not only what is no TOML, but numbers of thousands of digits; RecursionError: lists in lists in lists
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source_name} is no valid TOML: {_first_sentence(error)}") from error
    apply_overrides(values, overrides)
    if data_dir is not None:
        values.setdefault("data", {})["data-dir"] = str(Path(data_dir).absolute())
    for section in ("data", "model"):
        _anchor_paths(values.get(section), path)
    return values


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Replace settings in the values of a configuration, in place, by overrides of the form `section.key=value`.

    An override of a target of the claim, such as `privacy.epsilon=2`, takes the place of the targets in the file.

    Raises `InputError` if an override has another form. Keys and values are not checked.
    """
    keys = [override.partition("=")[0].strip() for override in overrides if override.partition("=")[2].strip()]
    targets = [key.removeprefix("privacy.") for key in keys if key.startswith("privacy.")]
    if any(target in PRIVACY_TARGETS for target in targets):
        remove_targets(values.get("privacy"))
    for override in overrides:
        _apply(values, override)


def remove_targets(privacy: Any) -> None:
    """Remove all targets of the claim, and settings that belong to one of them, from a section [privacy], in place."""
    for name in (*PRIVACY_TARGETS, *DETAILS) if isinstance(privacy, dict) else ():
        privacy.pop(name, None)


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not equals or not dot or not name:
        raise InputError(f"--set {shortened_toml(override)}: accepted is section.key=value, such as audit.trials=1000")
    table = values.setdefault(section, {})
    if not isinstance(table, dict):
        raise InputError(f"--set {shortened_toml(override)}: {section!r} is no section of the file")
    if not text.strip():
        table.pop(name, None)
        return
    try:
        table[name] = toml_value(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"--set {shortened_toml(override)} is no valid TOML value: {_first_sentence(error)}"
        ) from error


def toml_value(text: str) -> Any:
    """Return the value of a text in TOML notation; text that is no TOML value is returned as a string.

    A number may also begin or end with its decimal point, which TOML does not allow.

    Examples
    --------
    >>> toml_value(".7"), toml_value("gdp"), toml_value("[1, 2]")
    (0.7, 'gdp', [1, 2])
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return float(text) if _BARE_DECIMAL.fullmatch(text.strip()) else text.strip()


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of an exception's message, or the name of its class if it has none."""
    return str(error).splitlines()[0].partition(";")[0] if str(error) else type(error).__name__


def _anchor_paths(section: Any, directory: Path) -> None:
    """Make relative paths in a section's values absolute, in place."""
    if not isinstance(section, dict):
        return
    name = section.get("name")
    # A directory in the formats of the Hugging Face hub; a name on the hub has no place here.
    if isinstance(name, str) and name.startswith(PREFIX) and (directory / name.removeprefix(PREFIX)).is_dir():
        section["name"] = f"{PREFIX}{directory / name.removeprefix(PREFIX)}"
    for key in (*DATA_PATHS, MODEL_PATH):
        if isinstance(section.get(key), str):
            section[key] = str(directory / expanded_path(section[key]))
