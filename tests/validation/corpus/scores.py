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
    taught = slice(0, trials // 4)
    chosen = slice(trials // 4, trials // 2)
    candidates = [_projection(released[taught], present[taught])]
    if case.difference is not None:
        candidates.append(case.difference)
    areas = [_area(released[chosen] @ direction, present[chosen]) for direction in candidates]
    best = int(np.argmax(np.abs(np.array(areas) - 0.5)))
    scores = released @ candidates[best] * (1.0 if areas[best] >= 0.5 else -1.0)
    test_scores = scores[trials // 2 :]
    side = present[trials // 2 :]
    among = present[chosen]
    return Scores(test_scores[side], test_scores[~side], scores[chosen][among], scores[chosen][~among])


def _projection(released: Floats, present: NDArray[np.bool_]) -> Floats:
    """Return the difference of the means, each entry divided by the square of its spread."""
    present_rows = released[present]
    absent_rows = released[~present]
    spread = np.sqrt((present_rows.var(axis=0) + absent_rows.var(axis=0)) / 2)
    scale = np.maximum(spread, _FLOOR * np.ptp(released, axis=0))
    moved = present_rows.mean(axis=0) - absent_rows.mean(axis=0)
    return np.divide(moved, scale**2, out=np.zeros_like(moved), where=scale > 0)


def _area(scores: Floats, present: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve."""
    ones = int(present.sum())
    zeros = int((~present).sum())
    return float((rankdata(scores)[present].sum() - ones * (ones + 1) / 2) / (ones * zeros))
