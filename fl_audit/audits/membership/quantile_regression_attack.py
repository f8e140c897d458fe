"""The quantile regression attack (Bertran et al. 2023).

The attack compares a model's confidence in a record with the model's usual confidence in similar records.

The attacker has population records, on which no model was trained. With these records a regression learns to predict
the quantiles of the attacked model's confidence from the features of a record. The attack needs no shadow models: it
costs one regression for each attacked model.
"""

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats
from fl_audit.errors import require

FEWEST_RECORDS = 30
"""Smallest number of population records that the attack accepts."""
_PENALTIES = np.geomspace(1e-3, 1e4, 15)
_LEAST = 1e-12


def quantile_scores(
    confidences: ArrayLike, records: ArrayLike, population_confidences: ArrayLike, population: ArrayLike
) -> Floats:
    """Return a score of each target, (trials, targets), which is higher for a likelier member.

    The score of target x is (phi - mean(x)) / spread(x), where phi is the confidence of the trial's model in x. mean(x)
    and spread(x) describe the confidence in nonmembers like x. They come from a regression on the population records of
    the trial. So the score is the quantile of phi as a normal score.

    Source: Bertran, Tang, Kearns, Morgenstern, Roth & Wu 2023, "Scalable membership inference attacks via quantile
    regression". As in the paper's Gaussian form, quantiles are mean(x) + spread(x) times the same normal quantile for
    all records. Mean and log spread are ridge regressions, each with the penalty of the smallest leave-one-out error.

    Parameters
    ----------
    confidences
        Confidence phi of each trial's model in each target, on the log-odds scale, shape (trials, targets).
    records
        Known features of each target, including its label, shape (targets, features).
    population_confidences
        Confidence phi of each trial's model in p population records, shape (trials, p), p at least 30.
    population
        Known features of the p population records, shape (p, features).
    """
    asked, told = (np.asarray(one, dtype=np.float64) for one in (confidences, population_confidences))
    own, others = (np.asarray(one, dtype=np.float64) for one in (records, population))
    fits = asked.shape[1:] == own.shape[:1] and told.shape[1:] == others.shape[:1] and len(asked) == len(told)
    found = f"confidences have shapes {asked.shape} and {told.shape}, records {own.shape} and {others.shape}"
    require(fits, f"{found}: accepted are one confidence for each trial and record")
    found, accepted = f"the population has {len(others)} records", f"{FEWEST_RECORDS} and more for attack quantile"
    require(len(others) >= FEWEST_RECORDS, f"{found}: accepted are {accepted}")
    is_finite = all(bool(np.isfinite(one).all()) for one in (asked, told, own, others))
    require(is_finite, "confidences or records contain NaN or infinity: accepted are finite numbers")
    regression = _Ridge(others, own)
    mean, residuals = regression.predicted(told.T)
    lengths = np.log(np.abs(residuals) + _LEAST)
    spread, rest = regression.predicted(lengths)
    # The mean of the log spread determines spreads up to a factor, chosen so that the left-out scores have variance 1.
    units = np.sqrt(np.mean(np.square(residuals * np.exp(rest - lengths)), axis=0))
    return np.asarray((asked.T - mean) / (np.exp(spread) * units), dtype=np.float64).T


class _Ridge:
    """Ridge regressions of many responses on the same records.

    Each regression has the penalty with the smallest leave-one-out error.
    """

    def __init__(self, records: Floats, asked: Floats) -> None:
        self._middle = records.mean(axis=0)
        scale = records.std(axis=0)
        scale[scale == 0] = 1.0
        self._left, sizes, right = np.linalg.svd((records - self._middle) / scale, full_matrices=False)
        self._squares = sizes**2
        self._asked = ((asked - self._middle) / scale) @ right.T / np.maximum(sizes, _LEAST)

    def predicted(self, answers: Floats) -> tuple[Floats, Floats]:
        """Return predictions at the queried records, (queried, responses), and the leave-one-out residuals."""
        middle, best = answers.mean(axis=0), np.full(answers.shape[1], np.inf)
        parts = self._left.T @ (answers - middle)
        found, left_out = np.empty((len(self._asked), answers.shape[1])), np.empty_like(answers)
        for penalty in _PENALTIES:
            shrink = self._squares / (self._squares + penalty)
            leverage = np.square(self._left) @ shrink + 1 / len(answers)
            apart = answers - middle - self._left @ (shrink[:, None] * parts)
            residuals = apart / np.maximum(1 - leverage, 1e-3)[:, None]
            error = np.square(residuals).mean(axis=0)
            is_better = error < best
            best = np.where(is_better, error, best)
            left_out[:, is_better] = residuals[:, is_better]
            found[:, is_better] = (middle + self._asked @ (shrink[:, None] * parts))[:, is_better]
        return found, left_out
