"""Registry of the rules of participation by name, and of unsupported rules with the reasons.

To add a rule, write a module for it and add a line here.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from fl_audit.errors import require
from fl_audit.mechanisms.participations.everybody import Everybody
from fl_audit.mechanisms.participations.participation import Participation, ParticipationSettings
from fl_audit.mechanisms.participations.poisson import PoissonSampling
from fl_audit.mechanisms.participations.rotating_cohorts import RotatingCohorts
from fl_audit.mechanisms.stored_parts import read_part, stored_part
from fl_audit.words import name_list

PARTICIPATIONS: dict[str, type[Participation]] = {
    "everybody": Everybody,
    "cohort": RotatingCohorts,
    "poisson": PoissonSampling,
}
"""The class of each rule, by its name. A configuration without a name implies exactly one of them."""

_JOINT = (
    "its rounds depend on each other, and no exact loss distribution of them together is known to dp-accounting or here"
)

REFUSED: dict[str, str] = {
    "balls-in-bins": _JOINT,
    "random-allocation": _JOINT,
    "b-min-sep": _JOINT,
    "truncated-poisson": "whoever is cut off depends on the others in the sample, so two contributions change",
    "shuffle": "whoever knows all others knows in which batch the last one is, so it protects less than a sample",
    "fixed-size": "whoever knows all others of a batch of a fixed size knows whether the last one is in it",
}
"""Rules of other libraries for which this package has no accounting, each with the reason."""


def participation_of(settings: ParticipationSettings) -> Participation:
    """Build the rule of participation that the settings of a configuration name or imply.

    Raises
    ------
    InputError
        If the named rule is unknown or not supported, or a number is out of range.
    """
    name = settings.name
    if name is None:
        implied = [kind for kind in PARTICIPATIONS.values() if kind.is_meant(settings)]
        assert len(implied) == 1, f"{settings} implies {len(implied)} rules of participation, and must imply one"
        return implied[0].of_settings(settings)
    require(name in PARTICIPATIONS, f"sampling is '{name}': {accepted_instead(name)}")
    return PARTICIPATIONS[name].of_settings(settings)


def accepted_instead(name: str) -> str:
    """Return the end of an error message about an unsupported participation rule.

    The text says why the rule is unsupported, if that is known, and which rules are accepted.
    """
    accepted = f"accepted are {name_list(PARTICIPATIONS)}"
    return f"{REFUSED[name]}; {accepted}" if name in REFUSED else accepted


def foreign_settings(name: str | None) -> Mapping[str, str]:
    """Return the settings that do not belong to the configured participation rule, but only to another one.

    Each is a key with the name of its rule as the value. `name` is the name of the configured rule. A cohort implies
    its rule if none is configured (None); the settings that a rule alone has never do.
    """
    foreign = {setting: rule for setting, rule in settings_of_participations().items() if name != rule}
    return foreign if name in (None, "cohort") else foreign | {"cohort": "cohort"}


def settings_of_participations() -> dict[str, str]:
    """Return the name of the participation rule to which a setting belongs, keyed by setting.

    Settings that several rules have are left out.
    """
    return {setting: name for kind in PARTICIPATIONS.values() for setting, name in kind.own_settings.items()}


StoredParticipation = Annotated[
    Participation,
    PlainValidator(lambda value: read_part(value, Participation, PARTICIPATIONS, "participation")),
    PlainSerializer(stored_part),
]
"""Pydantic type of a rule of any kind, which is serialised as a part of a mechanism."""
