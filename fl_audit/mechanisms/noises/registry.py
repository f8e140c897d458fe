"""The registry of noises by the name of their kind; to add one, write a module for it and add a line here."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from fl_audit.errors import require
from fl_audit.mechanisms.noises.base import MechanismNoise, NoiseOrigin, NoiseSettings
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.mechanisms.noises.distributed import DistributedGaussian
from fl_audit.mechanisms.noises.inside_training import LocalDPSGD
from fl_audit.mechanisms.noises.local import LocalGaussian
from fl_audit.mechanisms.noises.none import NoNoise
from fl_audit.privacy.names import NoiseScaling

NOISES: dict[str, type[MechanismNoise]] = {
    "central": CentralGaussian,
    "distributed": DistributedGaussian,
    "local": LocalGaussian,
    "correlated": CorrelatedGaussian,
    "inside-training": LocalDPSGD,
    "none": NoNoise,
}
"""The class of each kind of noise, by its key in stored mechanisms."""

NO_NOISE = NoNoise()
"""The noise of a mechanism without a claim."""


def names_of_noises(*origins: NoiseOrigin, carries_canaries: bool | None = None) -> tuple[str, ...]:
    """Return the names of noises in a configuration.

    Parameters
    ----------
    origins
        Parties that add the noise; all noises if none is given.
    carries_canaries
        Whether canaries can be measured under the noise; None for all noises.
    """
    return tuple(
        name
        for kind in NOISES.values()
        if (not origins or kind.origin in origins) and carries_canaries in (None, kind.carries_canaries)
        for name in kind.names
    )


def quoted_names(*origins: NoiseOrigin, carries_canaries: bool | None = None) -> str:
    """Return the names of `names_of_noises` as a list for a message: 'a', 'b' and 'c'.

    Parameters
    ----------
    origins
        Parties that add the noise, as for `names_of_noises`.
    carries_canaries
        Whether canaries can be measured under the noise, as for `names_of_noises`.
    """
    *first, last = [f"'{name}'" for name in names_of_noises(*origins, carries_canaries=carries_canaries)]
    return f"{', '.join(first)} and {last}" if first else last


def noise_named(name: str) -> type[MechanismNoise]:
    """Return the class of noise with a given name in a configuration.

    Raises
    ------
    InputError
        If there is no such noise.
    """
    found = [kind for kind in NOISES.values() if name in kind.names]
    require(bool(found), f"noise is {name!r}: accepted are {', '.join(names_of_noises())}")
    return found[0]


def noise_of(settings: NoiseSettings) -> MechanismNoise:
    """Return the noise for the settings of a configuration.

    Raises
    ------
    InputError
        If there is no such noise, it does not support scaling to the local sensitivity, or a number is out of range.
    """
    kind = noise_named(settings.name)
    fits = kind.may_follow_data or settings.scaling is NoiseScaling.GLOBAL
    require(fits, f"sensitivity is 'local' with noise = '{settings.name}': accepted with it is 'global'")
    return kind.of_settings(settings)


def settings_of_noises() -> Mapping[str, str]:
    """Return the settings that belong to a single noise, each with the name of this noise."""
    return {setting: name for kind in NOISES.values() for setting, name in kind.own_settings.items()}


def foreign_settings(name: str) -> Mapping[str, str]:
    """Return the settings that belong only to noises other than the named one, each with the name of its noise."""
    return {setting: needed for setting, needed in settings_of_noises().items() if needed != name}


def _read(value: Any) -> MechanismNoise:
    """Return a noise, or deserialise a stored one."""
    if isinstance(value, MechanismNoise):
        return value
    kind = value.get("kind") if isinstance(value, dict) else None
    require(kind in NOISES, f"stored noise is of kind {kind!r}: accepted are {', '.join(NOISES)}")
    return _reader(NOISES[str(kind)]).validate_python(value)


@lru_cache(maxsize=16)
def _reader(kind: type[MechanismNoise]) -> TypeAdapter[MechanismNoise]:
    return TypeAdapter(kind)


def _stored(noise: MechanismNoise) -> dict[str, Any]:
    return asdict(noise)  # type: ignore[call-overload, no-any-return]  # every kind is a dataclass


StoredNoise = Annotated[MechanismNoise, PlainValidator(_read), PlainSerializer(_stored)]
"""Pydantic type of a noise of any kind, which is serialised as a part of a mechanism."""
