"""The best of several private trainings: bounds against dp-accounting and the paper, and the best of n attacked."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from scipy.integrate import quad
from scipy.stats import norm

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting_enums import TrainingCount
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import GaussianRelease, gaussian_rounds
from fl_audit.privacy.guarantee import guarantee_of_all
from fl_audit.privacy.private_selection import (
    _negative_binomial,
    _poisson,
    drawn_number,
    negative_binomial_parameter,
    random_count_epsilon,
    selection_cost,
    selection_cost_of,
    selection_text,
)
from fl_audit.privacy.renyi import RDP_ORDERS, renyi_divergences
from tests.builders.refusals import assert_refused

DELTA = 1e-5
SHAPES = {TrainingCount.LOGARITHMIC: 0.0, TrainingCount.GEOMETRIC: 1.0, TrainingCount.POISSON: math.inf}


def claim_of(z: float, rounds: int = 1) -> Claim:
    return Claim("add-remove-record", gaussian_rounds(z, rounds), DELTA)


@pytest.mark.parametrize("count", TrainingCount)
@pytest.mark.parametrize("mean", [2.0, 40.0])
def test_bounds_are_those_of_dp_accounting(count: TrainingCount, mean: float) -> None:
    z, rounds = 20.0, 10
    accountant = RdpAccountant(RDP_ORDERS.tolist())
    training = SelfComposedDpEvent(GaussianDpEvent(z), rounds)
    accountant.compose(RepeatAndSelectDpEvent(training, mean, SHAPES[count]))
    expected = accountant.get_epsilon(DELTA)
    computed_epsilon = random_count_epsilon([claim_of(z, rounds)], count, mean)
    if count is TrainingCount.POISSON:  # its delta of one training comes from Renyi divergences, ours is exact
        assert computed_epsilon <= expected * (1 + 1e-9)
        mu = math.sqrt(rounds) / z
        steps = 1 / (RDP_ORDERS - 1)
        hat = np.log1p(steps)
        deltas = norm.cdf(mu / 2 - hat / mu) - (1 + steps) * norm.cdf(-mu / 2 - hat / mu)
        divergences = RDP_ORDERS * mu**2 / 2 + mean * deltas + math.log(mean) * steps
        assert computed_epsilon == pytest.approx(compute_epsilon(RDP_ORDERS, divergences, DELTA)[0], rel=1e-6)
    else:
        assert computed_epsilon == pytest.approx(expected, rel=1e-6)


def test_the_parameter_has_the_mean_of_the_distribution() -> None:
    for mean in (1.5, 10.0, 1000.0):
        gamma = negative_binomial_parameter(0.0, mean)
        numbers = np.arange(1, 200_000)
        weights = (1 - gamma) ** numbers / numbers
        assert (numbers * weights).sum() / weights.sum() == pytest.approx(mean, rel=1e-3)
    assert_refused("above 1", lambda: random_count_epsilon([claim_of(2.0)], TrainingCount.GEOMETRIC, 1.0))


@pytest.mark.parametrize(("count", "factor"), [(TrainingCount.LOGARITHMIC, 2.0), (TrainingCount.GEOMETRIC, 3.0)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_pure_privacy_costs_what_the_paper_states(count: TrainingCount, factor: float, epsilon: float) -> None:
    """Papernot and Steinke 2022, corollary 3: (2 + eta) epsilon, of which eta = 1 is the 3 epsilon of Liu and Talwar.

    The corollary is the limit of large orders. At a finite order l what is above it is at most
    (1 + eta) log(1/gamma) / l + log(mean) / (order - 1), and what is below it (1 + eta) epsilon / l, since
    log(1/gamma) exceeds epsilon here.
    """
    eta = SHAPES[count]
    mean = 1e4
    chosen = _negative_binomial(np.full(RDP_ORDERS.shape, epsilon), eta, mean)
    last = float(RDP_ORDERS[-1])
    slack = (1 + eta) * -math.log(negative_binomial_parameter(eta, mean)) / last + math.log(mean) / (last - 1)
    at_large_orders = factor * epsilon - (1 + eta) * epsilon / last + slack
    assert chosen[-1] <= at_large_orders * (1 + 1e-12)
    gain = (1 + eta) * epsilon / last  # (1 - 1/l) in place of 1 at the last order
    assert chosen[-1] >= factor * epsilon - gain


def test_concentrated_privacy_costs_what_the_optimal_order_gives() -> None:
    """Theorem 2 for a training of rho-zCDP, whose divergence at the order l is rho l, minimised by hand.

    The second term (1 + eta) ((1 - 1/l) rho l + log(1/gamma) / l) is smallest at l = sqrt(log(1/gamma) / rho).
    """
    rho, mean = 0.01, 50.0
    for count in (TrainingCount.LOGARITHMIC, TrainingCount.GEOMETRIC):
        eta = SHAPES[count]
        log_inverse = -math.log(negative_binomial_parameter(eta, mean))
        second = (1 + eta) * (2 * math.sqrt(rho * log_inverse) - rho)
        expected = rho * RDP_ORDERS + second + math.log(mean) / (RDP_ORDERS - 1)
        assert _negative_binomial(rho * RDP_ORDERS, eta, mean) == pytest.approx(expected, rel=2e-3)


FIGURE_7_ORDERS = np.array([1.25, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, *range(5, 15)])
FIGURE_7_DIVERGENCES = np.array(
    [
        *(2.04459751e-01, 2.45818210e-01, 2.87335988e-01, 3.29014798e-01, 3.70856385e-01, 4.12862542e-01),
        *(4.97375951e-01, 5.82570265e-01, 6.68461534e-01, 7.55066706e-01, 8.42403732e-01, 1.01935100e00),
        *(1.19947313e00, 1.38297035e00, 1.57009549e00, 1.76124790e00, 1.95794503e00, 2.19017390e00),
        *(4.48407479e00, 3.08305394e02),
    ]
)
"""Renyi divergences of the training of figure 7, as the authors publish them with the figure's code.

github.com/tensorflow/privacy, research/hyperparameters_2022/figure7_default_values.py; larger orders do not matter.
"""


def test_the_training_of_the_papers_figure_7_has_its_published_divergences() -> None:
    """It is DP-SGD on 60,000 records: 60 epochs of batches of 256, that is 14,063 steps, at noise multiplier 1.1."""
    divergences = renyi_divergences(gaussian_rounds(1.1, 14_063, 256 / 60_000), None, Adjacency.ADD_REMOVE_RECORD)
    published = dict(zip(FIGURE_7_ORDERS.tolist(), FIGURE_7_DIVERGENCES.tolist(), strict=True))
    common = [index for index, order in enumerate(RDP_ORDERS.tolist()) if order in published]
    assert len(common) > 12
    expected = [published[order] for order in RDP_ORDERS[common].tolist()]
    assert divergences[common] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    ("gamma", "geometric", "logarithmic"),
    [(1e-4, 7.386498732, 4.708327173), (0.0015, 6.149536549, 3.878001927), (0.025, 4.571177080, 2.830248165)],
)
def test_budgets_of_the_negative_binomial_are_those_of_the_papers_figure_7(
    gamma: float, geometric: float, logarithmic: float
) -> None:
    """The privacy budgets on the axis of figure 7 (the smallest divergence of any order), by the authors' code.

    For the logarithmic distribution that code has log(1/gamma - 1) / l where theorem 2 has log(1/gamma) / l: ours is
    that of the theorem, which is larger by -log(1 - gamma) / l.
    """
    budgets = _negative_binomial(FIGURE_7_DIVERGENCES, 1.0, 1 / gamma, FIGURE_7_ORDERS)
    assert budgets.min() == pytest.approx(geometric, rel=1e-8)
    mean = (1 / gamma - 1) / math.log(1 / gamma)
    excess = _negative_binomial(FIGURE_7_DIVERGENCES, 0.0, mean, FIGURE_7_ORDERS).min() - logarithmic
    assert 0 < excess <= -math.log1p(-gamma) / FIGURE_7_ORDERS[0]


@pytest.mark.parametrize(("mean", "budget"), [(5.0, 2.192318245), (10.0, 3.390081077), (20.0, 5.193640348)])
def test_budgets_of_poisson_are_those_of_the_papers_figure_7(mean: float, budget: float) -> None:
    epsilons = np.log1p(1 / (FIGURE_7_ORDERS - 1))[:, np.newaxis]
    # The authors convert divergences to delta (arXiv:2004.00010, proposition 12).
    orders = FIGURE_7_ORDERS
    exponents = (orders - 1) * (FIGURE_7_DIVERGENCES - epsilons + np.log1p(-1 / orders)) - np.log(orders)
    total_variation = 0.5 * np.log1p(-np.exp(-FIGURE_7_DIVERGENCES))
    deltas = np.exp(np.minimum(exponents, total_variation).min(axis=1))
    assert _poisson(FIGURE_7_DIVERGENCES, deltas, mean, orders).min() == pytest.approx(budget, rel=1e-8)


@pytest.mark.parametrize("count", TrainingCount)
def test_drawn_numbers_follow_the_distribution(count: TrainingCount) -> None:
    """Draw 4,000 numbers; their mean, and how often they are 0, 1 and 2, are those of the distribution."""
    mean, draws = 7.0, 4000
    generator = np.random.default_rng(3)
    numbers = np.array([drawn_number(count, mean, generator) for _ in range(draws)])
    derivative = generating_derivative(count, mean)
    # The derivative of the generating function at 0 is the probability of 1; that of 0 and 2 follow.
    none = math.exp(-mean) if count is TrainingCount.POISSON else 0.0
    two = (derivative(1e-6) - derivative(0.0)) / 2e-6
    for number, probability in ((0, none), (1, derivative(0.0)), (2, two)):
        error = 4.5 * math.sqrt(probability * (1 - probability) / draws)
        assert abs((numbers == number).mean() - probability) <= error + 1e-6, number
    assert numbers.mean() == pytest.approx(mean, abs=4.5 * numbers.std() / math.sqrt(draws))


def generating_derivative(count: TrainingCount | None, mean: float) -> Callable[[float], float]:
    """Return the derivative of the generating function of the number of trainings; None for a fixed number."""
    match count:
        case None:
            return lambda x: mean * x ** (mean - 1)
        case TrainingCount.POISSON:
            return lambda x: mean * math.exp(mean * (x - 1))
        case TrainingCount.GEOMETRIC:
            gamma = 1 / mean
            return lambda x: gamma / (1 - (1 - gamma) * x) ** 2
        case TrainingCount.LOGARITHMIC:
            gamma = negative_binomial_parameter(0.0, mean)
            return lambda x: (1 - gamma) / (-math.log(gamma) * (1 - (1 - gamma) * x))


def delta_of_best(epsilon: float, mu: float, count: TrainingCount | None, mean: float) -> float:
    """Return the exact delta of the largest of several draws from N(mu, 1) against N(0, 1), which is attacked."""
    derivative = generating_derivative(count, mean)

    def density(x: float, shift: float) -> float:
        return derivative(float(norm.cdf(x - shift))) * float(norm.pdf(x - shift))

    def excess(x: float) -> float:
        return max(0.0, density(x, mu) - math.exp(epsilon) * density(x, 0.0))

    return float(quad(excess, -8, 12, limit=400, points=[2.0, 4.0, 6.0])[0])


@pytest.mark.parametrize("count", [None, *TrainingCount])
def test_the_best_of_many_gives_away_more_than_one_and_no_more_than_the_bound(count: TrainingCount | None) -> None:
    """Every training releases N(b mu, 1) and is judged by what it releases: the largest is published and attacked."""
    mu, trainings = 0.5, 30
    claim = Claim("add-remove-record", (GaussianRelease(mu, 1.0),), DELTA)
    cost = selection_cost([claim] * trainings)
    assert cost is not None
    bound = cost.composed if count is None else cost.random[count]
    assert delta_of_best(bound, mu, count, trainings) <= DELTA
    assert delta_of_best(cost.single, mu, count, trainings) > 2 * DELTA, "one training's epsilon does not cover it"


def test_the_best_of_simulated_trainings_is_attacked() -> None:
    """Draw 400,000 numbers of trainings and their best outputs; the bound holds, and that of one training does not."""
    draw = np.random.default_rng(0)
    trials = 400_000
    mu = 0.5
    mean = 30.0
    claim = Claim("add-remove-record", (GaussianRelease(mu, 1.0),), 1e-3)
    bound = random_count_epsilon([claim], TrainingCount.GEOMETRIC, mean)
    single = claim.profile.epsilon(1e-3)
    counts = draw.geometric(1 / mean, size=(2, trials))
    # The largest of K standard normals is the normal quantile of U^(1/K).
    best = norm.ppf(draw.random((2, trials)) ** (1 / counts)) + np.array([[mu], [0.0]])
    thresholds = np.linspace(-2, 5, 71)
    detection_rates, alarms = (np.array([(row > threshold).mean() for threshold in thresholds]) for row in best)
    for epsilon, is_broken in ((bound, False), (single, True)):
        excess = np.concatenate(
            [detection_rates - math.exp(epsilon) * alarms, 1 - alarms - math.exp(epsilon) * (1 - detection_rates)]
        )
        assert bool(excess.max() > 1e-3 + 5 * math.exp(epsilon) * 0.5 / math.sqrt(trials)) is is_broken


def test_the_sum_is_that_of_composition() -> None:
    cost = selection_cost([claim_of(4.0, 10), claim_of(2.0, 5)])
    assert cost is not None
    together = Claim("add-remove-record", (*gaussian_rounds(4.0, 10), *gaussian_rounds(2.0, 5)), DELTA)
    assert cost.composed == together.profile.epsilon(DELTA)
    assert cost.single == claim_of(2.0, 5).profile.epsilon(DELTA)
    assert f"{cost.composed:.3g}" in selection_text(cost)


def test_guarantees_are_taken_with_their_claims_and_trainings_without_one_are_left_out() -> None:
    claims = [claim_of(4.0, 10), claim_of(2.0, 5)]
    guarantees = [guarantee_of_all([claim]) for claim in claims]
    assert selection_cost_of([*guarantees, None]) == selection_cost(claims)
    assert selection_cost_of([guarantees[0], None]) is None
    assert selection_cost_of([guarantees[0], guarantee_of_all(claims)]) is None


def test_there_is_no_one_number_for_one_training_or_different_claims() -> None:
    other_claim = Claim("add-remove-record", gaussian_rounds(4.0, 1), 1e-6)
    assert selection_cost([claim_of(2.0)]) is None
    assert selection_cost([claim_of(2.0), other_claim]) is None
    assert "more than the epsilon of one" in selection_text(None)
