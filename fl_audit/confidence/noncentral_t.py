"""The noncentral t distribution, accurate for every degree of freedom and noncentrality that occurs in an audit.

That of scipy returns NaN for noncentralities above about 1e5, which are reached where a federation adds hardly any
noise.
"""

import math

import numpy as np
from scipy.special import gammaincc, ndtr

from fl_audit.arrays import Floats
from fl_audit.confidence.beta_mean import legendre
from fl_audit.search import falling_root

_REACH = 10.0  # number of standard deviations beyond which a normal variable is neglected (probability 1e-23)


def _nodes() -> tuple[Floats, Floats]:
    """Return nodes and weights on (0, 1)."""
    nodes, weights = legendre(200)
    return (nodes + 1) / 2, weights / 2


def noncentral_t_cdf(t: float, degrees: float, noncentrality: float) -> float:
    """Return P(T <= t) for T = (Z + noncentrality) / S, Z standard normal and S^2 an independent chi^2 / degrees.

    One of Z and S is integrated in closed form, the other by quadrature with 200 points. The quadrature is over
    whichever of the two has the smoother integrand, so that the error stays below 1e-11.

    Parameters
    ----------
    t, degrees, noncentrality
        At least 0, finite; degrees of freedom, at least 2; at least 0, finite.
    """
    if t * t >= 2 * degrees:
        return _over_normal(t, degrees, noncentrality)
    return _over_spread(t, degrees, noncentrality)


def _over_normal(t: float, degrees: float, noncentrality: float) -> float:
    """Return Phi(-ncp) + the integral of phi(z) P(S >= (z + ncp) / t) over z > -ncp."""
    nodes, weights = _nodes()
    start = max(-_REACH, -noncentrality)
    z = start + (_REACH - start) * nodes
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    survival = gammaincc(degrees / 2, degrees / 2 * ((z + noncentrality) / t) ** 2)
    return float(ndtr(-noncentrality) + (_REACH - start) * np.sum(weights * density * survival))


def _over_spread(t: float, degrees: float, noncentrality: float) -> float:
    """Return the mean of Phi(t S - ncp) over the density of S, normalised over the nodes."""
    nodes, weights = _nodes()
    start, end = _spread_range(degrees)
    s = start + (end - start) * nodes
    log_density = (degrees - 1) * np.log(s) - degrees * (s * s - 1) / 2
    density = weights * np.exp(log_density)
    return float(np.sum(density * ndtr(t * s - noncentrality)) / np.sum(density))


def _spread_range(degrees: float) -> tuple[float, float]:
    """Return two numbers between which S lies with a probability of at least 1 - 1e-20."""
    deviation = 1 / math.sqrt(2 * degrees)
    return max(0.0, 1 - _REACH * deviation), 1 + _REACH * deviation


def noncentrality_at(probability: float, t: float, degrees: float) -> float:
    """Return the noncentrality at which P(T <= t) equals the probability; 0 where P(T <= t) is smaller even at 0.

    Parameters
    ----------
    probability, t, degrees
        Above 0 and below 1; at least 0, finite; degrees of freedom, at least 2.
    """
    high = t * _spread_range(degrees)[1] + _REACH
    return falling_root(lambda ncp: noncentral_t_cdf(t, degrees, ncp) - probability, high, high, xtol=1e-13 * high)


def noncentral_t_quantile(probability: float, degrees: float, noncentrality: float) -> float:
    """Return the t at which P(T <= t) equals the probability; 0 where even P(T <= 0) is at least as large.

    Parameters
    ----------
    probability, degrees, noncentrality
        Above 0 and below 1; degrees of freedom, at least 2; at least 0, finite.
    """
    high = noncentrality + _REACH
    return falling_root(
        lambda t: probability - noncentral_t_cdf(t, degrees, noncentrality), high, xtol=1e-13 * high, rtol=1e-13
    )
