"""Membership of the targets in each trial: the secret bits that attacks infer.

A target is a unit whose membership is in question. Functions raise `InputError` for arrays of wrong shape and numbers
out of range.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fl_audit.array_types import Flags
from fl_audit.errors import require


class MembershipScheme(StrEnum):
    """Scheme by which a trial draws which targets are members of its training set.

    BY_COINS draws each target by an independent fair coin. EXACTLY_ONE draws a single target. ALL takes all targets,
    for audits in which no attack infers membership.
    """

    BY_COINS = "by-coins"
    EXACTLY_ONE = "exactly-one"
    ALL = "all"


@dataclass(frozen=True)
class TargetMembership:
    """Membership of each target unit in the training set of each trial.

    Examples
    --------
    >>> TargetMembership(np.array([[True], [False]])).bits
    array([ True, False])
    """

    is_in: Flags  # bool (trials, targets); in the identifiability audit the one target is the differing unit

    def __post_init__(self) -> None:
        accepted = self.is_in.ndim == 2 and self.is_in.dtype == np.bool_
        shape_text = f"{self.is_in.dtype} of shape {self.is_in.shape}"
        require(accepted, f"membership is {shape_text}: accepted is bool (trials, targets)")

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.is_in)

    @property
    def targets(self) -> int:
        """Number of targets."""
        return int(self.is_in.shape[1])

    @property
    def bits(self) -> Flags:
        """Secret bit of each trial, bool (trials,): True if its single target is a member.

        Raises `InputError` if there are several targets.
        """
        require(self.targets == 1, f"there are {self.targets} targets: one bit a trial is that of one target")
        return self.is_in[:, 0]

    def of_targets(self, targets: tuple[int, ...]) -> "TargetMembership":
        """Return the membership of only the targets with the given indices, in this order."""
        return TargetMembership(self.is_in[:, list(targets)])

    def pack(self) -> bytes:
        """Return the flags of `is_in` as bytes, one byte each, trial by trial; the shape is not included."""
        return self.is_in.tobytes()

    @staticmethod
    def unpack(packed: bytes, targets: int) -> "TargetMembership":
        """Build the membership from the bytes that `pack` returned."""
        return TargetMembership(np.frombuffer(packed, dtype=np.bool_).reshape(-1, targets).copy())
