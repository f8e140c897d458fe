"""The points of a sweep: one configuration changed in a few settings, every combination of their values."""

import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from experiments.config import PROMISE_ONLY, RunConfig, Scalar, parse_config
from fl_audit.errors import InputError, require

Settings = tuple[tuple[str, Scalar], ...]
"""Pairs of `section.key` and value."""

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Axis:
    """A setting and its values.

    Parameters
    ----------
    key
        As `section.key`.
    values
        At least one, all different.
    """

    key: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Point:
    """One configuration of a sweep.

    Parameters
    ----------
    name
        Its directory.
    settings
        What distinguishes it.
    config
        The whole configuration.
    """

    name: str
    settings: Settings
    config: RunConfig


def parse_axis(text: str) -> Axis:
    """Return the axis that `section.key=value,value,...` names.

    Raises
    ------
    InputError
        If it is written otherwise, or a value stands there twice.

    Examples
    --------
    >>> parse_axis("privacy.clipping-norm=1,10")
    Axis(key='privacy.clipping-norm', values=(1, 10))
    """
    key, equals, listed = (part.strip() for part in text.partition("="))
    section, _, name = key.partition(".")
    values = tuple(_scalar(part.strip()) for part in listed.split(","))
    well_formed = bool(equals and section and name and all(part.strip() for part in listed.split(",")))
    require(well_formed, f"axis {text!r}: accepted is section.key=value,value,..., such as privacy.clipping-norm=1,10")
    require(len(set(values)) == len(values), f"axis {text!r} names a value twice: accepted are different values")
    return Axis(key, values)


def _scalar(text: str) -> Scalar:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def grid(values: Mapping[str, Any], axes: Sequence[Axis]) -> tuple[Point, ...]:
    """Return a point for every combination of the values of some axes; without an axis one point.

    Parameters
    ----------
    values
        Of the configuration, by section and key, as in its file.
    axes
        With different keys.

    Raises
    ------
    InputError
        If a key stands on two axes, or a configuration is not accepted; its settings are named.
    """
    keys = [axis.key for axis in axes]
    require(len(set(keys)) == len(keys), f"axes are {', '.join(keys)}: accepted are different keys")
    combinations = itertools.product(*(axis.values for axis in axes))
    return tuple(point(values, tuple(zip(keys, chosen, strict=True))) for chosen in combinations)


def point(values: Mapping[str, Any], settings: Settings) -> Point:
    """Return the point of some settings.

    Parameters
    ----------
    values
        Of the configuration.
    settings
        What replaces them.

    Raises
    ------
    InputError
        If the configuration is not accepted; the settings are named.
    """
    changed = deepcopy(dict(values))
    for key, value in settings:
        section, _, name = key.partition(".")
        table = changed.setdefault(section, {})
        require(isinstance(table, dict), f"setting {key}: {section!r} is no section of the configuration")
        table[name] = value
    try:
        config = parse_config(changed)
    except InputError as error:
        raise InputError(f"point {describe(settings)}: {error}") from None
    return Point(_name(settings), settings, config)


def without_privacy(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the same configuration as a baseline: nothing clipped, no noise, no promise, no insider."""
    changed = deepcopy(dict(values))
    privacy = {key: value for key, value in changed.get("privacy", {}).items() if key not in PROMISE_ONLY}
    changed["privacy"] = privacy | {"private": False}
    changed["audit"] = changed.get("audit", {}) | {"insider": False}
    return changed


def describe(settings: Settings) -> str:
    """Return settings in words: `privacy.epsilon = 3, privacy.clipping-norm = 1`."""
    return ", ".join(f"{key} = {value}" for key, value in settings) or "as configured"


def _name(settings: Settings) -> str:
    """Return a name of a directory: readable, of plain letters, different for different settings."""
    shown = "_".join(f"{key.partition('.')[2]}={_text(value)}" for key, value in settings) or "as-configured"
    plain = re.sub(r"[^A-Za-z0-9=._+-]", "-", shown)
    if plain == shown and len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[:_LONGEST_NAME]}-{sha256(repr(settings).encode()).hexdigest()[:8]}"


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def require_distinct(points: Iterable[Point]) -> None:
    """Raise `InputError` if two points have one name."""
    names = [one.name for one in points]
    twice = next((name for name in names if names.count(name) > 1), None)
    require(twice is None, f"two points of the sweep are {twice}: accepted are different settings")
