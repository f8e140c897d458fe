"""How updates of other clients hide missing noise from canaries, and what is then still found.

In units of the sensitivity D, the score of a canary is c + <X, v> / D + z' N(0, 1): its own part, which its coin
decides, the sum X of what all others send along its direction v, and noise of the true multiplier z'. v is uniform on
the sphere of d dimensions and independent of X, so that <X, v> has mean 0 and variance |X|^2 / d. Scores are spread by
sqrt(z'^2 + s^2), s = |X| / (D sqrt(d)), and what shows of mu = 1/z' is

    m = 1 / sqrt(1/mu^2 + s^2) <= min(mu, 1/s).

A test that finds m* finds mu only from 1 / sqrt(1/m*^2 - s^2), and nothing, not even noise left out, if s >= 1/m*.

s and z' are not told apart by scores: of both only the sum of squares shows. What is known of s is a bound, where D is
the sensitivity of the heaviest client, of which c may be a part: n others, each clipped to C and weighing no more than
that one, send |X| <= n C together; the other canaries lie along directions of their own, and add C^2 for each that is
sent. Where more than this spreads the scores, that is seen.
"""

from dataclasses import dataclass
from math import hypot, inf, sqrt

from fl_audit.confidence.shift import noncentral_t_quantile
from fl_audit.evidence.belief.family import FAMILY_LEVEL


@dataclass(frozen=True)
class Dilution:
    """What lies over the noise."""

    spread: float  # s, at least 0: the bound, or more where more is seen; infinite where no canary stands out
    # Whether canaries stand out less than the promised noise and the bound explain: others' updates lie over them,
    # clients did not take part, coins are not those that were tossed, or there is more noise than was promised.
    is_seen: bool

    def shown(self, mu: float) -> float:
        """Return what shows of mu, above 0 and finite."""
        return 1 / hypot(1 / mu, self.spread)

    def behind(self, shown: float) -> float:
        """Return the mu of which so much shows, above 0; infinite where none shows so much."""
        left = shown**-2 - self.spread**2
        return 1 / sqrt(left) if left > 0 else inf


def squared_spread(others: float, canaries: int, size: int, is_replaced: bool) -> float:
    """Return the bound on s^2 of a round.

    Parameters
    ----------
    others
        How many clients answered beside those that send canaries, or how many times the heaviest client.
    canaries, size
        How many canaries there are: half of them are sent, or all where one is replaced by its opposite. And d, the
        number of parameters, at least 1.
    is_replaced
        Whether the promise is about a client that is replaced, so that the sensitivity is 2 C, and not C.
    """
    sent, unit = (canaries, 2) if is_replaced else (canaries / 2, 1)
    return (others**2 + sent) / size / unit**2


def dilution(squared: float, claimed: float, found: float, low: float, sizes: tuple[float, float]) -> Dilution:
    """Return what lies over the noise.

    It is seen where mu is estimated so low that this happens in at most 1 in 1,000 trainings whose noise is the
    promised one and whose s is within the bound. Then s^2 is all that so low a mu leaves beside the promised noise.

    Parameters
    ----------
    squared, claimed
        The bound on s^2, and the promised mu of a round, above 0.
    found, low
        The estimate of mu and its lower bound, at least 0.
    sizes
        Root of the summed squares of the scores' parts about their mean, and degrees of freedom, as of
        `detectable_slope`.
    """
    least = Dilution(sqrt(squared), is_seen=False)
    if not stands_out_too_little(least.shown(claimed), found, sizes, FAMILY_LEVEL):
        return least
    left = low**-2 - claimed**-2 if low else inf
    return Dilution(sqrt(max(squared, left)), is_seen=True)


def stands_out_too_little(shown: float, found: float, sizes: tuple[float, float], level: float) -> bool:
    """Return whether so low an estimate has a smaller probability than a level where mu is as large as it should be.

    Parameters
    ----------
    shown, level
        What should show of mu, above 0, and a level above 0 and below 1.
    found, sizes
        As for `dilution`.
    """
    root, degrees = sizes
    return degrees >= 2 and found * root < noncentral_t_quantile(level, degrees, shown * root)
