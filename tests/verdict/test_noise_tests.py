"""Each test of the verdict's family: exact under the claim, blind to noise above it, as powerful as it says."""

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from fl_audit.verdict.declared_tests import (
    FAMILY_LEVEL,
    OF_OPENED,
    NotTestedReason,
    TestName,
    TestNotApplicableError,
    TestResult,
    leading_first,
)
from fl_audit.verdict.judging import run_family
from fl_audit.verdict.noise_copies import (
    _joint_distribution,
    _likest_pair,
    correlated_noise,
    joint_places,
    repeated_noise,
)
from fl_audit.verdict.noise_mean_and_independence import (
    _detectable_share,
    _detectable_shift,
    serial_correlation,
    shared_over_rounds,
    shared_over_trials,
)
from fl_audit.verdict.noise_scale import chi_square_quantile, detectable_ratio, noise_along_record, noise_round
from fl_audit.verdict.noise_shape import tails
from fl_audit.verdict.noise_sizes import carried_sizes, even_sizes
from fl_audit.verdict.noise_statistics import LOW_BITS_KINDS, NoiseStatistics, stride_sizes
from fl_audit.verdict.null_distributions import cosine_at, cosine_tail, detectable_mean, largest_p, student_p
from fl_audit.verdict.run_measurements import NoiseMeasurements
from tests.builders.refusals import assert_refused
from tests.validation.breach_kinds import BREACHES, Breach
from tests.validation.breaches import _study_breach, synthetic_run
from tests.validation.synthetic_noise import NoiseSetting, play
from tests.validation.verdicts import NEVER_TOO_SMALL, NOT_RANDOM
from tests.verdict.noise_distributions import DIRECTIONS, PLACES, draw_measured

LEVEL = TestName.CORRELATED_NOISE.level / 5  # of one of its questions


def p_values(count: int, seed: int = 0, **settings: float) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    values_by_test: dict[str, list[float]] = {}
    for _ in range(count):
        for test in run_family(draw_measured(rng, **settings))[0]:
            values_by_test.setdefault(test.name, []).append(test.p_value)
    return {name: np.array(values) for name, values in values_by_test.items()}


def test_the_shares_of_the_family_add_up_to_its_level() -> None:
    alone = (TestName.SCORES, TestName.CANDIDATES, TestName.CANARIES)
    family = [name for name in TestName if name not in alone]
    assert math.fsum(name.level for name in family) == pytest.approx(FAMILY_LEVEL, rel=1e-12)
    assert TestName.CANARIES.level == FAMILY_LEVEL
    for judged in (TestName.SCORES, TestName.CANDIDATES):
        together = (judged, TestName.NOISE_ALONG_RECORD, TestName.NOISE_TRIAL, *OF_OPENED)
        assert math.fsum(name.level for name in together) <= FAMILY_LEVEL


@pytest.mark.parametrize(
    ("failures", "order"),
    [
        ({TestName.SENSITIVITY: 0.5, TestName.REPEATED_NOISE: 0.4}, [TestName.REPEATED_NOISE, TestName.SENSITIVITY]),
        ({TestName.SENSITIVITY: 0.5, TestName.DISTINGUISHER: 0.6}, [TestName.DISTINGUISHER, TestName.SENSITIVITY]),
        (
            {TestName.NOISE_TOTAL: 0.4, TestName.DISTINGUISHER: 0.6, TestName.SIGNAL: 0.5},
            [TestName.NOISE_TOTAL, TestName.SIGNAL, TestName.DISTINGUISHER],
        ),
    ],
)
def test_the_clearest_failure_leads_unless_noise_that_is_not_missing_depends_on_the_secret(
    failures: dict[TestName, float], order: list[TestName]
) -> None:
    broken = [TestResult(name, 0.0, share * name.level, 0.0, 0.0) for name, share in failures.items()]
    assert [test.name for test in leading_first(broken)] == order


@pytest.mark.long
@pytest.mark.parametrize("runs", [60, pytest.param(400, marks=pytest.mark.campaign)])
def test_p_values_are_uniform_under_the_claim(runs: int) -> None:
    """Kolmogorov-Smirnov at 1e-4 for each exact test; unions and counts: never too small."""
    for name, values in p_values(runs, trials=8, rounds=16).items():
        if name in NOT_RANDOM:
            assert (values == 1).all()
        else:
            assert stats.kstest(values, "uniform", alternative="greater").pvalue > 1e-4, name
        if name not in (*NOT_RANDOM, *NEVER_TOO_SMALL):
            assert stats.kstest(values, "uniform").pvalue > 1e-4, name


@pytest.mark.long
@pytest.mark.parametrize(("noise", "runs"), [(1.05, 60), pytest.param(3.0, 200, marks=pytest.mark.campaign)])
def test_noise_above_the_guarantee_violates_nothing(noise: float, runs: int) -> None:
    for name, values in p_values(runs, seed=1, trials=6, rounds=8, noise=noise).items():
        assert stats.kstest(values, "uniform", alternative="greater").pvalue > 1e-4, name


@pytest.mark.long
@pytest.mark.parametrize(
    "setting",
    [NoiseSetting(trials=8, rounds=10), NoiseSetting(trials=8, rounds=10, local=True, replace=False)],
    ids=["global", "local"],
)
def test_residuals_of_raw_vectors_follow_the_distributions_of_the_contract(setting: NoiseSetting) -> None:
    """Each distribution by Kolmogorov-Smirnov over all trials and rounds of 10 runs at 1e-4; this checks the
    definitions.
    """
    runs = [play(np.random.default_rng(seed), setting) for seed in range(10)]
    uniforms = {
        name: np.concatenate([run_uniforms[name] for run_uniforms in map(_uniform, runs)]) for name in _uniform(runs[0])
    }
    for name, values in uniforms.items():
        assert stats.kstest(values, "uniform").pvalue > 1e-4, name


def _uniform(measured: NoiseMeasurements) -> dict[str, NDArray[np.float64]]:
    residuals = measured.residuals
    sigma = measured.sigma
    assert residuals is not None
    phases = residuals.low_bits[:, :, 0] / np.sqrt(residuals.low_bits_count[:, :, 0] / 2)
    return {
        "total": stats.chi2.cdf(residuals.total / sigma**2, residuals.total_freedom).ravel(),
        "weight": stats.chi2.cdf(residuals.squares[..., 0] / sigma**2, residuals.freedom[..., 0]).ravel(),
        "bias": stats.chi2.cdf(residuals.squares[..., 1] / sigma**2, residuals.freedom[..., 1]).ravel(),
        "projections": stats.norm.cdf(residuals.projections / sigma[..., None]).ravel(),
        "gradient": stats.norm.cdf(residuals.gradient / sigma).ravel(),
        "sample": stats.norm.cdf(residuals.sample).ravel(),
        "strides": stats.chi2.cdf(residuals.strides[:, :, 0], stride_sizes(residuals.parameters)).ravel(),
        "innovations": stats.norm.cdf(measured.used_innovations),
        **{kind: stats.norm.cdf(phases[..., at]).ravel() for at, kind in enumerate(LOW_BITS_KINDS)},
    }


@pytest.mark.few_cases(5)
@pytest.mark.parametrize("breach", BREACHES, ids=[breach.name for breach in BREACHES])
def test_every_breach_is_found_by_a_test_that_is_made_for_it(breach: Breach) -> None:
    """Two runs of each; `tests.validation.breaches` plays 1,000."""
    study_result = _study_breach(breach, partial(synthetic_run, breach), range(2))
    assert breach.below or study_result.expected == study_result.runs == study_result.found


def test_an_honest_synthetic_federation_breaks_nothing() -> None:
    for seed in range(5):
        tests, missing = run_family(play(np.random.default_rng(100 + seed), NoiseSetting(trials=10)))
        assert not any(test.violated for test in tests)
        # It opens nothing, and learns of too few trials.
        assert {name for name, _ in missing} <= {TestName.DISTINGUISHER, *OF_OPENED}


def test_limits_of_detection_are_found_nine_times_in_ten() -> None:
    """The scale tests at their limit: 400 runs, binomial bounds at 1e-4."""
    rng = np.random.default_rng(5)
    level = TestName.NOISE_ALONG_RECORD.level
    ratio = detectable_ratio(300, level)
    runs = (draw_measured(rng, 10, 30, along=ratio, silent=0.0, measured_residuals=False) for _ in range(400))
    detections = sum(noise_along_record(run).violated for run in runs)
    assert stats.binom.ppf(1e-4, 400, 0.9) <= detections <= stats.binom.ppf(1 - 1e-4, 400, 0.9)


def test_limits_of_drift_and_sharing_hold_by_simulation() -> None:
    rng = np.random.default_rng(6)
    mean = detectable_mean(50, 1e-3)
    detections = sum(student_p(mean + rng.standard_normal(50))[1] < 1e-3 for _ in range(1000))
    assert stats.binom.ppf(1e-4, 1000, 0.9) <= detections <= stats.binom.ppf(1 - 1e-4, 1000, 0.9)
    shift = _detectable_shift(80, 2, 1e-3)
    groups = shift + rng.standard_normal((1000, 2, 40))
    values = [
        stats.f.sf(40 * np.sum(pair.mean(axis=1) ** 2) / 2 / np.mean(pair.var(axis=1, ddof=1)), 2, 78)
        for pair in groups
    ]
    assert stats.binom.ppf(1e-4, 1000, 0.9) <= np.sum(np.array(values) < 1e-3) <= stats.binom.ppf(1 - 1e-4, 1000, 0.9)
    share = _detectable_share(20, 160, 1e-3)
    sums = math.sqrt(1 - share + 20 * share) * rng.standard_normal((1000, 160))
    residual_squares = (1 - share) * rng.chisquare(160 * 19, 1000) / (160 * 19)
    ratio = np.mean(sums**2, axis=1) / residual_squares
    hits = int(np.sum(ratio > stats.f.isf(5e-4, 160, 160 * 19)))
    assert stats.binom.ppf(1e-4, 1000, 0.9) <= hits <= stats.binom.ppf(1 - 1e-4, 1000, 0.9)


def test_chi_square_quantiles_and_the_published_reach() -> None:
    for freedom in (1, 300, 4_000_000):
        for p in (1e-6, 0.05, 0.5, 0.9, 1 - 1e-6):
            assert chi_square_quantile(p, freedom) == pytest.approx(stats.chi2.ppf(p, freedom), rel=1e-9)
    assert 1 - detectable_ratio(200 * 30 * 649, 1.5e-4) == pytest.approx(0.0017, abs=1e-4)


@pytest.mark.parametrize(("largest", "count"), [(0.1, 1), (0.1, 40), (2.0, 40), (5.0, 40)])
def test_the_largest_of_many_draws_is_tested_on_both_sides(largest: float, count: int) -> None:
    below = (2 * stats.norm.cdf(largest) - 1) ** count
    assert largest_p(largest, count) == pytest.approx(min(1.0, 2 * min(below, 1 - below)), rel=1e-6)


def test_the_cosine_of_independent_vectors_has_its_tail() -> None:
    rng = np.random.default_rng(7)
    pairs = rng.standard_normal((2, 20_000, 5))
    cosines = np.abs(np.sum(pairs[0] * pairs[1], axis=1)) / np.prod(np.linalg.norm(pairs, axis=2), axis=0)
    assert stats.kstest([cosine_tail(float(c), 5) for c in cosines[:2000]], "uniform").pvalue > 1e-4
    for p in (0.3, 1e-6, 1e-12):
        assert cosine_tail(cosine_at(p, 16), 16) == pytest.approx(p, rel=1e-6)


@pytest.mark.parametrize(("count", "group"), [(2, 100), (3000, 10_000), (5000, 2100), (4097, 4096)])
def test_the_likest_pair_is_found_wherever_it_is(count: int, group: int) -> None:
    rng = np.random.default_rng(count)
    vectors = rng.standard_normal((count, 6))
    blocks = [slice(low, low + group) for low in range(0, count, group)]
    assert _likest_pair(vectors, group).pairs == sum(math.comb(len(vectors[rows]), 2) for rows in blocks)
    first = int(rng.integers(min(count, group) - 1))
    vectors[first + 1] = -3 * vectors[first]
    likest_pair = _likest_pair(vectors, group)
    assert (likest_pair.first, likest_pair.second, likest_pair.cosine) == (first, first + 1, pytest.approx(1.0))


def with_sample(measured: NoiseMeasurements, sample: NDArray[np.float64]) -> NoiseMeasurements:
    assert measured.residuals is not None
    return replace(measured, residuals=replace(measured.residuals, sample=sample[:, :, None]))


def test_equal_noise_in_opposite_trials_cancels_and_is_found() -> None:
    honest = draw_measured(np.random.default_rng(8), 20, 30)
    balanced = with_sample(honest, honest.sample - honest.sample.mean(axis=0))
    assert shared_over_trials(balanced, LEVEL).p_value < LEVEL
    assert shared_over_rounds(balanced, LEVEL).p_value > LEVEL
    result = repeated_noise(balanced)
    assert result.violated
    assert result.looks[0].question == "all-trials"


def test_a_weak_moving_average_is_found_and_its_correlation_told() -> None:
    """A correlation of .06 between rounds in a row: found from them, not yet from sums over all rounds."""
    honest = draw_measured(np.random.default_rng(17), 20, 31)
    draws = honest.sample
    moved = (draws[:, 1:] + 0.06 * draws[:, :-1]) / math.sqrt(1.0036)
    measurements = with_sample(honest, np.concatenate([draws[:, :1], moved], axis=1))
    result = correlated_noise(measurements)
    assert result.violated
    assert result.looks[0] == replace(serial_correlation(measurements, LEVEL), limit=result.limit)
    assert result.measured == pytest.approx(0.06, abs=0.02)
    assert shared_over_rounds(measurements, LEVEL).p_value > LEVEL


def test_noise_above_the_guarantee_is_brought_down_and_honest_noise_is_left_alone() -> None:
    honest = draw_measured(np.random.default_rng(18), 20, 30)
    np.testing.assert_allclose(honest.even_sample, honest.sample, rtol=0.05)
    owners = np.array([tensor for _, tensor in PLACES])
    louder = with_sample(honest, honest.sample * np.where(owners == "bias", 3.0, 1.0))
    assert louder.even_sample[:, :, owners == "bias"].std() == pytest.approx(1.0, abs=1e-2)
    weight = owners == "weight"
    np.testing.assert_allclose(louder.even_sample[:, :, weight], honest.sample[:, :, weight], rtol=0.05)


def test_only_the_true_side_is_left_when_secrets_are_opened() -> None:
    honest = draw_measured(np.random.default_rng(9), 4, 3).residuals
    assert honest is not None
    shape = (4, 3, 2, len(PLACES))
    sides = np.broadcast_to(np.array([0.0, 1.0])[:, None], shape)
    doubled = ("low_bits", "low_bits_count", "strides", "signal")
    two = replace(honest, **{name: np.repeat(getattr(honest, name), 2, axis=2) for name in doubled}, sample=sides)
    truth = np.array([0, 1, 1, 0])[:, None] * np.ones((1, 3), dtype=np.int64)
    opened = two.of_true_hypothesis(truth)
    assert opened.layout.sides == 1
    np.testing.assert_array_equal(opened.sample[:, :, 0, 0], truth)
    assert_refused("have 2 sides", lambda: replace(draw_measured(np.random.default_rng(9), 4, 3), residuals=two))


@pytest.mark.parametrize("step", [0.0, 1e-3, 0.05])
def test_rounding_to_float32_raises_no_alarm_and_hides_what_is_finer(step: float) -> None:
    """Noise on a grid that rounding explains is honest; one on a grid of 40 steps of rounding is found."""
    honest = draw_measured(np.random.default_rng(19), 20, 30)
    assert honest.residuals is not None
    for size, broken in ((1, False), (40, True)):
        values = honest.sample if step == 0 else np.round(honest.sample / (size * step)) * (size * step)
        measurements = with_sample(honest, values)
        assert measurements.residuals is not None
        measurements = replace(measurements, residuals=replace(measurements.residuals, grain=np.full((20, 30), step)))
        tests = {test.name: test for test in run_family(measurements)[0]}
        assert tests[TestName.REPEATED_NOISE].violated == (broken and step == 1e-3)


def test_the_noise_of_one_round_of_all_trials_is_looked_at() -> None:
    honest = draw_measured(np.random.default_rng(21), 20, 30)
    assert honest.residuals is not None
    total = honest.residuals.total.copy()
    total[:, 4] *= 0.9
    result = noise_round(replace(honest, residuals=replace(honest.residuals, total=total)))
    assert result.violated
    assert result.place == "round 5 of all trials"


def test_a_run_that_passes_the_limit_of_all_rounds_together_is_found() -> None:
    """Four rounds at the claimed sensitivity and one below keep the limit of each, and pass that of four rounds."""
    honest = draw_measured(np.random.default_rng(40), 3, 5, noise_multiplier=2.0, silent=0.0)
    sensitivity = np.where(np.arange(5) < 4, 1.0, 0.1) * np.ones((3, 1))
    for limit, is_within_limit in ((1.001, False), (1.1, True)):
        run = replace(honest, sensitivity=sensitivity, largest_mu=limit)
        result = next(test for test in run_family(run)[0] if test.name == "sensitivity")
        assert result.violated is not is_within_limit
        assert re.fullmatch("trial 0 round 1" if is_within_limit else "all rounds .*trial 0 .*", result.place)


def test_a_sensitivity_above_the_claim_is_found_and_rounding_is_not() -> None:
    honest = draw_measured(np.random.default_rng(10), 3, 3, noise_multiplier=8.0)
    for excess, violated in ((1 + 1e-6, False), (1.001, True)):
        sensitivity = honest.sensitivity.copy()
        sensitivity[1, 2] = excess
        result = next(t for t in run_family(replace(honest, sensitivity=sensitivity))[0] if t.name == "sensitivity")
        assert (result.violated, result.place) == (violated, "trial 1 round 3")


def test_what_cannot_be_tested_says_why() -> None:
    rng = np.random.default_rng(11)
    missing = dict(run_family(draw_measured(rng, 1, 1, silent=0.0))[1])
    assert missing[TestName.SIGNAL_ROUND] is NotTestedReason.ONE_TRIAL
    assert missing[TestName.SIGNAL_TRIAL] is NotTestedReason.ONE_ROUND
    assert missing[TestName.DISTINGUISHER] is NotTestedReason.ONE_SIDE
    assert missing[TestName.REPEATED_NOISE] is NotTestedReason.TOO_FEW
    assert missing[TestName.CORRELATED_NOISE] is NotTestedReason.TOO_FEW
    tests, nothing = run_family(replace(draw_measured(rng, 4, 4, silent=1.0), residuals=None))
    assert [test.name for test in tests] == [TestName.SENSITIVITY]
    alone = {TestName.SCORES, TestName.CANDIDATES, TestName.CANARIES}
    assert set(dict(nothing)) | {TestName.SENSITIVITY} | alone >= set(TestName) - {TestName.DISTINGUISHER}
    assert dict(nothing)[TestName.NOISE_ALONG_RECORD] is NotTestedReason.NO_DIFFERENCE


def test_no_noise_at_all_is_violated_without_a_fault() -> None:
    honest = draw_measured(np.random.default_rng(13), 4, 5, silent=0.0)
    residuals = honest.residuals
    assert residuals is not None
    arrays = ("total", "squares", "projections", "gradient", "strides", "sample")
    none = replace(residuals, **{name: getattr(residuals, name) * 0 for name in arrays})
    increments = np.where(honest.members, 0.5, -0.5)[:, None] * (honest.sensitivity / honest.sigma) ** 2
    tests, _ = run_family(replace(honest, residuals=none, increments=increments))
    scales = {TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD, TestName.NOISE_TENSOR, TestName.NOISE_ROUND}
    assert scales <= {test.name for test in tests if test.violated}
    assert all(0 <= test.p_value <= 1 for test in tests)
    for question in (shared_over_trials, shared_over_rounds):
        with pytest.raises(TestNotApplicableError, match="no-noise"):
            question(replace(honest, residuals=none), LEVEL)


def test_the_table_of_residuals_is_read_as_it_was_written() -> None:
    residuals = draw_measured(np.random.default_rng(15), 3, 4).residuals
    assert residuals is not None
    index = {"trial": np.repeat([7, 8, 9], 4), "round": np.tile([1, 2, 3, 4], 3)}
    table = pd.DataFrame(index | {name: values.ravel() for name, values in residuals.columns().items()})
    read = NoiseStatistics.of_table(table.sample(frac=1, random_state=0))
    for name in (
        "total",
        "total_freedom",
        "squares",
        "freedom",
        "projections",
        "gradient",
        "low_bits",
        "low_bits_count",
        "grain",
        "strides",
        "sample",
    ):
        single = name in ("projections", "strides", "sample")
        np.testing.assert_allclose(getattr(read, name), getattr(residuals, name), rtol=1e-6 if single else 0)
        assert getattr(read, name).dtype == getattr(residuals, name).dtype
    assert read.layout == residuals.layout
    assert read.projections.shape[-1] == DIRECTIONS


def test_measurements_that_do_not_fit_are_named() -> None:
    fine = draw_measured(np.random.default_rng(16), 3, 4)
    assert_refused(r"sensitivities .*\(3,\)", replace, fine, sensitivity=fine.sensitivity[:, 0])
    assert_refused(r"noise scale .*not positive", replace, fine, sigma=fine.sigma * 0)
    assert_refused("multiplier is 0", replace, fine, noise_multiplier=0.0)


_SHAPE = (60, 15, 650)
_PICKED = np.random.default_rng(9).random(_SHAPE[0]) < 0.5
LOUDER: dict[str, tuple[Any, float]] = {
    "three rounds": (np.s_[:, :3], 3.0),
    "one round": (np.s_[:, 4], 10.0),
    "half of the trials": (np.s_[_PICKED], 2.0),
    "trial-rounds": (np.random.default_rng(8).random(_SHAPE[:2]) < 0.4, 1.7),
    "the bias": (np.s_[..., 640:], 10.0),
    "one coordinate": (np.s_[..., 649], 1000.0),
    "everything": (np.s_[:], 4.0),
    "half of the coordinates": (np.s_[..., ::2], 2.0),
}


@pytest.mark.long
@pytest.mark.parametrize("where", LOUDER)
def test_more_noise_than_was_claimed_somewhere_violates_nothing(where: str) -> None:
    tests, _ = run_family(_louder(*LOUDER[where]))
    assert [(test.name, test.p_value) for test in tests if test.violated] == []


def _louder(where: Any, factor: float) -> NoiseMeasurements:
    """Play a made-up run with so many times the claimed noise somewhere."""
    scale = np.ones(_SHAPE)
    scale[where] = factor
    sizes = NoiseSetting(trials=_SHAPE[0], rounds=_SHAPE[1])
    breach = Breach("louder", (), lambda at: at.own * scale[:, at.number - 1])
    return play(np.random.default_rng(5), sizes, breach)


@pytest.mark.parametrize("sets", [1000, pytest.param(4000, marks=pytest.mark.campaign)])
def test_joint_correlations_of_few_rounds_have_the_tail_that_is_said(sets: int) -> None:
    """Sets of 112 coordinates over 100 rounds: the shares under .01 and .001, each binomial at 1e-4."""
    draw = np.random.default_rng(50)
    degrees, scale, start = _joint_distribution(112, 100)
    vectors = draw.standard_normal((sets, 112, 100))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    totals = 50 * (np.square(vectors.swapaxes(1, 2) @ vectors).sum(axis=(1, 2)) - 112)
    p_values = special.gammaincc(degrees, (totals - start) / scale)
    for level in (0.01, 0.001):
        assert stats.binom.sf(np.sum(p_values < level) - 1, sets, level) > 1e-4
        assert stats.binom.cdf(np.sum(p_values < level), sets, level) > 1e-4
    with pytest.raises(TestNotApplicableError, match="too-few"):
        joint_places(draw_measured(draw, 2, 10), LEVEL)


@pytest.mark.parametrize("noise", [1.0, 1.3])
@pytest.mark.parametrize(("question", "trials"), [(even_sizes, 12), (carried_sizes, 12), (tails, 120)])
def test_sizes_and_tails_of_honest_noise_are_not_accused(question: Any, trials: int, noise: float) -> None:
    """The share of p-values under each level is at most the level, also of noise that is louder than claimed."""
    draw = np.random.default_rng((60, int(10 * noise)))
    runs = 1200 // trials
    test_p_values = np.array(
        [question(draw_measured(draw, trials, 10, noise=noise), LEVEL).p_value for _ in range(runs)]
    )
    assert stats.kstest(test_p_values, "uniform", alternative="greater").pvalue > 1e-4
    assert test_p_values.min() > 1e-4


def test_what_was_not_measured_is_not_called_absent() -> None:
    """If the differing unit takes part in secret, only what is known by side is left."""
    honest = draw_measured(np.random.default_rng(52), 6, 8)
    assert honest.residuals is not None
    missing = dict(run_family(replace(honest, residuals=honest.residuals.without_hypothesis_fields()))[1])
    for name in (TestName.NOISE_TOTAL, TestName.NOISE_ROUND, TestName.DRIFT_ALONG_GRADIENTS):
        assert missing[name] is NotTestedReason.NOT_MEASURED, name


def test_of_too_many_trials_some_are_sampled_and_blurred_ones_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl_audit.verdict.run_measurements.MOST_SAMPLED", 50 * 30 * len(PLACES))
    honest = draw_measured(np.random.default_rng(53), 120, 30)
    assert honest.residuals is not None
    values = honest.residuals.sample.copy()
    values[4, 2] = np.nan
    measurements = replace(honest, residuals=replace(honest.residuals, sample=values))
    assert (len(measurements.sample), int(measurements.sampled_trials.sum()), bool(measurements.sampled_trials[4])) == (
        40,
        40,
        False,
    )
    assert not any(test.violated for test in run_family(measurements)[0])
