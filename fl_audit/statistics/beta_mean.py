"""Means over a beta distribution, and the parameter at which such a mean reaches a level."""

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import betainc, betaincinv

from fl_audit.arrays import Floats
from fl_audit.root_finding import falling_root

_PANELS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)
_NODES_A_PANEL = 60


class BetaMean:
    """Means over V ~ Beta(a, b), by Gauss-Legendre quadrature in probability with more points where V is large.

    Examples
    --------
    >>> round(BetaMean(2.0, 6.0).mean(lambda v: v), 6)  # a / (a + b)
    0.25
    """

    def __init__(self, a: float, b: float) -> None:
        self._shape = (a, b)
        self.values: Floats = betaincinv(a, b, _nodes_between(*_PANELS)[0])

    def mean(self, function: Callable[[Floats], Floats], kink: float | None = None) -> float:
        """Return the mean of a function of V.

        Parameters
        ----------
        function, kink
            Takes values of V, any shape, and returns as many; where its slope jumps, if it does: the panel there is
            divided, for a quadrature across it would lose most of its digits.
        """
        _, weights = _nodes_between(*_PANELS)
        panels = (function(self.values) * weights).sum(axis=1)
        if kink is not None:
            split = float(betainc(*self._shape, kink))
            hit = int(np.searchsorted(_PANELS, split)) - 1
            if 0 <= hit < panels.size and _PANELS[hit] < split < _PANELS[hit + 1]:
                nodes, weights = _nodes_between(_PANELS[hit], split, _PANELS[hit + 1])
                panels[hit] = (function(betaincinv(*self._shape, nodes)) * weights).sum()
        return float(panels.sum())


def where_it_reaches(tail: Callable[[float], float], level: float, largest: float) -> float:
    """Return the argument at which an increasing function reaches the level; 0 if it starts above it.

    Parameters
    ----------
    tail, level, largest
        A function of a number from 0 that increases to more than the level, which is above 0; the search goes up to
        the largest, or to the next power of 2 beyond.
    """
    return falling_root(lambda x: level - tail(x), most=largest, xtol=1e-9, rtol=1e-9)


def _nodes_between(*breaks: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of the panels between the breaks, shapes (panels, nodes)."""
    nodes, weights = legendre(_NODES_A_PANEL)
    starts, ends = np.array(breaks[:-1]), np.array(breaks[1:])
    half = (ends - starts)[:, None] / 2
    return starts[:, None] + half * (1 + nodes), half * weights


@cache
def legendre(number: int) -> tuple[Floats, Floats]:
    """Return the given number of nodes and weights of Gauss-Legendre quadrature on (-1, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(number)
    return nodes, weights
