"""Facts that are recorded about one training with Opacus, as plain values, and the state that a replay of it needs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.generator_states import GeneratorStates
from fl_audit.verdict.noise_statistics import NoiseStatistics

History = tuple[tuple[float, float, int], ...]
"""History of an Opacus accountant: noise multiplier, sampling rate and number of steps, as often as these change."""


class BatchSamplingKind(StrEnum):
    """Way in which a loader samples the records of its mini-batches."""

    POISSON = "Poisson"  # every record independently, by a sampler of Opacus
    FIXED = "fixed"  # batches of a fixed size, in order or shuffled, by a sampler of torch
    OTHER = "other"  # by any other sampler


@dataclass(frozen=True)
class MakePrivateCall:
    """Facts of one call of Opacus's `PrivacyEngine.make_private`: its arguments and what it returned."""

    noise_multiplier: float
    norms: tuple[float, ...]  # the clipping norm, or one for each tensor if tensors are clipped separately
    clipping: str  # "flat", "per_layer" or "adaptive"
    is_poisson_asked: bool  # whether Poisson sampling was asked for
    sampling: BatchSamplingKind  # sampling method of the returned loader
    sampler: str  # class of the sampler of the returned loader
    rate: float  # sampling rate that Opacus accounts: one over the number of batches of the returned loader
    expected_batch: float | None  # expected batch size, by which Opacus divides sums; None without division
    records: int  # number of records of the data set
    batches: int  # number of batches of the returned loader
    loader_batch: int | None  # batch size of the loader that `make_private` was given
    is_last_dropped: bool  # whether the given loader drops a last partial batch
    accountant: str
    history: History  # history of the accountant at the time of the call
    # epsilon and delta given to `make_private_with_epsilon`; None if it was not used
    target: tuple[float, float] | None = None


@dataclass(frozen=True)
class Batch:
    """A mini-batch, or a part of one, that a loader drew."""

    indices: tuple[int, ...]  # positions of its records in the data set
    loader: int  # number, from 0, of the pass over a loader in which it was drawn
    sampling: BatchSamplingKind
    sampler: str  # class of the sampler
    rate: float | None  # sampling rate of a Poisson sampler; None for others
    records: int  # number of records of the data set
    is_whole: bool = True  # False for a part of a mini-batch, made by `BatchMemoryManager`, except the last part


@dataclass(frozen=True)
class Noise:
    """Noise that a step added to its sum of clipped gradients."""

    count: int  # number of coordinates of the noise
    squares: float  # sum of their squares
    head: tuple[float, ...]  # first values of the noise over its claimed scale, to find copies
    sample: Floats  # first values of the noise, to test their distribution
    seed: int  # initial seed of the random generator that drew the noise
    is_predictable: bool = False  # whether the training gave that generator a seed that others can try
    shapes: tuple[tuple[int, ...], ...] = ()  # shapes of the tensors
    statistics: NoiseStatistics | None = None  # for the tests of a run's noise, with a claimed scale of 1

    @property
    def scale(self) -> float:
        """Root mean square of the noise, which estimates its standard deviation."""
        return float((self.squares / max(self.count, 1)) ** 0.5)


@dataclass(frozen=True)
class PrivateStep:
    """Facts of one call of Opacus's `DPOptimizer.pre_step`, which clips gradients and adds noise."""

    optimizer: str  # class of the optimizer
    batches: tuple[int, ...]  # numbers of the batches drawn for the step; those of the previous step if none was
    is_fresh: bool  # whether a batch was drawn for the step
    rows: int | None  # number of per-record gradients that it clipped; None if Opacus keeps none
    is_noised: bool  # whether it added noise; False for a part of a larger batch
    is_applied: bool  # whether the optimizer then changed the weights
    noise_multiplier: float  # noise multiplier of all that the step releases together
    norm: float  # clipping norm
    learning_rate: float
    noise: Noise | None  # None without noise
    # Kept for replays: the sum of clipped gradients, and the gradients of single records before clipping.
    total: Floats | None = None
    gradients: Floats | None = None
    sizes: tuple[int, ...] = ()  # number of coordinates of each tensor of the sum
    expected_batch: float | None = None  # expected batch size, by which the noised sum is divided; None without
    # Noise multiplier of the count of unclipped gradients, which adaptive clipping releases; None without adaptive
    # clipping.
    count_multiplier: float | None = None
    # Largest noise multiplier that chance leaves possible, of a step without Opacus, whose noise and effect of a record
    # were measured; None where the multiplier is stated.
    largest_multiplier: float | None = None

    @property
    def gradient_multiplier(self) -> float:
        """Noise multiplier of the sum of gradients alone, without the count that adaptive clipping also releases."""
        if self.count_multiplier is None or not 0 < self.noise_multiplier < self.count_multiplier:
            return self.noise_multiplier
        return float((self.noise_multiplier**-2 - self.count_multiplier**-2) ** -0.5)

    def has_gradient_of_each_record(self, batches: Sequence["Batch"]) -> bool:
        """Return True if the step had one gradient for each record of its mini-batches.

        The number of gradients must equal the number of records in all `batches` together, or in the last one alone.
        The result is also True if the number of gradients is unknown. It is False if there is no mini-batch.
        """
        sizes = [len(batch.indices) for batch in batches]
        return bool(sizes) and (self.rows is None or self.rows in (sizes[-1], sum(sizes)))


@dataclass(frozen=True)
class ReportedEpsilon:
    """Epsilon that an accountant reported when the training asked for it."""

    epsilon: float
    delta: float
    history: History
    after: int  # number of noised steps before the report
    accountant: str = ""  # mechanism of the accountant, such as "rdp"

    @property
    def steps(self) -> int:
        """Number of steps that the accountant had counted, over all of its history."""
        return sum(count for _, _, count in self.history)


@dataclass(frozen=True)
class NonPrivateStep:
    """Step of an optimizer that no Opacus engine made private."""

    optimizer: str  # class of the optimizer
    is_before: bool  # whether it was taken before an engine was made
    is_wrapped: bool  # whether the optimizer is one that an engine had wrapped
    tensors: int  # number of tensors of the private model that the step changed


@dataclass(frozen=True)
class UnaccountedTensorChange:
    """Tensor of a model that Opacus made private, changed by something other than the steps of Opacus's optimizer."""

    name: str
    is_parameter: bool  # True for a parameter, False for a buffer
    is_frozen: bool  # whether it is a parameter that needs no gradient
    is_at_end: bool  # whether it changed after the last step


@dataclass(frozen=True)
class TrainingOutputs:
    """Outputs of a client or a training function: metrics, and how returned tensors compare with the private model."""

    numbers: Mapping[str, float] = field(default_factory=dict)  # metrics, by name
    evaluation: Mapping[str, float] = field(default_factory=dict)  # metrics of an evaluation, by name
    unknown: tuple[str, ...] = ()  # names of returned tensors that are in no private model
    # number, from 1, of the earlier step whose weights were returned; None for the last step
    earlier: int | None = None


@dataclass(frozen=True)
class RecordedTraining:
    """All recorded facts of one training: of a client in one round."""

    engines: tuple[MakePrivateCall, ...] = ()
    batches: tuple[Batch, ...] = ()
    steps: tuple[PrivateStep, ...] = ()
    answers: tuple[ReportedEpsilon, ...] = ()
    outside: tuple[NonPrivateStep, ...] = ()
    moved: tuple[UnaccountedTensorChange, ...] = ()
    # Steps counted in this training, and the history at its end, of the accountant that stands for the training: the
    # one that reported epsilon last; else the one that counted a step or belongs to an engine last.
    counted: int = 0
    history: History = ()
    coupled: tuple[str, ...] = ()  # layers of private models that mix the records of a mini-batch
    measures: tuple[float, ...] = ()  # losses, or other measures, by which a scheduler set the learning rate
    left: TrainingOutputs = field(default_factory=TrainingOutputs)
    client: int = 0  # number of the client, from 0
    round: int = 1  # the round, from 1

    @property
    def noised(self) -> tuple[PrivateStep, ...]:
        """Steps that added noise, in order."""
        return tuple(step for step in self.steps if step.is_noised)

    @cached_property
    def whole_steps(self) -> tuple[PrivateStep, ...]:
        """Steps, in order, where parts of a mini-batch that are clipped one by one and noised together are one step.

        A part that a loader drew by itself, as for `BatchMemoryManager`, stays a step of its own.
        """
        steps_by_batch: list[list[PrivateStep]] = []
        for step in self.steps:
            is_further_part = not step.is_fresh and bool(steps_by_batch) and not steps_by_batch[-1][-1].is_noised
            if is_further_part:
                steps_by_batch[-1].append(step)
            else:
                steps_by_batch.append([step])
        return tuple(_joined(batch_steps) for batch_steps in steps_by_batch)

    @property
    def multipliers(self) -> tuple[float, float]:
        """Smallest noise multiplier of the steps that added noise, and the one that `make_private` was last given.

        Without an engine both are the same, and infinite without steps.
        """
        smallest = min((step.noise_multiplier for step in self.noised), default=math.inf)
        requested = self.engines[-1].noise_multiplier if self.engines else smallest
        return min(smallest, requested), requested

    def batches_of(self, step: PrivateStep) -> list[Batch]:
        """Return the mini-batches that were drawn for a step of this training, in order."""
        return [self.batches[number] for number in step.batches]

    @property
    def is_accountant_seen(self) -> bool:
        """Whether an Opacus accountant was used; Opacus's optimizer also works with other accountants."""
        return bool(self.counted or self.engines or self.answers or self.history)

    @property
    def counted_here(self) -> History:
        """Entries of the accountant's history that belong to this training, without those of earlier rounds."""
        history, remaining = list[tuple[float, float, int]](), self.counted
        for noise, rate, steps in reversed(self.history):
            if remaining > 0:
                history.insert(0, (noise, rate, min(steps, remaining)))
            remaining -= steps
        return tuple(history)


def _joined(batch_steps: Sequence[PrivateStep]) -> PrivateStep:
    """Return a step whose mini-batch was clipped in parts, of which the last one brings the noise."""
    if len(batch_steps) == 1:
        return batch_steps[0]
    counts = [step.rows for step in batch_steps if step.rows is not None]
    gradients = [step.gradients for step in batch_steps if step.gradients is not None]
    return replace(
        batch_steps[-1],
        batches=batch_steps[0].batches,
        is_fresh=batch_steps[0].is_fresh,
        rows=sum(counts) if len(counts) == len(batch_steps) else None,
        gradients=np.concatenate(gradients) if len(gradients) == len(batch_steps) else None,
    )


def batches_of_one_loader(sample: Sequence[int], batches: Sequence[Batch], rows: int | None) -> tuple[int, ...]:
    """Return the numbers of the mini-batches on which an optimizer's step was taken.

    Several loaders may have drawn mini-batches before the step. The mini-batches of only one loader are returned. The
    loader is chosen by three rules, in this order: its mini-batches have as many records as the step has gradients; it
    uses Poisson sampling; it was the last to draw.
    """
    passes: dict[int, list[int]] = {}
    for number in sample:
        passes.setdefault(batches[number].loader, []).append(number)

    def order(key: int) -> tuple[bool, bool, int]:
        sizes = [len(batches[number].indices) for number in passes[key]]
        last = passes[key][-1]
        return rows in (sizes[-1], sum(sizes)), batches[last].sampling is BatchSamplingKind.POISSON, last

    return tuple(passes[max(passes, key=order)])


NOT_REPEATABLE = (
    "replays without a record, and with other records: it takes other steps when it is called again with the "
    "same records and the same random numbers, since something is kept from call to call, or is drawn elsewhere; make "
    "model, optimizer, loader and engine in every call (what an accountant counted may be kept: "
    "accountant.state_dict()), and draw by the generators of torch, numpy and Python that every module shares"
)
"""Reason and remedy of a training that was not replayed."""


class NotRepeatableError(Exception):
    """Raised if a training, repeated from the same start with the same records, does not take the same steps."""


class StopReplay(BaseException):
    """Exception that ends a replay once its steps have been compared; `except Exception` does not catch it."""


@dataclass
class ReplayInputs:
    """Data of a training that a replay needs: mini-batches, and the random states and weights when each was drawn."""

    batches: list[list[int]] = field(default_factory=list)
    datasets: list[object] = field(default_factory=list)  # the data set of each mini-batch
    private: object = None  # the data set that the first engine was given; None without an engine
    norms: list[list[float]] = field(default_factory=list)  # adaptive clipping norms at each draw
    states: list[GeneratorStates] = field(default_factory=list)
    weights: list[dict[str, Tensor]] = field(default_factory=list)

    def is_private(self, number: int) -> bool:
        """Return True if mini-batch `number`, from 0, was drawn from the data set of the first Opacus engine.

        True for every mini-batch if there was no engine.
        """
        return self.private is None or self.datasets[number] is self.private

    def without(self, record: int) -> "ReplayInputs":
        """Return the inputs of a replay whose data set lacks the record at a position, as do its mini-batches."""
        batches = [
            [position - (position > record) for position in batch if position != record]
            if self.is_private(number)
            else batch
            for number, batch in enumerate(self.batches)
        ]
        return replace(self, batches=batches)
