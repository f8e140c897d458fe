"""Warnings where scores contradict what a bound assumes. They gate nothing: a bound on scores that pass may still err.

Each check of continuous scores raises a false alarm with probability of about 0.001.
"""

import math

import numpy as np
from scipy.special import ndtri

from fl_audit.arrays import Floats

_LEVEL = 0.001  # probability of a warning where the assumption holds
_LEAST = 8
_SHAPIRO_LIMIT = 5000
_DISTINCT_SHARE = 0.9
_TAIL = 0.1
_LEAST_COUNT = 5


def normality_warnings(members: Floats, nonmembers: Floats) -> tuple[str, ...]:
    """Return what speaks against normal scores of equal spread, if anything.

    Repeated values; Shapiro and Wilk's test in either group (D'Agostino and Pearson's above 5000 scores); Levene's test
    about the median (Brown & Forsythe 1974). The three tests share a level of 0.001.

    Parameters
    ----------
    members, nonmembers
        Scores, shapes (n1,) and (n0,), finite.
    """
    from scipy.stats import levene, normaltest, shapiro  # half a second to import; other bounds do without

    found = list(_repeated(members, nonmembers, "normal scores do not repeat"))
    for scores, who in ((members, "members"), (nonmembers, "nonmembers")):
        if scores.size >= _LEAST and np.ptp(scores) > 0:
            test = shapiro if scores.size <= _SHAPIRO_LIMIT else normaltest
            # Over the largest magnitude, so that squares neither overflow nor vanish.
            p_value = float(test(scores / np.max(np.abs(scores))).pvalue)
            if p_value < _LEVEL / 3:
                found.append(f"scores of {who} are not normal (p = {p_value:.2g}): the bound may certify too much")
    if min(members.size, nonmembers.size) >= _LEAST and np.ptp(members) > 0 and np.ptp(nonmembers) > 0:
        scale = float(max(np.max(np.abs(members)), np.max(np.abs(nonmembers))))
        p_value = float(levene(members / scale, nonmembers / scale, center="median").pvalue)
        if p_value < _LEVEL / 3:
            found.append(f"spreads of both groups differ (p = {p_value:.2g}): the bound may certify too much")
    return tuple(found)


def gaussian_tradeoff_warnings(members: Floats, nonmembers: Floats) -> tuple[str, ...]:
    """Return what speaks against the scores being the best ones of a Gaussian mechanism, if anything.

    Repeated values; and whether Phi^-1(TPR) - Phi^-1(FPR) is the same at a false-positive rate of a tenth as at a
    false-negative rate of a tenth, as it is everywhere on a Gaussian trade-off function. Depends on ranks alone.

    Parameters
    ----------
    members, nonmembers
        Scores, shapes (n1,) and (n0,), no NaN.
    """
    found = list(_repeated(members, nonmembers, "the log-odds of a Gaussian mechanism do not"))
    distance = _bend(np.sort(members), np.sort(nonmembers))
    if abs(distance) > -float(ndtri(_LEVEL / 2)):
        found.append(
            f"the trade-off that the scores show is not Gaussian ({abs(distance):.1f} standard errors): if they are "
            "the best scores of the mechanism, the bound may certify too much"
        )
    return tuple(found)


def _repeated(members: Floats, nonmembers: Floats, rule: str) -> tuple[str, ...]:
    """Return a warning where scores repeat."""
    pooled = np.concatenate([members, nonmembers])
    distinct = int(np.unique(pooled).size)
    if distinct >= _DISTINCT_SHARE * pooled.size:
        return ()
    return (f"only {distinct} of {pooled.size} scores are distinct, but {rule}: the bound may certify too much",)


def _bend(members: Floats, nonmembers: Floats) -> float:
    """Return by how many standard errors the shift at a low FPR differs from that at a low FNR; 0 with few scores."""
    thresholds = [np.quantile(nonmembers, 1 - _TAIL, method="lower"), np.quantile(members, _TAIL, method="lower")]
    high, low = max(thresholds), min(thresholds)
    difference, variance = 0.0, 0.0
    for scores, sign in ((members, 1), (nonmembers, -1)):
        counts = [scores.size - int(np.searchsorted(scores, t, side="right")) for t in (high, low)]
        if min(*counts, *(scores.size - count for count in counts)) < _LEAST_COUNT:
            return 0.0
        rare, common = (count / scores.size for count in counts)
        at_rare, at_common = float(ndtri(rare)), float(ndtri(common))
        steep_rare, steep_common = (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) for z in (at_rare, at_common))
        difference += sign * (at_rare - at_common)
        variance += (
            rare * (1 - rare) / steep_rare**2
            + common * (1 - common) / steep_common**2
            - 2 * rare * (1 - common) / (steep_rare * steep_common)
        ) / scores.size
    return difference / math.sqrt(variance) if variance > 0 else 0.0
