"""Secrets opened after a run: exact distributions, and every breach of samples, shares, bits and steps is found."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fl_audit.adjacency import Adjacency
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import SampledGaussianRelease, gaussian_rounds
from fl_audit.report.unit_words import unit_words
from fl_audit.statistics.exact_counts import (
    BinomialHistogram,
    CountDistribution,
    binomial_p,
    dispersion,
    sum_tails,
    table_p,
)
from fl_audit.verdict.declared_tests import OF_OPENED, NotTestedReason, TestName, TestNotApplicableError, TestResult
from fl_audit.verdict.judging import OPENED_TESTS, run_family
from fl_audit.verdict.opened_secrets import NoiseShareProducts, OpenedParticipation, OpenedSecrets
from fl_audit.verdict.participation_tests import epsilon_at_rate, epsilon_if_participation_known
from fl_audit.verdict.verdict_messages import message_of
from tests.builders.refusals import assert_refused
from tests.validation.opened_breaches import OPENED_BREACHES, OpenedBreach, measured_of
from tests.validation.synthetic_opened import OpenedSetting, draw, opened_of

SMALL = OpenedSetting(trials=12, rounds=8, units=30, batch=6, clients=3, coordinates=8)
WORDS = unit_words(Adjacency.ADD_REMOVE_RECORD)


def p_values(count: int, setting: OpenedSetting = SMALL) -> dict[TestName, list[float]]:
    values_by_test: dict[TestName, list[float]] = {name: [] for name in OF_OPENED}
    for number in range(count):
        opened = opened_of(draw(np.random.default_rng((3, number)), setting))
        for name in OF_OPENED:
            values_by_test[name].append(OPENED_TESTS[name](opened).p_value)
    return values_by_test


@pytest.mark.parametrize("count", [40, pytest.param(600, marks=pytest.mark.long)])
def test_p_values_are_never_too_small_under_the_claim(count: int) -> None:
    """Kolmogorov-Smirnov at 1e-4 for each test, of counts and of Bonferroni's."""
    for name, values in p_values(count).items():
        if name is TestName.EXACT_STEPS:
            assert values == [1.0] * count
        else:
            assert stats.kstest(values, "uniform", alternative="greater").pvalue > 1e-4, name
            assert min(values) > name.level, name


def test_the_distribution_of_a_sum_is_that_of_binomial_counts() -> None:
    for count, observed_sum in ((4, 3), (1000, 340), (100_000, 30_300)):
        lower, upper = sum_tails([CountDistribution(np.array([0.7, 0.3]), count)], observed_sum)
        assert lower == pytest.approx(stats.binom.cdf(observed_sum, count, 0.3), rel=1e-5)
        assert upper == pytest.approx(stats.binom.sf(observed_sum - 1, count, 0.3), rel=1e-5)
    # Of two distributions: the sum of 10 coins and of 5 coins of 2.
    lower, _ = sum_tails(
        [CountDistribution(np.array([0.5, 0.5]), 10), CountDistribution(np.array([0.5, 0.0, 0.5]), 5)], 9
    )
    by_hand = sum(
        stats.binom.pmf(first_count, 10, 0.5) * stats.binom.pmf(second_count, 5, 0.5)
        for first_count in range(11)
        for second_count in range(6)
        if first_count + 2 * second_count <= 9
    )
    assert lower == pytest.approx(by_hand, rel=1e-12)


def test_a_sum_that_cannot_be_is_as_unlikely_as_can_be_said() -> None:
    distribution = [CountDistribution(np.array([0.5, 0.5]), 10**6)]
    assert sum_tails(distribution, 0)[0] <= 1e-12
    assert sum_tails(distribution, 10**6)[1] <= 1e-12
    assert sum_tails([CountDistribution(np.array([0.0, 1.0]), 7)], 7) == (1.0, 1.0)
    assert sum_tails([CountDistribution(np.array([0.0, 1.0]), 7)], 6) == (0.0, 1.0)


def test_a_table_of_two_rows_is_hypergeometric() -> None:
    for inside, total, first, second in ((12, 20, 50, 60), (0, 5, 3, 9), (400, 1000, 3000, 4000)):
        tails = stats.hypergeom(first + second, total, first)
        expected_p = min(1.0, 2 * min(tails.cdf(inside), tails.sf(inside - 1)))
        assert table_p(inside, total, first, second) == pytest.approx(expected_p, rel=1e-6)
    expected_p = min(1.0, 2 * stats.binom.cdf(3, 40, 0.2))
    assert float(binomial_p(3, 40, 0.2)) == pytest.approx(expected_p)
    assert float(binomial_p(0, 40, 0.2)) == pytest.approx(2 * 0.8**40)


def test_counts_that_are_all_alike_spread_too_little() -> None:
    often = np.bincount(np.full(300, 20), minlength=101)
    dispersion_result = dispersion([BinomialHistogram(100, 0.2, often)])
    assert dispersion_result.ratio == 0
    assert dispersion_result.lower < 1e-11
    assert dispersion_result.upper == 1.0


def _with(breach: OpenedBreach, setting: OpenedSetting) -> list[Any]:
    rng = np.random.default_rng(1)
    return [test for test in run_family(measured_of(rng, setting, breach.change), OF_OPENED)[0] if test.violated]


@pytest.mark.few_cases(7)
@pytest.mark.parametrize("breach", OPENED_BREACHES, ids=lambda breach: breach.name)
def test_a_breach_of_what_is_opened_is_found(breach: OpenedBreach) -> None:
    broken = _with(breach, breach.setting)
    if breach.below:
        assert all(test.name in OF_OPENED for test in broken)
        return
    assert {test.name for test in broken} & set(breach.tests)
    for test in broken:
        assert message_of(test, WORDS, STANDARD_GAUSSIAN).sentence.endswith(".")


def test_a_sentence_says_what_samples_of_a_fixed_size_come_to() -> None:
    breach = next(candidate for candidate in OPENED_BREACHES if candidate.name.startswith("samples of a fixed size"))
    (test, *_) = _with(breach, breach.setting)
    claim = Claim("add-remove-record", gaussian_rounds(2.0, 30, 0.2), 1e-2)
    assert test.name is TestName.SAMPLE_SIZES
    assert test.more["claimed_epsilon"] == pytest.approx(claim.profile.epsilon(claim.delta), rel=1e-9)
    assert test.more["epsilon"] == pytest.approx(epsilon_if_participation_known(claim), rel=1e-9)
    sentence = message_of(test, WORDS, STANDARD_GAUSSIAN).sentence
    assert re.search(
        rf"epsilon is {test.more['epsilon']:.3g}\b.* {test.more['claimed_epsilon']:.3g}\b.* Poisson", sentence
    )


def test_a_rate_is_held_against_the_claimed_rate_and_not_against_an_epsilon() -> None:
    """A target that takes part in half of the rounds, where a fifth is claimed."""
    numbers = {"draws": 30.0, "epsilon": 7.0, "claimed_epsilon": 2.0}
    message = message_of(
        TestResult(TestName.TARGET_TURNS, 15.0, 1e-9, 0.5, 0.2, 0.1, "", numbers), WORDS, STANDARD_GAUSSIAN
    )
    assert "20\xa0%" in message.claimed
    assert re.search(r"epsilon is 7\b.* 2 is claimed", message.measured)


def test_without_doubt_about_participation_epsilon_is_a_mean_over_binomial_turns() -> None:
    """delta(eps) = sum over j of P(j turns) times that of j Gaussian rounds, at the epsilon that is named."""
    claim = Claim("add-remove-record", gaussian_rounds(2.0, 30, 0.2), 1e-2)
    rounds = 30
    rate = 0.2
    z = 2.0
    epsilon = epsilon_if_participation_known(claim)
    delta = 0.0
    for turns in range(1, rounds + 1):
        mu = math.sqrt(turns) / z
        round_delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        delta += stats.binom.pmf(turns, rounds, rate) * float(round_delta)
    assert delta == pytest.approx(claim.delta, rel=1e-3)


def test_another_rate_gives_the_epsilon_of_that_rate() -> None:
    claim = Claim("add-remove-record", gaussian_rounds(2.0, 30, 0.2), 1e-2)
    at_two = Claim("add-remove-record", (SampledGaussianRelease(2.0, 0.4, 30),), 1e-2)
    assert epsilon_at_rate(claim, 0.4) == pytest.approx(at_two.profile.epsilon(1e-2), rel=1e-9)
    assert epsilon_at_rate(claim, 0.0) == 0.0


def test_what_the_mechanism_does_not_have_is_not_offered() -> None:
    nothing = OpenedSecrets(np.array([True, False]), is_kept=True)
    reasons = {
        TestName.SAMPLE_SIZES: NotTestedReason.NOT_SAMPLED,
        TestName.SHARE_PAIRS: NotTestedReason.NO_SHARES,
        TestName.BIT_NOISE: NotTestedReason.NO_BITS,
        TestName.EXACT_STEPS: NotTestedReason.NOT_OPENED,
    }
    for name, reason in reasons.items():
        with pytest.raises(TestNotApplicableError) as raised:
            OPENED_TESTS[name](nothing)
        assert raised.value.reason is reason
    with pytest.raises(TestNotApplicableError) as raised:
        OPENED_TESTS[TestName.SHARE_PAIRS](replace(nothing, has_shares=True))
    assert raised.value.reason is NotTestedReason.UNOPENED_SHARES


def test_copies_of_a_share_are_found_although_their_cosine_is_rounded_to_more_than_1() -> None:
    copies = NoiseShareProducts(np.arange(2), np.full((2, 2), 3.0), 10, ())
    assert 3.0 / math.sqrt(3.0) / math.sqrt(3.0) > 1
    opened = OpenedSecrets(np.array([True, False]), is_kept=True, has_shares=True, shares=copies)
    assert OPENED_TESTS[TestName.SHARE_PAIRS](opened).p_value == 0.0


def test_samples_whose_shapes_disagree_are_refused() -> None:
    opened = opened_of(draw(np.random.default_rng(0), SMALL)).samples
    assert isinstance(opened, OpenedParticipation)
    assert_refused(r"overlaps .*have shape", replace, opened, overlaps=opened.overlaps[:1])


def test_the_first_round_that_differs_is_named() -> None:
    draws = draw(np.random.default_rng(0), SMALL)
    draws.wrong_norms[5, 2] = 1.0
    draws.wrong_steps[7, 1] = 3.0
    result = OPENED_TESTS[TestName.EXACT_STEPS](opened_of(draws))
    assert result.p_value == 0.0
    assert re.fullmatch(r"the clipping norm, .*trial 5 round 3", result.place)
