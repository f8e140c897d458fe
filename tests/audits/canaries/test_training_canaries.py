"""Canaries of a training: directions, coins, scores, cosines, and what they certify together."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import binom, ks_2samp, nct, norm, t

from fl_audit.adjacency import Adjacency
from fl_audit.audits.canaries.bounds import one_run_bound
from fl_audit.audits.canaries.canary_draws import canary_coins, canary_direction, canary_score, canary_update
from fl_audit.audits.canaries.epsilon_from_cosines import epsilon_of_two_normals, from_final_model
from fl_audit.audits.canaries.epsilon_from_scores import certify
from fl_audit.audits.canaries.guessing_bounds import Guesses, tradeoff_mu
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import LaplaceRelease, gaussian_rounds
from fl_audit.privacy.gaussian import gdp_epsilon, gdp_mu
from tests.audits.canaries.one_run_mechanisms import false_certificates, limit_under_dependence, mechanisms, problems
from tests.builders.canary_trainings import NEEDED, Training, study
from tests.builders.refusals import assert_refused

ALARM = 1e-4


@pytest.mark.long
def test_a_client_can_carry_it() -> None:
    """Directions, coins and scores load numpy alone; the bounds load scipy, and nothing that learns."""
    line = "import sys, fl_audit.audits.canaries.{}; print([m for m in {!r} if m in sys.modules])"
    heavy = ("torch", "pandas", "sklearn", "opacus", "flwr", "ray", "dp_accounting")
    unwanted = {"canary_draws": (*heavy, "scipy"), "epsilon_from_scores": heavy, "bounds": heavy}
    code = "\n".join(line.format(module, names) for module, names in unwanted.items())
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["[]"] * len(unwanted)


def test_directions_are_unit_vectors_of_their_own_and_repeat() -> None:
    direction = canary_direction(3, round=2, canary=1, dimension=5000)
    assert np.linalg.norm(direction) == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(direction, canary_direction(3, round=2, canary=1, dimension=5000))
    other_directions = [
        canary_direction(3, 2, 0, 5000),
        canary_direction(3, 1, 1, 5000),
        canary_direction(4, 2, 1, 5000),
    ]
    assert max(abs(direction @ other_direction) for other_direction in other_directions) < 5 / np.sqrt(5000)


def test_coins_are_fair_and_those_of_later_rounds_do_not_move_earlier_ones() -> None:
    coins = canary_coins(11, range(500), 4)
    assert coins.shape == (500, 4)
    np.testing.assert_array_equal(coins[:7], canary_coins(11, range(7), 4))
    np.testing.assert_array_equal(coins[3:5, :2], canary_coins(11, [3, 4], 2))
    assert binom.ppf(ALARM, 2000, 0.5) <= coins.sum() <= binom.ppf(1 - ALARM, 2000, 0.5)


@pytest.mark.parametrize("clipping_norm", [1e-3, 1.0, 3.3, 1e4])
def test_an_update_is_as_large_as_clipping_lets_pass(clipping_norm: float) -> None:
    update = canary_update(canary_direction(0, 0, 0, 10_000), clipping_norm)
    for norm_found in (np.linalg.norm(update.astype(np.float64)), np.linalg.norm(update)):
        assert (1 - 2e-6) * clipping_norm <= norm_found <= clipping_norm


def test_a_score_tells_by_how_much_a_canary_was_in() -> None:
    direction = canary_direction(1, 1, 1, 2000)
    other_direction = canary_direction(1, 1, 2, 2000)
    with_it = canary_update(direction, 2.0) + 3 * other_direction
    assert canary_score(with_it, direction) - canary_score(3 * other_direction, direction) == pytest.approx(2, abs=1e-5)
    assert_refused(r"release .*\(3,\): .*\(2000,\)", canary_score, np.ones(3), direction)
    assert_refused(r"release .*not finite", canary_score, np.full(2000, np.nan), direction)
    assert_refused(r"clipping norm.* 0\b", canary_update, direction, 0.0)


def released(training: Training, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Play a training with whole vectors, as a federation would: what `Training.scores` draws without them."""
    draw = np.random.default_rng(seed)
    coins = canary_coins(seed, range(training.rounds), training.canaries)
    scores = np.zeros(coins.shape)
    decoys = np.zeros((training.rounds, training.decoys))
    for number in range(training.rounds):
        directions = [canary_direction(seed, number, canary, training.dimension) for canary in range(training.canaries)]
        updates = draw.normal(size=(training.clients - training.canaries, training.dimension))
        release = (updates / np.linalg.norm(updates, axis=1, keepdims=True)).sum(axis=0)
        release += training.noise_multiplier * draw.normal(size=training.dimension)
        for canary, direction in enumerate(directions):
            release += coins[number, canary] * canary_update(direction, 1.0)
        scores[number] = [canary_score(release, direction) for direction in directions]
        unsent = range(training.canaries, training.canaries + training.decoys)
        decoys[number] = [
            canary_score(release, canary_direction(seed, number, canary, training.dimension)) for canary in unsent
        ]
    return scores, coins, decoys


def test_scores_drawn_without_vectors_have_the_distribution_of_whole_vectors() -> None:
    training = Training(canaries=6, rounds=60, clients=30, dimension=400, decoys=6)
    whole = released(training, 1)
    samples = [training.scores(np.random.default_rng(s)) for s in range(20)]
    for selector in (
        lambda sample: sample[0][sample[1]],
        lambda sample: sample[0][~sample[1]],
        lambda sample: sample[2].ravel(),
    ):
        assert ks_2samp(selector(whole), np.concatenate([selector(sample) for sample in samples])).pvalue > ALARM


def test_ten_canary_clients_certify_a_training_of_whole_vectors() -> None:
    training = Training(canaries=10, rounds=40, clients=20, dimension=2000, decoys=10)
    scores, coins, decoys = released(training, 2)
    certificate = certify(scores, coins, training.claim, decoys=decoys)
    assert (certificate.canaries, certificate.rounds, certificate.mu_claimed) == (10, 40, 1.0)
    assert 0.75 < certificate.mu_lower < 1.0
    assert certificate.mu_lower < certificate.mu < 1.3
    assert not certificate.is_violated
    assert certificate.epsilon_lower == pytest.approx(gdp_epsilon(1e-5, certificate.mu_lower * np.sqrt(40)), rel=1e-9)
    assert certificate.epsilon_claimed == pytest.approx(gdp_epsilon(1e-5, np.sqrt(40)), rel=1e-9)
    stricter = certify(scores, coins, training.claim.with_noise(2.0), decoys=decoys)
    assert stricter.is_violated, "the same scores under a claim of twice the noise"
    assert stricter.epsilon_lower == pytest.approx(certificate.epsilon_lower, rel=1e-6), (
        "what is certified needs no claim"
    )


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("canaries", NEEDED)
def test_canary_clients_certify_what_is_asked_of_them(canaries: int) -> None:
    """40 trainings with 100 rounds, noise multiplier 1, 50 clients and 5000 parameters."""
    lines = study(Training(canaries), 40)
    assert [problem for line in lines for problem in line.problems()] == []
    shares = {line.method: line.share for line in lines}
    assert shares["trade-off"] < shares["shift, decoys"]


@pytest.mark.long
def test_certificates_are_false_no_more_often_than_stated() -> None:
    """The quick form of the study: seven mechanisms, four certificates each, 100 runs; false alarm 1e-3."""
    lines = [
        line for seed, mechanism in enumerate(mechanisms()) for line in false_certificates(mechanism, 100, seed + 50)
    ]
    assert problems(lines) == []
    broken = [(line.certificate, line.mechanism) for line in lines if line.false > 0.15 * line.runs]
    assert broken == [("shift, mu", mechanisms()[-1].name)], "normal scores are assumed, and coins leak together"


def test_truths_of_the_mechanisms() -> None:
    by_name = {mechanism.name: mechanism for mechanism in mechanisms()}
    assert by_name["randomised response, epsilon = 1"].mu == pytest.approx(1.232, abs=1e-3)
    assert by_name["Gaussian mean, mu = 1"].epsilon(1e-5) == pytest.approx(gdp_epsilon(1e-5, 1.0), abs=1e-4)
    together = by_name["all records or none (one run in ten), by randomised response at 2"]
    assert together.mu == pytest.approx(0.907, abs=1e-3)


def test_no_bound_by_counts_can_do_much_better_under_dependence() -> None:
    """The limit is reached by a mechanism: what the trade-off bound certifies lies under it, and not far."""
    guesses = Guesses(1000, 100, 90)
    limit = limit_under_dependence(guesses)
    assert 0.85 * limit < tradeoff_mu(guesses, 0.05) < limit == pytest.approx(0.689, abs=2e-3)


@pytest.mark.parametrize(
    ("mean", "spread", "delta"), [(1.0, 1.0, 1e-2), (0.3, 1.1, 1e-5), (1, 0.8, 1e-3), (0, 1.3, 0.01)]
)
def test_epsilon_of_two_normals_by_quadrature(mean: float, spread: float, delta: float) -> None:
    epsilon = epsilon_of_two_normals(mean, spread, delta)
    y = np.linspace(-60, 60, 2_000_001)
    p = norm(mean, spread).pdf(y)
    q = norm().pdf(y)
    divergences = [
        np.maximum(0.0, density - np.exp(epsilon) * other_density).sum() * (y[1] - y[0])
        for density, other_density in ((p, q), (q, p))
    ]
    assert max(divergences) == pytest.approx(delta, rel=1e-6)


def test_the_published_value_of_cosines() -> None:
    """google-research/federated, one_shot_epe: mean and spread 1 / sqrt(d), d = 2000, delta .01 give 2.317789."""
    assert epsilon_of_two_normals(1.0, 1.0, 1e-2) == pytest.approx(2.317789, abs=1e-6)
    assert epsilon_of_two_normals(0.0, 1.0, 1e-5) == 0


def test_cosines_of_a_gaussian_mechanism_estimate_and_bound_its_epsilon() -> None:
    """Scores N(mu, 1) of 500 canaries, 200 repetitions: at most 5 % of bounds lie above the truth, and chance."""
    draw = np.random.default_rng(1)
    dimension = 20_000
    for truth in (1.0, 3.01, 10.0):
        mu = gdp_mu(truth, 1e-5)
        certificates = [
            from_final_model((mu + draw.normal(size=500)) / np.sqrt(dimension), dimension, 1e-5) for _ in range(200)
        ]
        estimates, lower, _ = np.transpose(certificates)
        assert (lower > truth).sum() <= binom.ppf(1 - ALARM, 200, 0.05)
        assert truth - 1.5 < lower.mean() < truth
        assert truth < estimates.mean() < 1.12 * truth + 0.7


def test_shift_with_decoys_uses_them_and_others_refuse_them() -> None:
    draw = np.random.default_rng(3)
    coins = draw.random(200) < 0.5
    scores = coins + draw.normal(size=200)
    decoys = draw.normal(size=5000)
    alone, helped = (
        one_run_bound(scores, coins, 1e-5, method=OneRunMethod.SHIFT, decoys=decoy_scores)
        for decoy_scores in ((), decoys)
    )
    assert helped.limit_of_detection < alone.limit_of_detection
    # At the limit, nine of ten lower bounds are above 0.
    noncentrality = gdp_mu(alone.limit_of_detection, 1e-5) / np.sqrt(1 / coins.sum() + 1 / (~coins).sum())
    assert nct.sf(t.ppf(0.95, 198), 198, noncentrality) == pytest.approx(0.9, abs=1e-6)
    assert_refused("decoys with trade-off", one_run_bound, scores, coins, 1e-5, decoys=decoys)


def test_what_cannot_be_certified_is_refused() -> None:
    claim = Claim(Adjacency.REPLACE_CLIENT, gaussian_rounds(1.0, 3), 1e-5, 0.5, Accountant.GDP)
    scores = np.arange(6.0).reshape(3, 2)
    coins = np.array([[True, False]] * 3)
    assert_refused(r"scores .*\(6,\)", lambda: certify(scores.ravel(), coins.ravel(), claim))
    assert_refused("decoys under replace-client", certify, scores, coins, claim, decoys=[0.0])
    assert_refused("method is steinke", certify, scores, coins, claim, method=OneRunMethod.STEINKE)
    laplace_claim = Claim(Adjacency.REPLACE_CLIENT, (LaplaceRelease(1.0, 1.0),), 1e-5, 0.5, Accountant.PLD)
    assert_refused("Laplace release", certify, scores, coins, laplace_claim)
    assert_refused("cosines leave -1 to 1", from_final_model, [0.1, 2.0], 2000, 1e-5)
    assert_refused("dimension is 10", from_final_model, [0.1, 0.2], 10, 1e-5)
    assert_refused(r"cosines .*dimension", one_run_bound, [0.1, 0.2], [True, True], 1e-5, method=OneRunMethod.COSINES)
