"""The bound of a guarantee on reconstruction, against the closed form, exact attacks and simulated ones."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr, ndtri

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for, noise_multiplier_for_all
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import RandomizedResponse, gaussian_rounds
from fl_audit.privacy.reconstruction_bounds import reconstruction_bound
from fl_audit.privacy.targets import ReconstructionTarget


def one_round(mu: float) -> Claim:
    return Claim("add-remove-record", gaussian_rounds(1 / mu, 1), 1e-3)


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
    bound, success = reconstruction_bound(one_round(mu), 1 / candidates), simplex_success(mu, candidates)
    assert success <= bound * (1 + 1e-9)
    assert success / bound == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(("candidates", "rate"), [(2, 0.3), (20, 0.3), (200, 0.7)])
def test_the_exact_attack_on_sampled_rounds_stays_under_the_bound_and_comes_near_it(
    candidates: int, rate: float
) -> None:
    """20,000 trials of 5 sampled rounds with orthogonal candidates; a bound that is met fails in 1 of 3e6 (5 sigma)."""
    draw, federations, rounds, noise = np.random.default_rng(candidates), 20_000, 5, 0.7
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


def test_noise_that_follows_one_pair_guarantees_nothing_about_other_records() -> None:
    claim = Claim("replace-record", gaussian_rounds(1.0, 5), 1e-3, accountant=Accountant.GDP, sensitivities="fixed")
    with pytest.raises(InputError, match="sensitivities are fixed"):
        reconstruction_bound(claim, 0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReconstructionTarget(0.001, 1000), "reconstruction is 0.001: .* above 0.001"),
        (lambda: ReconstructionTarget(0.5, 1), "candidates is 1: .* from 2"),
        (lambda: ReconstructionTarget(1.0), "reconstruction is 1.0: .* below 1"),
    ],
)
def test_targets_that_mean_nothing_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InputError, match=message):
        make()
