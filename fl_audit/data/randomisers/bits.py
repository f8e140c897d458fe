"""Randomised response on records of bits."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fl_audit.arrays import Floats
from fl_audit.data.randomisers.common import Features, draws_above, record_axes, require_pair, responses
from fl_audit.errors import InputError
from fl_audit.privacy.events import ReleaseEvent
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.privacy.randomised_response import truth_probability


@dataclass(frozen=True)
class RandomisedBits:
    """Randomised response on every feature of records of 0 and 1.

    Each bit is told truly with probability e^epsilon / (1 + e^epsilon) (Eq. (1) of the paper; module
    `fl_audit.privacy.randomised_response`), independently.

    Raises
    ------
    InputError
        If epsilon is negative or not finite.

    Examples
    --------
    >>> from fl_audit.randomness import Purpose, generator
    >>> told = RandomisedBits(2.0).perturb(np.ones((1, 8)), generator(0, Purpose.RECORD_RANDOMISER))
    >>> told.shape, set(told.ravel().tolist()) <= {0.0, 1.0}
    ((1, 8), True)
    >>> RandomisedBits(2.0).pair_events(np.array([0, 1, 1]), np.array([1, 1, 0]))
    (RandomizedResponse(epsilon=2.0, count=2),)
    """

    epsilon: float  # epsilon_i of one feature, from 0 (fair coins that tell nothing)
    kind: Literal["randomised-response"] = "randomised-response"

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)

    def perturb(self, features: NDArray[np.generic], generator: np.random.Generator) -> Features:
        """Return randomised records.

        Parameters
        ----------
        features
            0 and 1, shape (records, features...).
        generator
            Where one number a feature is drawn from, record after record.

        Raises
        ------
        InputError
            If a feature is neither 0 nor 1.
        """
        _require_bits(features)
        lies = draws_above(truth_probability(self.epsilon), features.size, generator)
        told: Features = np.where(lies.reshape(features.shape), 1 - features, features).astype(np.float32)
        return told

    def log_odds(
        self, observed: NDArray[np.generic], first: NDArray[np.generic], second: NDArray[np.generic]
    ) -> Floats:
        """Return log P(observed | first) / P(observed | second), in nats.

        Each differing bit adds epsilon where it agrees with the first record and takes it away where it agrees with the
        second.

        Parameters
        ----------
        observed
            Randomised records, shape (..., features...).
        first, second
            The two records that they can come from, shape (features...).

        Returns
        -------
        NDArray
            Shape (...): one number for each observed record.

        Raises
        ------
        InputError
            If the shapes do not fit, or a feature is neither 0 nor 1.
        """
        require_pair(observed, first, second)
        for bits in (observed, first, second):
            _require_bits(bits)
        agreeing = (observed == first).astype(np.int64) - (observed == second)
        return np.asarray(self.epsilon * agreeing.sum(axis=record_axes(first)), dtype=np.float64)

    def counted_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return what the paper promises for records of a shape, a release for each feature.

        Records of 600 features are promised 600 epsilon_i in all. No two records can differ in more, so it is also the
        exact law for records that differ everywhere.
        """
        return responses(self.epsilon, int(np.prod(shape)))

    def whole_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return what tells two records of a shape apart at most: records that differ everywhere."""
        return self.counted_events(shape)

    def pair_events(self, first: NDArray[np.generic], second: NDArray[np.generic]) -> tuple[ReleaseEvent, ...]:
        """Return what tells two records apart: a release for each feature in which they differ.

        Parameters
        ----------
        first, second
            Features of two records, of one shape.
        """
        require_pair(first, first, second)
        for bits in (first, second):
            _require_bits(bits)
        return responses(self.epsilon, int(np.count_nonzero(first != second)))


def _require_bits(features: NDArray[np.generic]) -> None:
    wrong = (features != 0) & (features != 1)
    if wrong.any():
        raise InputError(f"a feature is {features[wrong][0]}: accepted for randomised response are 0 and 1")
