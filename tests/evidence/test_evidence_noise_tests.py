"""Each test of the verdict's family: exact under the claim, blind to noise above it, as powerful as it says."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from noise_laws import DIRECTIONS, draw_measured
from numpy.typing import NDArray
from scipy import stats

from experiments.studies.breaches import BREACHES
from experiments.studies.synthetic_noise import HONEST, Federation, Setting, play
from fl_audit.adversaries.noise_meter import LOW_BITS_KINDS, Residuals
from fl_audit.errors import InputError
from fl_audit.evidence.belief.family import FAMILY_LEVEL, TestName, TestResult, percent, times
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.noise_drift import detectable_mean, detectable_shift, student_p
from fl_audit.evidence.belief.noise_repeats import cosine_at, cosine_tail, likest_pair, repeated_noise
from fl_audit.evidence.belief.noise_scale import chi_square_quantile, detectable_ratio, noise_along_record, noise_total
from fl_audit.evidence.belief.noise_sharing import (
    detectable_share,
    serial_correlation,
    shared_over_rounds,
    shared_over_worlds,
)
from fl_audit.evidence.belief.verdict import run_family

DISCRETE = {TestName.SENSITIVITY}
UNIONS = {TestName.NOISE_TENSOR, TestName.LOW_BITS}


def p_values(count: int, seed: int = 0, **settings: float) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = {}
    for _ in range(count):
        for test in run_family(draw_measured(rng, **settings))[0]:
            found.setdefault(test.name, []).append(test.p_value)
    return {name: np.array(values) for name, values in found.items()}


def test_the_shares_of_the_family_add_up_to_its_level() -> None:
    family = [name for name in TestName if name is not TestName.SCORES]
    assert math.fsum(name.level for name in family) == pytest.approx(FAMILY_LEVEL, rel=1e-12)


def test_p_values_are_uniform_under_the_claim() -> None:
    """Kolmogorov-Smirnov at 1e-4 for each of 8 exact tests; unions and nothing random: never too small."""
    for name, values in p_values(400, worlds=6, rounds=8).items():
        if name in DISCRETE:
            assert (values == 1).all()
        else:
            assert stats.kstest(values, "uniform", alternative="greater").pvalue > 1e-4, name
        if name not in DISCRETE | UNIONS:
            assert stats.kstest(values, "uniform").pvalue > 1e-4, name


@pytest.mark.parametrize("noise", [1.05, 3.0])
def test_noise_above_the_promise_violates_nothing(noise: float) -> None:
    for name, values in p_values(200, seed=1, worlds=6, rounds=8, noise=noise).items():
        assert stats.kstest(values, "uniform", alternative="greater").pvalue > 1e-4, name


@pytest.mark.parametrize(
    "setting",
    [Setting(worlds=8, rounds=10), Setting(worlds=8, rounds=10, local=True, replace=False)],
    ids=["global", "local"],
)
def test_residuals_of_raw_vectors_follow_the_laws_of_the_contract(setting: Setting) -> None:
    """Each law by Kolmogorov-Smirnov over all worlds and rounds of 10 runs at 1e-4; this checks the definitions."""
    runs = [play(np.random.default_rng(seed), setting) for seed in range(10)]
    seen = {name: np.concatenate([part[name] for part in map(_uniform, runs)]) for name in _uniform(runs[0])}
    for name, values in seen.items():
        assert stats.kstest(values, "uniform").pvalue > 1e-4, name


def _uniform(measured: Measured) -> dict[str, NDArray[np.float64]]:
    seen, sigma = measured.residuals, measured.sigma
    assert seen is not None
    true = np.where(measured.members, 0, 1)
    phases = seen.low_bits[np.arange(len(true)), :, true] / np.sqrt(seen.low_bits_count[:, :, 0] / 2)
    return {
        "total": stats.chi2.cdf(seen.total / sigma**2, seen.total_freedom).ravel(),
        "weight": stats.chi2.cdf(seen.squares[..., 0] / sigma**2, seen.freedom[..., 0]).ravel(),
        "bias": stats.chi2.cdf(seen.squares[..., 1] / sigma**2, seen.freedom[..., 1]).ravel(),
        "projections": stats.norm.cdf(seen.projections / sigma[..., None]).ravel(),
        "gradient": stats.norm.cdf(seen.gradient / sigma).ravel(),
        "innovations": stats.norm.cdf(measured.used_innovations),
        **{kind: stats.norm.cdf(phases[..., at]).ravel() for at, kind in enumerate(LOW_BITS_KINDS)},
    }


@pytest.mark.parametrize(("federation", "tests"), BREACHES, ids=[federation.name for federation, _ in BREACHES])
def test_every_breach_is_found_by_the_test_that_is_made_for_it(
    federation: Federation, tests: tuple[TestName, ...]
) -> None:
    setting = Setting()
    for seed in range(2):
        broken = {test.name for test in run_family(play(np.random.default_rng(seed), setting, federation))[0]
                  if test.violated}  # fmt: skip
        assert set(tests) <= broken


def test_an_honest_synthetic_federation_breaks_nothing() -> None:
    for seed in range(5):
        tests, missing = run_family(play(np.random.default_rng(100 + seed), Setting(worlds=10), HONEST))
        assert not any(test.violated for test in tests)
        assert not missing


def test_limits_of_detection_are_found_nine_times_in_ten() -> None:
    """The scale tests at their limit: 400 runs, binomial bounds at 1e-4."""
    rng = np.random.default_rng(5)
    level = TestName.NOISE_ALONG_RECORD.level
    ratio = detectable_ratio(300, level)
    runs = (draw_measured(rng, 10, 30, along=ratio, silent=0.0, measured_residuals=False) for _ in range(400))
    found = sum(noise_along_record(run).violated for run in runs)  # type: ignore[union-attr]
    assert stats.binom.ppf(1e-4, 400, 0.9) <= found <= stats.binom.ppf(1 - 1e-4, 400, 0.9)


def test_limits_of_drift_and_sharing_hold_by_simulation() -> None:
    rng = np.random.default_rng(6)
    mean = detectable_mean(50, 1e-3)
    found = sum(student_p(mean + rng.standard_normal(50))[1] < 1e-3 for _ in range(1000))
    assert stats.binom.ppf(1e-4, 1000, 0.9) <= found <= stats.binom.ppf(1 - 1e-4, 1000, 0.9)
    shift = detectable_shift(80, 2, 1e-3)
    groups = shift + rng.standard_normal((1000, 2, 40))
    values = [stats.f.sf(40 * np.sum(pair.mean(axis=1) ** 2) / 2 / np.mean(pair.var(axis=1, ddof=1)), 2, 78)
              for pair in groups]  # fmt: skip
    assert stats.binom.ppf(1e-4, 1000, 0.9) <= np.sum(np.array(values) < 1e-3) <= stats.binom.ppf(1 - 1e-4, 1000, 0.9)
    share = detectable_share(20, 160, 1e-3)
    sums = math.sqrt(1 - share + 20 * share) * rng.standard_normal((1000, 160))
    rest = (1 - share) * rng.chisquare(160 * 19, 1000) / (160 * 19)
    ratio = np.mean(sums**2, axis=1) / rest
    hits = int(np.sum(ratio > stats.f.isf(5e-4, 160, 160 * 19)))
    assert stats.binom.ppf(1e-4, 1000, 0.9) <= hits <= stats.binom.ppf(1 - 1e-4, 1000, 0.9)


def test_chi_square_quantiles_and_the_published_reach() -> None:
    for freedom in (1, 300, 4_000_000):
        for p in (1e-6, 0.05, 0.5, 0.9, 1 - 1e-6):
            assert chi_square_quantile(p, freedom) == pytest.approx(stats.chi2.ppf(p, freedom), rel=1e-9)
    assert 1 - detectable_ratio(200 * 30 * 649, 1.5e-4) == pytest.approx(0.0017, abs=1e-4)


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
    assert likest_pair(vectors, group).pairs == sum(math.comb(len(vectors[rows]), 2) for rows in blocks)
    first = int(rng.integers(min(count, group) - 1))
    vectors[first + 1] = -3 * vectors[first]
    found = likest_pair(vectors, group)
    assert (found.first, found.second, found.cosine) == (first, first + 1, pytest.approx(1.0))


def test_equal_noise_in_opposite_worlds_cancels_and_is_found() -> None:
    rng = np.random.default_rng(8)
    honest = draw_measured(rng, 20, 30)
    assert honest.residuals is not None
    flat = honest.residuals.projections - honest.residuals.projections.mean(axis=0)
    balanced = replace(honest, residuals=replace(honest.residuals, projections=flat))
    assert shared_over_worlds(balanced).violated  # type: ignore[union-attr]
    assert not shared_over_rounds(balanced).violated  # type: ignore[union-attr]


def test_a_weak_moving_average_is_found_and_its_correlation_told() -> None:
    """A correlation of .099 between rounds in a row: found from them, not yet from sums over all rounds."""
    honest = draw_measured(np.random.default_rng(17), 20, 31)
    assert honest.residuals is not None
    draws = honest.residuals.projections
    moved = (draws[:, 1:] + 0.1 * draws[:, :-1]) / math.sqrt(1.01)
    seen = replace(honest.residuals, projections=np.concatenate([draws[:, :1], moved], axis=1))
    found = serial_correlation(replace(honest, residuals=seen))
    assert isinstance(found, TestResult)
    assert found.violated
    told = float(found.measured.removeprefix("a correlation of ").split()[0])
    assert told == pytest.approx(0.099, abs=0.03)
    assert not shared_over_rounds(replace(honest, residuals=seen)).violated  # type: ignore[union-attr]


def test_the_low_bits_are_read_under_the_true_hypothesis() -> None:
    rng = np.random.default_rng(9)
    honest = draw_measured(rng, 10, 10)
    assert honest.residuals is not None
    wrong = np.where(honest.members, 1, 0)
    grain = honest.residuals.low_bits.copy()
    grain[np.arange(10), :, wrong] = 60.0  # agreement under the hypothesis that is not true
    assert not _low_bits_violated(honest, grain)
    grain[np.arange(10), :, 1 - wrong, 1] = 30.0
    assert _low_bits_violated(honest, grain)
    grain[:] = math.nan
    missing = dict(run_family(replace(honest, residuals=replace(honest.residuals, low_bits=grain)))[1])
    assert "low bits" in missing["low-bits"]


def _low_bits_violated(measured: Measured, grain: NDArray[np.float64]) -> bool:
    assert measured.residuals is not None
    changed = replace(measured, residuals=replace(measured.residuals, low_bits=grain))
    return next(test for test in run_family(changed)[0] if test.name == "low-bits").violated


def test_a_run_that_passes_the_limit_of_all_rounds_together_is_found() -> None:
    """Four rounds at the claimed sensitivity and one below keep the limit of each, and pass that of four rounds."""
    honest = draw_measured(np.random.default_rng(40), 3, 5, noise_multiplier=2.0, silent=0.0)
    sensitivity = np.where(np.arange(5) < 4, 1.0, 0.1) * np.ones((3, 1))
    for limit, kept in ((1.001, False), (1.1, True)):
        run = replace(honest, sensitivity=sensitivity, largest_mu=limit)
        found = next(test for test in run_family(run)[0] if test.name == "sensitivity")
        assert found.violated is not kept
        assert found.where == ("world 0 round 1" if kept else "all rounds of world 0 together")


def test_a_sensitivity_above_the_claim_is_found_and_rounding_is_not() -> None:
    honest = draw_measured(np.random.default_rng(10), 3, 3, noise_multiplier=8.0)
    for excess, violated in ((1 + 1e-6, False), (1.001, True)):
        sensitivity = honest.sensitivity.copy()
        sensitivity[1, 2] = excess
        found = next(t for t in run_family(replace(honest, sensitivity=sensitivity))[0] if t.name == "sensitivity")
        assert (found.violated, found.where) == (violated, "world 1 round 3")


def test_what_cannot_be_tested_says_why() -> None:
    rng = np.random.default_rng(11)
    tests, missing = run_family(draw_measured(rng, 1, 1, silent=0.0))
    assert set(dict(missing)) == {"drift-along-record", "drift-along-gradients", "repeated-noise", "shared-over-worlds",
                                  "shared-over-rounds", "serial-correlation"}  # fmt: skip
    assert all(reason.endswith(".") for _, reason in missing)
    nothing = replace(draw_measured(rng, 4, 4, silent=1.0), residuals=None)
    tests, missing = run_family(nothing)
    assert [test.name for test in tests] == ["sensitivity"]
    assert len(missing) == 10
    assert "D and D' differed by less than" in dict(missing)["noise-along-record"]


def test_one_world_tests_all_but_what_needs_another() -> None:
    tests, missing = run_family(draw_measured(np.random.default_rng(12), 1, 30))
    assert [name for name, _ in missing] == ["shared-over-worlds"]
    assert not any(test.violated for test in tests)


def test_no_noise_at_all_is_violated_without_a_fault() -> None:
    honest = draw_measured(np.random.default_rng(13), 4, 5, silent=0.0)
    seen = honest.residuals
    assert seen is not None
    none = replace(seen, total=seen.total * 0, squares=seen.squares * 0, projections=seen.projections * 0,
                   gradient=seen.gradient * 0)  # fmt: skip
    increments = np.where(honest.members, 0.5, -0.5)[:, None] * (honest.sensitivity / honest.sigma) ** 2
    tests, missing = run_family(replace(honest, residuals=none, increments=increments))
    assert {test.name for test in tests if test.violated} == {"noise-total", "noise-along-record", "noise-tensor"}
    assert {name for name, _ in missing} == {"shared-over-worlds", "shared-over-rounds", "serial-correlation"}


def test_every_text_is_plain_and_carries_its_number() -> None:
    tests, _ = run_family(draw_measured(np.random.default_rng(14)))
    assert noise_total(draw_measured(np.random.default_rng(14))) == tests[0]
    assert "0.55 % below the promise" in tests[0].limit
    assert repeated_noise(draw_measured(np.random.default_rng(14))).statistic == tests[5].statistic  # type: ignore[union-attr]
    for test in tests:
        assert test.measured
        assert test.promised
        assert test.limit
    assert [percent(share) for share in (0.0, 1.0, 0.0021, 0.5, 0.99996)] == ["0 %", "100 %", "0.21 %", "50 %",
                                                                            "99.996 %"]  # fmt: skip
    assert [times(ratio) for ratio in (1.0, 0.98, 1.42, 25.0, 0.9999)] == ["1.000", "0.98", "1.42", "25", "0.99990"]


def test_the_table_of_residuals_is_read_as_it_was_written() -> None:
    seen = draw_measured(np.random.default_rng(15), 3, 4).residuals
    assert seen is not None
    index = {"world": np.repeat([7, 8, 9], 4), "round": np.tile([1, 2, 3, 4], 3)}
    table = pd.DataFrame(index | {name: values.ravel() for name, values in seen.columns().items()})
    read = Residuals.of_table(table.sample(frac=1, random_state=0))
    for name in ("total", "total_freedom", "squares", "freedom", "projections", "gradient", "low_bits",
                 "low_bits_count"):  # fmt: skip
        np.testing.assert_array_equal(getattr(read, name), getattr(seen, name))
        assert getattr(read, name).dtype == getattr(seen, name).dtype
    assert read.tensors == seen.tensors
    assert read.projections.shape[-1] == DIRECTIONS


def test_measurements_that_do_not_fit_are_named() -> None:
    fine = draw_measured(np.random.default_rng(16), 3, 4)
    with pytest.raises(InputError, match=r"sensitivities have shape \(3,\)"):
        replace(fine, sensitivity=fine.sensitivity[:, 0])
    with pytest.raises(InputError, match="claimed noise scale is not positive"):
        replace(fine, sigma=fine.sigma * 0)
    with pytest.raises(InputError, match="noise multiplier is 0"):
        replace(fine, noise_multiplier=0.0)
