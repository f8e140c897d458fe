"""Transcripts of trials: what a recorder observed in each trial of somebody else's code.

The observations are the released arrays of each round, reduced by a linear sketch if they are large, and other numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator

FORM = "form"
"""First word of the names of numbers that describe the names, types and shapes of released arrays."""
RELEASED_LENGTH = "length of what was released"
UNCHANGED_SHARE = "share of values that were left as they were"
"""Names of numbers that describe the released values themselves, in place of those that a sketch leaves out."""
REFUSED = "the mechanism refused to go on"  # name of the number that marks a trial in which the mechanism refused
_ARRAYS = ("steps", "released", "direction", "others", "own")  # names of the fields that are arrays over parameters
_PARTS = 12  # largest number of parts of a sketch; if a model has more tensors, neighbouring ones form one part
_PUBLIC = 16  # number of random sets of parameters whose signed sums are columns of a sketch
_SHOWN = 64  # largest number of released values that a sketch keeps unchanged, for their low bits


@dataclass(frozen=True)
class Transcript:
    """All that a recorder observed in one trial of somebody else's code."""

    # The released model of each round minus the model that was sent out, shape (rounds, parameters); NaN where nothing
    # was released or a value is not finite.
    steps: Floats
    # The released models themselves, for their low bits, shape (rounds, parameters); NaN as in `steps`.
    released: Floats
    # The contribution under D minus the contribution under D', shape (rounds, parameters); zeros if the observer does
    # not know it.
    direction: Floats
    others: Floats  # mean contribution of all clients but the target; zeros if the observer does not know it
    # What processing added to the observer's own contribution, i.e. noise that the observer knows.
    own: Floats
    # Whether a contribution of the target's client arrived in any round.
    contributed: bool
    has_release: bool  # whether any round released a model that had not been sent out before
    # Every other observed number, keyed by name: metrics, configuration values, sizes of messages. An observation
    # without a numerical value is a name with the value 1.
    numbers: Mapping[str, float] = field(default_factory=dict)
    refusal: str | None = None  # the error message with which the mechanism ended the trial; None if it ended normally


@dataclass(frozen=True)
class Transcripts:
    """The transcripts of many trials of one scenario, as arrays whose first axis is the trial."""

    # The first five arrays have shape (trials, rounds, parameters); `Transcript` explains each of them.
    steps: Floats  # change of the model in each round
    released: Floats  # released models
    direction: Floats  # contribution under D minus contribution under D'
    others: Floats  # mean contribution of the other clients
    own: Floats  # noise that the observer knows
    contributed: Flags  # whether a contribution of the target's client arrived, shape (trials,)
    has_release: Flags  # whether a model was released, shape (trials,)
    numbers: Floats  # other observed numbers, shape (trials, names); NaN where a number is missing
    names: tuple[str, ...]  # names of the columns of `numbers`
    refused: Flags  # whether the mechanism ended the trial with an error, shape (trials,)
    tensors: tuple[tuple[str, slice], ...]  # name of each tensor, and slice of its values among the parameters

    def __len__(self) -> int:
        return len(self.steps)

    def share_of_trials(self, present: Flags) -> float:
        """Return the share of valid trials among trials with D or among trials with D', whichever share is smaller.

        A trial is not valid if no model was released, or if the contribution that D adds did not arrive. `present` is
        true for trials with D, shape (trials,), with at least one trial.
        """
        are_trials = self.has_release & (self.contributed | ~present)
        return min(float(np.mean(are_trials[present == truth])) for truth in np.unique(present))

    def is_beside_model(self, group: str) -> bool:
        """Return whether a group of features is a number that is released beside the model."""
        return group in self.names and not group.startswith((RELEASED_LENGTH, UNCHANGED_SHARE, REFUSED))

    def select_trials(self, which: Flags | Integers | slice) -> "Transcripts":
        """Return the transcripts of the trials that a mask, indices or a slice selects."""
        by_trial = (*_ARRAYS, "contributed", "has_release", "numbers", "refused")
        return replace(self, **{name: getattr(self, name)[which] for name in by_trial})


def stacked(
    transcripts: Sequence[Transcript], tensors: tuple[tuple[str, slice], ...], names: tuple[str, ...] | None = None
) -> Transcripts:
    """Return the transcripts of several trials as arrays.

    `names`: None returns all numbers that appear in any trial.
    """
    if names is None:
        names = tuple(sorted({name for transcript in transcripts for name in transcript.numbers}))
    numbers = np.array(
        [[transcript.numbers.get(name, np.nan) for name in names] for transcript in transcripts], dtype=np.float64
    )
    arrays = {
        field_name: np.stack(
            [np.asarray(getattr(transcript, field_name), dtype=np.float64) for transcript in transcripts]
        )
        for field_name in _ARRAYS
    }
    flags = [
        (transcript.contributed, transcript.has_release, transcript.refusal is not None) for transcript in transcripts
    ]
    contributed, has_release, refused = np.array(flags).T
    table = numbers.reshape(len(transcripts), len(names))
    return Transcripts(
        **arrays,
        contributed=contributed,
        has_release=has_release,
        numbers=table,
        names=names,
        refused=refused,
        tensors=tensors,
    )


@dataclass(frozen=True)
class LinearSketch:
    """A linear map that reduces a parameter vector to about forty numbers.

    The model's tensors are divided into at most 12 parts. The columns of the sketch are: the projection of each part on
    the known difference between D and D'; the sum of the values of each part; and 16 sums over disjoint random sets of
    parameters with random signs, each divided by the square root of the set's size. The projections are a sufficient
    statistic for a Gaussian mechanism with a known difference.
    """

    parts: tuple[tuple[str, slice], ...]  # name and slice of each part: one tensor, or several neighbouring tensors
    sets: Integers  # number of the random set of each parameter, from 0 to 15, shape (parameters,)
    signs: Floats  # sign of each parameter in its set, -1 or 1, shape (parameters,)
    shown: Integers  # indices of the parameters whose released values are kept unchanged, shape (at most 64,)

    @property
    def columns(self) -> tuple[tuple[str, slice], ...]:
        """The columns of the sketch in named groups: pairs of a group's name and its slice of columns, in order."""
        count = len(self.parts)
        names = (f"{name}, along the difference" for name, _ in self.parts)
        along = [(name, slice(index, index + 1)) for index, name in enumerate(names)]
        sums = ("the sums of its tensors", slice(count, 2 * count))
        return (*along, sums, ("its sums along public random directions", slice(2 * count, 2 * count + _PUBLIC)))

    def of_vectors(self, vectors: Floats, difference: Floats) -> Floats:
        """Return the sketch of the parameter vector of each round, shape (rounds, columns).

        Shapes: `vectors` (rounds, parameters), `difference` (rounds, parameters).

        `difference`: The first columns of the sketch are projections on it.
        """
        products = np.stack(
            [np.sum(vectors[:, coordinates] * difference[:, coordinates], axis=1) for _, coordinates in self.parts]
        )
        lengths = np.stack(self._lengths(difference))
        along = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        sums = [vectors[:, coordinates].sum(axis=1) for _, coordinates in self.parts]
        counts = np.maximum(np.bincount(self.sets, minlength=_PUBLIC), 1)
        public = [np.bincount(self.sets, self.signs * row, _PUBLIC) / np.sqrt(counts) for row in vectors]
        return np.concatenate([np.stack([*along, *sums], axis=1), np.stack(public)], axis=1)

    def of_difference(self, difference: Floats) -> Floats:
        """Return a sketch of f(D) - f(D') in each round, for inner products with sketches of parameter vectors.

        `difference` is f(D) - f(D'), shape (rounds, parameters). The result has shape (rounds, columns). Its first
        columns hold the norms of the parts of `difference`, one column for each part of the model. All other columns
        are 0. If `of_vectors` gets the same `difference`, the inner product of its rows with the rows of the result
        equals that of the full vectors.
        """
        rows = np.zeros((len(difference), 2 * len(self.parts) + _PUBLIC))
        rows[:, : len(self.parts)] = np.stack(self._lengths(difference), axis=1)
        return rows

    def _lengths(self, difference: Floats) -> list[Floats]:
        return [np.linalg.norm(difference[:, coordinates], axis=1) for _, coordinates in self.parts]


def linear_sketch_of(shapes: Mapping[str, tuple[int, ...]]) -> LinearSketch:
    """Return the linear map that reduces models with tensors of the given shapes to few numbers.

    The map is the same in every process.

    `shapes` is keyed by the names of the tensors, in the order in which they are flattened. Raises `InputError` if
    there are no parameters.
    """
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    require(sum(sizes) > 0, "a model without parameters cannot be watched: accepted is at least one")
    stops = np.cumsum(sizes)
    names = list(shapes)
    groups = np.array_split(np.arange(len(sizes)), min(_PARTS, len(sizes)))
    ends = [(group[0], group[-1]) for group in groups]
    called = [names[a] if a == z else f"{names[a]} to {names[z]}" for a, z in ends]
    blocks = tuple(zip(called, [slice(int(stops[a] - sizes[a]), int(stops[z])) for a, z in ends], strict=True))
    total = int(stops[-1])
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS, client=total)
    sets = draws.integers(_PUBLIC, size=total)
    signs = draws.choice([-1.0, 1.0], size=total)
    shown_indices = np.sort(draws.choice(total, size=min(total, _SHOWN), replace=False))
    return LinearSketch(blocks, sets, signs, shown_indices)
