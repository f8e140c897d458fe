"""Randomise records of bits by randomised response."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats
from fl_audit.data.randomizers.randomized_responses import draws_above, responses
from fl_audit.data.randomizers.record_shapes import record_axes, require_pair
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require
from fl_audit.privacy.events import ReleaseEvent
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.privacy.identifiability_bounds import truth_probability


@dataclass(frozen=True)
class RandomisedBits:
    """Randomised response on every feature of records whose features are 0 or 1.

    Each bit is reported truthfully with probability e^epsilon / (1 + e^epsilon), independently of the others, and
    otherwise flipped (Bernau et al. 2019, Eq. (1)). Raises `InputError` if epsilon is negative or not finite.

    Examples
    --------
    >>> from fl_audit.randomness import Purpose, generator
    >>> told = RandomisedBits(2.0).perturb(np.ones((1, 8)), generator(0, Purpose.LOCAL_RANDOMIZER))
    >>> told.shape, set(told.ravel().tolist()) <= {0.0, 1.0}
    ((1, 8), True)
    >>> RandomisedBits(2.0).pair_events(np.array([0, 1, 1]), np.array([1, 1, 0]))
    (RandomizedResponse(epsilon=2.0, count=2),)
    """

    epsilon: float  # epsilon_i of one feature, from 0 (fair coins that tell nothing)
    kind: Literal["randomised-response"] = "randomised-response"

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)

    def require_records(self, records: Records) -> None:
        """Raise `InputError` if records are graphs or named arrays, or if a feature is neither 0 nor 1."""
        name = f"local-randomizer is '{self.kind}'"
        require(not records.graphs, f"{name} and the records are graphs: use 'randomised-edges'")
        refused = f"{name} and records are {records.kind_of_arrays}, whose bits are no answers of their owners"
        require(not records.inputs, f"{refused}: leave it out")
        # Values other than 0 and 1, row after row: features may be many.
        rows = (row[(row != 0) & (row != 1)] for row in records.features)
        wrong = next((float(values_found[0]) for values_found in rows if values_found.size), None)
        require(wrong is None, f"{name} and a feature is {wrong}: accepted are features that are 0 or 1")

    def perturb(self, features: NDArray[np.generic], generator: np.random.Generator) -> NDArray[np.uint8]:
        """Return randomised records, uint8, in the shape of `features`.

        Raises `InputError` if a feature is neither 0 nor 1.
        """
        _require_bits(features)
        lies = draws_above(truth_probability(self.epsilon), features.size, generator)
        return np.where(lies.reshape(features.shape), 1 - features, features).astype(np.uint8)

    def log_odds(
        self, observed: NDArray[np.generic], first: NDArray[np.generic], second: NDArray[np.generic]
    ) -> Floats:
        """Return log P(observed | first) / P(observed | second) of each observed record, in nats, shape (...).

        Each bit in which `first` and `second` differ adds epsilon if the observed bit agrees with `first`, and
        subtracts epsilon if it agrees with `second`. Raises `InputError` if the shapes do not fit, or if a feature is
        neither 0 nor 1.
        """
        require_pair(observed, first, second)
        for bits in (observed, first, second):
            _require_bits(bits)
        agreeing = (observed == first).astype(np.int64) - (observed == second)
        return np.asarray(self.epsilon * agreeing.sum(axis=record_axes(first)), dtype=np.float64)

    def counted_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return the releases from which Bernau et al. 2019 compute their guarantee: a randomised response per feature.

        All responses are stated as one event with a count. The guarantee is also the exact worst case, in which two
        records differ in every feature.
        """
        return responses(self.epsilon, int(np.prod(shape)))

    def events_of_opposite_records(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return the releases for two records of the given shape that differ in every feature.

        There is one randomised response for each feature. All responses together are one event for the accountant.
        """
        return self.counted_events(shape)

    def pair_events(self, first: NDArray[np.generic], second: NDArray[np.generic]) -> tuple[ReleaseEvent, ...]:
        """Return the randomised responses by which two given records can be distinguished, as at most one event.

        There is one response for each feature in which the records differ. Raises `InputError` if the shapes differ, or
        if a feature is neither 0 nor 1.
        """
        require_pair(first, first, second)
        for bits in (first, second):
            _require_bits(bits)
        return responses(self.epsilon, int(np.count_nonzero(first != second)))


def _require_bits(features: NDArray[np.generic]) -> None:
    wrong = (features != 0) & (features != 1)
    if wrong.any():
        raise InputError(f"a feature is {features[wrong][0]}: accepted for randomised response are 0 and 1")
