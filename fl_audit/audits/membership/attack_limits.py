"""Limits that a guarantee sets to membership attacks: the largest TPR at each FPR, and the largest area under the ROC.

A membership attack on a target tests "in" (the target is a member) against "out". The guarantee limits these tests by
the trade-off function f: the smallest false-negative rate at a given false-positive rate a (Dong, Roth & Su 2022). Let
delta_in(epsilon) be the privacy profile of "in" against "out", and delta_out(epsilon) that of "out" against "in". Then,
for every epsilon of at least 0,

    f(a) >= max(0, 1 - delta_in(epsilon) - e^epsilon a, e^-epsilon (1 - delta_out(epsilon) - a)).

The supremum over epsilon is f itself if both deltas belong to one pair of distributions. `PrivacyProfile.tradeoff`
takes the larger delta for both, which bounds tests in either direction. This module uses the known direction, which
under secret sampling gives a smaller TPR at large FPR.

Under add-remove adjacency (a target that is out is absent, not replaced), the limits hold for each target, and
therefore also for the pooled scores of all targets. They do not hold for an attacker who has to order a member and a
nonmember of the same training. There the two hypotheses differ in two units, and `largest_auc_within_training` is the
limit.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy import pld
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.log_odds_distribution import fine_curves


def largest_tpr(profile: PrivacyProfile, fpr: ArrayLike) -> Floats:
    """Return the largest true-positive rate of a membership attack at each FPR, with the shape of `fpr`.

    It is 1 - f(fpr), where f is the trade-off function. For Gaussian releases without sampling this is Phi(Phi^-1(fpr)
    + mu). Otherwise it is computed from the privacy loss distribution, and never too small.

    Examples
    --------
    >>> from fl_audit.adjacency import Adjacency
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> profile = PrivacyProfile(gaussian_rounds(4.0, 16), Adjacency.ADD_REMOVE_RECORD)
    >>> largest_tpr(profile, [0.001, 0.01]).round(4).tolist()
    [0.0183, 0.0924]
    """
    alarms = np.asarray(fpr, dtype=np.float64)
    require(bool(((alarms >= 0) & (alarms <= 1)).all()), f"FPR is {alarms}: accepted are numbers from 0 to 1")
    if (mu := profile.gaussian_mu) is not None:
        return np.asarray(ndtr(ndtri(alarms) + mu), dtype=np.float64)
    return 1 - _Tradeoff(profile).missed(alarms)


def largest_auc(profile: PrivacyProfile) -> float:
    """Return the largest area under the ROC curve that a membership attack can reach, from 1/2 to 1.

    It is 1 minus the integral of the trade-off function. For Gaussian releases without sampling this is Phi(mu / sqrt
    2), where mu is the parameter of Gaussian DP. For other releases the result may be too large, but never too small.

    Examples
    --------
    >>> from fl_audit.adjacency import Adjacency
    >>> from fl_audit.privacy.events import RandomizedResponse
    >>> profile = PrivacyProfile((RandomizedResponse(math.log(3)),), Adjacency.REPLACE_RECORD)
    >>> round(largest_auc(profile), 9)  # a coin that tells the truth with probability 3/4
    0.75
    """
    if (mu := profile.gaussian_mu) is not None:
        return float(ndtr(mu / math.sqrt(2)))
    curve = _Tradeoff(profile)
    return 1 - float(np.trapezoid(curve.missed(curve.corners), curve.corners))


def largest_auc_within_training(profile: PrivacyProfile) -> float:
    """Return the largest AUC of attacks: the probability that a member ranks above a nonmember of the same training.

    The result is from 1/2 to 1. Let T(a) be the largest TPR at the FPR a. If a unit is added, the probability a of an
    outcome becomes at most T(a). If a unit is removed, a probability b becomes at most T'(b) = 1 - T^-1(1 - b). To
    exchange a nonmember for a member does both (group privacy, Dong, Roth & Su 2022, theorem 2.14). Therefore the limit
    at even odds is (1 + max_a (T'(T(a)) - a)) / 2. For Gaussian releases without sampling this is Phi(mu). For other
    releases, T is a curve that is never too low.
    """
    if (mu := profile.gaussian_mu) is not None:
        return float(ndtr(mu))
    curve = _Tradeoff(profile)
    alarms = curve.corners
    powers = 1 - curve.missed(curve.corners)
    # Both functions are linear between corners, so their composition is largest at a corner of one of them.
    rates, first = np.unique(powers, return_index=True)  # the smallest FPR of each TPR
    corners = np.unique(np.concatenate([alarms, np.interp(1 - powers, rates, alarms[first])]))
    once = np.interp(corners, alarms, powers)
    return float((1 + np.max(1 - np.interp(1 - once, rates, alarms[first]) - corners)) / 2)


class _Tradeoff:
    """The trade-off function f of a privacy profile, piecewise linear: the smallest false-negative rate at each FPR.

    For each grid point l >= 0 of the loss L, the test "L > l" is a corner of f. Losses below 0 are not used, because
    rounding spoils their tails; the loss in the other direction gives the corners at large FPR.
    """

    def __init__(self, profile: PrivacyProfile) -> None:
        curves = fine_curves(profile).curves  # of "in" against "out", then of the reverse
        missed, alarms = _corners(curves[0])
        self._small, self._large = (alarms[::-1], missed[::-1]), _corners(curves[-1])
        # Both chains end on the line 1 - delta(0) - a; on two grids the ends may differ by the error of the grids.
        self._height = float(max(self._small[0][-1] + self._small[1][-1], self._large[0][0] + self._large[1][0]))
        # False-positive rates at the corners of f, ascending, including 0 and 1.
        self.corners = np.unique(np.concatenate([[0.0], self._small[0], self._large[0], [1.0]]))

    def missed(self, alarms: Floats) -> Floats:
        """Return the smallest false-negative rate at the given false-positive rates."""
        line = self._height - alarms
        small = np.where(alarms <= self._small[0][-1], np.interp(alarms, *self._small), line)
        large = np.where(alarms >= self._large[0][0], np.interp(alarms, *self._large, right=0.0), line)
        return np.maximum(np.maximum(small, large), 0.0)


def _corners(curve: pld.PrivacyCurve) -> tuple[Floats, Floats]:
    """Return P(L <= l) and P'(L > l) at each grid point l >= 0 of a privacy curve.

    L is the loss log(P / P') of the two distributions P and P' that the curve compares.
    """
    # One more point below the grid: if losses below 0 are almost impossible, the grid begins above 0.
    losses = np.append(curve.losses[0] - curve.interval, curve.losses)
    is_kept = losses > -curve.interval / 2
    above = np.append(np.cumsum(curve.probabilities[::-1])[::-1], 0.0)[is_kept] + curve.infinity
    scaled = np.append(math.exp(-curve.interval) * (curve.probabilities[0] + curve.lower_masses[0]), curve.lower_masses)
    beyond = np.exp(-losses[is_kept]) * scaled[is_kept]
    return np.maximum.accumulate(1 - np.minimum(above, 1.0)), np.minimum.accumulate(beyond)
