"""Facts that are recorded about one training with Opacus, as plain values without judgement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fl_audit.array_types import Floats

History = tuple[tuple[float, float, int], ...]
"""History of an Opacus accountant: noise multiplier, sampling rate and number of steps, as often as these change."""


class Sampling(StrEnum):
    """The way in which a loader draws its mini-batches."""

    POISSON = "Poisson"  # every record on its own, by a sampler of Opacus
    FIXED = "fixed"  # batches of a fixed size, in order or shuffled, by a sampler of torch
    OTHER = "other"  # a sampler of somebody else


@dataclass(frozen=True)
class PrivateEngine:
    """One call of `PrivacyEngine.make_private`."""

    noise_multiplier: float
    norms: tuple[float, ...]  # clipping norm; one for each tensor where every tensor is clipped by itself
    clipping: str  # "flat", "per_layer" or "adaptive"
    is_poisson_asked: bool  # whether Poisson sampling was asked for
    sampling: Sampling  # sampling method of the returned loader
    sampler: str  # class of its sampler
    rate: float  # one over the number of batches of that loader, which Opacus accounts with
    expected_batch: float | None  # by which Opacus divides; None for sums
    records: int  # records of the data set
    batches: int  # batches of the loader
    loader_batch: int | None  # batch size of the loader that was given
    is_last_dropped: bool  # whether that loader drops a last partial batch
    accountant: str
    history: History  # of the accountant at this moment
    target: tuple[float, float] | None = None  # epsilon and delta of `make_private_with_epsilon`


@dataclass(frozen=True)
class Batch:
    """A mini-batch, or a part of one, that a loader drew."""

    indices: tuple[int, ...]  # positions of its records in the data set
    loader: int  # number of the pass over a loader that drew it, from 0
    sampling: Sampling
    sampler: str  # class of the sampler
    rate: float | None  # sampling rate of a Poisson sampler
    records: int  # records of the data set
    is_whole: bool = True  # whether it is no more than the last part of what was drawn, by `BatchMemoryManager`


@dataclass(frozen=True)
class Noise:
    """The noise that a step added to a sum of clipped gradients."""

    count: int  # coordinates
    squares: float  # sum of their squares
    head: tuple[float, ...]  # the first of them
    sample: Floats  # some of them
    seed: int  # with which the generator that drew it was seeded first

    @property
    def scale(self) -> float:
        """Root mean square of the noise."""
        return float((self.squares / max(self.count, 1)) ** 0.5)


@dataclass(frozen=True)
class PrivateStep:
    """One call of `DPOptimizer.pre_step`."""

    optimizer: str  # class of the optimizer
    batches: tuple[int, ...]  # numbers of the batches that were drawn for it; those of the step before if none was
    is_fresh: bool  # whether a batch was drawn for it
    rows: int | None  # gradients of single records that it clipped; None where Opacus keeps none
    is_noised: bool  # whether it added noise; otherwise it was a part of a larger batch
    is_applied: bool  # whether the optimizer moved the weights by it
    noise_multiplier: float  # of all that it releases
    norm: float  # clipping norm
    learning_rate: float
    counted: int  # number of steps that the accountant counted meanwhile
    noise: Noise | None  # None without noise
    # Kept for replays: the sum of clipped gradients, and the gradients of single records before clipping.
    total: Floats | None = None
    gradients: Floats | None = None
    sizes: tuple[int, ...] = ()  # coordinates of the tensors that the sum is made of
    expected_batch: float | None = None  # by which the noised sum is divided; None for sums
    # Noise on the count of unclipped gradients, which an adaptive norm releases, over the most that a record moves it;
    # else None.
    count_multiplier: float | None = None

    @property
    def gradient_multiplier(self) -> float:
        """Noise multiplier of the sum of gradients alone; larger than `noise_multiplier` if a count is released too."""
        if self.count_multiplier is None or not 0 < self.noise_multiplier < self.count_multiplier:
            return self.noise_multiplier
        return float((self.noise_multiplier**-2 - self.count_multiplier**-2) ** -0.5)

    def is_of_whole(self, batches: Sequence["Batch"]) -> bool:
        """Return whether the number of gradients fits all records of the step's mini-batches, or of its last one."""
        sizes = [len(one.indices) for one in batches]
        return bool(sizes) and (self.rows is None or self.rows in (sizes[-1], sum(sizes)))


@dataclass(frozen=True)
class NamedEpsilon:
    """An epsilon that an accountant reported."""

    epsilon: float
    delta: float
    history: History
    after: int  # number of noisy steps before it


@dataclass(frozen=True)
class NonPrivateStep:
    """A step of an optimizer that no engine made private."""

    optimizer: str  # class of the optimizer
    is_before: bool  # whether it was taken before an engine was made
    is_wrapped: bool  # whether it is the optimizer that an engine had wrapped
    tensors: int  # number of tensors of the private model that it moved, before or after that was made private


@dataclass(frozen=True)
class OutsideTensorChange:
    """A tensor of the private model that changed other than by an engine's steps."""

    name: str
    is_parameter: bool  # whether it is a parameter, and no buffer
    is_frozen: bool  # whether it is a parameter that needs no gradient
    is_at_end: bool  # whether it changed after the last step


@dataclass(frozen=True)
class TrainingOutputs:
    """The outputs of a client or of a training function."""

    numbers: Mapping[str, float] = field(default_factory=dict)  # metrics, by name
    evaluation: Mapping[str, float] = field(default_factory=dict)  # metrics of an evaluation, by name
    unknown: tuple[str, ...] = ()  # tensors that are none of the private model's, and no constants
    earlier: int | None = None  # number of the earlier step whose weights they are, from 1; None for the last ones


@dataclass(frozen=True)
class RecordedTraining:
    """All recorded facts of one training of a client in one round."""

    engines: tuple[PrivateEngine, ...] = ()
    batches: tuple[Batch, ...] = ()
    steps: tuple[PrivateStep, ...] = ()
    answers: tuple[NamedEpsilon, ...] = ()
    outside: tuple[NonPrivateStep, ...] = ()
    moved: tuple[OutsideTensorChange, ...] = ()
    counted: int = 0  # steps that accountants counted
    history: History = ()  # of the last accountant, at the end
    coupled: tuple[str, ...] = ()  # layers of private models whose output for one record depends on those beside it
    plateaus: int = 0  # number of times that a scheduler used a loss, or another measure, to set the learning rate
    left: TrainingOutputs = field(default_factory=TrainingOutputs)
    client: int = 0  # number of the client, from 0
    round: int = 1  # the round, from 1

    @property
    def noised(self) -> tuple[PrivateStep, ...]:
        """The steps that added noise."""
        return tuple(step for step in self.steps if step.is_noised)

    @property
    def is_accountant_seen(self) -> bool:
        """Whether an Opacus accountant was used; its optimizer can also be used with other accountants."""
        return bool(self.counted or self.engines or self.answers or self.history)

    @property
    def counted_here(self) -> History:
        """The entries of the accountant's history that belong to this training, without those of earlier rounds."""
        found, left = list[tuple[float, float, int]](), self.counted
        for noise, rate, steps in reversed(self.history):
            if left > 0:
                found.insert(0, (noise, rate, min(steps, left)))
            left -= steps
        return tuple(found)
