"""Uniform numbers from log-odds, by which tests hold log-odds against their distribution."""

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats
from fl_audit.privacy.log_odds_distribution import LogOddsDistribution


def uniforms(distribution: LogOddsDistribution, log_odds: ArrayLike, draw: np.random.Generator) -> Floats:
    """Return numbers from 0 to 1 that are uniform if the log-odds are independent draws from the distribution.

    The number for x lies between F(x - `error`) and F(x + `error`), where F is `cdf`. It is drawn at random because the
    distribution may have atoms, such as the log-odds 0 of a unit that was seen to participate in no round. Under weak
    noise and secret sampling, log-odds concentrate near k log(1-q), for k rounds with sampling rate q, and the numbers
    are less uniform: at noise multiplier 0.2 by up to 0.008, which tests of 10,000 log-odds do not detect.
    """
    values = np.asarray(log_odds, dtype=np.float64)
    low, high = (distribution.cdf(values + side * distribution.error) for side in (-1, 1))
    return np.asarray(low + (high - low) * draw.random(values.shape), dtype=np.float64)
