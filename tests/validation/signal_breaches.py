"""Kinds of breaches of the signal: federations with the right noise, but a sum that is not the claimed one.

The target counts more often than once, in all trainings or in few; it is clipped to another norm; copies of it are in;
its client pushes the sum as the secret says; or the noise is missing just where it hides the target.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fl_audit.array_types import Flags, Floats


@dataclass(frozen=True)
class TargetRound:
    """The values with which a mechanism may treat the target of one round in its own way."""

    present: Floats  # contribution of the target under D, (trials, parameters), in the units of the sum
    absent: Floats  # its replacement under D'
    clipped_at: Callable[[float], Floats]  # contribution of the true side if it is clipped at a multiple of the norm
    members: Flags  # whether the trials hold D, (trials,)
    norm: float  # the clipping norm
    number: int  # the round, from 1
    key: int  # of the run, for draws that stay the same in all its rounds

    @property
    def own(self) -> Floats:
        """The contribution of the true side."""
        return np.where(self.members[:, None], self.present, self.absent)

    @cached_property
    def unit(self) -> Floats:
        """The contribution scaled to length 1; 0 where there is none."""
        length = np.linalg.norm(self.own, axis=1, keepdims=True)
        return np.divide(self.own, length, out=np.zeros_like(self.own), where=length > 0)

    def rng(self, purpose: int) -> np.random.Generator:
        """Return a generator that draws the same in every round."""
        return np.random.default_rng((self.key, purpose))

    def some(self, share: float) -> Floats:
        """Return 1 in a share of the trials, the same in every round, and 0 in the others, (trials, 1)."""
        return (self.rng(1).random(len(self.members)) < share).astype(np.float64)[:, None]

    def direction(self) -> Floats:
        """Return a direction of length 1 that nobody knows beforehand, the same in every round, (parameters,)."""
        normals = self.rng(2).standard_normal(self.present.shape[1])
        return np.asarray(normals / np.linalg.norm(normals))


Altered = Callable[[TargetRound, Floats], Floats]  # returns what takes the place of the noise, (trials, parameters)


def counted_times(times: float, share: float = 1.0) -> Altered:
    """Return a change that counts the target several times, in a share of the trials."""
    return lambda at, noise: noise + (times - 1) * at.own * at.some(share)


def counted_in_round(times: float, number: int) -> Altered:
    """Return a change that counts the target several times in one round of all trials.

    Rounds are counted from 1.
    """
    return lambda at, noise: noise + ((times - 1) * at.own if at.number == number else 0.0)


def unhidden(share: float) -> Altered:
    """Return a change that leaves out the noise along the target, in a share of the trials."""

    def altered(at: TargetRound, noise: Floats) -> Floats:
        along = np.sum(noise * at.unit, axis=1, keepdims=True)
        return np.asarray(noise - at.some(share) * along * at.unit)

    return altered


def copied(copies: int, likeness: float) -> Altered:
    """Return a change that adds copies of the target, each with the given cosine to it and its length."""

    def altered(at: TargetRound, noise: Floats) -> Floats:
        contribution = at.own
        added = np.zeros_like(noise)
        length = np.linalg.norm(contribution, axis=1, keepdims=True)
        for number in range(copies):
            copy_direction = np.random.default_rng((at.key, 3, at.number, number)).standard_normal(contribution.shape)
            copy_direction -= np.sum(copy_direction * at.unit, axis=1, keepdims=True) * at.unit
            copy_direction /= np.linalg.norm(copy_direction, axis=1, keepdims=True)
            added += likeness * contribution + np.sqrt(1 - likeness**2) * length * copy_direction
        return np.asarray(noise + added)

    return altered


def clipped(factor: float) -> Altered:
    """Return a change that clips the target, and nobody else, at a multiple of the norm."""
    return lambda at, noise: noise + at.clipped_at(factor) - at.own


def pushed(norms: float) -> Altered:
    """Return a change that pushes the sum by some norms in one direction with D, and in the opposite one with D'."""

    def altered(at: TargetRound, noise: Floats) -> Floats:
        return noise + norms * at.norm * np.where(at.members, 1.0, -1.0)[:, None] * at.direction()

    return altered


def pushed_along(norms: float) -> Altered:
    """Return a change that pushes the sum along the difference of D and D' with D, and against it with D'."""

    def altered(at: TargetRound, noise: Floats) -> Floats:
        difference = at.present - at.absent
        length = np.linalg.norm(difference, axis=1, keepdims=True)
        unit = np.divide(difference, length, out=np.zeros_like(difference), where=length > 0)
        return np.asarray(noise + norms * at.norm * np.where(at.members, 1.0, -1.0)[:, None] * unit)

    return altered
