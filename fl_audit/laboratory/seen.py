"""What an observer saw of a game: released arrays round by round, and every number beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fl_audit.arrays import Flags, Floats, Integers


@dataclass(frozen=True)
class Seen:
    """One game as its observer saw it.

    Parameters
    ----------
    steps
        What every released model is ahead of the model that was sent out, shape (rounds, parameters); NaN where
        nothing was released, or something that is no number.
    released
        The released models themselves, shape (rounds, parameters): their low bits may tell. NaN as above.
    direction
        By how much the differing contribution differs between D and D', as far as the observer knows; shape (rounds,
        parameters), zeros where nothing is known.
    others
        Mean of the contributions of everybody but the target, where the observer knows them; else zeros.
    own
        What the observer knows of the noise itself: what became of its own contribution, less this contribution.
    numbers
        Every other number that could be seen, by name: metrics, configuration values, sizes of messages. What has no
        numerical value is a name with the value 1.
    refusal
        What the mechanism said when it refused to go on, None if it played to the end.
    """

    steps: Floats
    released: Floats
    direction: Floats
    others: Floats
    own: Floats
    numbers: Mapping[str, float] = field(default_factory=dict)
    refusal: str | None = None


@dataclass(frozen=True)
class Games:
    """Many games of the same kind, stacked.

    Parameters
    ----------
    steps, released, direction, others, own
        As of `Seen`, with a leading axis of games.
    numbers
        Shape (games, names); NaN where a number was missing.
    names
        Names of the numbers, shape (names,).
    refused
        Whether the mechanism refused to go on, bool (games,).
    tensors
        Name and slice of the parameters of every tensor.
    """

    steps: Floats
    released: Floats
    direction: Floats
    others: Floats
    own: Floats
    numbers: Floats
    names: tuple[str, ...]
    refused: Flags
    tensors: tuple[tuple[str, slice], ...]

    def __len__(self) -> int:
        return len(self.steps)

    def taken(self, which: Flags | Integers | slice) -> "Games":
        """Return some of the games, by mask, positions or slice."""
        return replace(
            self,
            steps=self.steps[which],
            released=self.released[which],
            direction=self.direction[which],
            others=self.others[which],
            own=self.own[which],
            numbers=self.numbers[which],
            refused=self.refused[which],
        )


def stacked(
    seen: Sequence[Seen], tensors: tuple[tuple[str, slice], ...], names: tuple[str, ...] | None = None
) -> Games:
    """Stack games.

    Parameters
    ----------
    seen
        At least one game, all with arrays of the same shape.
    tensors
        Name and slice of every tensor.
    names
        Numbers to keep; None for every name that appears in any game.
    """
    if names is None:
        names = tuple(sorted({name for one in seen for name in one.numbers}))
    numbers = np.array([[one.numbers.get(name, np.nan) for name in names] for one in seen], dtype=np.float64)

    def stack(part: str) -> Floats:
        return np.stack([np.asarray(getattr(one, part), dtype=np.float64) for one in seen])

    return Games(
        steps=stack("steps"),
        released=stack("released"),
        direction=stack("direction"),
        others=stack("others"),
        own=stack("own"),
        numbers=numbers.reshape(len(seen), len(names)),
        names=names,
        refused=np.array([one.refusal is not None for one in seen]),
        tensors=tensors,
    )
