"""Rules that turn features into one score: learned on games that serve for nothing else."""

from collections.abc import Callable

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fl_audit.arrays import Flags, Floats

Rule = Callable[[Floats], Floats]  # from features (games, columns) to scores (games,): higher where D is the likelier

_FLOOR = 1e-9
"""Smallest spread within a group, as a share of a column's range: a column without noise tells with certainty."""


def learned_rule(features: Floats, present: Flags) -> Rule:
    """Learn the linear rule that tells D from D' best if both are normal with the same spread (Fisher's).

    Parameters
    ----------
    features
        Shape (games, columns), finite.
    present
        Whether D was played, (games,), bool; both have to appear.

    Returns
    -------
    Rule
        What scores new games. Where no column varies it gives zeros.
    """
    one, zero = features[present], features[~present]
    within = np.sqrt((one.var(axis=0) + zero.var(axis=0)) / 2)
    scale = np.maximum(within, _FLOOR * np.ptp(features, axis=0))
    kept = scale > 0
    if not np.any(kept):
        return lambda values: np.zeros(len(values))
    centre, width = features[:, kept].mean(axis=0), scale[kept]
    columns = (features[:, kept] - centre) / width
    certain = within[kept] == 0
    weights = _signs(columns, present) * certain if np.any(certain) else _weights(columns, present)
    return lambda values: np.asarray(((values[:, kept] - centre) / width) @ weights)


def _signs(columns: Floats, present: Flags) -> Floats:
    """Return in which direction each column is higher under D: all that counts of one that never errs."""
    return np.asarray(np.sign(columns[present].mean(axis=0) - columns[~present].mean(axis=0)))


def _weights(columns: Floats, present: Flags) -> Floats:
    """Return Fisher's weights of columns whose spread within the groups is 1."""
    if columns.shape[1] == 1:
        return _signs(columns, present)
    # With few games for so many columns their correlations are hardly known, and are drawn towards none.
    shrinkage = 1e-6 if len(columns) >= 10 * columns.shape[1] else "auto"
    rule = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[0.5, 0.5])
    rule.fit(columns, present.astype(int))
    return np.asarray(rule.coef_[0])
