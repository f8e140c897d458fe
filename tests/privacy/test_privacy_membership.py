"""Bounds on the membership advantage: against linear programs, simulation of the worst case, and each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.special import log_ndtr, ndtr, ndtri

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for, noise_multiplier_for_all
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import RandomizedResponse, gaussian_rounds
from fl_audit.privacy.gaussian import gdp_delta
from fl_audit.privacy.guarantee import (
    Guarantee,
    _tradeoff_advantage_bound,
    derive_guarantee,
    membership_bounds,
    yeom_bound,
)
from fl_audit.privacy.reconstruction_bounds import reconstruction_bound
from fl_audit.privacy.targets import ReconstructionTarget

REPLACE = Adjacency.REPLACE_RECORD
ADD_REMOVE = Adjacency.ADD_REMOVE_RECORD


def claimed(adjacency: Adjacency, noise_multiplier: float, rounds: int, delta: float) -> Guarantee:
    return derive_guarantee(Claim(adjacency, gaussian_rounds(noise_multiplier, rounds), delta, 0.5, Accountant.GDP))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.001), (1.1, 0.01), (2.2, 1e-5), (0.0, 0.2)])
def test_tradeoff_bound_is_the_best_of_all_error_rates_that_the_guarantee_allows(epsilon: float, delta: float) -> None:
    """Maximise TPR - FPR subject to the four inequalities that define (epsilon, delta)-DP, by linear programming."""
    e = math.exp(epsilon)
    # TPR <= e FPR + delta, FPR <= e TPR + delta, and the same for 1 - TPR and 1 - FPR.
    rows = [[1, -e], [-e, 1], [-1, e], [e, -1]]
    limits = [delta, delta, e - 1 + delta, e - 1 + delta]
    solution = linprog([-1, 1], A_ub=rows, b_ub=limits, bounds=[(0, 1), (0, 1)])
    assert _tradeoff_advantage_bound(epsilon, delta) == pytest.approx(-solution.fun, abs=1e-9)


def test_known_values() -> None:
    assert yeom_bound(math.log(2)) == pytest.approx(1)
    assert yeom_bound(1e4) == math.inf
    assert _tradeoff_advantage_bound(math.log(3), 1e-12) == pytest.approx(0.5)
    assert _tradeoff_advantage_bound(1e4, 0.1) == 1


@given(epsilon=st.floats(0, 50), delta=st.floats(1e-12, 0.99))
def test_the_tradeoff_bound_is_at_most_yeoms_with_delta(epsilon: float, delta: float) -> None:
    assert delta - 1e-12 <= _tradeoff_advantage_bound(epsilon, delta) <= min(1, yeom_bound(epsilon) + delta) + 1e-12


@given(
    multiplier=st.floats(0.3, 50),
    rounds=st.integers(1, 60),
    delta=st.floats(1e-6, 0.1),
    adjacency=st.sampled_from([REPLACE, ADD_REMOVE]),
)
def test_the_exact_bound_is_the_tightest(multiplier: float, rounds: int, delta: float, adjacency: Adjacency) -> None:
    bounds = membership_bounds(claimed(adjacency, multiplier, rounds, delta))
    assert bounds.exact <= bounds.tradeoff + 1e-9
    assert adjacency is ADD_REMOVE or bounds.exact <= bounds.yeom + delta


@pytest.mark.parametrize(("adjacency", "factor"), [(REPLACE, 1), (ADD_REMOVE, 2)])
def test_the_exact_bound_is_reached_by_the_best_adversary(adjacency: Adjacency, factor: int) -> None:
    """Sum queries at the worst pair: a record at +C against one at -C, or, where records come and go, the same pair.

    The noise is z C there and z 2C for replaced records. 400000 draws err by 0.0022; 0.009 is four errors.
    """
    z, rounds = 4.0, 3
    guarantee = claimed(adjacency, z, rounds, 0.01)
    sigma = z * (2 if adjacency is REPLACE else 1)
    draw = np.random.default_rng(7)
    means = [draw.normal(centre, sigma / math.sqrt(rounds), 200_000) for centre in (1.0, -1.0)]
    reached = np.mean(means[0] > 0) - np.mean(means[1] > 0)
    bounds = membership_bounds(guarantee)
    assert reached == pytest.approx(bounds.exact, abs=0.009)
    assert bounds.exact == pytest.approx(gdp_delta(0.0, factor * guarantee.mu))
    # A bound that forgot that two records differ where records come and go would be broken by this adversary.
    assert (adjacency is REPLACE) == (reached < guarantee.advantage_bound_exact + 0.009)


# --- The bound of a guarantee on reconstruction, against the closed form, exact attacks and simulated ones


def simplex_success(mu: float, candidates: int) -> float:
    """Return how often the best attack names the right corner of a simplex whose corners have norm mu, unit noise."""
    apart = mu * math.sqrt(candidates / (candidates - 1))

    def hit(x: float) -> float:
        return math.exp(-((x - apart) ** 2) / 2 + (candidates - 1) * float(log_ndtr(x))) / math.sqrt(2 * math.pi)

    return quad(hit, -10, apart + 12, limit=400, points=[0.0, apart])[0]


@pytest.mark.parametrize(
    ("candidates", "mu", "share"),
    [(2, 1.0, 1.00), (10, 1.0, 0.92), (100, 2.0, 0.88), (1000, 2.0, 0.87), (10_000, 4.0, 0.91), (10_000, 6.0, 1.00)],
)
def test_the_best_attack_on_a_simplex_comes_as_near_the_bound_as_is_known(
    candidates: int, mu: float, share: float
) -> None:
    claim = Claim("add-remove-record", gaussian_rounds(1 / mu, 1), 1e-3)
    bound = reconstruction_bound(claim, 1 / candidates)
    success = simplex_success(mu, candidates)
    assert success <= bound * (1 + 1e-9)
    assert success / bound == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(("candidates", "rate"), [(2, 0.3), (20, 0.3), (200, 0.7)])
def test_the_exact_attack_on_sampled_rounds_stays_under_the_bound_and_comes_near_it(
    candidates: int, rate: float
) -> None:
    """20,000 trials of 5 sampled rounds with orthogonal candidates; a bound that is met fails in 1 of 3e6 (5 sigma)."""
    draw = np.random.default_rng(candidates)
    federations = 20_000
    rounds = 5
    noise = 0.7
    scores = np.zeros((federations, candidates))
    for _ in range(rounds):
        release = draw.normal(size=(federations, candidates)) * noise
        release[:, 0] += draw.random(federations) < rate
        scores += np.log1p(rate * np.expm1((release - 0.5) / noise**2))
    success = float(np.mean(scores.argmax(axis=1) == 0))
    claim = Claim("add-remove-record", gaussian_rounds(noise, rounds, rate), 1e-3)
    bound = reconstruction_bound(claim, 1 / candidates)
    assert success < bound + 5 * math.sqrt(bound / federations)
    assert success > 0.6 * bound


def test_thirty_rounds_of_central_noise_follow_the_closed_form() -> None:
    claim = Claim("add-remove-record", gaussian_rounds(1.0, 30), 1e-3)
    noise = noise_multiplier_for(ReconstructionTarget(0.05, 1000), claim)
    assert float(ndtr(math.sqrt(30) / noise + ndtri(1 / 1000))) == pytest.approx(0.05, rel=1e-12)


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_where_records_are_replaced_one_contribution_counts_and_not_two(rate: float) -> None:
    target = ReconstructionTarget(0.1, 50)
    removed, replaced = (
        noise_multiplier_for(target, Claim(adjacency, gaussian_rounds(1.0, 10, rate), 1e-4))
        for adjacency in (Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD)
    )
    assert replaced == pytest.approx(removed / 2, rel=2e-5)


@pytest.mark.parametrize("rate", [1.0, 0.2])
@pytest.mark.parametrize("target", [ReconstructionTarget(0.05), ReconstructionTarget(0.2, 100)])
def test_the_noise_that_is_found_keeps_the_guarantee_and_less_does_not(
    target: ReconstructionTarget, rate: float
) -> None:
    claim = Claim("replace-client", gaussian_rounds(1.0, 20, rate), 1e-5)
    noise = noise_multiplier_for(target, claim)
    assert reconstruction_bound(claim.with_noise(noise), target.chance) <= target.probability * (1 + 1e-9)
    assert reconstruction_bound(claim.with_noise(noise * 0.999), target.chance) > target.probability
    twice = claim.with_rounds(40)
    assert noise_multiplier_for_all(target, [claim, twice]) == pytest.approx(noise_multiplier_for(target, twice))


def test_a_randomized_response_is_bounded_by_its_own_trade_off() -> None:
    epsilon = 1.0
    bound = reconstruction_bound(Claim("replace-record", [RandomizedResponse(epsilon)], 1e-3, accountant="pld"), 0.5)
    assert bound == pytest.approx(1 - math.exp(-epsilon) / 2, rel=1e-4)
    assert bound > math.exp(epsilon) / (1 + math.exp(epsilon)), "the attack that believes the answer"
