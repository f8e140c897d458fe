"""Measured noise and effects of records of the steps of a training without Opacus, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fl_audit.app_audits.local_training.leave_one_out_replay import NOISE_TOLERANCE
from fl_audit.array_types import Floats

_MOST_GROWTH = 10.0  # factor by which effects of records 100 times as large may differ where they are clipped
_LEAST_COUPLING = 1e-3  # part of its effect by which a record may act on the effect of another one by rounding
_MOST_OVER_NOISE = 10.0  # effect in units of the noise, above which growth without an end is a breach


@dataclass(frozen=True)
class MeasuredStep:
    """Noise and effect of a record in one step that follows the records."""

    number: int  # from 0, among all steps of the training
    multiplier: float  # noise over the effect of a record; 0 without noise
    largest_multiplier: float  # largest one that chance leaves possible
    effect: float  # length by which a record can move the gradient
    bare_tensors: tuple[int, ...]  # numbers, from 0, of the tensors that follow the records and have no noise
    shapes: tuple[tuple[int, ...], ...]  # shapes of the tensors
    samples: tuple[Floats, ...]  # independent samples of the noise, (parameters,), in units of its scale
    # Numbers, from 0, of the tensors whose noise is not independent at the coordinates: its size along the effect of a
    # record is not known.
    dependent_tensors: tuple[int, ...] = ()


@dataclass(frozen=True)
class RecordEffect:
    """Effect of the values of one record on the gradients of some steps, which have the same tensors."""

    index: int  # position of the record in the data set, from 0
    over_noise: tuple[float, ...]  # effect in each step in units of the noise: mu; infinite without noise
    least_over_noise: tuple[float, ...]  # least effect in each step that what was seen leaves possible
    length: float  # longest difference of two gradients that differ by having the record
    growth: float  # longest difference for values 1,000,000 times as large, over that for 10,000 times as large
    coupling: float | None  # part by which the record changes the effect of another one; None if not compared
    # Whether the record was compared with its absence, or with values of it that have no effect. If not, the radius of
    # the smallest ball that holds the gradients with all compared values is the least effect that one of them has.
    has_absence: bool
    noise_moved: float | None  # change of the noise, over its scale, where it is left out; None if it was not left out
    compared: int  # number of steps that were compared
    taking: int  # number of these that the record moved

    @property
    def is_growing(self) -> bool:
        """Whether larger values of the record go on to have a larger effect, as they do without clipping."""
        return self.growth > _MOST_GROWTH

    @property
    def is_unbounded(self) -> bool:
        """Whether no clipping bounds the effect of the record to what the noise covers."""
        return self.is_growing and max(self.over_noise, default=0.0) > _MOST_OVER_NOISE

    @property
    def is_coupled(self) -> bool:
        """Whether the record changes the effect of another one, as it does where a batch is clipped as a whole."""
        # Where a step is divided by the size of its sample, leaving a record out changes all effects.
        return self.coupling is not None and self.coupling > _LEAST_COUPLING and not self.is_noise_moved

    @property
    def is_noise_moved(self) -> bool:
        """Whether the noise changes where the record is left out."""
        return self.noise_moved is not None and self.noise_moved > NOISE_TOLERANCE


@dataclass(frozen=True)
class MeasuredSteps:
    """Measured steps of a training that follow the records, and the effects of records on them."""

    steps: Sequence[MeasuredStep] = ()
    effects: tuple[RecordEffect, ...] = field(default=())  # one for each set of tensors that steps have

    @property
    def bare(self) -> tuple[MeasuredStep, ...]:
        """Steps in which a tensor that follows the records has no noise."""
        return tuple(step for step in self.steps if step.bare_tensors)

    @property
    def has_dependent_noise(self) -> bool:
        """Whether the noise of some step is not independent at the coordinates of a tensor."""
        return any(step.dependent_tensors for step in self.steps)

    @property
    def has_bound(self) -> bool:
        """Whether the effect of a record is known: it is bounded, and was compared with the absence of the record."""
        return all(
            effect.has_absence and not (effect.is_growing or effect.is_coupled or effect.is_noise_moved)
            for effect in self.effects
        )
