"""The points of a sweep: one configuration for every combination of the values of some settings."""

import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fl_audit.errors import InputError, require
from fl_audit.runs.config import GUARANTEE_ONLY, PRIVACY_TARGETS, RANDOMIZER_KEYS, RunConfig, Scalar, parse_config
from fl_audit.runs.config_file import remove_targets, toml_value

Settings = tuple[tuple[str, Scalar], ...]  # pairs of `section.key` and value

SECRET = "run.seed"
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Axis:
    """An axis of a sweep: one setting and the values that it takes."""

    key: str  # the setting, as `section.key`
    values: tuple[Scalar, ...]  # values of the setting, at least one, all different


@dataclass(frozen=True)
class Point:
    """A point of a sweep: one configuration, and the settings by which it differs from the others."""

    name: str  # name of the point, and of its run directory
    settings: Settings  # the varied settings with their values at this point
    config: RunConfig  # the complete configuration


def parse_axis(text: str) -> Axis:
    """Return the axis of a sweep that a text of the form `section.key=value,value,...` describes.

    Raises `InputError` if the text has another form, or a value occurs twice.

    Examples
    --------
    >>> parse_axis("privacy.clipping-norm=1,10")
    Axis(key='privacy.clipping-norm', values=(1, 10))
    """
    key, equals, listed = (text_part.strip() for text_part in text.partition("="))
    section, _, name = key.partition(".")
    try:
        values: list[Any] = list(tomllib.loads(f"values = [{listed}]")["values"]) or [""]
    except tomllib.TOMLDecodeError:  # words need no quotes
        values = [toml_value(text_part) for text_part in listed.split(",")]
    well_formed = bool(equals and section and name) and all(value != "" for value in values)
    require(well_formed, f"axis {text!r}: accepted is section.key=value,value,..., such as privacy.clipping-norm=1,10")
    scalars = [value for value in values if isinstance(value, bool | int | float | str)]
    require(len(scalars) == len(values), f"axis {text!r}: accepted are numbers, words, true and false, but no lists")
    different = len({(type(value), value) for value in scalars}) == len(scalars)
    require(different, f"axis {text!r} names a value twice: accepted are different values")
    return Axis(key, tuple(scalars))


def grid(values: Mapping[str, Any], axes: Sequence[Axis]) -> tuple[Point, ...]:
    """Return a point for every combination of the axes' values; without axes, one point with the given
    configuration."""
    keys = [axis.key for axis in axes]
    require(len(set(keys)) == len(keys), f"axes are {', '.join(keys)}: accepted are different keys")
    require(
        SECRET not in keys,
        f"axis {SECRET}: it is the challenger's secret, and a sweep shows its settings: leave it out, and every point "
        "has a seed of its own; audit.trials says how often a point is repeated",
    )
    claimed = [key for key in keys if key.removeprefix("privacy.") in PRIVACY_TARGETS]
    require(len(claimed) <= 1, f"axes are {', '.join(claimed)}: accepted is one of what can be claimed")
    combinations = itertools.product(*(axis.values for axis in axes))
    return tuple(point(values, tuple(zip(keys, chosen, strict=True))) for chosen in combinations)


def point(values: Mapping[str, Any], settings: Settings) -> Point:
    """Return a point of a sweep: the configuration in which the given settings replace the former values.

    If a target of the claim is set, such as `privacy.epsilon`, other targets are removed.
    """
    changed = deepcopy(dict(values))
    for key, value in settings:
        *sections, name = key.split(".")
        table = changed
        for section in sections:
            table = table.setdefault(section, {})
            require(isinstance(table, dict), f"setting {key}: {section!r} is no section of the configuration")
        if sections == ["privacy"] and name in PRIVACY_TARGETS:
            remove_targets(table)
        table[name] = value
    try:
        config = parse_config(changed)
    except InputError as error:
        raise InputError(f"point {describe(settings)}: {error}") from None
    return Point(_name(settings), settings, config)


def baselines(values: Mapping[str, Any], axes: Sequence[Axis]) -> tuple[Point, ...]:
    """Return a point without privacy for every combination of the axes' values, to compare with private points.

    Their configurations have no claim, clipping, noise, randomized records and insider.
    """
    return grid(without_privacy(values), [Axis("privacy.private", (False,)), *axes])


def without_privacy(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a configuration's values, by section and key, without claim, clipping, noise and insider.

    Records are not randomized either.
    """
    changed = deepcopy(dict(values))
    dropped = {*GUARANTEE_ONLY, *RANDOMIZER_KEYS}
    privacy = {key: value for key, value in changed.get("privacy", {}).items() if key not in dropped}
    changed["privacy"] = privacy | {"private": False}
    changed["audit"] = changed.get("audit", {}) | {"insider": False}
    return changed


def describe(settings: Settings) -> str:
    """Return settings as text, such as "privacy.epsilon = 3, audit.trials = 9"; "as configured" for no settings."""
    return ", ".join(f"{key} = {_text(value)}" for key, value in settings) or "as configured"


def _name(settings: Settings) -> str:
    """Return a directory name that shows a point's settings.

    A name that is changed or shortened ends with a digest of the settings, so that names differ.
    """
    name_text = "_".join(f"{key.partition('.')[2]}={_text(value)}" for key, value in settings) or "as-configured"
    plain = re.sub(r"[^A-Za-z0-9=._+-]", "-", name_text)
    if plain == name_text and len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[:_LONGEST_NAME]}-{sha256(repr(settings).encode()).hexdigest()[:8]}"


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def require_distinct(points: Iterable[Point]) -> None:
    """Raise `InputError` if two points of a sweep have the same name, and so the same settings."""
    names = [point.name for point in points]
    twice = next((name for name in names if names.count(name) > 1), None)
    require(twice is None, f"two points of the sweep are {twice}: accepted are different settings")
