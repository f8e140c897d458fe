"""The signal: p-values follow their distribution, limits of detection hold, and planted breaches of it are found."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2, f, kstest, ttest_1samp
from scipy.stats import t as student

from fl_audit.array_types import Floats
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.verdict.declared_tests import (
    BESIDE_SCORES,
    FAMILY_LEVEL,
    NotTestedReason,
    TestName,
    TestNotApplicableError,
)
from fl_audit.verdict.judging import FAMILY, run_family
from fl_audit.verdict.noise_scale import NoiseAlongTarget
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.verdict.signal_detection_limit import NoiseSumAlongTarget, planned_signal, rare_power
from fl_audit.verdict.target_contribution_tests import drift_along as drift_of_targets
from fl_audit.verdict.target_contribution_tests import (
    limit_along,
    limit_of_run,
    noise_trial_of,
    signal_of,
    signal_trial_of,
)
from tests.validation.breach_kinds import BREACHES, Breach
from tests.validation.breaches import synthetic_run
from tests.validation.held_back_breaches import cancelling
from tests.validation.signal_breaches import counted_times
from tests.validation.synthetic_noise import NoiseSetting, OddFeature, play, play_odd_feature

TESTS = (TestName.SIGNAL, TestName.SIGNAL_ROUND, TestName.SIGNAL_TRIAL, TestName.NOISE_TRIAL, TestName.DRIFT_PLACE)
SMALL = (("weight", 30), ("bias", 4))


def small_run(seed: int, breach: Breach | None = None, multiplier: float = 1.0, trials: int = 40) -> NoiseMeasurements:
    setting = NoiseSetting(SMALL, trials, 10, replace=seed % 2 == 0, local=seed % 4 > 1, multiplier=multiplier)
    return play(np.random.default_rng((5, seed)), setting, breach or Breach("none", ()))


def test_the_shares_of_the_tests_are_those_of_their_weights_and_no_more_than_the_level_together() -> None:
    assert sum(name.share for name in FAMILY) == pytest.approx(1.0)
    for alone in (TestName.SCORES, TestName.CANDIDATES):
        assert alone.share + sum(name.share for name in BESIDE_SCORES) == pytest.approx(1.0)
    assert TestName.CANARIES.level == FAMILY_LEVEL
    assert TestName.SIGNAL.share / TestName.NOISE_TOTAL.share == pytest.approx(5)


@pytest.mark.parametrize("seed", [2, 25, 34])
def test_statistics_and_p_values_are_those_of_scipy(seed: int) -> None:
    """The second round is without the target: it counts for nothing, not even as a degree of freedom."""
    trials = 6
    noise = 0.6 * np.random.default_rng(seed).standard_normal((trials, 4))
    noise[4] += 0.8
    members = np.arange(trials) % 2 == 0
    signs = np.where(members, 1.0, -1.0)[:, None]
    ratio = np.tile([0.5, 0.0, 0.25, 1.0], (trials, 1))
    increments = signs * (ratio**2 / 2 + ratio * noise)
    ones = np.ones_like(ratio)
    run = NoiseMeasurements(members, increments, ratio, ones, 1.0, noise_kind=STANDARD_GAUSSIAN)
    results = {test.name: test for test in run_family(run, TESTS)[0]}
    noise = noise[:, ratio[0] > 0]
    of_signal = ttest_1samp(noise, 0.0, axis=None, alternative="greater")
    signal_result = results[TestName.SIGNAL]
    assert signal_result.p_value == pytest.approx(of_signal.pvalue)
    assert signal_result.statistic == pytest.approx(of_signal.statistic)
    unit = math.sqrt(trials) * (0.25 + 0.125 + 0.5) / math.sqrt(3)
    assert signal_result.measured == pytest.approx(1 + noise.sum() / math.sqrt(noise.size) / unit)
    # A round's sums, over all trials and over those of each side.
    towards = signs * noise
    of_sides = [towards[side].sum(axis=0) / math.sqrt(3) for side in (members, ~members)]
    sums = np.concatenate([noise.sum(axis=0) / math.sqrt(trials), *of_sides])
    largest = np.abs(sums).max() / math.sqrt(np.var(towards, axis=0, ddof=1).mean())
    assert abs(results[TestName.SIGNAL_ROUND].statistic) == pytest.approx(largest)
    assert results[TestName.SIGNAL_ROUND].p_value == pytest.approx(2 * 9 * student.sf(largest, 15))
    # A trial's sums, by the largest of them and by their spread.
    sums = noise.sum(axis=1) / math.sqrt(3)
    within = np.var(noise, axis=1, ddof=1).mean()
    spread = f.sf(np.square(sums).mean() / within, trials, 12)
    single = 2 * trials * student.sf(np.abs(sums).max() / math.sqrt(within), 12)
    assert results[TestName.SIGNAL_TRIAL].p_value == pytest.approx(2 * min(single, spread))
    # Too little noise in a trial, in a round or in the sums over rounds.
    squares = np.square(noise)
    of_sums = chi2.cdf(np.square(sums).sum(), trials)
    smallest = min(*chi2.cdf(squares.sum(axis=1), 3), *chi2.cdf(squares.sum(axis=0), trials), of_sums)
    assert results[TestName.NOISE_TRIAL].p_value == pytest.approx(10 * smallest)


def test_noise_that_is_the_same_in_all_rounds_of_a_trial_is_a_shift_however_small() -> None:
    sums = 4 * np.array([0.02, -0.01, 0.03])
    ones = np.ones(3)
    same = NoiseAlongTarget(sums**2 / 4, np.full(3, 4), ones > 0, sums, ones, noise=STANDARD_GAUSSIAN)
    assert signal_trial_of(same).p_value < 1e-9


def test_the_signal_is_tested_from_three_values_of_a_target_that_contributes() -> None:
    assert signal_of(NoiseSumAlongTarget(0.0, 1.0, 2, 1.0)).p_value == 0.5
    for refused, reason in (
        (NoiseSumAlongTarget(0.0, 1.0, 1, 1.0), NotTestedReason.TOO_FEW),
        (NoiseSumAlongTarget(0.0, 1.0, 2, 0.0), NotTestedReason.NO_DIFFERENCE),
    ):
        with pytest.raises(TestNotApplicableError) as raised:
            signal_of(refused)
        assert raised.value.reason is reason


@pytest.mark.parametrize("runs", [150, pytest.param(600, marks=pytest.mark.long)])
def test_p_values_of_honest_runs_follow_their_distribution(runs: int) -> None:
    """Uniform for the drift over a run, never too small for the others; a tenth has sensitivities that follow noise."""
    values_by_test: dict[TestName, list[float]] = {name: [] for name in TESTS}
    for seed in range(runs):
        odd = seed % 10 == 9
        run = play_odd_feature(np.random.default_rng((6, seed)), OddFeature(20, 10)) if odd else small_run(seed)
        results, missing = run_family(run, TESTS)
        assert not missing
        for test in results:
            values_by_test[test.name].append(test.p_value)
    assert kstest(values_by_test[TestName.SIGNAL], "uniform").pvalue > 1e-4
    for name in TESTS:
        assert kstest(values_by_test[name], "uniform", alternative="greater").pvalue > 1e-4, name


def test_noise_along_the_target_that_cancels_over_rounds_is_found() -> None:
    """Every round has the claimed noise, and their sums have none: where a record is replaced, in all trials."""
    for seed in range(0, 8, 2):
        results, _ = run_family(small_run(seed, Breach("cancels", (), target=cancelling)), TESTS)
        violated_tests = {test.name: test for test in results if test.violated}
        assert TestName.NOISE_TRIAL in violated_tests
        assert re.fullmatch("the sums .*all rounds", violated_tests[TestName.NOISE_TRIAL].place)
        assert violated_tests[TestName.NOISE_TRIAL].measured < 0.3


def test_noise_of_targets_that_cancels_over_rounds_is_found_from_sums() -> None:
    rng = np.random.default_rng(11)
    squares = rng.chisquare(10, 60)
    count = np.full(60, 10)
    along = NoiseAlongTarget(squares, count, np.ones(60, bool), np.zeros(60), np.ones(60), noise=STANDARD_GAUSSIAN)
    assert noise_trial_of(along).violated
    assert not noise_trial_of(replace(along, sums=math.sqrt(10) * rng.standard_normal(60))).violated


@pytest.mark.long
@pytest.mark.parametrize("louder", ["everywhere", "in some trials", "in some rounds"])
def test_noise_above_the_claim_is_no_breach_of_the_signal(louder: str) -> None:
    def noisy(values: Floats, key: int) -> Floats:
        rng = np.random.default_rng((key, 7))
        by = {"everywhere": 1.5, "in some trials": np.where(rng.random(len(values)) < 0.2, 2.0, 1.0)[:, None]}
        return values * by.get(louder, 3.0)

    def draw(at):  # type: ignore[no-untyped-def]
        return at.own if louder == "in some rounds" and at.number % 3 else noisy(at.own, at.key)

    smallest = [
        test.p_value / test.level
        for seed in range(15)
        for test in run_family(small_run(seed, Breach("louder", (), draw)), TESTS)[0]
    ]
    assert min(smallest) > 1


@pytest.mark.long
def test_a_count_at_the_limit_of_detection_is_found_nine_times_in_ten() -> None:
    times = float(np.mean([limit_of_run(small_run(4 * seed)).times for seed in range(10)]))
    breach = Breach("counted", (), target=counted_times(times))
    runs = 150
    detections = sum(run_family(small_run(4 * seed, breach), [TestName.SIGNAL])[0][0].violated for seed in range(runs))
    assert binom.ppf(1e-4, runs, 0.88) <= detections <= binom.ppf(1 - 1e-4, runs, 0.92)


def test_the_number_of_trials_that_is_said_to_tell_is_enough_and_that_of_the_plan_too() -> None:
    small_limit = limit_of_run(small_run(0, multiplier=4.0))
    assert not small_limit.conclusive
    assert small_limit.trials_needed is not None
    assert limit_of_run(small_run(0, multiplier=4.0, trials=math.ceil(1.05 * small_limit.trials_needed))).conclusive
    assert not limit_of_run(small_run(0, multiplier=4.0, trials=math.floor(0.9 * small_limit.trials_needed))).conclusive
    planned = planned_signal(400, 30, 1 / (2 * 10.1), 1.0)
    assert planned.limit == pytest.approx(1.887, abs=0.01)
    assert planned.trials_needed is not None
    assert planned_signal(planned.trials_needed, 30, 1 / (2 * 10.1), 1.0).conclusive
    assert not planned_signal(planned.trials_needed - 2, 30, 1 / (2 * 10.1), 1.0).conclusive


def test_the_power_against_a_count_in_few_trainings_is_about_what_is_said() -> None:
    """Of shifts of 3.5 in 4 % of 300 trials; the said power is a little too small, for two ways to find it are one."""
    rng = np.random.default_rng(8)
    runs = 300
    trials = 300
    power = rare_power(trials, 3.5, 0.04)
    detections = 0
    for _ in range(runs):
        noise = rng.standard_normal((trials, 10)) + np.where(rng.random((trials, 1)) < 0.04, 3.5 / math.sqrt(10), 0.0)
        squares = np.square(noise).sum(axis=1)
        ones = np.ones(trials)
        along = NoiseAlongTarget(
            squares, np.full(trials, 10), ones > 0, noise.sum(axis=1), ones, noise=STANDARD_GAUSSIAN
        )
        detections += signal_trial_of(along).violated
    assert power - 0.1 < detections / runs < power + 0.2


def test_targets_of_membership_are_tested_together_and_each_by_itself() -> None:
    """One target alone counts 4 times: hardly ever drawn, it is found over all trials."""
    rng = np.random.default_rng(9)
    trials = 300
    noise = rng.standard_normal((trials, 5))
    members = rng.random(trials) < 0.5
    lengths = np.where(members, 5 * 0.5, 0.0)

    def along(times: float, of_targets: Floats) -> NoiseAlongTarget:
        shifted = noise + np.where(members, (times - 1) * 0.5, 0.0)[:, None]
        squares = np.square(shifted).sum(axis=1)
        return NoiseAlongTarget(
            squares, np.full(trials, 5), members, shifted.sum(axis=1), lengths, of_targets, noise=STANDARD_GAUSSIAN
        )

    honest = along(1.0, np.zeros(20))
    single_target = along(1.0, np.eye(20)[3] * 15)
    assert not signal_of(drift_of_targets(honest)).violated
    assert not signal_trial_of(honest).violated
    assert signal_trial_of(single_target).violated
    assert re.fullmatch("all trials .*target 3", signal_trial_of(single_target).place)
    every = along(limit_along(honest).times * 1.5, np.zeros(20))
    assert signal_of(drift_of_targets(every)).violated
    assert limit_along(replace(honest, sums=None)).times == math.inf


OF_SIGNAL = [breach for breach in BREACHES if breach.target is not None]


@pytest.mark.parametrize(
    "breach",
    [pytest.param(signal_breach, marks=pytest.mark.long, id=signal_breach.name) for signal_breach in OF_SIGNAL],
)
def test_planted_breaches_of_the_signal_are_found(breach: Breach) -> None:
    for number in range(2):
        assert any(test.violated for test in run_family(synthetic_run(breach, number), breach.tests)[0])


def test_a_record_that_counts_twice_is_found_by_a_small_run() -> None:
    breach = Breach("twice", (), target=counted_times(2.5))
    broken = {test.name for test in run_family(small_run(4, breach), TESTS)[0] if test.violated}
    assert TestName.SIGNAL in broken


def test_a_plan_of_few_trials_asks_for_as_many_as_a_plan_of_enough() -> None:
    needed_trials = {planned_signal(trials, 10, 1 / (2 * 5.82), 1.0).trials_needed for trials in (2, 40, 1400)}
    assert len(needed_trials) == 1
