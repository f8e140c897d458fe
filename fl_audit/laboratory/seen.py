"""What an observer saw of a game: released arrays round by round, and every number beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fl_audit.arrays import Flags, Floats, Integers

_ARRAYS = ("steps", "released", "direction", "others", "own")  # of what was seen, by parameter


@dataclass(frozen=True)
class Seen:
    """One game as its observer saw it."""

    # What every released model is ahead of the model that was sent out, shape (rounds, parameters); NaN where nothing
    # was released, or something that is no number.
    steps: Floats
    # The released models themselves, shape (rounds, parameters): their low bits may tell. NaN as above.
    released: Floats
    # By how much the differing contribution differs between D and D', as far as the observer knows; shape (rounds,
    # parameters), zeros where nothing is known.
    direction: Floats
    others: Floats  # mean of the contributions of everybody but the target, where the observer knows them; else zeros
    # What the observer knows of the noise itself: what became of its own contribution, less this contribution.
    own: Floats
    # Whether a contribution of the target's client arrived, in any round: of one that learned nothing, none does.
    contributed: bool
    has_release: bool  # whether anything was released, in any round, that is no model sent out before
    # Every other number that could be seen, by name: metrics, configuration values, sizes of messages. What has no
    # numerical value is a name with the value 1.
    numbers: Mapping[str, float] = field(default_factory=dict)
    refusal: str | None = None  # what the mechanism said when it refused to go on, None if it played to the end


@dataclass(frozen=True)
class Games:
    """Many games of the same kind, stacked."""

    # `steps`, `released`, `direction`, `others`, `own`: as of `Seen`, with a leading axis of games.
    steps: Floats
    released: Floats
    direction: Floats
    others: Floats
    own: Floats
    # `contributed`, `has_release`: as of `Seen`, bool (games,).
    contributed: Flags
    has_release: Flags
    numbers: Floats  # shape (games, names); NaN where a number was missing
    names: tuple[str, ...]  # names of the numbers, shape (names,)
    refused: Flags  # whether the mechanism refused to go on, bool (games,)
    tensors: tuple[tuple[str, slice], ...]  # name and slice of the parameters of every tensor

    def __len__(self) -> int:
        return len(self.steps)

    def share_of_games(self, present: Flags) -> float:
        """Return in what share of games the claim could have been broken, under D or under D', whichever is less.

        A game in which no model was released, or in which what D adds never arrived, says nothing of a mechanism.
        `present` says whether D was played, shape (games,), at least one game.
        """
        are_games = self.has_release & (self.contributed | ~present)
        return min(float(np.mean(are_games[present == truth])) for truth in np.unique(present))

    def taken(self, which: Flags | Integers | slice) -> "Games":
        """Return some of the games, by mask, positions or slice."""
        by_game = (*_ARRAYS, "contributed", "has_release", "numbers", "refused")
        return replace(self, **{name: getattr(self, name)[which] for name in by_game})


def stacked(
    seen: Sequence[Seen], tensors: tuple[tuple[str, slice], ...], names: tuple[str, ...] | None = None
) -> Games:
    """Stack games.

    Parameters
    ----------
    seen, tensors
        At least one game, all with arrays of the same shape; name and slice of every tensor.
    names
        Numbers to keep; None for every name that appears in any game.
    """
    if names is None:
        names = tuple(sorted({name for one in seen for name in one.numbers}))
    numbers = np.array([[one.numbers.get(name, np.nan) for name in names] for one in seen], dtype=np.float64)

    arrays = {part: np.stack([np.asarray(getattr(one, part), dtype=np.float64) for one in seen]) for part in _ARRAYS}
    return Games(
        **arrays,
        contributed=np.array([one.contributed for one in seen]),
        has_release=np.array([one.has_release for one in seen]),
        numbers=numbers.reshape(len(seen), len(names)),
        names=names,
        refused=np.array([one.refusal is not None for one in seen]),
        tensors=tensors,
    )
