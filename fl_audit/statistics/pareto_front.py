"""Find the ways of training on the convex Pareto frontier of risk and utility.

A way of training, or strategy, is a point in the plane of risk (smaller is better) and utility (larger is better). A
random choice between two strategies with fixed probabilities (a mixture) reaches every point on the line between them.
So the frontier is convex (Negoescu et al. 2023, section 4.2, after Roijers and Whiteson 2017).
"""

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats, Integers
from fl_audit.errors import require


def convex_frontier(risk: ArrayLike, utility: ArrayLike) -> Integers:
    """Return the indices of the points on the convex Pareto frontier of risk and utility, ascending in both.

    A point is on the frontier if no mixture of other points is at least as good in both and better in one. Points on
    the line between two others of the frontier are included. Of identical points only the first is returned.

    Shapes: `risk` (n,), `utility` (n,).

    Examples
    --------
    >>> convex_frontier([0.1, 1.0, 0.5, 2.0], [0.2, 0.8, 0.3, 0.9]).tolist()
    [0, 1, 3]
    """
    x = np.asarray(risk, dtype=np.float64)
    y = np.asarray(utility, dtype=np.float64)
    require(x.ndim == 1 and x.shape == y.shape and x.size > 0, f"shapes are {x.shape} and {y.shape}: accepted is (n,)")
    require(bool(np.isfinite(x).all() and np.isfinite(y).all()), "risk or utility is not finite: accepted are numbers")
    frontier: list[int] = []
    for index in np.lexsort((-y, x)):
        if frontier and y[index] <= y[frontier[-1]]:
            continue
        while len(frontier) > 1 and _is_below(x, y, frontier[-2], frontier[-1], int(index)):
            frontier.pop()
        frontier.append(int(index))
    return np.array(frontier, dtype=np.int64)


def _is_below(x: Floats, y: Floats, start: int, middle: int, end: int) -> bool:
    """Return whether the point `middle` is below the line from `start` to `end`.

    The indices are in ascending order of x.
    """
    gain = y[[middle, end]] - y[start]
    step = x[[middle, end]] - x[start]
    return bool(gain[0] * step[1] < gain[1] * step[0])
