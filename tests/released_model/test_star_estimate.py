import math
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest

from fl_audit.released_model import normal_mixture, star_estimate
from fl_audit.released_model.empirical_star import empirical_epsilon_star
from fl_audit.released_model.minimum_sample_size import FEWEST, value_by_chance
from fl_audit.released_model.normal_fit_tests import FIT, TRIALS_TESTED, fits_of_trials, rejected
from fl_audit.released_model.parametric_star import StarSettings, epsilon_star_gaussian, parametric_epsilon_star
from fl_audit.released_model.star_estimate import estimate_epsilon_star
from fl_audit.released_model.star_intervals import hull_interval, loss_cells, parametric_draws
from fl_audit.released_model.star_methods import DEFAULT_CUTS, EMPIRICAL_CUT, StarMethod
from fl_audit.server.release_findings import pooled_epsilon_star
from fl_audit.trial_batches import TrialBatch
from tests.builders.refusals import assert_refused


def test_cells_keep_all_losses_and_small_sets_exactly() -> None:
    rng = np.random.default_rng(61)
    members = np.round(rng.gamma(2, 1, 500), 2)
    population = np.round(rng.gamma(3, 1, 700), 2)
    for cells, losses in zip(loss_cells(members, population), (members, population), strict=True):
        np.testing.assert_allclose(np.repeat(cells.means, cells.numbers), np.sort(losses), rtol=1e-14)
    member_cells, population_cells = loss_cells(rng.gamma(2, 1, 200_000), rng.gamma(30, 1, 100_000))
    assert (member_cells.numbers.sum(), population_cells.numbers.sum()) == (200_000, 100_000)
    assert member_cells.numbers.size < 6000
    assert member_cells.numbers.min() >= 0


@pytest.mark.parametrize("size", [400, 6000])
def test_draws_of_cells_are_a_bootstrap(size: int) -> None:
    """Against plain resampling: means within 5 standard errors, spreads within 20 %, seeded."""
    rng = np.random.default_rng(62)
    members = rng.gamma(2, 1, size)
    population = rng.gamma(3, 1, size)
    cells = loss_cells(members, population)
    resampled = [losses[rng.integers(0, size, (400, size))] for losses in (members, population)]
    draws = parametric_draws(cells, 1e-3, 1.0, 800, rng)
    plain = parametric_epsilon_star(*resampled, 1e-3)
    assert abs(draws.mean() - plain.mean()) < 5 * plain.std() * math.sqrt(1 / 400 + 1 / 800)
    assert draws.std() == pytest.approx(plain.std(), rel=0.2)


@pytest.mark.long
@pytest.mark.parametrize("shape", [2.0, 2.5, 4.0])
def test_the_parametric_interval_covers(shape: float) -> None:
    """Of 80 samples at 95 %, 12 or more misses have probability 0.1 %. Percentiles alone miss without a leak."""
    rng = np.random.default_rng(63)
    truth = float(parametric_epsilon_star(rng.beta(2, 2, 10**6), rng.beta(shape, 2, 10**6), 1e-3))
    truth = 0.0 if shape == 2.0 else truth
    misses = 0
    for _ in range(80):
        members = rng.beta(2, 2, 500)
        population = rng.beta(shape, 2, 500)
        draws = parametric_draws(loss_cells(members, population), 1e-3, 1.0, 200, rng)
        low, high = hull_interval(float(parametric_epsilon_star(members, population, 1e-3)), draws, 0.95)
        misses += not low <= truth <= high
    assert misses < 12


@pytest.mark.long
@pytest.mark.parametrize("method", list(StarMethod))
def test_one_call_gives_value_interval_and_neighbours(method: StarMethod, monkeypatch: pytest.MonkeyPatch) -> None:
    # The fewest of which the outer quantiles at 99 % are others than those at 95 %, with some to spare.
    monkeypatch.setattr(star_estimate, "_MIXTURE_REPLICATES", 50)
    rng = np.random.default_rng(64)
    members = rng.gamma(2, 1, 300)
    population = rng.gamma(3, 1, 300)
    estimate = estimate_epsilon_star(members, population, 1e-3, np.random.default_rng(0), method)
    again = estimate_epsilon_star(members, population, 1e-3, np.random.default_rng(0), method)
    assert estimate.interval == again.interval
    assert 0 <= estimate.interval[0] <= estimate.epsilon_star <= estimate.interval[1] < math.inf
    assert estimate.epsilon_star_within_cut <= estimate.epsilon_star
    assert 0.6 < float(estimate.attacks.auc) < 0.8
    if method is StarMethod.PARAMETRIC:
        assert estimate.epsilon_star == float(parametric_epsilon_star(members, population, 1e-3))
    wide = estimate_epsilon_star(members, population, 1e-3, np.random.default_rng(0), method, confidence=0.99)
    assert wide.interval[1] - wide.interval[0] > estimate.interval[1] - estimate.interval[0]


@pytest.mark.long
def test_what_cannot_be_trusted_is_said() -> None:
    rng = np.random.default_rng(65)
    members = rng.gamma(2, 1, 129)
    population = rng.gamma(3, 1, 140)

    def said(member_losses: np.ndarray, zero: np.ndarray, delta: float = 1e-3, **options: object) -> str:
        return "; ".join(estimate_epsilon_star(member_losses, zero, delta, rng, **options).warnings)  # type: ignore[arg-type]

    assert re.search(r"\b29 losses .*\b100\b", said(members[:29], population))
    assert "members are equal" in said(np.ones(50), population)
    assert "members are equal" in said(np.ones(150), population)
    assert "chance alone" in said(members, rng.gamma(2, 1, 140), method=StarMethod.PARAMETRIC)
    assert "chance alone" not in said(rng.normal(1, 0.1, 2000), rng.normal(9, 1, 2000), method=StarMethod.PARAMETRIC)
    assert "at delta 0 " in said(members, population, 0.0, cut=0.0, method=StarMethod.PARAMETRIC)
    assert "like a normal" in said(rng.exponential(1, 3000) ** 3, rng.exponential(1, 3000))
    narrow = rng.normal(1, 0.01, 199), rng.normal(9, 0.01, 199)
    assert "all thresholds count" in said(*narrow, cut=1e-3, method=StarMethod.PARAMETRIC)
    assert "without an error" in said(np.arange(100.0), np.arange(100.0, 250.0), method=StarMethod.EMPIRICAL)
    within = estimate_epsilon_star(members, population, 0.0, rng, StarMethod.PARAMETRIC)
    assert within.cut == 1e-6
    assert 0 < within.epsilon_star == within.epsilon_star_within_cut < within.epsilon_star_without_cut == math.inf


def test_the_headline_is_within_the_papers_cut_and_by_the_estimator_that_holds() -> None:
    # Gamma(2, 3) against Gamma(2, 5): Epsilon* is 7.84 over all thresholds, 3.25 within 0.001 (by quadrature); the
    # normals say 22.4 over all thresholds.
    draw = np.random.default_rng(0)
    members = draw.gamma(2, 3, 1000)
    population = draw.gamma(2, 5, 1200)
    estimate = estimate_epsilon_star(members, population, 1e-5, np.random.default_rng(0))
    assert estimate.method is StarMethod.EMPIRICAL
    assert estimate.cut == DEFAULT_CUTS[StarMethod.EMPIRICAL] == 0.001
    assert estimate.epsilon_star == pytest.approx(3.25, abs=0.4)
    assert estimate.epsilon_star == float(empirical_epsilon_star(members, population, 1e-5))
    fitted = estimate_epsilon_star(members, population, 1e-5, np.random.default_rng(0), StarMethod.PARAMETRIC)
    assert f"parametric: {fitted.epsilon_star:.4g}" in estimate.warnings[0], (
        "the other value stands beside the headline"
    )
    assert fitted.epsilon_star == float(parametric_epsilon_star(members, population, 1e-5)) < 10
    assert fitted.epsilon_star_without_cut > 20
    assert all("0.001 to 1 - 0.001" in text for text in (str(estimate), estimate._repr_html_()))


def test_a_fit_that_holds_is_kept_and_one_table_has_the_cuts() -> None:
    draw = np.random.default_rng(1)
    # Scores of narrow losses are nearly linear in them, so normal losses have normal scores.
    members = draw.normal(5, 0.1, 2000)
    population = draw.normal(5.02, 0.1, 2000)
    estimate = estimate_epsilon_star(members, population, 1e-5, np.random.default_rng(0))
    assert (estimate.method, estimate.cut) == (StarMethod.PARAMETRIC, DEFAULT_CUTS[StarMethod.PARAMETRIC])
    assert StarSettings(1e-5).cut == DEFAULT_CUTS[StarMethod.PARAMETRIC] == 1e-6


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("method", list(StarMethod))
@pytest.mark.parametrize("size", [3, 10, 99])
def test_of_few_losses_an_interval_is_stated_that_holds(size: int, method: StarMethod) -> None:
    """Members 1 apart from the population: the lower end stays below the truth, the upper end above it."""
    rng = np.random.default_rng(68)
    truth = float(epsilon_star_gaussian(0.0, 1.0, 1.0, 1.0, 1e-3))
    for _ in range(20):
        losses = 9 + rng.normal(0, 1, size), 9 + rng.normal(1, 1, 1000)
        estimate = estimate_epsilon_star(*losses, 1e-3, rng, method)
        assert estimate.is_lower_bound
        assert estimate.epsilon_star == estimate.interval[0] <= truth <= estimate.interval[1]
        assert "at least" in str(estimate)
        assert estimate.interval_name == "95 % confidence interval"
    apart = estimate_epsilon_star(1 + np.arange(size) / 100, 9 + np.arange(99) / 100, 1e-3, rng, method)
    assert apart.epsilon_star == 0 if size == 3 else apart.epsilon_star > 0.1


def test_the_number_of_losses_from_which_a_value_is_stated_is_the_one_that_was_found() -> None:
    """Two sets from one distribution at a delta of a tenth of one over their size: from 100 on most values are below
    1.
    """
    rng = np.random.default_rng(69)
    shares = {}
    for size, delta in ((30, 1 / 300), (50, 1 / 500), (FEWEST, 1 / (10 * FEWEST)), (1000, 1e-4)):
        losses = (rng.gamma(2, 1, (1000, size)) for _ in range(2))
        shares[size] = float((parametric_epsilon_star(*losses, delta) > 1).mean())
    assert shares[30] > shares[50] > 0.5 > shares[FEWEST] > shares[1000]
    by_chance = value_by_chance((200, 300), 1e-3, 0.0, np.random.default_rng(0))
    chance_stars = parametric_epsilon_star(rng.normal(9, 1, (2000, 200)), rng.normal(9, 1, (2000, 300)), 1e-3)
    assert by_chance == pytest.approx(np.quantile(chance_stars, 0.95), rel=0.15)


def test_one_component_needs_no_search() -> None:
    """The fit in closed form is that of the iteration, to rounding, and the source of draws goes on alike."""
    scores = np.random.default_rng(70).gamma(2, 1, 500)
    first = np.random.default_rng(1)
    second = np.random.default_rng(1)
    fast, (values, mean, std) = normal_mixture.fit_mixture(scores, 1, first), normal_mixture._standardised(scores)
    slow = normal_mixture._unscaled(normal_mixture._em(values, 1, second, None), mean, std)
    assert (fast.means[0], fast.stds[0]) == pytest.approx((slow.means[0], slow.stds[0]), rel=1e-14)
    assert first.random() == second.random()


def test_losses_of_one_column_are_losses() -> None:
    rng = np.random.default_rng(71)
    losses = rng.gamma(2, 1, 300), rng.gamma(3, 1, 300)
    plain = estimate_epsilon_star(*losses, 1e-3, np.random.default_rng(0))
    assert estimate_epsilon_star(*(sample[:, None] for sample in losses), 1e-3, np.random.default_rng(0)) == plain


def test_wrong_input_is_named() -> None:
    rng = np.random.default_rng(66)
    fine = np.arange(50.0)
    for member_losses, zero, delta, options, text in (
        (fine, fine, 1.0, {}, "delta is"),
        (fine, fine, math.nan, {}, "delta is"),
        (fine[:0], fine, 0.1, {}, "2 or more losses"),
        (fine[:1], fine, 0.1, {}, "2 or more losses"),
        (-fine, fine, 0.1, {}, "contain -1"),
        (fine, fine + math.nan, 0.1, {}, r"population losses .*\bnan"),
        (fine + math.inf, fine, 0.1, {}, "contain inf"),
        (fine, fine, 0.1, {"confidence": 1.0}, "confidence is"),
        (fine, fine, 0.1, {"method": "kernel"}, r"'kernel': accepted .*parametric"),
        (fine, fine, 0.1, {"cut": 0.5}, "cut is"),
        (np.ones((2, 9)), np.ones((2, 9)), 0.1, {}, "one axis"),
    ):
        assert_refused(text, estimate_epsilon_star, member_losses, zero, delta, rng, **options)


@pytest.mark.long
def test_speed_of_a_million_losses() -> None:
    rng = np.random.default_rng(67)
    members = rng.gamma(2, 1, 10**6)
    population = rng.gamma(3, 1, 10**6)
    for estimator in (parametric_epsilon_star, empirical_epsilon_star):
        times = []
        for _ in range(3):
            start = time.process_time()  # not that of the clock: the machine may be busy with other tests
            estimator(members, population, 1e-6)
            times.append(time.process_time() - start)
        assert min(times) < 1.0


# --- The fit of normals to the losses of a run's trials is tested as for one model, trial by trial


def _losses(kind: str, trials: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    if kind == "skewed":
        return draw.gamma(1, 0.3, (trials, 400)), draw.gamma(1, 0.5, (trials, 400))
    return draw.normal(10, 1, (trials, 400)), draw.normal(11, 1, (trials, 400))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "method"), [("skewed", StarMethod.EMPIRICAL), ("normal", StarMethod.PARAMETRIC)])
def test_trials_are_judged_as_one_model_is(kind: str, method: StarMethod) -> None:
    members, population = _losses(kind, 20)
    p_values = fits_of_trials(members, population, np.arange(20), 0)
    tested, against = rejected(p_values)
    assert tested == 20
    assert (2 * against > tested) == (method is StarMethod.EMPIRICAL)
    alone = [
        estimate_epsilon_star(member_losses, population_losses, 1e-5, np.random.default_rng(0)).method
        for member_losses, population_losses in zip(members[:5], population[:5], strict=True)
    ]
    assert alone.count(method) >= 4


def test_a_trial_is_tested_alike_in_every_batch_and_few_losses_are_not() -> None:
    members, population = _losses("skewed", 6)
    whole = fits_of_trials(members, population, np.arange(96, 102), 3)
    batches = [
        fits_of_trials(members[rows], population[rows], np.arange(96, 102)[rows], 3) for rows in ([0, 1], [2, 3])
    ]
    assert np.array_equal(whole[:4], np.concatenate(batches))
    assert np.isnan(whole[TRIALS_TESTED - 96 :]).all()
    assert np.isnan(fits_of_trials(members[:, :99], population, np.arange(6), 3)).all()
    assert rejected(np.array([np.nan, 0.01, 0.5, 0.05])) == (3, 2)


@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_pooled_release_has_both_estimators_at_its_ends_and_the_fit_at_the_last(number: int) -> None:
    members, population = _losses("skewed", 2)
    release = SimpleNamespace(
        batch=TrialBatch(0, 0, 2),
        number=number,
        is_last=number == 7,
        federation=SimpleNamespace(public=SimpleNamespace(data_seed=0)),
        members_and_population=lambda: [(np.array([True, True]), members, population)],
    )
    pooled_star_result = pooled_epsilon_star(StarSettings(1e-5), release)
    assert np.array_equal(pooled_star_result.trials["epsilon_star"], parametric_epsilon_star(members, population, 1e-5))
    empirical_star = empirical_epsilon_star(members, population, 1e-5, EMPIRICAL_CUT)
    expected_star = empirical_star if number in (0, 7) else np.full(2, np.nan)
    assert np.array_equal(pooled_star_result.releases["epsilon_star_counted"], expected_star, equal_nan=True)
    assert (FIT in pooled_star_result.trials) == (number == 7)
    assert FIT not in pooled_star_result.releases
    assert StarSettings(1e-5, 0.01).counted_cut == 0.01


@pytest.mark.parametrize(("value", "low", "high"), [(100.0, 45.0, 155.0), (120.0, 65.0, 175.0), (60.0, 0.0, 155.0)])
def test_an_interval_covers_the_percentiles_and_their_reflections(value: float, low: float, high: float) -> None:
    """Of the draws 61 to 160, 5 % are at most 65, and 95 % at most 155."""
    assert hull_interval(value, np.arange(61.0, 161.0), 0.9) == pytest.approx((low, high))
