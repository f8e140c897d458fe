"""Registry of the kinds of noise by name; to add one, write a module for it and add a line here."""

from collections.abc import Callable
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from fl_audit.errors import InputError, require
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.mechanisms.noises.distributed import DistributedGaussian
from fl_audit.mechanisms.noises.inside_training import LocalDPSGD
from fl_audit.mechanisms.noises.laplace import CentralLaplace
from fl_audit.mechanisms.noises.local import LocalGaussian
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise, NoiseOrigin, NoiseSettings
from fl_audit.mechanisms.noises.none import NoNoise
from fl_audit.mechanisms.stored_parts import read_part, stored_part
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.words import name_list, phrase_list

NOISES: dict[str, type[MechanismNoise]] = {
    "central": CentralGaussian,
    "distributed": DistributedGaussian,
    "local": LocalGaussian,
    "correlated": CorrelatedGaussian,
    "laplace": CentralLaplace,
    "inside-training": LocalDPSGD,
    "none": NoNoise,
}
"""The class of each kind of noise, by its key in stored mechanisms."""

Condition = Callable[[type[MechanismNoise]], bool]
"""A condition on a kind of noise."""

STANDARD_GAUSSIAN: MechanismNoise = CentralGaussian(1.0)
"""Gaussian noise of multiplier 1, by which the noise of trainings of other people is measured."""

NO_NOISE = NoNoise()
"""The noise of a mechanism without a claim."""


def names_of_noises(*origins: NoiseOrigin, condition: Condition = lambda kind: True) -> tuple[str, ...]:
    """Return the names, as in a configuration, of all kinds of noise that meet the given conditions.

    Parameters
    ----------
    origins
        Parties that may add the noise; every party if none is given.
    condition
        Condition that a kind of noise has to meet, such as that canaries can be measured under it.
    """
    return tuple(
        name
        for kind in NOISES.values()
        if (not origins or kind.origin in origins) and condition(kind)
        for name in kind.names
    )


def quoted_names(*origins: NoiseOrigin, condition: Condition = lambda kind: True) -> str:
    """Return the names that `names_of_noises` returns as text for a message, e.g. "'a', 'b' and 'c'".

    Parameters
    ----------
    origins
        Accepted parties that add the noise; every party if none is given.
    condition
        Condition that a kind of noise has to meet.
    """
    return phrase_list(f"'{name}'" for name in names_of_noises(*origins, condition=condition))


def noise_of(settings: NoiseSettings) -> MechanismNoise:
    """Build the noise that the settings of a configuration name.

    Raises
    ------
    InputError
        If no noise has the configured name, the noise cannot be scaled to the local sensitivity as configured, or a
        number is out of range.
    """
    kind = next((kind for kind in NOISES.values() if settings.name in kind.names), None)
    if kind is None:
        raise InputError(f"noise is {settings.name!r}: accepted are {name_list(names_of_noises())}")
    fits = kind.may_follow_data or settings.scaling is SensitivityKind.GLOBAL
    require(fits, f"sensitivity is 'local' with noise = '{settings.name}': accepted with it is 'global'")
    return kind.of_settings(settings)


StoredNoise = Annotated[
    MechanismNoise,
    PlainValidator(lambda value: read_part(value, MechanismNoise, NOISES, "noise")),
    PlainSerializer(stored_part),
]
"""Pydantic type of a noise of any kind, which is serialised as a part of a mechanism."""
