"""Descriptions of all settings, read from the pydantic models: type, default, purpose and accepted values."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from fl_audit.errors import InputError
from fl_audit.runs.config.run_config import RunConfig
from fl_audit.runs.config_errors import accepted_values, resolved
from fl_audit.words import name_list

_KINDS = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "array": "list",
    "object": "table",
}
_OF_THEIR_OWN = {
    "data.loader-parameters": "a table of numbers, texts, true and false",
    "data.partition-parameters": "a table of the parameters that the partition has, such as { alpha = 0.5 }",
}
"""Accepted values that schemas cannot describe."""
_REQUIRED = {"privacy.adjacency": "where something is claimed"}
"""Settings that a section requires although its model has a default."""


_USUAL = frozenset(
    {
        "data.name",
        "data.path",
        "data.label",
        "data.records",
        "data.test-records",
        "data.clients",
        "data.partition",
        "data.seed",
        "model.name",
        "model.seed",
        "training.strategy",
        "training.rounds",
        "training.learning-rate",
        "training.local-epochs",
        "training.local-batch",
        "privacy.adjacency",
        "privacy.delta",
        "privacy.epsilon",
        "privacy.belief",
        "privacy.noise-multiplier",
        "privacy.clipping-norm",
        "privacy.accountant",
        "privacy.private",
        "audit.kind",
        "audit.trials",
        "audit.neighbour",
        "audit.attacks",
        "run.seed",
        "run.actors",
        "run.device",
    }
)
"""Settings that most runs use, or look at first; all others are advanced."""


@dataclass(frozen=True)
class Setting:
    """Description of one setting of the configuration."""

    key: str  # name of the setting, `section.key`
    type: str  # type in words, such as `whole number`
    # Default as a JSON value; None if there is no default, or if it depends on other settings.
    default: Any
    explanation: str  # purpose of the setting, in one line
    accepted: str  # accepted values, in words
    choices: tuple[str, ...] | None  # all accepted values; None if they are not a fixed list of words
    required: str  # condition under which the setting is required, such as `always`; empty if it never is
    advanced: bool  # whether few runs need the setting

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def settings(selection: str | None = None) -> tuple[Setting, ...]:
    """Return the descriptions of all settings, or of some of them.

    Parameters
    ----------
    selection
        Selects the settings: the name of a section, a single setting as `section.key`, or a `key` in any section. None
        selects all settings.

    Raises
    ------
    InputError
        If there is no such section or key.
    """
    every = tuple(_every())
    if selection is None:
        return every
    section, dot, key = selection.partition(".")
    of_section = tuple(setting for setting in every if setting.key.startswith(f"{section}."))
    settings = tuple(setting for setting in every if selection in (setting.key, setting.key.partition(".")[2]))
    if selected := settings if dot or not of_section else of_section:
        return selected
    subject, name, names = f"section {section!r}", section, list(RunConfig.model_fields)
    if of_section:
        subject, name, names = (
            f"key {key!r} of [{section}]",
            key,
            [setting.key.partition(".")[2] for setting in of_section],
        )
    nearest = get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise InputError(f"configuration {subject} is unknown: nearest is {nearest!r}, accepted are {name_list(names)}")


def _every() -> Iterator[Setting]:
    whole = RunConfig.model_json_schema()
    for section, field in RunConfig.model_fields.items():
        model = field.annotation
        assert isinstance(model, type), "every section has a model"
        assert issubclass(model, BaseModel), "every section has a model"
        for setting_field in model.model_fields.values():
            properties = whole["$defs"][model.__name__]["properties"][setting_field.alias]
            key = f"{section}.{setting_field.alias}"
            alternatives = [resolved(alternative, whole) for alternative in properties.get("anyOf", [properties])]
            alternatives = [alternative for alternative in alternatives if alternative.get("type") != "null"]
            kinds = dict.fromkeys(_KINDS[_type_of(alternative)] for alternative in alternatives)
            words = [
                word
                for alternative in alternatives
                for word in alternative.get("enum", [alternative["const"]] if "const" in alternative else [])
            ]
            yield Setting(
                key=key,
                type=" or ".join(kinds),
                default=None if key in _REQUIRED else properties.get("default"),
                explanation=" ".join((setting_field.description or "").split()),
                accepted=_OF_THEIR_OWN.get(key) or accepted_values(properties, whole),
                choices=tuple(words) if words and len(alternatives) == 1 else None,
                required=_REQUIRED.get(key, "always" if setting_field.is_required() else ""),
                advanced=key not in _USUAL,
            )


def _type_of(schema: Mapping[str, Any]) -> str:
    return str(schema.get("type", "string" if "enum" in schema or "const" in schema else "array"))
