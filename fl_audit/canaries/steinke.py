"""One-run auditing (Steinke, Nasr & Jagielski 2023): a lower bound on epsilon from a single trained model.

Under (epsilon, delta)-DP no more of r guesses can be right, in law, than if each was right with probability
q = e^epsilon / (1 + e^epsilon), up to the mistakes that delta allows. Nothing is asked of the mechanism: what it says
of different coins may depend on each other in any way. What is asked of coins and guesses stands in `guesses`.
"""

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from fl_audit.arrays import Floats
from fl_audit.canaries.guesses import Guesses
from fl_audit.confidence.beta_mean import where_it_reaches
from fl_audit.errors import require

LARGEST_EPSILON = 36.0  # beyond it e^epsilon / (1 + e^epsilon) is 1 in floating point


def one_run_p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of so many right guesses under (epsilon, delta)-DP, from 0 to 1.

    Parameters
    ----------
    guesses
        What was counted.
    epsilon
        At least 0.
    delta
        At least 0, below 1.

    Raises
    ------
    InputError
        If epsilon is below 0.

    Notes
    -----
    Source: Steinke, Nasr & Jagielski 2023, theorem 5.2. With q = e^epsilon / (1 + e^epsilon), beta = P(Bin(r, q) >= v)
    and alpha = max over i of P(v > Bin(r, q) >= v - i) / i, i from 1 to m, the value is
    min(1, beta + 2 m delta alpha). Beyond i = v the probability grows no more, so i stops there.
    """
    require(epsilon >= 0, f"epsilon is {epsilon}: accepted are numbers from 0")
    require(0 <= delta < 1, f"delta is {delta}: accepted are numbers from 0 to below 1")
    tail, alpha = _tail_and_slope(guesses, float(expit(epsilon)))
    return min(1.0, tail + 2 * guesses.coins * delta * alpha)


def steinke_epsilon(guesses: Guesses, delta: float, level: float) -> float:
    """Return the smallest epsilon at which the p-value reaches the level, at most 36.

    Parameters
    ----------
    guesses
        What was counted.
    delta
        At least 0, below 1.
    level
        1 - confidence, above 0 and below 0.5.

    Raises
    ------
    InputError
        If delta is out of its range.

    Examples
    --------
    >>> round(steinke_epsilon(Guesses(coins=1000, guessed=100, right=100), 1e-5, 0.05), 3)
    3.465
    """
    require(0 <= delta < 1, f"delta is {delta}: accepted are numbers from 0 to below 1")
    if guesses.right == 0:
        return 0.0
    return min(where_it_reaches(lambda e: one_run_p_value(guesses, e, delta), level, LARGEST_EPSILON), LARGEST_EPSILON)


def _tail_and_slope(guesses: Guesses, q: float) -> tuple[float, float]:
    """Return beta and alpha of the theorem."""
    v, r = guesses.right, guesses.guessed
    if v == 0:
        return 1.0, 0.0
    below: Floats = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, q))
    return float(binom.sf(v - 1, r, q)), float((below / np.arange(1, v + 1)).max())
