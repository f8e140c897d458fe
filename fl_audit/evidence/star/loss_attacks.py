"""What simple attacks on the same losses achieve, to be read beside Epsilon*.

Every attack calls a record a member where its loss is at most a threshold. Reported are the area under the ROC, which
covers all thresholds (AUC); the TPR at a small share of false alarms (Carlini et al. 2022); and the advantage, TPR -
FPR, of the threshold at the mean loss of members (Yeom et al. 2018).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.arrays import Floats
from fl_audit.errors import require
from fl_audit.evidence.star.empirical_star import ThresholdCounts, threshold_counts
from fl_audit.evidence.star.loss_samples import checked_pair


@dataclass(frozen=True)
class LossAttacks:
    """Attacks on the losses of one model or many; every array has the shape of the leading axes."""

    # Probability that a member's loss is below that of the population, ties counting half; from 0 to 1, 1/2 without a
    # leak.
    auc: Floats
    # `tpr_at_fpr_0001`, `tpr_at_fpr_001`: largest TPR of a threshold whose FPR is at most 0.1 % and 1 %, from 0 to 1.
    tpr_at_fpr_0001: Floats
    tpr_at_fpr_001: Floats
    yeom_advantage: Floats  # TPR - FPR at the mean loss of members, from -1 to 1
    loss_gap: Floats  # mean loss of the population less that of members, in the unit of the losses


def loss_attacks(member_losses: ArrayLike, population_losses: ArrayLike) -> LossAttacks:
    """Return what simple attacks on the losses achieve.

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, shape (..., m), m at least 1.
    population_losses
        Losses on a sample of the population, finite and at least 0, shape (..., p) with the same leading axes, p at
        least 1.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or the shapes do not fit.

    Examples
    --------
    >>> found = loss_attacks([0.1, 0.2], [0.2, 0.4])
    >>> float(found.auc), float(found.yeom_advantage), round(float(found.loss_gap), 2)
    (0.875, 0.5, 0.15)
    """
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    counts = threshold_counts(members, population)
    mean = members.mean(axis=-1, keepdims=True)
    advantage = (members <= mean).mean(axis=-1) - (population <= mean).mean(axis=-1)
    return LossAttacks(
        auc=area_under_roc(counts),
        tpr_at_fpr_0001=_tpr_at_fpr(counts, 0.001),
        tpr_at_fpr_001=_tpr_at_fpr(counts, 0.01),
        yeom_advantage=np.asarray(advantage, dtype=np.float64),
        loss_gap=np.asarray(population.mean(axis=-1) - mean[..., 0], dtype=np.float64),
    )


def _tpr_at_fpr(counts: ThresholdCounts, fpr: float) -> Floats:
    """Return the largest TPR of a threshold with at most this FPR, shape of the leading axes.

    Rates between two thresholds are not interpolated: with p losses of others, below 1/p no false alarm is allowed.
    """
    require(0 <= fpr <= 1, f"FPR is {fpr}: accepted are numbers from 0 to 1")
    # Compared with a little slack, so that rounding cannot turn 3 of 3000 into more than a share of 0.001.
    allowed = counts.last & (counts.population <= np.floor(fpr * counts.population_total * (1 + 1e-12)))
    return np.asarray(np.where(allowed, counts.members, 0).max(axis=-1) / counts.member_total, dtype=np.float64)


def area_under_roc(counts: ThresholdCounts) -> Floats:
    """Return the area under the ROC by trapezia between thresholds; ties lie on one line and so count half.

    Parameters
    ----------
    counts
        From `threshold_counts`. The area is the probability that a member's loss is smaller than one of the population.
    """
    x = np.where(counts.last, counts.population, 0)
    y = np.where(counts.last, counts.members, 0)
    # A threshold that is not the last of several equal ones repeats the corner of the curve before it.
    x, y = np.maximum.accumulate(x, axis=-1), np.maximum.accumulate(y, axis=-1)
    x0 = np.concatenate([np.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)
    y0 = np.concatenate([np.zeros_like(y[..., :1]), y[..., :-1]], axis=-1)
    area = ((x - x0) * (y + y0)).sum(axis=-1) / 2
    return np.asarray(area / (counts.member_total * counts.population_total), dtype=np.float64)
