"""What an observer of a running training keeps: one file a round, written whole, and what follows from the rounds."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_audit.arrays import Floats
from fl_audit.canaries.directions import canary_coins, canary_direction, canary_score
from fl_audit.errors import InputError, require
from fl_audit.whole_files import whole_file

DECOYS = 20  # directions that nobody sends, beside the canaries: they tell how scores are spread without a canary


@dataclass(frozen=True)
class KeptRound:
    """What a round released along the directions."""

    number: int  # the round, from 1
    present: tuple[int, ...]  # the canaries whose clients answered
    scores: tuple[float, ...]  # of the canaries, then of decoys


def change(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> Floats:
    """Return by how much the floating-point tensors of a model changed, as one vector in their order.

    Parameters
    ----------
    before
        The tensors that clients were sent, which decide what counts: an average turns counters into fractions.
    after
        The tensors of the next model.

    Raises
    ------
    InputError
        If tensors are missing or have other shapes.
    """
    shapes = [one.shape for one in before], [one.shape for one in after]
    require(shapes[0] == shapes[1], f"models have tensors of shapes {shapes[0]} and {shapes[1]}: accepted are the same")
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if old.dtype.kind == "f"]
    return np.concatenate([np.zeros(0), *((new.astype(np.float64) - old).ravel() for old, new in pairs)])


def read_along(release: ArrayLike, seed: int, round: int, canaries: int) -> tuple[float, ...]:
    """Return the scores of a release along the directions of canaries, then of decoys.

    Parameters
    ----------
    release
        What the round released, or the difference of two successive models, shape (dimension,).
    seed
        The seed of the directions, which may be public.
    round
        The round, from 1.
    canaries
        How many canaries there are.
    """
    seen = np.asarray(release, dtype=np.float64)
    return tuple(canary_score(seen, canary_direction(seed, round, one, seen.size)) for one in range(canaries + DECOYS))


def keep(directory: Path, kept: KeptRound) -> None:
    """Write a round; one that is written again replaces the earlier one.

    Parameters
    ----------
    directory, kept
        Where rounds are kept; the round.
    """
    with whole_file(directory / f"round-{kept.number:06d}.json") as file:
        file.write_text(json.dumps(asdict(kept)), encoding="utf-8")


def whole_rounds(directory: Path, canaries: int) -> list[KeptRound]:
    """Return the rounds that were kept and in which every canary's client answered, in order.

    Parameters
    ----------
    directory
        Where rounds are kept.
    canaries
        How many canaries there are, at least 1.

    Raises
    ------
    InputError
        If a file cannot be read, or no round was whole.
    """
    found = []
    for path in sorted(directory.glob("round-*.json")):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            one = KeptRound(int(stored["number"]), tuple(stored["present"]), tuple(map(float, stored["scores"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no round that canaries kept: {error}") from None
        if set(range(canaries)) <= set(one.present) and len(one.scores) == canaries + DECOYS:
            found.append(one)
    require(bool(found), f"{directory} holds no round in which {canaries} canaries answered: accepted is one or more")
    return found


def opened(rounds: list[KeptRound], coin_seed: int, canaries: int) -> tuple[Floats, Floats, Floats]:
    """Return scores of canaries and their coins, (rounds, canaries), and scores of decoys, (rounds, decoys).

    Parameters
    ----------
    rounds
        Of one training.
    coin_seed
        The secret of the clients that carry canaries.
    canaries
        How many there are.
    """
    scores = np.array([one.scores for one in rounds])
    coins = canary_coins(coin_seed, [one.number for one in rounds], canaries)
    return scores[:, :canaries], coins.astype(np.float64), scores[:, canaries:]
