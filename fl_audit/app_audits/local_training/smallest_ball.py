"""Radius of the smallest ball that holds some points, from below."""

import numpy as np

from fl_audit.array_types import Floats

_ROUNDS = 2000


def smallest_ball_radius(points: Floats) -> float:
    """Return a lower bound on the radius of the smallest ball that holds all points, close to the radius.

    For any weights w that add up to 1, sum of w |x|^2 less |sum of w x|^2 is at most the square of the radius. The
    weights are improved by steps towards the farthest point (Badoiu and Clarkson 2003, as the algorithm of Frank and
    Wolfe with exact steps).

    Parameters
    ----------
    points
        Points, (points, dimensions).
    """
    centred = points - points.mean(axis=0)
    products = centred @ centred.T
    squares = np.diag(products).copy()
    weights = np.full(len(points), 1 / len(points))
    for _ in range(_ROUNDS):
        slope = squares - 2 * products @ weights
        farthest = int(np.argmax(slope))
        step = -weights.copy()
        step[farthest] += 1
        gain, bend = float(slope @ step), float(step @ products @ step)
        if gain <= 1e-12 * max(float(squares.max(initial=0.0)), 1e-300) or bend <= 0:
            break
        weights = weights + min(1.0, gain / (2 * bend)) * step
    return float(np.sqrt(max(0.0, float(weights @ squares) - float(weights @ products @ weights))))
