"""Renyi accounting of Gaussian and Poisson-sampled Gaussian releases: the accountants `rdp-classic` and `rdp`.

Both accountants add the Renyi divergences of all releases at each order. They convert the sum to (epsilon, delta)
differently: `rdp-classic` by Mironov 2017 (proposition 3), and `rdp` by Balle et al. 2020 (theorem 21), as Opacus does.
Functions raise `InputError` for numbers out of range.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.array_types import Floats
from fl_audit.errors import InputError, require
from fl_audit.privacy.accounting_enums import Accountant
from fl_audit.privacy.events import ReleaseEvent, SampledGaussianRelease, exact_gaussian_mu
from fl_audit.privacy.gaussian import require_delta, require_epsilon

RDP_ORDERS = np.array([1 + tenth / 10 for tenth in range(1, 100)] + list(range(12, 64)), dtype=np.float64)
"""Renyi orders of both accountants, the defaults of Opacus's `RDPAccountant`: 1.1, 1.2, ..., 10.9 and 12, 13, ..., 63.

The largest order determines the smallest epsilon of `rdp-classic`.
"""

_WEAK_NOISE = 0.03  # noise multiplier below which sampled releases use a bound that is exact in the limit of no noise


@lru_cache(maxsize=4096)
def _sampled_divergences(noise_multiplier: float, sampling_rate: float, replaced: bool) -> Floats:
    """Return the Renyi divergence of one Poisson-sampled Gaussian release at each order of `RDP_ORDERS`.

    With `replaced`, it is the divergence of (1-q) N(0) + q N(+Delta/2) from (1-q) N(0) + q N(-Delta/2), as in `pld`.
    Here q is the sampling rate and Delta the sensitivity.
    """
    # D_alpha = log E[(1 - q + q e^ell)^alpha] / (alpha - 1) with ell = (2x - 1) / (2 z^2), x ~ N(0, z^2) (Mironov,
    # Talwar & Zhang 2019, section 3.3); the other direction is smaller (theorem 5). In terms of Delta/2, as for
    # `replaced`, z is twice as large, and the denominator is the second mixture.
    z = noise_multiplier * (2 if replaced else 1)
    q = sampling_rate
    if z < _WEAK_NOISE:
        # The trapezoidal rule would need millions of points. Minkowski's inequality for the norm of order alpha bounds
        # D_alpha, and equals it up to rounding if q is at least e^-50.
        norms = np.logaddexp(math.log1p(-q), math.log(q) + (RDP_ORDERS - 1) / (2 * z * z))
        bounds = np.asarray(RDP_ORDERS / (RDP_ORDERS - 1) * norms, dtype=np.float64)
        bounds -= math.log1p(-q) if replaced else 0.0
        bounds.flags.writeable = False
        return bounds
    # The trapezoidal rule for an analytic integrand converges geometrically. Opacus sums a series instead, which loses
    # precision or converges slowly for weak noise.
    step = min(0.25, z / 2)
    u = np.arange(-12.0, RDP_ORDERS[-1] / z + 12.0, step)
    log_ratio, log_other = (_log_mixture(q, side * u / z - 0.5 / z**2) for side in (1, -1))
    log_weight = -u * u / 2 + math.log(step) - 0.5 * math.log(2 * math.pi)
    divergences = np.empty_like(RDP_ORDERS)
    for index, order in enumerate(RDP_ORDERS):
        exponent = order * log_ratio + ((1 - order) * log_other if replaced else 0.0)
        if np.max(np.abs(exponent)) < 1:
            moment = math.log1p(float(np.sum(np.exp(log_weight) * np.expm1(exponent))))
        else:
            summands = log_weight + exponent
            largest = float(np.max(summands))
            moment = largest + math.log(float(np.sum(np.exp(summands - largest))))
        divergences[index] = max(moment, 0.0) / (order - 1)
    divergences.flags.writeable = False
    return divergences


def _log_mixture(q: float, ell: Floats) -> Floats:
    """Return ln(1 - q + q e^ell) for each ell, without loss of precision for small ell."""
    mixture = np.asarray(np.logaddexp(math.log1p(-q), math.log(q) + ell), dtype=np.float64)
    small = np.abs(ell) < 1
    mixture[small] = np.log1p(q * np.expm1(ell[small]))
    return mixture


def _seen_divergences(noise_multiplier: float, sampling_rate: float) -> Floats:
    """Return the Renyi divergence of one Poisson-sampled Gaussian release with visible participation, per order.

    It is ln(1 - q + q e^((alpha - 1) alpha / (2 z^2))) / (alpha - 1), where q is the sampling rate, z the noise
    multiplier and alpha the order.
    """
    exponents = (RDP_ORDERS - 1) * RDP_ORDERS / (2 * noise_multiplier**2)
    large = np.logaddexp(math.log1p(-sampling_rate), math.log(sampling_rate) + exponents)
    small = np.log1p(sampling_rate * np.expm1(np.minimum(exponents, 1.0)))
    return np.asarray(np.where(exponents < 1, small, large) / (RDP_ORDERS - 1), dtype=np.float64)


def renyi_divergences(events: Sequence[ReleaseEvent], accountant: str | None, adjacency: Adjacency) -> Floats:
    """Return the Renyi divergence of a composition of releases at each order of `RDP_ORDERS`.

    `accountant`: Published accountants do not support secret sampling under replace adjacency. None stands for our own
    formula, which also supports this case.
    """
    total = np.zeros_like(RDP_ORDERS)
    for event in events:
        mu = exact_gaussian_mu(event)
        if mu is not None:
            total = total + RDP_ORDERS * (mu * mu / 2)
        elif isinstance(event, SampledGaussianRelease) and event.seen:
            total = total + event.count * _seen_divergences(event.noise_multiplier, event.sampling_rate)
        elif isinstance(event, SampledGaussianRelease):
            replaced = adjacency.relation is Relation.REPLACE
            if replaced and accountant is not None:
                only = f"only where a {adjacency.unit} comes or goes, not where one is replaced"
                raise InputError(f"{accountant} accounts for sampling {only}: not for {event}; pld does")
            total = total + event.count * _sampled_divergences(event.noise_multiplier, event.sampling_rate, replaced)
        else:
            raise InputError(f"{accountant or 'Renyi accounting'} accounts for Gaussian releases only: not for {event}")
    return total


def _overhead(accountant: Accountant, delta: float) -> Floats:
    """Return the term that the conversion to epsilon adds to the Renyi divergence at each order."""
    orders = RDP_ORDERS
    if accountant is Accountant.RDP_CLASSIC:
        return np.asarray(-math.log(delta) / (orders - 1), dtype=np.float64)
    return np.asarray(np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1), dtype=np.float64)


def rdp_epsilon(accountant: Accountant, divergences: Floats, delta: float) -> float:
    """Convert Renyi divergences to epsilon at each order, and return the smallest result, at least 0.

    The conversion at the order alpha depends on the accountant:

    * `rdp-classic`: eps_RDP(alpha) + ln(1/delta) / (alpha - 1) (Mironov 2017, proposition 3; Bernau et al. 2021,
      Eq. (3)). Since the largest order is 63, the result is at least ln(1/delta) / 62.
    * `rdp`: eps_RDP(alpha) + ln((alpha - 1) / alpha) - (ln delta + ln alpha) / (alpha - 1) (Balle et al. 2020,
      theorem 21), as in Opacus.
    """
    require_delta(delta)
    return max(0.0, float(np.min(divergences + _overhead(accountant, delta))))


def _rdp_mu(accountant: Accountant, epsilon: float, delta: float) -> float:
    """Return the largest mu of a Gaussian composition whose epsilon at delta is at most `epsilon`.

    Raises `InputError` if `epsilon` is not above the epsilon that the accountant reports for no release at all. For
    `rdp-classic` this is ln(1/delta) / 62.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    overhead = _overhead(accountant, delta)
    floor = float(np.min(overhead))
    accepted = f"accepted by {accountant} at delta {delta} are numbers above {floor:.6g}"
    require(epsilon > floor, f"epsilon is {epsilon:.6g}: {accepted}, which it reports even where nothing is released")
    return math.sqrt(float(np.max(2 * (epsilon - overhead) / RDP_ORDERS)))
