"""The largest TPR and AUC that guarantees allow, against closed forms and simulated insiders."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom

from fl_audit.adjacency import Adjacency
from fl_audit.audits.membership.attack_limits import largest_auc, largest_auc_within_training, largest_tpr
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import (
    GaussianRelease,
    LaplaceRelease,
    RandomizedResponse,
    ReleaseEvent,
    SampledGaussianRelease,
)
from tests.builders.refusals import assert_refused

Array = NDArray[np.float64]

RATES = np.array([0.0, 1e-6, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0])


def profile_of(*events: ReleaseEvent) -> PrivacyProfile:
    return PrivacyProfile(events, Adjacency.ADD_REMOVE_RECORD)


def on_a_grid(mu: float) -> PrivacyProfile:
    """Return Gaussian releases with a second release that tells nothing, so that there is no closed form any more."""
    profile = profile_of(GaussianRelease(1.0, 1 / mu), RandomizedResponse(1e-12))
    assert profile.gaussian_mu is None
    return profile


def area(tpr: Array, fpr: Array) -> float:
    return float(np.trapezoid(tpr, fpr))


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0, 8.0])
def test_gaussian_limits_are_the_closed_form(mu: float) -> None:
    """On the grid they are never smaller, and larger by little."""
    exact = ndtr(ndtri(RATES) + mu)
    closed = profile_of(GaussianRelease(1.0, 2 / mu, 4))
    assert largest_tpr(closed, RATES) == pytest.approx(exact, abs=1e-13)
    assert largest_auc(closed) == pytest.approx(ndtr(mu / math.sqrt(2)), abs=1e-13)
    excess = largest_tpr(on_a_grid(mu), RATES) - exact
    assert excess.min() > -1e-12
    assert excess.max() < 1e-8
    assert -1e-12 < largest_auc(on_a_grid(mu)) - ndtr(mu / math.sqrt(2)) < 1e-8


@pytest.mark.parametrize(
    ("epsilon", "count"), [(0.01, 1), (1.0, 1), (1.0, 2), (0.5, 7), (3.0, 4), (40.0, 1), (100.0, 1)]
)
def test_randomised_response_has_binomial_limits(epsilon: float, count: int) -> None:
    """The best test counts the answers "in": its corners are tails of two binomial distributions."""
    truth = expit(epsilon)
    answers = np.arange(-1, count + 1)
    tpr = binom.sf(answers, count, truth)[::-1]
    fpr = binom.sf(answers, count, expit(-epsilon))[::-1]
    profile = profile_of(RandomizedResponse(epsilon, count))
    excess = largest_tpr(profile, RATES) - np.interp(RATES, fpr, tpr)
    assert excess.min() > -1e-9
    assert excess.max() < 1e-9
    assert largest_auc(profile) == pytest.approx(area(tpr, fpr), abs=1e-9)


def test_one_answer_has_an_area_of_its_probability_of_truth() -> None:
    for epsilon in (0.1, 1.0, 3.0):
        assert largest_auc(profile_of(RandomizedResponse(epsilon))) == pytest.approx(expit(epsilon), abs=1e-9)


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.3), (4.0, 0.1), (0.5, 0.9)])
def test_a_secret_sample_has_the_limits_of_its_own_direction(mu: float, rate: float) -> None:
    """Out: N(0, 1); in: (1 - q) N(0, 1) + q N(mu, 1). The likelihood ratio rises with the release."""
    exact = (1 - rate) * RATES + rate * ndtr(ndtri(RATES) + mu)
    profile = profile_of(SampledGaussianRelease(1 / mu, rate))
    excess = largest_tpr(profile, RATES) - exact
    assert excess.min() > -1e-11
    assert excess.max() < 5e-6
    assert largest_auc(profile) == pytest.approx((1 - rate) / 2 + rate * ndtr(mu / math.sqrt(2)), abs=1e-5)
    either_way = 1 - np.array([profile.tradeoff(float(alpha)) for alpha in RATES])
    assert (either_way - largest_tpr(profile, RATES)).min() > -1e-9
    assert (either_way - largest_tpr(profile, RATES)).max() > 1e-3


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.3), (4.0, 0.1)])
def test_a_seen_sample_has_a_line_where_the_target_was_not_drawn(mu: float, rate: float) -> None:
    """Call those members who were drawn and look like it; then, in a random order, who was not drawn; then the rest."""
    first = rate * ndtr(-mu / 2)
    last = first + 1 - rate
    exact = np.where(
        first >= RATES,
        rate * ndtr(ndtri(np.minimum(RATES / rate, 1.0)) + mu),
        np.where(last >= RATES, RATES + rate * (2 * ndtr(mu / 2) - 1), 0.0),
    )
    late = rate * ndtr(ndtri(np.clip((RATES - (1 - rate)) / rate, 0.0, 1.0)) + mu) + 1 - rate
    exact = np.where(last < RATES, late, exact)
    excess = largest_tpr(profile_of(SampledGaussianRelease(1 / mu, rate, seen=True)), RATES) - exact
    assert excess.min() > -1e-11
    assert excess.max() < 5e-6


@pytest.mark.parametrize("relation", [Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD])
@pytest.mark.parametrize(
    "events",
    [
        (LaplaceRelease(1.0, 2.0, 5),),
        (SampledGaussianRelease(1.0, 0.1, 30, seen=True),),
        (GaussianRelease(1.0, 2.0, 3), RandomizedResponse(0.3, 4)),
    ],
)
def test_the_limits_are_the_trade_off_of_the_profile_where_directions_are_alike(
    events: tuple[ReleaseEvent, ...], relation: Adjacency
) -> None:
    profile = PrivacyProfile(events, relation)
    coarser = 1 - np.array([profile.tradeoff(float(alpha)) for alpha in RATES])
    excess = coarser - largest_tpr(profile, RATES)
    assert excess.min() > -1e-9
    assert excess.max() < 2e-6


@pytest.mark.parametrize(("count", "rate"), [(8, 0.3), (100, 0.1)])
def test_simulated_insiders_of_many_sampled_rounds_reach_the_limits(count: int, rate: float) -> None:
    """Log-odds of 20,000 runs either way. Each of 8 comparisons, of 4 standard errors, fails by chance in 6e-5."""
    draw = np.random.default_rng(6)
    trials = 20_000
    noise_multiplier = 1.2
    total = np.zeros((2, trials))
    for _ in range(count):
        participation = np.stack([draw.random(trials) < rate, np.zeros(trials, dtype=np.bool_)])
        releases = participation / noise_multiplier + draw.standard_normal((2, trials))
        total += np.log1p(rate * np.expm1(releases / noise_multiplier - 0.5 / noise_multiplier**2))
    members = np.sort(total[0])
    non_members = np.sort(total[1])
    profile = profile_of(SampledGaussianRelease(noise_multiplier, rate, count))
    for fpr in (0.01, 0.1, 0.5):
        threshold = np.quantile(non_members, 1 - fpr)
        reached = float((members > threshold).mean())
        # The threshold is off by chance too: by the slope of the ROC there, at most TPR / FPR.
        error = math.hypot(math.sqrt(reached * (1 - reached)), reached / fpr * math.sqrt(fpr * (1 - fpr)))
        assert abs(reached - float(largest_tpr(profile, fpr))) < 4 * error / math.sqrt(trials)
    above = np.searchsorted(non_members, members) / trials
    below = 1 - np.searchsorted(members, non_members) / trials
    error = math.sqrt((above.var() + below.var()) / trials)
    assert abs(above.mean() - largest_auc(profile)) < 4 * error
    assert largest_auc(profile) - 0.5 > 8 * error


def test_rates_out_of_range_are_refused() -> None:
    profile = profile_of(GaussianRelease(1.0, 1.0))
    for fpr in (-0.1, 1.5, [0.5, np.nan]):
        assert_refused(r"numbers .*0 to 1", largest_tpr, profile, fpr)


@pytest.mark.parametrize("mu", [0.05, 1.0, 3.0])
def test_two_units_of_gaussian_noise_are_told_apart_as_by_twice_the_mu(mu: float) -> None:
    assert largest_auc_within_training(profile_of(GaussianRelease(1.0, 2 / mu, 4))) == pytest.approx(
        ndtr(mu), abs=1e-13
    )
    # The grid's curve is off by rounding at its steps, here by up to some millionths.
    assert -1e-9 < largest_auc_within_training(on_a_grid(mu)) - ndtr(mu) < 1e-5


def test_two_units_of_randomised_response() -> None:
    """min(e^epsilon a, 1 - e^-epsilon (1 - a)), applied twice, is furthest from a at its first corner."""
    for epsilon in (0.1, 1.0, 3.0):
        expected = (1 + (math.exp(epsilon) - math.exp(-epsilon)) / (1 + math.exp(epsilon))) / 2
        assert largest_auc_within_training(profile_of(RandomizedResponse(epsilon))) == pytest.approx(expected, abs=1e-9)


def test_under_secret_sampling_the_second_step_goes_the_other_way() -> None:
    """One step, rate q: of P_in = (1 - q) N(0, 1) + q N(mu, 1) against N(0, 1), by thresholds on a fine grid."""
    rate, mu = 0.3, 2.0
    points = np.linspace(-12.0, 14.0, 400_001)
    out = ndtr(-points)
    there = (1 - rate) * ndtr(-points) + rate * ndtr(mu - points)
    adding = np.interp(np.linspace(0, 1, 100_001), out[::-1], there[::-1])
    removing = np.interp(adding, 1 - there, 1 - out)
    expected = (1 + np.max(removing - np.linspace(0, 1, 100_001))) / 2
    computed_area = largest_auc_within_training(profile_of(SampledGaussianRelease(1 / mu, rate, 1)))
    assert -1e-6 < computed_area - expected < 1e-4
