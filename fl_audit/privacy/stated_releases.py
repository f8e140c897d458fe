"""Releases of one training, as stated by its operator; clients and servers import this module without scipy."""

from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.privacy import defaults
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.value_checks import choice, require_number

if TYPE_CHECKING:
    from fl_audit.privacy.claim import Claim
    from fl_audit.privacy.events import ReleaseEvent


@dataclass(frozen=True)
class StatedReleases:
    """Releases of a training with Gaussian noise as its operator states them: adjacency, noise, rounds, sampling rate.

    A `Claim` has the same content as accounting events, whose module needs scipy. Clients of a running federation
    import this module without scipy, and need these four values alone.

    Raises `InputError` if a number is out of its range or the adjacency is unknown.
    """

    adjacency: Adjacency  # the adjacency, or its name
    noise_multiplier: float  # standard deviation of the noise over the sensitivity of the sum, above 0
    rounds: int  # number of rounds, at least 1
    # Probability with which a unit participates in a round, above 0 and up to 1, e.g. cohort size over all units.
    sampling_rate: float = defaults.SAMPLING_RATE
    # The quantity that the given noise multiplier multiplies; `noise_multiplier` is always over the sensitivity.
    noise_over: InitVar[MultiplierReference] = MultiplierReference.SENSITIVITY

    if TYPE_CHECKING:  # A name will do.

        def __init__(
            self,
            adjacency: Adjacency | str,
            noise_multiplier: float,
            rounds: int,
            sampling_rate: float = ...,
            noise_over: MultiplierReference | str = ...,
        ) -> None: ...

    def __post_init__(self, noise_over: MultiplierReference) -> None:
        object.__setattr__(self, "adjacency", choice(Adjacency, "adjacency", self.adjacency))
        require_number("noise multiplier is", self.noise_multiplier, "positive finite numbers")
        over = choice(MultiplierReference, "noise over", noise_over)
        object.__setattr__(self, "noise_multiplier", over.over_sensitivity(self.noise_multiplier, self.adjacency))
        require_number("rounds is", self.rounds, "whole numbers from 1")
        require_number("sampling rate is", self.sampling_rate, "numbers from 1e-20 and up to 1")

    @property
    def events(self) -> "tuple[ReleaseEvent, ...]":
        """Release events of the training, from which an accountant computes epsilon."""
        from fl_audit.privacy.events import gaussian_rounds  # noqa: PLC0415

        return gaussian_rounds(self.noise_multiplier, self.rounds, self.sampling_rate)

    def claim(self, delta: float) -> "Claim":
        """Return the claim for these releases at `delta`, above 0 and below 1, with the exact accountant."""
        from fl_audit.privacy.claim import Claim  # noqa: PLC0415

        return Claim(self.adjacency, self.events, delta)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict of JSON values."""
        return asdict(self) | {"adjacency": str(self.adjacency)}


def terms_of_json(values: Mapping[str, Any], where: str) -> StatedReleases:
    """Build `StatedReleases` from JSON values; keys that are no fields are ignored.

    Parameters
    ----------
    values
        JSON values, as returned by `StatedReleases.to_json`.
    where
        Source of the values, such as file and line, for error messages.

    Raises
    ------
    InputError
        If a value is missing or out of its range.
    """
    try:
        return StatedReleases(**{field.name: values[field.name] for field in fields(StatedReleases)})
    except (KeyError, TypeError, InputError) as error:
        raise InputError(f"{where} states no training: {error}") from None
