import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, norm
from sklearn.metrics import roc_auc_score, roc_curve

from fl_audit.released_model.empirical_star import empirical_epsilon_star, loss_attacks, within_cut
from fl_audit.released_model.star_intervals import empirical_interval
from tests.builders.refusals import assert_refused
from tests.few_examples import examples
from tests.released_model.rates import epsilon_star_of_rates

LOSSES = st.lists(st.integers(0, 12), min_size=1, max_size=30)


def slow_star(members: list[int], population: list[int], delta: float, cut: float) -> float:
    """Definition 2 in plain loops."""

    def best(keep: bool) -> float | None:
        ratios = []
        for t in sorted({*members, *population}):
            fpr = sum(x <= t for x in population) / len(population)
            fnr = sum(x > t for x in members) / len(members)
            tpr = sum(x <= t for x in members) / len(members)
            tnr = sum(x > t for x in population) / len(population)
            if keep and not (cut < fpr < 1 - cut and cut < fnr < 1 - cut):
                continue
            ratios.append(0.0)
            for over, under in ((tnr, fnr), (tpr, fpr), (fpr, tpr), (fnr, tnr)):
                if over > delta:
                    ratios.append(math.log((over - delta) / under) if under else math.inf)
        return max(ratios, default=None)

    within = best(True) if cut else None
    return within if within is not None else best(False) or 0.0


@given(LOSSES, LOSSES, st.sampled_from([0.0, 1e-3, 0.2, 0.9]), st.sampled_from([0.0, 0.001, 0.1]))
@settings(max_examples=examples(200), derandomize=True)
def test_empirical_form_is_definition_2(members: list[int], population: list[int], delta: float, cut: float) -> None:
    computed_star = float(empirical_epsilon_star(np.array(members), np.array(population), delta, cut))
    assert computed_star == pytest.approx(slow_star(members, population, delta, cut), rel=1e-12, abs=1e-12)


def test_definition_2_from_rates() -> None:
    assert float(epsilon_star_of_rates([0.1], [0.4], 0.0)) == pytest.approx(math.log(6))
    assert float(epsilon_star_of_rates([0.0, 1.0], [1.0, 0.0], 1e-3)) == 0.0
    assert float(epsilon_star_of_rates([0.0], [0.5], 1e-3)) == math.inf
    assert float(epsilon_star_of_rates([0.05], [0.9], 0.1)) == 0.0
    assert epsilon_star_of_rates(np.full((2, 3), 0.2), np.full((2, 3), 0.5), 0.0).shape == (2,)


def test_sets_apart_are_unbounded_and_equal_constants_are_not() -> None:
    assert float(empirical_epsilon_star(np.zeros(50), np.ones(50), 1e-3)) == math.inf
    assert float(empirical_epsilon_star(np.ones(50), np.ones(70), 1e-3)) == 0.0
    for wrong in (-1.0, math.nan, math.inf):
        assert_refused("losses contain", empirical_epsilon_star, [0.1, wrong], [0.2], 1e-3)
    assert_refused("1 or more losses", empirical_epsilon_star, [], [0.2], 1e-3)
    assert_refused(r"cut is 0\.5", empirical_epsilon_star, [0.1], [0.2], 1e-3, cut=0.5)


def test_the_interval_covers() -> None:
    """At least 95 % claimed; 12 or more misses of 100 have probability 0.4 % then. Seeded."""
    rng = np.random.default_rng(31)
    x = np.linspace(0, 1, 200_001)
    for shapes in ((2.0, 2.0), (4.0, 2.0)):
        fnr = beta.sf(x, 2, 2)
        fpr = beta.cdf(x, *shapes)
        mask = within_cut(fpr, fnr, 0.001)
        truth = float(epsilon_star_of_rates(fpr[mask], fnr[mask], 1e-3))
        misses = 0
        widths = []
        for size in [300] * 100 + [100_000]:
            low, high = empirical_interval(rng.beta(2, 2, size), rng.beta(*shapes, size), 1e-3)
            misses += not low <= truth <= high
            widths.append(high - low)
        assert misses < 12
        assert widths[-1] < 0.25 * np.mean(widths[:-1])


def test_the_interval_of_sets_apart() -> None:
    losses = np.arange(1000.0)
    low, high = empirical_interval(losses, losses + 2000, 1e-5)
    assert 3 < low < math.log(1000)
    assert high == math.inf
    assert empirical_interval(np.ones(99), np.ones(99), 1e-3) == (0.0, math.inf)


def test_the_interval_holds_where_few_thresholds_lie_within_the_cut() -> None:
    """Losses that are nearly apart: thresholds within the cut exist, but none is proven to be one. Seeded."""
    rng = np.random.default_rng(32)
    delta = 1e-5
    points = np.linspace(22.9, 23.2, 30_001)
    fpr = norm.cdf(points, 26.1, 1)
    fnr = norm.sf(points, 20, 1)
    mask = within_cut(fpr, fnr, 0.001)
    truth = float(epsilon_star_of_rates(fpr[mask], fnr[mask], delta))
    assert truth == pytest.approx(6.906, abs=1e-3)
    for _ in range(15):
        low, high = empirical_interval(rng.normal(20, 1, 40_000), rng.normal(26.1, 1, 40_000), delta)
        assert 5.5 < low <= truth <= high


@given(st.floats(0, 9), st.floats(0.2, 5), st.sampled_from([20, 100, 1000]), st.sampled_from([0.001, 0.01, 0.2]))
@settings(max_examples=examples(150), derandomize=True)
def test_the_interval_holds_what_the_losses_themselves_show(shift: float, spread: float, size: int, cut: float) -> None:
    """The counted distribution functions lie in the enclosure, so their own Epsilon* lies in the interval."""
    quantiles = norm.ppf((np.arange(size) + 0.5) / size)
    members = quantiles + 30
    population = spread * quantiles + 30 + shift
    low, high = empirical_interval(members, population, 1e-3, cut)
    assert low <= float(empirical_epsilon_star(members, population, 1e-3, cut)) <= high


@given(LOSSES, LOSSES)
@settings(max_examples=examples(150), derandomize=True)
def test_attacks_agree_with_scikit_learn(members: list[int], population: list[int]) -> None:
    labels = [1] * len(members) + [0] * len(population)
    scores = [-x for x in members + population]
    attacks = loss_attacks(np.array(members), np.array(population))
    assert float(attacks.auc) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    assert float(attacks.tpr_at_fpr_001) == pytest.approx(tpr[fpr <= 0.01].max(), abs=1e-12)
    mean = np.mean(members)
    expected = np.mean(np.array(members) <= mean) - np.mean(np.array(population) <= mean)
    assert float(attacks.yeom_advantage) == pytest.approx(expected, abs=1e-12)
    assert float(attacks.loss_gap) == pytest.approx(np.mean(population) - np.mean(members), abs=1e-12)


def test_small_false_alarm_rates_are_counted_not_rounded() -> None:
    population = np.arange(3000.0)
    attacks = loss_attacks(np.full(10, 2.0), population)
    assert (float(attacks.tpr_at_fpr_0001), float(attacks.tpr_at_fpr_001)) == (1.0, 1.0)
    assert float(loss_attacks(np.full(10, 3.0), population).tpr_at_fpr_0001) == 0.0
    stacked = loss_attacks(np.ones((2, 3, 4)), np.ones((2, 3, 5)))
    assert stacked.auc.shape == (2, 3)
    assert (stacked.auc == 0.5).all()
