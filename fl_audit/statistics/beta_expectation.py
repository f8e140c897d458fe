"""Compute means over a beta distribution, and the argument at which an increasing function reaches a level."""

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import betainc, betaincinv

from fl_audit.array_types import Floats
from fl_audit.root_finding import falling_root

_PANELS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)
_NODES_A_PANEL = 60


class BetaExpectation:
    """Expectations of functions of a random variable V ~ Beta(a, b), by numerical integration.

    Gauss-Legendre quadrature is used, with more points near V = 1.

    Examples
    --------
    >>> round(BetaExpectation(2.0, 6.0).mean(lambda v: v), 6)  # a / (a + b)
    0.25
    """

    def __init__(self, a: float, b: float) -> None:
        self._shape = (a, b)
        self.values: Floats = betaincinv(a, b, _nodes_between(*_PANELS)[0])

    def mean(self, function: Callable[[Floats], Floats], kink: float | None = None) -> float:
        """Return the expectation of a function of V ~ Beta(a, b).

        `kink`: If a jump is not given, the integral loses most of its digits.
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


def argument_at_level(function: Callable[[float], float], level: float, largest: float) -> float:
    """Return the argument at which an increasing function reaches a level; 0 if the function is above the level at 0.

    `function`: It must exceed `level` for large numbers.

    `largest`: The search may go on to the next power of 2 above it.
    """
    return falling_root(lambda x: level - function(x), largest=largest, xtol=1e-9, rtol=1e-9)


def _nodes_between(*breaks: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of Gauss-Legendre quadrature between consecutive breaks, both (panels, nodes)."""
    nodes, weights = legendre(_NODES_A_PANEL)
    starts = np.array(breaks[:-1])
    ends = np.array(breaks[1:])
    half = (ends - starts)[:, None] / 2
    return starts[:, None] + half * (1 + nodes), half * weights


@cache
def legendre(number: int) -> tuple[Floats, Floats]:
    """Return the nodes and weights of Gauss-Legendre quadrature on (-1, 1), both (number,)."""
    nodes, weights = np.polynomial.legendre.leggauss(number)
    return nodes, weights
