"""One number per trial, for auditors that want scores: higher where the target rather took part.

A quarter of the trials teaches a projection, another quarter chooses between it and the log-likelihood ratio of the
claimed noise, where that is known, and the other half is scored: nobody has looked at it before.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from tests.validation.corpus.case import Case, Floats, played

_FLOOR = 1e-9
"""The smallest spread of an entry, as a share of its range: one that does not vary within a side tells all."""


class Scores(NamedTuple):
    """Scores of held-out trials, and of those that chose how to score, on which a threshold may be chosen too."""

    present: Floats
    absent: Floats
    choosing_present: Floats
    choosing_absent: Floats


def scores_of(case: Case, trials: int, generator: np.random.Generator) -> Scores:
    """Play trials and score them.

    There must be at least 16 trials.
    """
    released, present = played(case, trials, generator)
    # Sides alternate, so each block has both.
    taught, chosen = slice(0, trials // 4), slice(trials // 4, trials // 2)
    candidates = [_projection(released[taught], present[taught])]
    if case.difference is not None:
        candidates.append(case.difference)
    areas = [_area(released[chosen] @ direction, present[chosen]) for direction in candidates]
    best = int(np.argmax(np.abs(np.array(areas) - 0.5)))
    scores = released @ candidates[best] * (1.0 if areas[best] >= 0.5 else -1.0)
    held, side, among = scores[trials // 2 :], present[trials // 2 :], present[chosen]
    return Scores(held[side], held[~side], scores[chosen][among], scores[chosen][~among])


def _projection(released: Floats, present: NDArray[np.bool_]) -> Floats:
    """Return the difference of the means, each entry divided by the square of its spread."""
    one, zero = released[present], released[~present]
    spread = np.sqrt((one.var(axis=0) + zero.var(axis=0)) / 2)
    scale = np.maximum(spread, _FLOOR * np.ptp(released, axis=0))
    moved = one.mean(axis=0) - zero.mean(axis=0)
    return np.divide(moved, scale**2, out=np.zeros_like(moved), where=scale > 0)


def _area(scores: Floats, present: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve."""
    ones, zeros = int(present.sum()), int((~present).sum())
    return float((rankdata(scores)[present].sum() - ones * (ones + 1) / 2) / (ones * zeros))
