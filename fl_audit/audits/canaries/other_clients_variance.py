"""The variance that other clients' updates add to the scores of canaries, and that can hide missing noise.

**How other updates hide missing noise.** In units of the sensitivity D, the score of a canary is c + <X, v> / D + z'
N(0, 1). Here c is the canary's own contribution, X is the sum of the contributions of all others, v is the canary's
direction, and z' is the true noise multiplier. The direction v is uniform on the sphere of d dimensions and independent
of X, so <X, v> has mean 0 and variance |X|^2 / d. Therefore the standard deviation of scores is sqrt(z'^2 + s^2) with s
= |X| / (D sqrt(d)). The scores then show, instead of mu = 1 / z', only

    m = 1 / sqrt(1/mu^2 + s^2) <= min(mu, 1/s).

A test that detects the value m* of m detects mu only from 1 / sqrt(1/m*^2 - s^2). If s >= 1/m* it detects nothing, not
even the absence of noise.

The scores show only the sum z'^2 + s^2, but s has an upper bound. Let D be the sensitivity of the heaviest client, and
n the number of other clients. Each of them is clipped to C and has no larger weight than the heaviest client, so
together they contribute at most n C to |X|. The other canaries have independent directions, and each canary that is
sent adds C^2 to |X|^2.
"""

from dataclasses import dataclass
from math import hypot, inf, sqrt

from fl_audit.statistics.shift_bound import noncentral_t_quantile
from fl_audit.verdict.declared_tests import FAMILY_LEVEL


@dataclass(frozen=True)
class OtherClientsVariance:
    """The variance that the updates of other clients add to the scores of canaries, on top of the noise."""

    # Its standard deviation, s in the module's docstring, at least 0: an upper bound, or the value that the scores
    # allow if they show more. Infinite if the scores show no canary.
    spread: float
    # Whether the scores of canaries are lower than the claimed noise and the upper bound explain. Possible reasons are
    # other clients' updates, canaries that did not take part, wrong coins, or more noise than claimed.
    is_seen: bool

    def measured_mu(self, mu: float) -> float:
        """Return the mu that is measured from the scores of canaries if their true mu is `mu`, above 0 and finite.

        The measured mu is smaller, because the updates of other clients act as additional noise.
        """
        return 1 / hypot(1 / mu, self.spread)

    def true_mu(self, observed_mu: float) -> float:
        """Return the true mu of a canary from the smaller mu that its scores show, `observed_mu`.

        Updates of other clients lower the mu that scores show. The result is infinite if even an infinite true mu would
        show no more than `observed_mu`.
        """
        precision_left = observed_mu**-2 - self.spread**2
        return 1 / sqrt(precision_left) if precision_left > 0 else inf


def squared_spread(other_squares: float, canaries: int, size: int, is_replaced: bool) -> float:
    """Return an upper bound on the variance that other clients' updates add to the canary scores of a round.

    This bound is s^2 in the docstring of the module. Its unit is the squared sensitivity.
    """
    sent, unit = (canaries, 2) if is_replaced else (canaries / 2, 1)
    return (other_squares**2 + sent) / size / unit**2


def other_clients_variance(
    squared: float, claimed: float, variance: float, low: float, sizes: tuple[float, float]
) -> OtherClientsVariance:
    """Return the variance that other clients' updates add to the scores of canaries, on top of the noise.

    The variance lowers mu. The result is the upper bound `squared` if the claimed noise and this bound explain a mu as
    low as `variance`. If they do not (at level 1 in 1,000), the result is the larger of `squared` and the variance at
    which the claimed noise gives the mu `low`.
    """
    smallest_variance = OtherClientsVariance(sqrt(squared), is_seen=False)
    if not is_significantly_below(smallest_variance.measured_mu(claimed), variance, sizes, FAMILY_LEVEL):
        return smallest_variance
    precision_left = low**-2 - claimed**-2 if low else inf
    return OtherClientsVariance(sqrt(max(squared, precision_left)), is_seen=True)


def is_significantly_below(observed_mu: float, estimate_found: float, sizes: tuple[float, float], level: float) -> bool:
    """Return whether the estimated mu of a canary, `estimate_found`, is significantly below the expected mu,
    `observed_mu`.

    `sizes` holds two numbers: the square root of the coins' sum of squared deviations from their mean, and the degrees
    of freedom of the test. `level` is its significance level.
    """
    root, degrees = sizes
    return degrees >= 2 and estimate_found * root < noncentral_t_quantile(level, degrees, observed_mu * root)
