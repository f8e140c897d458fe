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

from fl_audit.errors import InputError
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import GaussianRelease, gaussian_rounds
from fl_audit.privacy.guarantee import guarantee_of_all
from fl_audit.privacy.private_selection import (
    TrialCount,
    _negative_binomial,
    negative_binomial_parameter,
    random_count_epsilon,
    selection_cost,
    selection_cost_of,
    selection_text,
)
from fl_audit.privacy.renyi import RDP_ORDERS

DELTA = 1e-5
SHAPES = {TrialCount.LOGARITHMIC: 0.0, TrialCount.GEOMETRIC: 1.0, TrialCount.POISSON: math.inf}


def claim_of(z: float, rounds: int = 1) -> Claim:
    return Claim("add-remove-record", gaussian_rounds(z, rounds), DELTA)


@pytest.mark.parametrize("count", TrialCount)
@pytest.mark.parametrize("mean", [2.0, 40.0])
def test_bounds_are_those_of_dp_accounting(count: TrialCount, mean: float) -> None:
    z, rounds = 20.0, 10
    accountant = RdpAccountant(RDP_ORDERS.tolist())
    training = SelfComposedDpEvent(GaussianDpEvent(z), rounds)
    accountant.compose(RepeatAndSelectDpEvent(training, mean, SHAPES[count]))
    expected = accountant.get_epsilon(DELTA)
    found = random_count_epsilon([claim_of(z, rounds)], count, mean)
    if count is TrialCount.POISSON:  # its delta of one training comes from Renyi divergences, ours is exact
        assert found <= expected * (1 + 1e-9)
        mu, steps = math.sqrt(rounds) / z, 1 / (RDP_ORDERS - 1)
        hat = np.log1p(steps)
        deltas = norm.cdf(mu / 2 - hat / mu) - (1 + steps) * norm.cdf(-mu / 2 - hat / mu)
        divergences = RDP_ORDERS * mu**2 / 2 + mean * deltas + math.log(mean) * steps
        assert found == pytest.approx(compute_epsilon(RDP_ORDERS, divergences, DELTA)[0], rel=1e-6)
    else:
        assert found == pytest.approx(expected, rel=1e-6)


def test_the_parameter_has_the_mean_of_the_distribution() -> None:
    for mean in (1.5, 10.0, 1000.0):
        gamma = negative_binomial_parameter(0.0, mean)
        numbers = np.arange(1, 200_000)
        weights = (1 - gamma) ** numbers / numbers
        assert (numbers * weights).sum() / weights.sum() == pytest.approx(mean, rel=1e-3)
    with pytest.raises(InputError, match="above 1"):
        random_count_epsilon([claim_of(2.0)], TrialCount.GEOMETRIC, 1.0)


@pytest.mark.parametrize(("count", "factor"), [(TrialCount.LOGARITHMIC, 2.0), (TrialCount.GEOMETRIC, 3.0)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_pure_privacy_costs_what_the_paper_states(count: TrialCount, factor: float, epsilon: float) -> None:
    """Papernot and Steinke 2022, corollary 3: (2 + eta) epsilon, of which eta = 1 is the 3 epsilon of Liu and Talwar.

    The corollary is the limit of large orders. At a finite order l what is above it is at most
    (1 + eta) log(1/gamma) / l + log(mean) / (order - 1), and what is below it (1 + eta) epsilon / l, since
    log(1/gamma) exceeds epsilon here.
    """
    eta, mean = SHAPES[count], 1e4
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
    for count in (TrialCount.LOGARITHMIC, TrialCount.GEOMETRIC):
        eta = SHAPES[count]
        log_inverse = -math.log(negative_binomial_parameter(eta, mean))
        second = (1 + eta) * (2 * math.sqrt(rho * log_inverse) - rho)
        expected = rho * RDP_ORDERS + second + math.log(mean) / (RDP_ORDERS - 1)
        assert _negative_binomial(rho * RDP_ORDERS, eta, mean) == pytest.approx(expected, rel=2e-3)


def generating_derivative(count: TrialCount | None, mean: float) -> Callable[[float], float]:
    """Return the derivative of the generating function of the number of trainings; None for a fixed number."""
    match count:
        case None:
            return lambda x: mean * x ** (mean - 1)
        case TrialCount.POISSON:
            return lambda x: mean * math.exp(mean * (x - 1))
        case TrialCount.GEOMETRIC:
            gamma = 1 / mean
            return lambda x: gamma / (1 - (1 - gamma) * x) ** 2
        case TrialCount.LOGARITHMIC:
            gamma = negative_binomial_parameter(0.0, mean)
            return lambda x: (1 - gamma) / (-math.log(gamma) * (1 - (1 - gamma) * x))


def delta_of_best(epsilon: float, mu: float, count: TrialCount | None, mean: float) -> float:
    """Return the exact delta of the largest of several draws from N(mu, 1) against N(0, 1), which is attacked."""
    derivative = generating_derivative(count, mean)

    def density(x: float, shift: float) -> float:
        return derivative(float(norm.cdf(x - shift))) * float(norm.pdf(x - shift))

    def excess(x: float) -> float:
        return max(0.0, density(x, mu) - math.exp(epsilon) * density(x, 0.0))

    return float(quad(excess, -8, 12, limit=400, points=[2.0, 4.0, 6.0])[0])


@pytest.mark.parametrize("count", [None, *TrialCount])
def test_the_best_of_many_gives_away_more_than_one_and_no_more_than_the_bound(count: TrialCount | None) -> None:
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
    draw, trials, mu, mean = np.random.default_rng(0), 400_000, 0.5, 30.0
    claim = Claim("add-remove-record", (GaussianRelease(mu, 1.0),), 1e-3)
    bound = random_count_epsilon([claim], TrialCount.GEOMETRIC, mean)
    single = claim.profile.epsilon(1e-3)
    counts = draw.geometric(1 / mean, size=(2, trials))
    # The largest of K standard normals is the normal quantile of U^(1/K).
    best = norm.ppf(draw.random((2, trials)) ** (1 / counts)) + np.array([[mu], [0.0]])
    thresholds = np.linspace(-2, 5, 71)
    found, alarms = (np.array([(row > threshold).mean() for threshold in thresholds]) for row in best)
    for epsilon, is_broken in ((bound, False), (single, True)):
        excess = np.concatenate([found - math.exp(epsilon) * alarms, 1 - alarms - math.exp(epsilon) * (1 - found)])
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
    other = Claim("add-remove-record", gaussian_rounds(4.0, 1), 1e-6)
    assert selection_cost([claim_of(2.0)]) is None
    assert selection_cost([claim_of(2.0), other]) is None
    assert "more than the epsilon of one" in selection_text(None)
