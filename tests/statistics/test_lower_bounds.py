import math
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import beta, binom, norm

from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.statistics.lower_bound_methods import BoundMethod, ScoreDistribution
from fl_audit.statistics.lower_bounds import LowerBound, all_bounds, bound_limit, epsilon_lower_bound
from fl_audit.statistics.shift_bound import gaussian_shift
from fl_audit.statistics.threshold_bounds import CountsAboveThreshold, bound_of, gdp_mu
from tests.builders.refusals import assert_refused
from tests.few_examples import examples

Array = NDArray[np.float64]
BY_THRESHOLD = (BoundMethod.CLOPPER_PEARSON, BoundMethod.ORDER_STATISTIC, BoundMethod.GDP)
METHODS = tuple(BoundMethod)
DELTA = 1e-5


def log_odds(rng: np.random.Generator, mu: float, n: int) -> tuple[Array, Array]:
    return rng.normal(mu**2 / 2, mu or 1, n), rng.normal(-(mu**2) / 2, mu or 1, n)


def bound(members: Array, nonmembers: Array, method: BoundMethod, delta: float = DELTA) -> float:
    return epsilon_lower_bound(members, nonmembers, delta, 0.95, method).epsilon


# --- the arithmetic, against independent computations


def test_clopper_pearson_is_the_ratio_of_two_binomial_tails() -> None:
    """Both ends by their definition: tail probabilities of the binomial, half of the level each."""
    computed_bound = bound_of(BoundMethod.CLOPPER_PEARSON, CountsAboveThreshold(150, 400, 40, 300), 0.01, 0.1)
    low = beta.ppf(0.05, 150, 251)
    high = beta.ppf(0.95, 41, 260)
    assert binom.sf(149, 400, low) == pytest.approx(0.05)
    assert binom.cdf(40, 300, high) == pytest.approx(0.05)
    assert computed_bound == pytest.approx(math.log((low - 0.01) / high))


@pytest.mark.parametrize(("n1", "n0", "epsilon", "delta"), [(30, 40, 0.7, 0.0), (60, 25, 2.0, 0.05)])
def test_clopper_pearson_covers_enumerated(n1: int, n0: int, epsilon: float, delta: float) -> None:
    """All outcomes of both binomials, at points on the edge of what (epsilon, delta)-DP allows."""
    bounds = np.array(
        [
            [
                bound_of(BoundMethod.CLOPPER_PEARSON, CountsAboveThreshold(h, n1, a, n0), delta, 0.1)
                for a in range(n0 + 1)
            ]
            for h in range(n1 + 1)
        ]
    )
    for fpr in (0.005, 0.05, 0.12, 0.3):
        tpr = math.exp(epsilon) * fpr + delta
        if tpr < 1:
            weights = np.outer(binom.pmf(range(n1 + 1), n1, tpr), binom.pmf(range(n0 + 1), n0, fpr))
            assert weights[bounds > epsilon].sum() <= 0.1


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(("n1", "n0", "rank"), [(40, 40, 12), (400, 400, 1), (25, 400, 60), (3000, 30, 4), (5, 5, 2)])
@pytest.mark.parametrize("mu", [0.0, 1.0, 3.0])
def test_gdp_covers_exactly_by_another_quadrature(n1: int, n0: int, rank: int, mu: float) -> None:
    """The probability that the bound exceeds mu is at most the level, and one hit less would exceed it."""
    level = 0.05

    def at_least(hits: int) -> float:
        distribution = beta(rank, n0 - rank + 1)

        def weighed(u: float) -> float:
            return float(binom.sf(hits - 1, n1, norm.cdf(norm.ppf(distribution.ppf(u)) + mu)))

        return quad(weighed, 0, 1, limit=300, epsabs=1e-9, points=[0.5, 0.9, 0.99, 0.999])[0]

    low = 0
    high = n1 + 1
    while high - low > 1:
        middle = (low + high) // 2
        above = gdp_mu(CountsAboveThreshold(middle, n1, rank - 1, n0), level) > mu
        low, high = (low, middle) if above else (middle, high)
    if high <= n1:
        assert at_least(high) <= level * 1.0001
    assert at_least(low) >= level * 0.9999


def test_gaussian_shift_is_the_known_bound() -> None:
    member_scores, nonmember_scores = log_odds(np.random.default_rng(4), 1.0, 60)
    assert bound(member_scores, nonmember_scores, BoundMethod.GAUSSIAN_SHIFT) == gdp_epsilon(
        DELTA, gaussian_shift(member_scores, nonmember_scores, 0.95).low
    )


# --- what is claimed about a bound


@pytest.mark.long
def test_power_on_a_gaussian_mechanism() -> None:
    """mu = 1, 500 + 500 log-odds, true epsilon 4.38: means of 150 runs, standard error under 1 % of the truth."""
    rng = np.random.default_rng(5)
    truth = gdp_epsilon(DELTA, 1.0)
    assert truth == pytest.approx(4.377, abs=1e-3)
    scores = [log_odds(rng, 1.0, 500) for _ in range(150)]
    share = {method: np.mean([bound(*pair, method) for pair in scores]) / truth for method in METHODS}
    assert share[BoundMethod.GAUSSIAN_SHIFT] >= 0.85
    assert share[BoundMethod.GDP] >= 0.77
    assert 0.2 <= share[BoundMethod.CLOPPER_PEARSON] < share[BoundMethod.ORDER_STATISTIC]
    assert share[BoundMethod.ORDER_STATISTIC] < share[BoundMethod.GDP]


@pytest.mark.parametrize("method", METHODS)
def test_a_bound_on_1000_and_1000_scores_takes_under_a_tenth_of_a_second(method: BoundMethod) -> None:
    member_scores, nonmember_scores = log_odds(np.random.default_rng(6), 1.0, 1000)
    times = []
    for _ in range(5):
        start = time.process_time()
        bound(member_scores, nonmember_scores, method)
        times.append(time.process_time() - start)
    assert min(times) < 0.1


@pytest.mark.parametrize("method", BY_THRESHOLD)
def test_a_leak_in_any_tail_is_found(method: BoundMethod) -> None:
    """A fifth of one group lies far out, on either side: four problems that are one."""
    rng = np.random.default_rng(21)
    plain = rng.normal(size=400)
    leaky = rng.normal(size=400)
    leaky[rng.permutation(400)[:80]] += 20
    bounds = [bound(*pair, method) for pair in ((leaky, plain), (plain, leaky), (-leaky, -plain), (-plain, -leaky))]
    assert bounds == pytest.approx([bounds[0]] * 4)
    assert bounds[0] > 1.2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sizes", [(2, 2), (5, 5), (30, 200), (500, 500)])
def test_limit_of_detection(method: BoundMethod, sizes: tuple[int, int]) -> None:
    """Perfect separation reaches the ceiling, but for the hits that a threshold among the scores may cost."""
    rng = np.random.default_rng(9)
    lower_bound = epsilon_lower_bound(rng.random(sizes[0]) + 10, rng.random(sizes[1]), 0.01, 0.95, method)
    assert lower_bound.limit_of_detection == bound_limit(method, *sizes, 0.01, 0.95)
    if method is BoundMethod.GAUSSIAN_SHIFT:
        assert "smallest true epsilon" in lower_bound.limit_meaning
        return
    assert "largest epsilon" in lower_bound.limit_meaning
    assert lower_bound.epsilon <= lower_bound.limit_of_detection
    if min(sizes) >= 30:
        assert lower_bound.epsilon >= 0.8 * lower_bound.limit_of_detection > 1


def test_limit_of_the_shift_is_certified_nine_times_in_ten() -> None:
    """1000 runs at the limit: certificates are binomial(1000, 0.9)."""
    rng = np.random.default_rng(10)
    method = BoundMethod.GAUSSIAN_SHIFT
    limit = bound_limit(method, 50, 50, 0.01, 0.95)
    mu = next(m for m in np.linspace(0, 2, 4001) if gdp_epsilon(0.01, float(m)) >= limit)
    certificates = sum(gaussian_shift(*log_odds(rng, mu, 50), 0.95).low > 0 for _ in range(1000))
    assert binom.ppf(1e-4, 1000, 0.9) <= certificates <= binom.ppf(1 - 1e-4, 1000, 0.9)


def test_ceiling_is_named() -> None:
    lower_bound = epsilon_lower_bound(np.arange(50.0) + 60, np.arange(50.0), 0.0)
    assert any("ceiling" in warning for warning in lower_bound.warnings)


# --- properties

FINITE = st.floats(-40, 40, allow_nan=False)
GROUPS = st.tuples(arrays(np.float64, st.integers(2, 60), elements=FINITE), arrays(np.float64, 40, elements=FINITE))


@settings(max_examples=examples(60))
@given(groups=GROUPS, method=st.sampled_from(BY_THRESHOLD), delta=st.sampled_from([1e-5, 0.1]))
def test_monotone_transformations_change_nothing(
    groups: tuple[Array, Array], method: BoundMethod, delta: float
) -> None:
    member_scores, nonmember_scores = groups
    values = np.unique(np.concatenate(groups))
    steps = np.cumsum(1 + np.arange(values.size) ** 1.5)
    steps[-1] = math.inf
    moved = steps[np.searchsorted(values, member_scores)], steps[np.searchsorted(values, nonmember_scores)]
    assert epsilon_lower_bound(*moved, delta, method=method) == epsilon_lower_bound(
        member_scores, nonmember_scores, delta, method=method
    )


@settings(max_examples=examples(60))
@given(groups=GROUPS, method=st.sampled_from(METHODS), delta=st.sampled_from([1e-5, 0.1]))
def test_bounds_are_sane_and_roles_swap(groups: tuple[Array, Array], method: BoundMethod, delta: float) -> None:
    """With roles swapped and signs turned the problem is the same; ties in the choice may fall otherwise for gdp."""
    member_scores, nonmember_scores = groups
    if (
        np.ptp(member_scores) == 0
        and np.ptp(nonmember_scores) == 0
        and member_scores[0] != nonmember_scores[0]
        and method is BoundMethod.GAUSSIAN_SHIFT
    ):
        return
    lower_bound = epsilon_lower_bound(member_scores, nonmember_scores, delta, method=method)
    assert 0 <= lower_bound.epsilon < math.inf
    if method is BoundMethod.GAUSSIAN_SHIFT:
        assert epsilon_lower_bound(-nonmember_scores, -member_scores, delta, method=method).epsilon == pytest.approx(
            lower_bound.epsilon, rel=1e-6
        )
    else:
        assert lower_bound.epsilon <= lower_bound.limit_of_detection


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_more_separation_shows_more(method: BoundMethod) -> None:
    """Means of 40 runs with the same noise; each step of the shift is many standard errors."""
    rng = np.random.default_rng(12)
    noise = [(rng.normal(size=200), rng.normal(size=200)) for _ in range(40)]
    means = [
        np.mean([bound(member_scores + mu, nonmember_scores, method) for member_scores, nonmember_scores in noise])
        for mu in (0.0, 0.7, 1.4, 2.8)
    ]
    assert means == sorted(means)
    assert means[3] > means[2] > means[1]


@settings(max_examples=examples(40))
@given(groups=GROUPS, shift=st.floats(0, 10))
def test_a_shift_never_lowers_the_shift_bound(groups: tuple[Array, Array], shift: float) -> None:
    member_scores, nonmember_scores = groups
    if np.ptp(member_scores) > 0.01 and np.ptp(nonmember_scores) > 0.01:
        method = BoundMethod.GAUSSIAN_SHIFT
        assert bound(member_scores + shift, nonmember_scores, method) >= bound(
            member_scores, nonmember_scores, method
        ) * (1 - 1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_more_confidence_and_more_delta_certify_less(method: BoundMethod) -> None:
    member_scores, nonmember_scores = log_odds(np.random.default_rng(13), 1.5, 200)
    by_confidence = [
        epsilon_lower_bound(member_scores, nonmember_scores, DELTA, c, method).epsilon for c in (0.6, 0.9, 0.999)
    ]
    by_delta = [
        epsilon_lower_bound(member_scores, nonmember_scores, d, 0.95, method).epsilon for d in (1e-9, 1e-3, 0.3)
    ]
    assert by_confidence == sorted(by_confidence, reverse=True)
    assert by_delta == sorted(by_delta, reverse=True)


# --- bad and odd input


@pytest.mark.parametrize("method", METHODS)
def test_wrong_input_is_named_in_one_line(method: BoundMethod) -> None:
    fine = np.arange(20.0)
    wrong: list[tuple[Array, Array, float, float, str]] = [
        (np.array([]), fine, 0.1, 0.95, "scores of members .*empty"),
        (fine, np.array([]), 0.1, 0.95, "scores of nonmembers .*empty"),
        (fine, np.array([0.0, math.nan]), 0.1, 0.95, "score 1 .*nonmembers is nan"),
        (np.ones((2, 2)), fine, 0.1, 0.95, "scores of members .* 2 axes"),
    ]
    wrong += [(fine, fine, 0.1, c, f"confidence is {c}: accepted") for c in (0.5, 0.2, 1.0, math.nan)]
    wrong += [(fine, fine, d, 0.95, f"delta is {d}: accepted") for d in (-0.1, 1.0, math.nan)]
    for member_scores, nonmember_scores, delta, confidence, expected_message in wrong:
        assert_refused(
            expected_message, epsilon_lower_bound, member_scores, nonmember_scores, delta, confidence, method
        )


def test_an_unknown_method_is_refused_and_a_name_is_taken() -> None:
    fine = np.arange(20.0)
    assert epsilon_lower_bound(fine, fine, 0.1, method="gdp").method is BoundMethod.GDP  # type: ignore[arg-type]
    named = r"method is 'magic': .* clopper-pearson, order-statistic, gdp and gauss"
    assert_refused(named, epsilon_lower_bound, fine, fine, 0.1, method="magic")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_delta_0(method: BoundMethod) -> None:
    member_scores, nonmember_scores = log_odds(np.random.default_rng(14), 1.5, 300)
    if method in (BoundMethod.GDP, BoundMethod.GAUSSIAN_SHIFT):
        assert_refused(f"delta is 0.0: .*{method} .*above 0", bound, member_scores, nonmember_scores, method, 0.0)
    else:
        assert (
            min(
                bound(member_scores, nonmember_scores, method, 0.0),
                bound(member_scores, nonmember_scores, method, 1e-3),
            )
            > 1
        )


@pytest.mark.parametrize("method", METHODS)
def test_infinite_scores(method: BoundMethod) -> None:
    member_scores, nonmember_scores = log_odds(np.random.default_rng(15), 2.0, 300)
    member_scores[5], nonmember_scores[7] = math.inf, -math.inf
    if method is BoundMethod.GAUSSIAN_SHIFT:
        assert_refused(r"score 5 .*members is inf: .*finite", bound, member_scores, nonmember_scores, method)
    else:
        finite = (
            np.where(np.isinf(member_scores), 99.0, member_scores),
            np.where(np.isinf(nonmember_scores), -99.0, nonmember_scores),
        )
        assert bound(member_scores, nonmember_scores, method) == bound(*finite, method) > 0
        everything = np.full(300, math.inf), np.full(300, -math.inf)
        assert bound(*everything, method) >= 0.9 * bound_limit(method, 300, 300, DELTA, 0.95)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sizes", [(1, 1), (1, 50), (2, 3), (500, 500), (500, 20)])
def test_constant_scores_certify_nothing(method: BoundMethod, sizes: tuple[int, int]) -> None:
    for value in (0.0, 3.5):
        assert bound(np.full(sizes[0], value), np.full(sizes[1], value), method) == 0.0


def test_one_score_certifies_nothing_and_says_so() -> None:
    for method in METHODS:
        lower_bound = epsilon_lower_bound(np.array([5.0]), np.arange(4.0), 0.1, method=method)
        assert lower_bound.epsilon == 0
        assert any("single score" in warning for warning in lower_bound.warnings)


# --- warnings and the report's choice


def warned(lower_bound: LowerBound) -> bool:
    return any("certify too much" in warning for warning in lower_bound.warnings)


@pytest.mark.long
@pytest.mark.parametrize("method", [BoundMethod.GDP, BoundMethod.GAUSSIAN_SHIFT])
def test_warnings_are_rare_where_the_assumption_holds(method: BoundMethod) -> None:
    """300 runs at level 0.001: more than binomial(300, 0.001) has probability below 1e-4."""
    rng = np.random.default_rng(16)
    warning_count = sum(warned(epsilon_lower_bound(*log_odds(rng, 1.0, 200), DELTA, 0.95, method)) for _ in range(300))
    assert warning_count <= binom.ppf(1 - 1e-4, 300, 0.001)


@pytest.mark.parametrize("method", [BoundMethod.GDP, BoundMethod.GAUSSIAN_SHIFT])
def test_scores_of_other_mechanisms_are_warned_about(method: BoundMethod) -> None:
    rng = np.random.default_rng(17)
    coins = np.where(rng.random(500) < 0.73, 1.0, -1.0), np.where(rng.random(500) < 0.27, 1.0, -1.0)
    laplace_draws = rng.laplace(1, 1, 500), rng.laplace(0, 1, 500)
    clipped = tuple(np.abs(x) - np.abs(x - 1) for x in laplace_draws)
    for member_scores, nonmember_scores in (coins, clipped):
        lower_bound = epsilon_lower_bound(member_scores, nonmember_scores, DELTA, 0.95, method)
        assert lower_bound.epsilon > 1.5
        assert warned(lower_bound)


def test_heavy_tails_and_unequal_spreads_are_warned_about() -> None:
    rng = np.random.default_rng(18)
    heavy = rng.standard_t(2, 500) + 1, rng.standard_t(2, 500)
    unequal = rng.normal(1, 2, 500), rng.normal(0, 1, 500)
    for member_scores, nonmember_scores in (heavy, unequal):
        assert warned(epsilon_lower_bound(member_scores, nonmember_scores, DELTA, 0.95, BoundMethod.GAUSSIAN_SHIFT))
    assert warned(epsilon_lower_bound(*unequal, DELTA, 0.95, BoundMethod.GDP))


def test_what_is_known_of_the_scores_decides_which_bounds_are_offered() -> None:
    member_scores, nonmember_scores = log_odds(np.random.default_rng(19), 1.0, 100)
    nothing, tradeoff, normal = ScoreDistribution
    always = ["clopper-pearson", "order-statistic"]

    def names(delta: float, distribution: ScoreDistribution) -> list[str]:
        return [
            str(lower_bound.method)
            for lower_bound in all_bounds(member_scores, nonmember_scores, delta, 0.95, distribution)
        ]

    assert names(DELTA, nothing) == always
    assert names(DELTA, tradeoff) == ["clopper-pearson", "order-statistic", "gdp"]
    assert names(DELTA, normal) == list(BoundMethod)
    assert names(0.0, normal) == always
    member_scores[0] = math.inf
    assert names(DELTA, normal) == ["clopper-pearson", "order-statistic", "gdp"]
    assert_refused("confidence is", all_bounds, member_scores, nonmember_scores, DELTA, 0.3, normal)


def test_a_gaussian_bound_of_the_tradeoff_is_not_enough_for_gdp() -> None:
    """Randomised response at epsilon 1 is mu-GDP, yet the bound through mu is far above 1: so it is no `ANY` method."""
    rng = np.random.default_rng(24)
    member_scores, nonmember_scores = (
        np.where(rng.random(2000) < share, 1.0, -1.0) + rng.random(2000) / 9 for share in (0.731, 0.269)
    )
    lower_bound = epsilon_lower_bound(member_scores, nonmember_scores, DELTA, 0.95, BoundMethod.GDP)
    assert 4 < lower_bound.epsilon < gdp_epsilon(DELTA, 2 * norm.ppf(0.731)) == pytest.approx(5.58, abs=0.01)
    assert not BoundMethod.GDP.is_valid_under(ScoreDistribution.ANY)


@pytest.mark.parametrize("method", BoundMethod)
def test_every_bound_says_what_it_rests_on(method: BoundMethod) -> None:
    rests_on = {
        ScoreDistribution.ANY: "nothing else|Jeffreys priors",
        ScoreDistribution.GAUSSIAN_TRADEOFF: "trade-off function .*not merely bounded",
        ScoreDistribution.NORMAL_EQUAL_SPREAD: r"normal .*same spread.*Not valid .*global sensitivity: .*\b72 %",
    }
    assert re.search(rests_on[method.needs], method.assumption)
    assert ("other mechanisms" in method.assumption) is (method.needs is not ScoreDistribution.ANY)
