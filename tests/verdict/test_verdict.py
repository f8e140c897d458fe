"""Verdicts: an honest federation is not violated, a breach at the limit is found, few trials are inconclusive."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from fl_audit.adjacency import Adjacency
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_mu
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.verdict.declared_tests import FAMILY_LEVEL, OF_OPENED, NotTestedReason, TestName
from fl_audit.verdict.judging import judge, judge_scores
from fl_audit.verdict.noise_estimate import (
    breach_ratio,
    epsilon_limit,
    epsilon_lower_bound_from_noise,
    estimate_noise,
    ratio_interval,
)
from fl_audit.verdict.noise_scale import NoiseAlongTarget, SquareSum, record_squares, total_squares
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.verdict.verdict import Verdict, VerdictDetails
from tests.builders.refusals import assert_refused
from tests.verdict.noise_distributions import draw_measured


def guarantee_of(accountant: Accountant, noise_multiplier: float) -> Guarantee:
    return derive_guarantee(
        Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(noise_multiplier, 30), 0.001, 0.5, accountant)
    )


GUARANTEE = guarantee_of(Accountant.GDP, 8.0)


CLEAR = guarantee_of(Accountant.GDP, 0.4)
"""So little noise that few trials tell how often the record counts."""


def verdict(measured: NoiseMeasurements, guarantee: Guarantee = GUARANTEE) -> VerdictDetails:
    return judge(measured, guarantee, 0.95)


@pytest.mark.long
@pytest.mark.parametrize("runs", [60, pytest.param(200, marks=pytest.mark.campaign)])
def test_honest_federations_are_consistent(runs: int) -> None:
    """Honest runs, each at a level of .001."""
    rng = np.random.default_rng(1)
    verdicts = [verdict(draw_measured(rng, 20, 20, noise_multiplier=0.4), CLEAR).verdict for _ in range(runs)]
    assert sum(run_verdict is Verdict.VIOLATED for run_verdict in verdicts) <= binom.ppf(1 - 1e-4, runs, FAMILY_LEVEL)
    assert set(verdicts) <= {Verdict.VIOLATED, Verdict.CONSISTENT}


def test_half_the_noise_is_found_under_an_accountant_with_slack() -> None:
    guarantee = guarantee_of(Accountant.RDP_CLASSIC, 8.0)
    result = verdict(draw_measured(np.random.default_rng(2), 20, 30, noise=0.5), guarantee)
    assert result.verdict is Verdict.VIOLATED
    scales = {TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD, TestName.NOISE_TENSOR, TestName.NOISE_ROUND}
    assert scales <= {test.name for test in result.broken}
    assert not any(test.name.is_about_secret for test in result.broken)
    assert result.broken[0].measured == pytest.approx(0.5, abs=0.01)
    assert result.epsilon_lower_bound > guarantee.epsilon
    assert result.noise.excess is None


def test_more_noise_is_consistent_and_says_what_it_costs() -> None:
    result = verdict(draw_measured(np.random.default_rng(3), 20, 30, noise=1.25, noise_multiplier=0.4), CLEAR)
    assert result.verdict is Verdict.CONSISTENT
    excess = result.noise.excess
    assert excess is not None
    assert result.noise.low < excess == result.noise.ratio == pytest.approx(1.25, abs=0.01)


def test_what_the_result_says() -> None:
    result = verdict(draw_measured(np.random.default_rng(4), 100, 10, noise_multiplier=0.4), CLEAR)
    assert (result.verdict, result.level, result.confidence) == ("consistent", 0.001, 0.95)
    assert result.not_offered == tuple((name, NotTestedReason.NOT_OPENED) for name in OF_OPENED)
    alone = (TestName.SCORES, TestName.CANDIDATES, TestName.CANARIES, *OF_OPENED)
    assert [test.name for test in result.tests] == [name for name in TestName if name not in alone]
    assert result.broken == ()
    assert result.epsilon_lower_bound_at_level < min(result.epsilon_lower_bound, CLEAR.epsilon)
    assert (result.conclusive, result.trials_needed) == (True, 26)
    assert result.noise.low < result.noise.ratio < result.noise.high
    assert [name for name, *_ in result.noise.tensors] == ["weight", "bias"]


def test_few_trials_are_inconclusive_and_say_how_many_would_do() -> None:
    result = verdict(draw_measured(np.random.default_rng(5), 1, 30, silent=0.0))
    assert result.verdict is Verdict.INCONCLUSIVE
    needed = result.trials_needed
    assert needed is not None
    assert not result.conclusive
    for trials, conclusive in ((needed - 1, False), (needed, True)):
        limit = epsilon_limit(trials * 30, trials, GUARANTEE, STANDARD_GAUSSIAN)
        assert (limit.conclusive, limit.trials_needed) == (conclusive, needed)
        assert (limit.limit_of_detection <= 1.5 * GUARANTEE.epsilon) is conclusive


@pytest.mark.long
def test_a_breach_at_the_limit_of_detection_is_found_nine_times_in_ten() -> None:
    rng = np.random.default_rng(7)
    plain = {"silent": 0.0, "measured_residuals": False}
    limit = epsilon_limit(600, 20, GUARANTEE, STANDARD_GAUSSIAN)
    ratio = GUARANTEE.mu / gdp_mu(limit.limit_of_detection, 0.001)
    runs = [draw_measured(rng, 20, 30, along=ratio, **plain) for _ in range(400)]  # type: ignore[arg-type]
    detections = sum("noise-along-record" in {test.name for test in verdict(run).broken} for run in runs)
    assert binom.ppf(1e-4, 400, 0.9) <= detections <= binom.ppf(1 - 1e-4, 400, 0.9)


def test_a_record_that_changes_nothing_tells_nothing() -> None:
    result = verdict(draw_measured(np.random.default_rng(8), 5, 5, silent=1.0))
    assert (result.verdict, result.epsilon_lower_bound) == (Verdict.INCONCLUSIVE, 0.0)
    assert math.isinf(result.limit_of_detection)
    assert result.trials_needed is None
    assert math.isnan(result.noise.along_record)


def test_a_guarantee_of_epsilon_zero_is_judged() -> None:
    """Its noise is: how often a record counts that so much noise hides, no number of trials in reach tells."""
    guarantee = guarantee_of(Accountant.GDP, 1e6)
    assert guarantee.epsilon == 0
    details = verdict(draw_measured(np.random.default_rng(9), noise_multiplier=1e6), guarantee)
    assert (details.verdict, details.conclusive, details.broken) == (Verdict.INCONCLUSIVE, True, ())
    assert details.trials_for_conclusive_verdict is not None
    assert details.trials_for_conclusive_verdict > 1e9


def test_the_lower_bound_is_as_near_as_published() -> None:
    """Published for the demo's setting (k = 30, epsilon 1.834 at delta .002): 1.785, 1.811, 1.819 on average."""
    rng = np.random.default_rng(10)
    rounds = gaussian_rounds(30**0.5 / gdp_mu(1.834, 0.002), 30)
    claim = Claim(Adjacency.REPLACE_RECORD, rounds, 0.002, 0.5, Accountant.GDP)
    for trials, expected in ((100, 1.785), (400, 1.811), (1000, 1.819)):
        runs = (draw_measured(rng, trials, 30, silent=0.0, measured_residuals=False) for _ in range(100))
        bounds = np.array([epsilon_lower_bound_from_noise(run, 0.95, claim) for run in runs])
        error = bounds.std() / 10
        assert abs(bounds.mean() - expected) < 0.001 + 4 * error
        assert np.sum(bounds > 1.834) <= binom.ppf(1 - 1e-4, 100, 0.05)


def test_the_interval_of_the_noise_covers() -> None:
    """Two-sided 90 % interval of 500 chi-squares: binomial bounds at 1e-4."""
    rng = np.random.default_rng(11)
    intervals = [
        ratio_interval(SquareSum(float(4 * rng.chisquare(40)), 40, STANDARD_GAUSSIAN), 0.9) for _ in range(500)
    ]
    missed = sum(not low <= 2 <= high for low, high in intervals)
    assert binom.ppf(1e-4, 500, 0.1) <= missed <= binom.ppf(1 - 1e-4, 500, 0.1)
    assert_refused("confidence is 1", lambda: ratio_interval(SquareSum(1.0, 1, STANDARD_GAUSSIAN), 1.0))


def test_honest_noise_is_not_said_to_give_accuracy_away() -> None:
    rng = np.random.default_rng(12)
    runs = [draw_measured(rng, 5, 10) for _ in range(200)]
    messages = [estimate_noise(0.95, total_squares(run), record_squares(run)).excess for run in runs]
    assert sum(map(bool, messages)) <= binom.ppf(1 - 1e-4, 200, 0.001)


SAMPLED = Claim(Adjacency.ADD_REMOVE_RECORD, gaussian_rounds(1.0, 30, 0.2), 0.001, 0.5, Accountant.PLD)


def test_sampled_releases_are_judged_by_their_own_distribution() -> None:
    """The record's noise of a guarantee of epsilon 3.4, which full participation would keep at 33."""
    guarantee = derive_guarantee(SAMPLED)
    result = verdict(draw_measured(np.random.default_rng(13), 60, 30, noise_multiplier=1.0), guarantee)
    assert result.verdict is Verdict.CONSISTENT
    assert 0.85 * guarantee.epsilon < result.epsilon_lower_bound < 1.05 * guarantee.epsilon
    assert guarantee.epsilon < result.limit_of_detection < 1.5 * guarantee.epsilon
    assert "Who takes part" in result.assumption


def test_less_noise_than_claimed_raises_the_bound_of_sampled_releases() -> None:
    rng = np.random.default_rng(14)
    runs = (draw_measured(rng, 60, 30, along=noise, noise_multiplier=1.0) for noise in (0.5, 1.0, 2.0))
    low, claimed, high = (epsilon_lower_bound_from_noise(run, 0.95, SAMPLED) for run in runs)
    exact = [SAMPLED.with_noise(noise).profile.epsilon(0.001) for noise in (0.5, 1.0, 2.0)]
    assert [low, claimed, high] == pytest.approx(exact, rel=0.15)


def test_scores_that_separate_too_well_violate_a_guarantee_and_others_leave_it_open() -> None:
    """However many scores there are and however far they separate: without their distribution no breach is known to
    show.
    """
    rng = np.random.default_rng(15)
    guarantee = guarantee_of(Accountant.GDP, 8.0)
    for count, mu in ((20, 5.0), (2000, guarantee.mu), (2000, 0.1 * guarantee.mu), (2000, 0.0)):
        details = judge_scores(rng.standard_normal(count) + mu, rng.standard_normal(count), guarantee, 0.95)
        assert (details.verdict, details.limit_of_detection) == (Verdict.INCONCLUSIVE, math.inf)
        assert (details.conclusive, details.trials_needed) == (False, None)
        assert details.epsilon_lower_bound_at_level <= min(details.epsilon_lower_bound, guarantee.epsilon)
    leaky = judge_scores(rng.standard_normal(2000) + 6 * guarantee.mu, rng.standard_normal(2000), guarantee, 0.95)
    assert leaky.verdict is Verdict.VIOLATED
    assert leaky.epsilon_lower_bound_at_level > guarantee.epsilon
    assert [test.name for test in leaky.broken] == [TestName.SCORES]
    none = judge_scores(np.empty(0), rng.standard_normal(9), guarantee, 0.95)
    assert (none.verdict, none.epsilon_lower_bound) == (Verdict.INCONCLUSIVE, 0.0)
    assert none.tests[0].more["ceiling"] == 0.0


def judged_targets(
    rng: np.random.Generator, guarantee: Guarantee, noise: float, share: float, trials: int
) -> VerdictDetails:
    """Return the verdict on log-odds of one target a trial whose contribution is a share of the largest one.

    The guarantee is of 30 rounds, and the others hold no target.
    """
    rounds = 5
    shift = share / 8.0
    is_in = rng.random(trials) < 0.5
    draws = noise * rng.standard_normal((trials, rounds))
    log_odds = (shift * draws + np.where(is_in, 0.5, -0.5)[:, None] * shift**2).sum(axis=1)
    lengths = np.where(is_in, rounds * shift, 0.0)
    along = NoiseAlongTarget(
        np.sum(draws**2, axis=1), np.full(trials, rounds), is_in, draws.sum(axis=1), lengths, noise=STANDARD_GAUSSIAN
    )
    return judge_scores(log_odds[is_in], log_odds[~is_in], guarantee, 0.95, along)


@pytest.mark.long
@pytest.mark.parametrize("share", [1.0, 0.05])
def test_log_odds_are_judged_by_their_noise_whether_they_separate_well_or_badly(share: float) -> None:
    """Honest runs at a level of .001; two thirds of the noise at a power of .9; half of it nearly always."""
    rng = np.random.default_rng(16)
    guarantee = guarantee_of(Accountant.GDP, 8.0)
    runs = 400
    needed = judged_targets(rng, guarantee, 1.0, share, 10).trials_needed
    assert needed is not None
    honest = [judged_targets(rng, guarantee, 1.0, share, needed) for _ in range(runs)]
    assert sum(item.verdict is Verdict.VIOLATED for item in honest) <= binom.ppf(1 - 1e-4, runs, FAMILY_LEVEL)
    assert all(item.conclusive for item in honest)
    assert honest[0].limit_of_detection <= 1.5 * guarantee.epsilon
    inconclusive_details = judged_targets(rng, guarantee, 1.0, share, needed - 2)
    assert (inconclusive_details.verdict, inconclusive_details.trials_needed) == (Verdict.INCONCLUSIVE, needed)
    breach = breach_ratio(guarantee)
    verdicts = [judged_targets(rng, guarantee, breach, share, needed).verdict for _ in range(runs)]
    assert binom.cdf(sum(item is Verdict.VIOLATED for item in verdicts), runs, 0.9) > 1e-4
    half = [judged_targets(rng, guarantee, 0.5, share, needed) for _ in range(50)]
    assert all(item.verdict is Verdict.VIOLATED for item in half)
    assert half[0].broken[0].name is TestName.NOISE_ALONG_RECORD
    assert half[0].noise.along_record == pytest.approx(0.5, abs=0.15)


def test_noise_that_could_not_be_measured_leaves_log_odds_open() -> None:
    details = judge_scores(np.zeros(50), np.zeros(50), GUARANTEE, 0.95, noise_along(np.zeros(100), 0))
    assert (details.verdict, details.trials_needed) == (Verdict.INCONCLUSIVE, None)
    assert dict(details.not_offered)[TestName.NOISE_ALONG_RECORD] is NotTestedReason.NO_DIFFERENCE


def test_log_odds_of_a_guarantee_of_epsilon_zero_and_of_coins_that_fell_alike_are_judged_by_their_noise() -> None:
    guarantee = derive_guarantee(Claim("add-remove-record", gaussian_rounds(15.0, 10), 0.1))
    assert guarantee.epsilon == 0
    rng = np.random.default_rng(17)
    for noise, expected in ((1.0, Verdict.INCONCLUSIVE), (0.5, Verdict.VIOLATED)):
        details = judged_targets(rng, guarantee, noise, 1.0, 200)
        assert (details.verdict, details.conclusive) == (expected, True)
        alike = judge_scores(np.zeros(0), rng.random(200), guarantee, 0.95, noise_along(np.full(200, 5 * noise**2), 5))
        assert alike.verdict is expected


def noise_along(squares: NDArray[np.float64], rounds: int) -> NoiseAlongTarget:
    return NoiseAlongTarget(
        squares, np.full(squares.size, rounds), np.zeros(squares.size, dtype=np.bool_), noise=STANDARD_GAUSSIAN
    )
