"""Transcripts: the observations of a trial, as released arrays by round (sketched if large) and other numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator

_ARRAYS = ("steps", "released", "direction", "others", "own")  # of what was seen, by parameter
_PARTS = 12  # most tensors that are looked at by themselves; where there are more, neighbours are taken together
_PUBLIC = 16  # public random directions, which add up what lies in none of the other columns
_SHOWN = 64  # released values that are kept as they are: their low bits may tell


@dataclass(frozen=True)
class Transcript:
    """The observations of one trial."""

    # The difference of every released model from the model that was sent out, shape (rounds, parameters); NaN where
    # nothing was released, or a value is not finite.
    steps: Floats
    # The released models themselves, shape (rounds, parameters): their low bits may tell. NaN as above.
    released: Floats
    # By how much the differing contribution differs between D and D', as far as the observer knows; shape (rounds,
    # parameters), zeros where nothing is known.
    direction: Floats
    others: Floats  # mean of the contributions of everybody but the target, where the observer knows them; else zeros
    # The observer's knowledge of the noise itself: the processed form of its own contribution, less this contribution.
    own: Floats
    # Whether a contribution of the target's client arrived, in any round: of one that learned nothing, none does.
    contributed: bool
    has_release: bool  # whether anything was released, in any round, that is no model sent out before
    # Every other number that could be seen, by name: metrics, configuration values, sizes of messages. What has no
    # numerical value is a name with the value 1.
    numbers: Mapping[str, float] = field(default_factory=dict)
    refusal: str | None = None  # the mechanism's message when it refused to go on, None if it played to the end


@dataclass(frozen=True)
class Transcripts:
    """The transcripts of many trials of the same scenario, stacked."""

    steps: Floats  # steps of the model, see `Transcript`, with a leading axis of trials
    released: Floats  # released models, see `Transcript`, with a leading axis of trials
    direction: Floats  # direction of the difference, see `Transcript`, with a leading axis of trials
    others: Floats  # contributions of the others, see `Transcript`, with a leading axis of trials
    own: Floats  # contribution of the observing client, see `Transcript`, with a leading axis of trials
    contributed: Flags  # as of `Transcript`, bool (trials,)
    has_release: Flags  # as of `Transcript`, bool (trials,)
    numbers: Floats  # shape (trials, names); NaN where a number was missing
    names: tuple[str, ...]  # names of the numbers, shape (names,)
    refused: Flags  # whether the mechanism refused to go on, bool (trials,)
    tensors: tuple[tuple[str, slice], ...]  # name and slice of the parameters of every tensor

    def __len__(self) -> int:
        return len(self.steps)

    def share_of_trials(self, present: Flags) -> float:
        """Return the share of trials that are evidence on the claim, under D or under D', whichever is smaller.

        A trial is no evidence if no model was released, or if the contribution that D adds did not arrive. `present` is
        true where D was used, shape (trials,), at least one trial.
        """
        are_trials = self.has_release & (self.contributed | ~present)
        return min(float(np.mean(are_trials[present == truth])) for truth in np.unique(present))

    def taken(self, which: Flags | Integers | slice) -> "Transcripts":
        """Return the selected trials, by mask, indices or slice."""
        by_trial = (*_ARRAYS, "contributed", "has_release", "numbers", "refused")
        return replace(self, **{name: getattr(self, name)[which] for name in by_trial})


def stacked(
    seen: Sequence[Transcript], tensors: tuple[tuple[str, slice], ...], names: tuple[str, ...] | None = None
) -> Transcripts:
    """Return the transcripts of several trials as stacked arrays.

    Parameters
    ----------
    seen
        Transcripts of at least one trial, all with arrays of the same shape.
    tensors
        Name and slice of every tensor within the vector of all parameters.
    names
        Names of the numbers to keep; None for every name that appears in any trial.
    """
    if names is None:
        names = tuple(sorted({name for one in seen for name in one.numbers}))
    numbers = np.array([[one.numbers.get(name, np.nan) for name in names] for one in seen], dtype=np.float64)
    arrays = {part: np.stack([np.asarray(getattr(one, part), dtype=np.float64) for one in seen]) for part in _ARRAYS}
    flags = [(one.contributed, one.has_release, one.refusal is not None) for one in seen]
    contributed, has_release, refused = np.array(flags).T
    table = numbers.reshape(len(seen), len(names))
    return Transcripts(
        **arrays, contributed=contributed, has_release=has_release, numbers=table, names=names, refused=refused,
        tensors=tensors,
    )  # fmt: skip


@dataclass(frozen=True)
class LinearSketch:
    """A linear map from parameter vectors to about forty numbers.

    The columns are the projection of every tensor on the known difference; the sum of the values of every tensor; and
    sums over disjoint random sets of parameters with random signs, each divided by the square root of the set's size.
    The projections are a sufficient statistic for a Gaussian mechanism with a known difference.
    """

    parts: tuple[tuple[str, slice], ...]  # name and slice of every tensor, or of neighbouring ones together
    sets: Integers  # set of each parameter, shape (parameters,)
    signs: Floats  # with which sign it counts there, shape (parameters,)
    shown: Integers  # places of the values that are kept, shape (at most 64,)

    @property
    def columns(self) -> tuple[tuple[str, slice], ...]:
        """Names and slices of the columns, in the form of `Transcripts.tensors`."""
        count, names = len(self.parts), (f"{name}, along the difference" for name, _ in self.parts)
        along = [(name, slice(place, place + 1)) for place, name in enumerate(names)]
        sums = ("the sums of its tensors", slice(count, 2 * count))
        return (*along, sums, ("its sums along public random directions", slice(2 * count, 2 * count + _PUBLIC)))

    def of_vectors(self, vectors: Floats, difference: Floats) -> Floats:
        """Return the sketch of parameter vectors, shape (rounds, columns).

        Parameters
        ----------
        vectors
            Vectors to reduce, shape (rounds, parameters).
        difference
            Difference between the contributions under D and under D', shape (rounds, parameters); zeros if it is
            unknown.
        """
        products = np.stack([np.sum(vectors[:, part] * difference[:, part], axis=1) for _, part in self.parts])
        lengths = np.stack(self._lengths(difference))
        along = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        sums = [vectors[:, part].sum(axis=1) for _, part in self.parts]
        counts = np.maximum(np.bincount(self.sets, minlength=_PUBLIC), 1)
        public = [np.bincount(self.sets, self.signs * row, _PUBLIC) / np.sqrt(counts) for row in vectors]
        return np.concatenate([np.stack([*along, *sums], axis=1), np.stack(public)], axis=1)

    def of_difference(self, difference: Floats) -> Floats:
        """Return the sketch coordinates of the difference: its norm in each projection column, and 0 elsewhere.

        The inner product of these with a sketched vector therefore equals that of the original vectors, in every round.
        """
        found = np.zeros((len(difference), 2 * len(self.parts) + _PUBLIC))
        found[:, : len(self.parts)] = np.stack(self._lengths(difference), axis=1)
        return found

    def _lengths(self, difference: Floats) -> list[Floats]:
        return [np.linalg.norm(difference[:, part], axis=1) for _, part in self.parts]


def sketch(shapes: Mapping[str, tuple[int, ...]]) -> LinearSketch:
    """Return the linear sketch for models with tensors of these shapes; it is the same in every process.

    The tensors are in the order in which they are flattened, and there is at least one. Raises `InputError` if there
    are no parameters.
    """
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    require(sum(sizes) > 0, "a model without parameters cannot be watched: accepted is at least one")
    stops, names = np.cumsum(sizes), list(shapes)
    groups = np.array_split(np.arange(len(sizes)), min(_PARTS, len(sizes)))
    ends = [(group[0], group[-1]) for group in groups]
    called = [names[a] if a == z else f"{names[a]} to {names[z]}" for a, z in ends]
    parts = tuple(zip(called, [slice(int(stops[a] - sizes[a]), int(stops[z])) for a, z in ends], strict=True))
    total = int(stops[-1])
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS, client=total)
    sets = draws.integers(_PUBLIC, size=total)
    signs = draws.choice([-1.0, 1.0], size=total)
    shown = np.sort(draws.choice(total, size=min(total, _SHOWN), replace=False))
    return LinearSketch(parts, sets, signs, shown)
