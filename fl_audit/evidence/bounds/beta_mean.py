"""Means over a beta law, and the parameter at which such a mean reaches a level."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv

_PANELS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)
_NODES_A_PANEL = 80


class BetaMean:
    """Means over V ~ Beta(a, b), by Gauss-Legendre quadrature in probability with more points where V is large.

    Parameters
    ----------
    a, b
        Both parameters of the law, positive.

    Examples
    --------
    >>> law = BetaMean(2.0, 6.0)
    >>> round(law.mean(law.values), 9)  # a / (a + b)
    0.25
    """

    def __init__(self, a: float, b: float) -> None:
        probabilities, self._weights = _nodes()
        self.values: NDArray[np.float64] = betaincinv(a, b, probabilities)

    def mean(self, function_values: NDArray[np.float64]) -> float:
        """Return the mean of a function of V, given its values at `values`."""
        return float(self._weights @ function_values)


def where_it_reaches(tail: Callable[[float], float], level: float, largest: float) -> float:
    """Return where an increasing function reaches the level, 0 where it is there from the beginning.

    Parameters
    ----------
    tail
        A function of a number from 0 that increases to more than `level`.
    level
        Above 0.
    largest
        The search goes up to this, or to the next power of 2 beyond.
    """
    if tail(0.0) >= level:
        return 0.0
    high = 1.0
    while high < largest and tail(high) < level:
        high *= 2
    return float(brentq(lambda x: tail(x) - level, 0.0, high, xtol=1e-9, rtol=1e-9))


@cache
def _nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and weights on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES_A_PANEL)
    starts, ends = np.array(_PANELS[:-1]), np.array(_PANELS[1:])
    half = (ends - starts)[:, None] / 2
    return (starts[:, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
