"""NaN and infinity end in an error or in a test that is not offered, and never in a guarantee that seems kept."""

from dataclasses import fields, replace

import numpy as np
import pytest

from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.verdict.declared_tests import NotTestedReason, TestName, TestResult, bonferroni
from fl_audit.verdict.judging import FAMILY, judge, judge_scores, run_family
from fl_audit.verdict.noise_scale import NoiseAlongTarget, SquareSum
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.verdict.verdict import Verdict
from tests.builders.refusals import assert_refused
from tests.verdict.noise_distributions import draw_measured

GUARANTEE = derive_guarantee(Claim("replace-record", gaussian_rounds(8.0, 30), 0.01))
OF_RUN = ("increments", "sensitivity", "sigma", "scores")
OF_RESIDUALS = ("total", "squares", "projections", "gradient", "low_bits", "strides", "sample")


@pytest.fixture(scope="module")
def honest() -> NoiseMeasurements:
    measured = draw_measured(np.random.default_rng(1), 20, 30)
    return replace(measured, scores=measured.innovations)


def spoiled(measured: NoiseMeasurements, name: str, value: float) -> NoiseMeasurements:
    """Return the same with one number replaced."""
    at = measured if name in OF_RUN else measured.residuals
    assert at is not None
    array = np.array(getattr(at, name), dtype=np.float64)
    array[(1, 2) + (0,) * (array.ndim - 2)] = value
    if name in OF_RUN:
        return replace(measured, **{name: array})
    assert measured.residuals is not None
    return replace(measured, residuals=replace(measured.residuals, **{name: array}))


@pytest.mark.few_cases(10)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [*OF_RUN, *OF_RESIDUALS])
def test_a_number_that_is_none_is_refused_or_silences_tests_and_hides_no_breach(
    name: str, value: float, honest: NoiseMeasurements
) -> None:
    """Beside one such number half of the noise is missing."""
    assert honest.residuals is not None
    assert {*OF_RESIDUALS} <= {field.name for field in fields(honest.residuals)}
    halved = draw_measured(np.random.default_rng(2), 20, 30, noise=0.5)
    halved = replace(halved, scores=halved.innovations)
    accepted_names = (
        {"scores", "projections", "gradient", "low_bits", "sample", "strides"} if np.isnan(value) else set()
    )
    if name not in accepted_names:
        named = r"finite|positive|sum of squares .*is nan"
        assert_refused(named, lambda: judge(spoiled(halved, name, value), GUARANTEE, 0.95))
        return
    judgement = judge(spoiled(halved, name, value), GUARANTEE, 0.95)
    assert judgement.verdict is Verdict.VIOLATED
    assert all(0 <= test.p_value <= 1 for test in judgement.tests)


def test_sums_that_rounding_leaves_below_zero_are_those_of_no_noise(honest: NoiseMeasurements) -> None:
    """The chi-square distribution of a negative number is NaN, which no level is above."""
    residuals = honest.residuals
    assert residuals is not None
    none = replace(
        residuals, total=np.full_like(residuals.total, -1e-12), squares=np.full_like(residuals.squares, -1e-12)
    )
    broken = {test.name for test in run_family(replace(honest, residuals=none))[0] if test.violated}
    assert {TestName.NOISE_TOTAL, TestName.NOISE_TENSOR, TestName.NOISE_ROUND} <= broken


def test_a_test_that_cannot_be_computed_is_named_and_the_others_are_made(
    honest: NoiseMeasurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILY, TestName.SHAPE, lambda _: TestResult(TestName.SHAPE, 1.0, np.nan, 1.0, 1.0))
    tests, missing = run_family(honest)
    assert (TestName.SHAPE, NotTestedReason.NOT_COMPUTED) in missing
    assert TestName.NOISE_TOTAL in {test.name for test in tests}


def test_no_result_has_a_p_value_that_is_none() -> None:
    assert np.isnan(bonferroni(3, np.nan))
    for p_value in (np.nan, -0.1, 1.1):
        named = rf"{TestName.SHAPE} .*p-value {p_value}: .* 0 to 1"
        assert_refused(named, TestResult, TestName.SHAPE, 1.0, p_value, 1.0, 1.0)
    for value in (np.nan, np.inf, -1.0):
        assert_refused(rf"sum of squares .*is {value}", SquareSum, value, 3, STANDARD_GAUSSIAN)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_and_their_noise_are_numbers(value: float) -> None:
    scores = np.linspace(-1, 1, 20)
    rounds = np.full(40, 3)
    members = np.arange(40) < 20
    assert_refused(
        rf"sum of squares .*is {value}",
        lambda: judge_scores(
            scores,
            scores,
            GUARANTEE,
            0.95,
            NoiseAlongTarget(np.append(np.ones(39), value), rounds, members, noise=STANDARD_GAUSSIAN),
        ),
    )
    if np.isnan(value):
        assert_refused(r"score 0 .*members is nan", judge_scores, np.append(value, scores), scores, GUARANTEE, 0.95)
