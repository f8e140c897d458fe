"""Gaussian differential privacy (GDP), the exact guarantee of Gaussian noise without sampling, and input checks.

Rounds with signal-to-noise ratios mu_i = Delta_i / sigma_i compose to one Gaussian release with mu^2 = sum of mu_i^2;
for k equal rounds with noise multiplier z, mu = sqrt(k) / z. Functions raise `InputError` for numbers out of range.

Two Gaussian releases of one round also compose to one. With adaptive clipping, they are the clipped sum and the number
of units within the clipping norm (Andrew, Thakkar, McMahan & Ramaswamy 2021, "Differentially private learning with
adaptive clipping", theorem 1). If both are scaled to unit noise, their joint difference between neighbours has the
squared length z_sum^-2 + z_bit^-2. The composition also holds with Poisson sampling, because a unit is sampled for both
releases or for neither.
"""

import math

from scipy.special import erfcx, erfinv, log_ndtr, ndtri

from fl_audit.errors import require
from fl_audit.root_finding import bracketed_root
from fl_audit.value_checks import require_number

_SQRT2 = math.sqrt(2.0)
_LOWEST_LOG = -1e300


def require_delta(delta: float) -> None:
    """Check that delta is above 0 and below 1; raise `InputError` otherwise."""
    require_number("delta is", delta, "numbers above 0 and below 1")


def require_mu(mu: float) -> None:
    """Check that mu is finite and at least 0; raise `InputError` otherwise."""
    require_number("mu is", mu, "finite numbers from 0")


def require_epsilon(epsilon: float) -> None:
    """Check that epsilon is finite and at least 0; raise `InputError` otherwise."""
    require_number("epsilon is", epsilon, "finite numbers from 0")


def require_noise_multiplier(noise_multiplier: float) -> None:
    """Check that the noise multiplier is from 1e-100 to 1e100, so that its square is finite.

    Raises `InputError` otherwise.
    """
    require_number("noise multiplier is", noise_multiplier, "numbers from 1e-100 to 1e100")


def require_positive(**numbers: float) -> None:
    """Check that every keyword argument is positive and finite.

    Raises `InputError` with the argument's name otherwise.
    """
    for name, value in numbers.items():
        require_number(f"{name.replace('_', ' ')} is", value, "positive finite numbers")


def require_whole(**numbers: float) -> None:
    """Check that every keyword argument is an integer from 1 to 1e15.

    Raises `InputError` with the argument's name otherwise.
    """
    for name, value in numbers.items():
        require_number(f"{name} is", value, "whole numbers from 1 to 1e15")


def gaussian_mu(noise_multiplier: float, rounds: int) -> float:
    """Return the Gaussian-DP parameter mu = sqrt(k) / z of k rounds (Dong, Roth & Su 2022, corollary 3.3)."""
    require_noise_multiplier(noise_multiplier)
    require_whole(rounds=rounds)
    return math.sqrt(rounds) / noise_multiplier


def _log_gdp_delta(epsilon: float, mu: float) -> float:
    """Return log delta(epsilon) of mu-Gaussian DP without cancellation of nearly equal tails.

    With a = eps/mu - mu/2 and b = a + mu, delta = phi(a) (M(a) - M(b)), where M is the Mills ratio (1 - Phi) / phi.
    """
    if mu == 0:
        return -math.inf
    near = epsilon / mu - mu / 2
    far = epsilon / mu + mu / 2
    if near > 0:
        gap = float(erfcx(near / _SQRT2) - erfcx(far / _SQRT2))
        return -near * near / 2 - math.log(2) + math.log(gap) if gap > 0 else -math.inf
    first = float(log_ndtr(-near))
    second = -near * near / 2 - math.log(2) + math.log(erfcx(far / _SQRT2))
    return first + math.log(-math.expm1(second - first)) if second < first else -math.inf


def gdp_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which mu-Gaussian DP gives (epsilon, delta)-DP.

    It is delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) (Balle & Wang 2018, theorem 8; Dong, Roth & Su
    2022, corollary 2.13). The computation is in logarithms. It is accurate for mu from 1e-4 to 1e3 and for results down
    to 1e-300.
    """
    require_epsilon(epsilon)
    require_mu(mu)
    return math.exp(_log_gdp_delta(epsilon, mu))


def gdp_epsilon(delta: float, mu: float) -> float:
    """Return the smallest epsilon, at least 0, for which mu-Gaussian DP gives (epsilon, delta)-DP.

    It is the inverse of `gdp_delta`, and 0 if delta is at least delta(0), the total variation distance.
    """
    require_delta(delta)
    if mu == math.inf:
        return math.inf
    require_mu(mu)
    target = math.log(delta)
    if _log_gdp_delta(0.0, mu) <= target:
        return 0.0
    high = mu * (mu / 2 - float(ndtri(delta)))
    if high == math.inf or _log_gdp_delta(high, mu) >= target:  # due to rounding for huge mu
        return high
    return bracketed_root(
        lambda epsilon: max(_log_gdp_delta(epsilon, mu), _LOWEST_LOG) - target, 0.0, high, xtol=1e-15 * high, rtol=1e-14
    )


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-Gaussian DP gives (epsilon, delta)-DP."""
    require_epsilon(epsilon)
    require_delta(delta)
    at_zero = 2 * _SQRT2 * float(erfinv(delta))
    if epsilon == 0:
        return at_zero
    quantile = -float(ndtri(delta))
    root = math.hypot(quantile, math.sqrt(2 * epsilon))
    low = max(at_zero, 2 * epsilon / (quantile + root) if quantile > 0 else root - quantile)
    high = 2 * low
    target = math.log(delta)
    while _log_gdp_delta(epsilon, high) < target:
        high *= 2
    if _log_gdp_delta(epsilon, low) >= target:
        return low
    return bracketed_root(
        lambda mu: max(_log_gdp_delta(epsilon, mu), _LOWEST_LOG) - target, low, high, xtol=1e-15 * low, rtol=1e-14
    )


def combined_multiplier(*multipliers: float) -> float:
    """Return the noise multiplier of the single Gaussian release that is as private as several releases of one round.

    It is z = (sum of z_i^-2)^(-1/2), at most the smallest z_i. Each z_i of `multipliers`, at least one and positive, is
    the standard deviation of a release's noise, divided by the sensitivity of that release.
    """
    require(len(multipliers) > 0, "no noise multiplier is given: accepted is at least one")
    for multiplier in multipliers:
        require_noise_multiplier(multiplier)
    return 1 / math.hypot(*(1 / multiplier for multiplier in multipliers))
