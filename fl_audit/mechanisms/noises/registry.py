"""The kinds of noise, by the names that a stored mechanism has for them: a new one is a module, and a line here."""

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
"""The noise of a mechanism that claims nothing."""


def names_of_noises(*origins: NoiseOrigin, carries_canaries: bool | None = None) -> tuple[str, ...]:
    """Return the names that a configuration has for noises.

    Parameters
    ----------
    origins
        Parties that add the noise; all if none is named.
    carries_canaries
        Whether canaries can be measured under the noise; None for noises of either kind.
    """
    return tuple(
        name
        for kind in NOISES.values()
        if (not origins or kind.origin in origins) and carries_canaries in (None, kind.carries_canaries)
        for name in kind.names
    )


def quoted_names(*origins: NoiseOrigin, carries_canaries: bool | None = None) -> str:
    """Return the names of `names_of_noises` as a list in a message: 'a', 'b' and 'c'.

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
    """Return the kind of noise that a configuration calls by a name.

    Raises
    ------
    InputError
        If there is no such noise.
    """
    found = [kind for kind in NOISES.values() if name in kind.names]
    require(bool(found), f"noise is {name!r}: accepted are {', '.join(names_of_noises())}")
    return found[0]


def noise_of(settings: NoiseSettings) -> MechanismNoise:
    """Return the noise of a configuration.

    Raises
    ------
    InputError
        If there is no such noise, it cannot follow the data though it is to, or a number is out of its range.
    """
    kind = noise_named(settings.name)
    fits = kind.may_follow_data or settings.scaling is NoiseScaling.GLOBAL
    require(fits, f"sensitivity is 'local' with noise = '{settings.name}': accepted with it is 'global'")
    return kind.of_settings(settings)


def settings_of_noises() -> Mapping[str, str]:
    """Return the settings that single noises have, each with the name of the noise that it needs."""
    return {setting: name for kind in NOISES.values() for setting, name in kind.own_settings.items()}


def foreign_settings(name: str) -> Mapping[str, str]:
    """Return those of these settings that the noise of a name does not have."""
    return {setting: needed for setting, needed in settings_of_noises().items() if needed != name}


def _read(value: Any) -> MechanismNoise:
    """Return a noise, or read the one that was stored."""
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
"""A noise of whatever kind, which is stored with the others of a mechanism."""
