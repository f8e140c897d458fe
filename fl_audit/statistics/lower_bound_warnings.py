"""Warn if scores do not fit the assumption of a lower bound on epsilon.

A bound without a warning may still be wrong.
"""

import math

import numpy as np
import scipy
from scipy.special import ndtri

from fl_audit.array_types import Floats

# Approximate probability of each warning about continuous scores if the assumption holds.
_FALSE_ALARM = 0.001
_LEAST = 8
_LEAST_COUNT = 5
_SHAPIRO_LIMIT = 5000
_DISTINCT_SHARE = 0.9
_TAIL = 0.1


def normality_warnings(members: Floats, nonmembers: Floats) -> tuple[str, ...]:
    """Return warnings if the scores do not seem to be normal with the same standard deviation in both groups.

    Shapes: `members` (n1,), `nonmembers` (n0,).
    """
    # Repeated values; Shapiro and Wilk's test in either group (D'Agostino and Pearson's above 5000 scores); Levene's
    # test about the median (Brown & Forsythe 1974). The three tests share a level of 0.001.
    warnings = list(_repeated(members, nonmembers, "normal scores do not repeat"))
    for scores, group in ((members, "members"), (nonmembers, "nonmembers")):
        if scores.size >= _LEAST and np.ptp(scores) > 0:
            test = scipy.stats.shapiro if scores.size <= _SHAPIRO_LIMIT else scipy.stats.normaltest
            # Over the largest magnitude, so that squares neither overflow nor vanish.
            p_value = float(test(scores / np.max(np.abs(scores))).pvalue)
            if p_value < _FALSE_ALARM / 3:
                warnings.append(f"scores of {group} are not normal (p = {p_value:.2g}): the bound may certify too much")
    if min(members.size, nonmembers.size) >= _LEAST and np.ptp(members) > 0 and np.ptp(nonmembers) > 0:
        scale = float(max(np.max(np.abs(members)), np.max(np.abs(nonmembers))))
        p_value = float(scipy.stats.levene(members / scale, nonmembers / scale, center="median").pvalue)
        if p_value < _FALSE_ALARM / 3:
            warnings.append(f"spreads of both groups differ (p = {p_value:.2g}): the bound may certify too much")
    return tuple(warnings)


def gaussian_tradeoff_warnings(members: Floats, nonmembers: Floats) -> tuple[str, ...]:
    """Return warnings if the scores do not fit a Gaussian trade-off function.

    Scores fit if they are an increasing function of the log-likelihood ratios (D against D') of a Gaussian mechanism,
    both with D and with D'.

    Shapes: `members` (n1,), `nonmembers` (n0,).
    """
    # Repeated values; and whether Phi^-1(TPR) - Phi^-1(FPR) is the same at a false-positive rate of a tenth as at a
    # false-negative rate of a tenth, as it is everywhere on a Gaussian trade-off function. Depends on ranks alone.
    warnings = list(_repeated(members, nonmembers, "the log-odds of a Gaussian mechanism do not"))
    distance = _bend(np.sort(members), np.sort(nonmembers))
    if abs(distance) > -float(ndtri(_FALSE_ALARM / 2)):
        problem = f"the trade-off that the scores show is not Gaussian ({abs(distance):.1f} standard errors)"
        warnings.append(f"{problem}: if they are the best scores of the mechanism, the bound may certify too much")
    return tuple(warnings)


def _repeated(members: Floats, nonmembers: Floats, rule: str) -> tuple[str, ...]:
    """Return one warning if less than 90 % of all scores are distinct.

    `rule` says in words why that contradicts the assumption of the method.
    """
    pooled = np.concatenate([members, nonmembers])
    distinct = int(np.unique(pooled).size)
    if distinct >= _DISTINCT_SHARE * pooled.size:
        return ()
    return (f"only {distinct} of {pooled.size} scores are distinct, but {rule}: the bound may certify too much",)


def _bend(members: Floats, nonmembers: Floats) -> float:
    """Return how far the trade-off of the scores deviates from a Gaussian one, in standard errors; 0 with few scores.

    For a Gaussian trade-off, Phi^-1(TPR) - Phi^-1(FPR) is the same at all thresholds. The deviation is the difference
    between its values at FPR 0.1 and at FNR 0.1.
    """
    thresholds = [np.quantile(nonmembers, 1 - _TAIL, method="lower"), np.quantile(members, _TAIL, method="lower")]
    high = max(thresholds)
    low = min(thresholds)
    difference = 0.0
    variance = 0.0
    for scores, sign in ((members, 1), (nonmembers, -1)):
        counts = [scores.size - int(np.searchsorted(scores, t, side="right")) for t in (high, low)]
        if min(*counts, *(scores.size - count for count in counts)) < _LEAST_COUNT:
            return 0.0
        rare, common = (count / scores.size for count in counts)
        at_rare = float(ndtri(rare))
        at_common = float(ndtri(common))
        steep_rare, steep_common = (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) for z in (at_rare, at_common))
        difference += sign * (at_rare - at_common)
        variance += (
            rare * (1 - rare) / steep_rare**2
            + common * (1 - common) / steep_common**2
            - 2 * rare * (1 - common) / (steep_rare * steep_common)
        ) / scores.size
    return difference / math.sqrt(variance) if variance > 0 else 0.0
