"""Attacks and evidence where the truth is known: mechanisms with an exact trade-off, and coins nothing depends on.

`tests.validation.coverage` holds the same claims in many more trials.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad

from fl_audit.audits.membership.attacks.lira import lira_scores
from fl_audit.audits.membership.roc_metrics import membership_rates, roc_curve
from fl_audit.federation.target_membership import TargetMembership
from tests.validation.membership_releases import (
    ATTACKS,
    MADE_UP_AUDITS,
    SLOW,
    CoinMechanism,
    gaussian_mean,
    leaky_response,
    randomised_response,
    rates_without_leak,
)

Array = NDArray[np.float64]
MECHANISMS = (gaussian_mean(1.0), gaussian_mean(2.0), randomised_response(1.0), leaky_response(0.5, 0.05))
FAST = [name for name in ATTACKS if name not in SLOW]
RATES = (0.001, 0.01, 0.1, 0.3, 0.5, 0.8)
THREE_ERRORS = 1 - 4 * 0.0027
"""Confidence at which each of four intervals reaches three standard errors, as Student's distribution has them."""


def error_of_tpr(mechanism: CoinMechanism, fpr: float, members: int, non_members: int) -> float:
    """Standard error of the TPR at an FPR that is itself estimated, on the exact curve."""
    tpr = float(mechanism.tpr(np.array(fpr)))
    step = fpr / 100
    slope = float(mechanism.tpr(np.array(fpr + step)) - mechanism.tpr(np.array(fpr - step))) / (2 * step)
    return math.sqrt(tpr * (1 - tpr) / members + slope**2 * fpr * (1 - fpr) / non_members)


def measured_tpr(scores: Array, membership: TargetMembership, fpr: float) -> tuple[float, float]:
    """The TPR of the largest allowed number of false alarms, and the FPR that this number has in the mean."""
    curve = roc_curve(scores, membership)
    non_members = int((~membership.is_in).sum())
    return float(curve.tpr[curve.fpr <= fpr].max()), (math.floor(fpr * non_members) + 1) / (non_members + 1)


def require_under_the_curve(mechanism: CoinMechanism, attack: str, shared: float, targets: int, seed: int) -> None:
    """Sixty trials are attacked with sixty others as shadows, so that scores know nothing of the coins they meet."""
    shadows = np.arange(120) < 60
    release = mechanism.release(np.random.default_rng(seed), 120, targets, shared)
    scores = ATTACKS[attack](release, shadows)[~shadows]
    membership = TargetMembership(release.membership.is_in[~shadows])
    members = int(membership.is_in.sum())
    non_members = membership.is_in.size - members
    for rate in RATES:
        tpr, fpr = measured_tpr(scores, membership, rate)
        exact = float(mechanism.tpr(np.array(fpr)))
        assert tpr <= exact + 3 * error_of_tpr(mechanism, fpr, members, non_members), rate
    assert (
        membership_rates(scores, membership, np.random.default_rng(0), THREE_ERRORS, 200, False).auc.low
        <= mechanism.auc
    )


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_the_exact_curves_are_those_of_what_is_told(mechanism: CoinMechanism) -> None:
    """The area against quadrature, points of the curve against a million coins: a standard error of 0.001 at most."""
    assert quad(lambda fpr: float(mechanism.tpr(np.array(fpr))), 0, 1, limit=200)[0] == pytest.approx(mechanism.auc)
    draw = np.random.default_rng(0)
    is_in = draw.random((1000, 1000)) < 0.5
    curve = roc_curve(mechanism.tell(draw, is_in), TargetMembership(is_in))
    at = np.linspace(0.05, 1, 20)
    assert np.interp(at, curve.fpr, curve.tpr) == pytest.approx(mechanism.tpr(at), abs=0.003)


@pytest.mark.few_cases(12)
@pytest.mark.parametrize("attack", FAST)
@pytest.mark.parametrize(
    ("mechanism", "shared"),
    [
        (gaussian_mean(1.0), 0.0),
        (gaussian_mean(2.0), 0.5),
        (randomised_response(1.0), 0.0),
        (leaky_response(0.5, 0.05), 0.5),
    ],
    ids=["Gaussian", "Gaussian, shared", "response", "leaky, shared"],
)
def test_no_attack_lies_above_the_exact_curve(mechanism: CoinMechanism, shared: float, attack: str) -> None:
    """4500 members and as many others; a number on the curve passes with 99.87 %, most lie far below."""
    require_under_the_curve(mechanism, attack, shared, targets=150, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("attack", SLOW)
def test_no_trained_attack_lies_above_the_exact_curve(attack: str) -> None:
    require_under_the_curve(gaussian_mean(1.0), attack, shared=0.0, targets=50, seed=2)


def test_the_likelihood_ratio_attack_reaches_the_exact_curve_of_a_gaussian_mean() -> None:
    """With 400 shadow trials and one spread for all what is estimated costs less than a quarter of a per cent."""
    mechanism = gaussian_mean(1.0)
    release = mechanism.release(np.random.default_rng(2), 400, 60)
    membership = release.membership
    scores = lira_scores(release.confidences, membership, is_shared=True)
    members = int(membership.is_in.sum())
    for rate in RATES:
        tpr, fpr = measured_tpr(scores, membership, rate)
        error = error_of_tpr(mechanism, fpr, members, membership.is_in.size - members)
        assert tpr == pytest.approx(float(mechanism.tpr(np.array(fpr))), abs=3 * error + 0.0025)
    auc = membership_rates(scores, membership, np.random.default_rng(0), THREE_ERRORS, 200, False).auc
    assert auc.low - 0.0025 <= mechanism.auc <= auc.high + 0.0025


def test_the_likelihood_ratio_attack_reaches_the_area_of_randomised_response() -> None:
    mechanism = randomised_response(1.0)
    release = mechanism.release(np.random.default_rng(3), 400, 60)
    scores = lira_scores(release.confidences, release.membership)
    auc = membership_rates(scores, release.membership, np.random.default_rng(0), THREE_ERRORS, 200, False).auc
    assert auc.low <= mechanism.auc <= auc.high
    assert auc.high - auc.low < 0.05


@pytest.mark.long
@pytest.mark.parametrize(("attack", "apart"), [audit for audit in MADE_UP_AUDITS if audit[0] not in SLOW])
def test_intervals_cover_one_half_where_nothing_leaks(attack: str, apart: bool) -> None:
    """40 runs, of which 38 must cover: at the 98.75 % that four intervals together ask of each, 98.6 % pass."""
    intervals = [rates_without_leak(attack, apart, 10, 0.95, np.random.default_rng((0, run))).auc for run in range(40)]
    assert sum(auc.low <= 0.5 <= auc.high for auc in intervals) >= 38
    aucs = np.array([auc.value for auc in intervals])
    assert abs(aucs.mean() - 0.5) <= 4 * aucs.std(ddof=1) / math.sqrt(40)


def test_trials_that_are_shadows_of_each_other_must_not_be_compared_target_by_target() -> None:
    """Two targets: over all pairs of scores online LiRA has an AUC of 0.46 where nothing leaks, in each trial 0.5."""
    over_all = []
    in_trials = []
    for run in range(120):
        release = gaussian_mean(0.0).release(np.random.default_rng((7, run)), 24, 2)
        scores = lira_scores(release.confidences, release.membership, is_shared=True)
        over_all.append(roc_curve(scores, release.membership).area)
        rates = membership_rates(scores, release.membership, np.random.default_rng(0), resamples=100)
        in_trials.append(rates.auc.value)
    errors = [np.std(aucs) / math.sqrt(120) for aucs in (over_all, in_trials)]
    assert np.mean(over_all) < 0.5 - 4 * errors[0]
    assert abs(np.mean(in_trials) - 0.5) < 3 * errors[1]
