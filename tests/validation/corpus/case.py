"""The interface of the corpus: a claim, a function that plays one trial, and what is true of it.

It needs numpy alone, so that an auditor of any make can read a case.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

VERSION = "1.1"
"""Version of the corpus: scores of a case are compared within one first number alone.

The second number rises where cases are added, the first one where a case that was there plays or claims otherwise.
"""

Floats = NDArray[np.float64]
Play = Callable[[np.random.Generator, bool], Floats]
"""From a source of randomness and whether the target takes part to all that one trial releases, (size,)."""


@dataclass(frozen=True)
class Claim:
    """Claim of the author of a mechanism: (epsilon, delta)-DP of all rounds together."""

    epsilon: float
    delta: float
    adjacency: str  # difference of neighbours: a client or a record, added, removed or replaced
    rounds: int
    # Of a claim about Gaussian noise: the mechanism is no easier to tell than one Gaussian release that moves by so
    # many standard deviations. None where nothing is claimed but epsilon and delta.
    mu: float | None = None
    # Every inequality that follows, as pairs of epsilon and delta; the claim is false where any of them is.
    limits: tuple[tuple[float, float], ...] = ()
    covers_low_bits: bool = False  # whether it is about the numbers of a computer, and not about real numbers


class Layout(NamedTuple):
    """Layout of the array of a trial: first all rounds, each with all tensors, and then the single numbers."""

    rounds: int
    tensors: tuple[tuple[str, int], ...]  # name and size of every tensor of a round
    beside: tuple[str, ...] = ()  # names of the single numbers that follow the rounds

    @property
    def size(self) -> int:
        """Number of numbers that a trial releases."""
        return self.rounds * self.of_round + len(self.beside)

    @property
    def of_round(self) -> int:
        """Number of numbers in the tensors of one round."""
        return sum(size for _, size in self.tensors)


class Training(NamedTuple):
    """A training that an auditor may look into, where the mechanism is one."""

    train: Callable[[Any, Any], Any]  # trains a model on a data set once; it returns what it releases, or the model
    model: Callable[[], Any]  # returns a new model
    dataset: Callable[[], Any]  # returns the records
    is_claim_named: bool = True  # whether the training works out the claimed epsilon by itself


@dataclass(frozen=True)
class Case:
    """A mechanism with its claim."""

    name: str  # stable over all versions of the corpus: family/mechanism, and how it is played where that matters
    claim: Claim
    play: Play  # plays one trial
    layout: Layout
    # The true epsilon of the mechanism, the largest of any two neighbours at the delta of the claim; infinite if none
    # holds, None if it is not known. The played trials may show less.
    true_epsilon: float | None = None
    wrong: str = ""  # the fault, in one sentence; empty where nothing is wrong
    twin: str = ""  # the name of the honest case that it takes itself for; empty for honest ones
    # By how much a trial with the target is expected to differ, in the coordinates of a trial, where an observer knows
    # that beforehand: the product with it is the log-likelihood ratio of the claimed Gaussian noise, but for a factor.
    difference: Floats | None = None
    training: Training | None = None

    @property
    def is_honest(self) -> bool:
        """Whether the claim holds."""
        return not self.wrong

    @property
    def family(self) -> str:
        """The first part of its name."""
        return self.name.split("/", maxsplit=1)[0]


def played(case: Case, trials: int, generator: np.random.Generator) -> tuple[Floats, NDArray[np.bool_]]:
    """Play trials, of which every second one has the target.

    It returns the releases, (trials, size), and whether the target took part, (trials,).
    """
    present = np.arange(trials) % 2 == 0
    return np.stack([case.play(generator, bool(side)) for side in present]), present


class Store:
    """Plays the trials of a case once for several auditors: each of them sees the same ones, in the same order.

    `generator` takes the place of those of the auditors.
    """

    def __init__(self, case: Case, generator: np.random.Generator) -> None:
        self._case = case
        self._generator = generator
        self._kept: dict[bool, list[Floats]] = {True: [], False: []}

    def case(self) -> Case:
        """Return the case as one auditor sees it, from the first trial on."""
        sides = {side: self._trials(side) for side in (True, False)}
        return replace(self._case, play=lambda _, with_target: next(sides[bool(with_target)]))

    def _trials(self, side: bool) -> Iterator[Floats]:
        number = 0
        while True:
            if number == len(self._kept[side]):
                self._kept[side].append(self._case.play(self._generator, side))
            yield self._kept[side][number]
            number += 1
