"""Epsilon* of error rates, to compare the forms of `fl_audit.released_model` with."""

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats
from fl_audit.released_model.empirical_star import definition_ratios


def epsilon_star_of_rates(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> Floats:
    """Return Epsilon* by definition 2 of Negoescu et al. 2023, from error rates of thresholds along the last axis."""
    false_positive = np.asarray(fpr, dtype=np.float64)
    false_negative = np.asarray(fnr, dtype=np.float64)
    ratios = definition_ratios(false_positive, 1 - false_positive, false_negative, 1 - false_negative, delta)
    return np.asarray(np.log(np.maximum(ratios.max(axis=-1), 1.0)), dtype=np.float64)
