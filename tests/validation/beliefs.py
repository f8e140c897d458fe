"""The chance of being right that an insider's log-odds state, which varies less than the share of wins."""

import numpy as np
from scipy.special import expit

from fl_audit.array_types import Floats


def chance_of_being_right(log_odds: Floats) -> Floats:
    """Return the posterior probability that the guess of an insider with an even prior is right, for each trial.

    Shapes: `log_odds` (trials,).
    """
    return np.asarray(expit(np.abs(log_odds)), dtype=np.float64)
