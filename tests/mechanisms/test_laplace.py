"""Laplace noise: its exact privacy loss, its likelihood ratio, and residuals that are standard normal."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from scipy import integrate, stats

from fl_audit.adjacency import Adjacency
from fl_audit.learning.optimizers import ServerOptimizer, ServerOptimizerKind
from fl_audit.mechanisms.contribution import FixedClipping
from fl_audit.mechanisms.likelihood_ratio import Hypotheses
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.noises.laplace import CentralLaplace
from fl_audit.mechanisms.participations.everybody import Everybody
from fl_audit.mechanisms.participations.poisson import PoissonSampling
from fl_audit.mechanisms.threat_model import CLIENT_ALONE
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.accounting_enums import Accountant, NoiseDistribution, VectorNorm
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import LaplaceRelease
from fl_audit.privacy.independent_epsilon import PlayedReleases, independent_epsilon
from fl_audit.privacy.targets import BeliefTarget, EpsilonTarget
from tests.builders.refusals import assert_refused

ADD_REMOVE = Adjacency.ADD_REMOVE_RECORD


def mechanism(**changes: object) -> Mechanism:
    fields: dict[str, object] = {
        "adjacency": ADD_REMOVE,
        "clipping": FixedClipping(3.0, measured_in=VectorNorm.L1),
        "participation": Everybody(),
        "noise": CentralLaplace(2.0),
        "denominator": 10.0,
        "optimizer": ServerOptimizer(ServerOptimizerKind.SGD, 1.0),
    }
    return Mechanism(**(fields | changes))  # type: ignore[arg-type]


def hockey_stick(log_epsilon: float, losses: np.ndarray, masses: np.ndarray) -> float:
    return float(masses @ np.maximum(0.0, -np.expm1(log_epsilon - losses)))


def loss_of_shift(shift: float, cells: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Return losses and probabilities of one coordinate that is shifted by a number of scales."""
    edges = np.linspace(0.0, shift, cells + 1)
    below = stats.laplace.cdf(edges, loc=shift)
    losses = np.concatenate([[-shift], edges[1:] + edges[:-1] - shift, [shift]])
    return losses, np.concatenate([[below[0]], np.diff(below), [0.5]])


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.3, 0.7)])
@pytest.mark.parametrize("shift", [0.2, 1.0, 4.0])
def test_a_difference_in_one_coordinate_is_the_easiest_to_detect(shift: float, shares: tuple[float, float]) -> None:
    """Hence the loss of one number accounts for vectors: it dominates, and composition keeps that for more coordinates.

    The proof for two coordinates with shifts s <= t and any epsilon >= 0: a shift t alone has delta(x) = max(0, 1 -
    exp((x - t) / 2)) for x >= -t. Given the loss l <= s of the other coordinate, delta at epsilon is delta_t(epsilon -
    l) <= 1 - exp((epsilon - s - t) / 2), which is delta of the shift s + t in one coordinate. Losses are symmetric, so
    negative epsilons follow.
    """
    first, second = (loss_of_shift(shift * share, 600) for share in shares)
    losses = (first[0][:, None] + second[0]).reshape(-1)
    masses = (first[1][:, None] * second[1]).reshape(-1)
    for epsilon in np.linspace(-1.2 * shift, 1.2 * shift, 25):
        together = hockey_stick(epsilon, losses, masses)
        alone = hockey_stick(epsilon, *loss_of_shift(shift))
        assert together <= alone + 1e-5 * shift


@pytest.mark.parametrize(("z", "rounds", "delta"), [(4.0, 4, 1e-2), (1.0, 4, 1e-2), (2.0, 30, 1e-5), (10.0, 100, 1e-6)])
def test_epsilon_is_that_of_dp_accounting_and_of_the_independent_accountant(
    z: float, rounds: int, delta: float
) -> None:
    (event,) = mechanism(noise=CentralLaplace(z)).events(rounds, CLIENT_ALONE)
    assert event == LaplaceRelease(1.0, z, rounds)
    epsilon = PrivacyProfile((event,), ADD_REMOVE).epsilon(delta)
    theirs = privacy_loss_distribution.from_laplace_mechanism(z, sensitivity=1.0, value_discretization_interval=1e-4)
    assert epsilon == pytest.approx(theirs.self_compose(rounds).get_epsilon_for_delta(delta), rel=1e-5)
    again = independent_epsilon([PlayedReleases(z, rounds, distribution=NoiseDistribution.LAPLACE)], delta)
    assert epsilon == pytest.approx(again.epsilon, abs=again.error)


def test_noise_is_calibrated_and_a_little_less_is_too_little() -> None:
    claim = Claim(ADD_REMOVE, (LaplaceRelease(1.0, 1.0, 10),), 1e-5)
    assert claim.accountant is Accountant.PLD
    z = noise_multiplier_for(EpsilonTarget(2.0), claim)
    at, below = (claim.with_noise(factor * z).profile.epsilon(1e-5) for factor in (1.0, 0.999))
    assert at <= 2.0 < below
    pure = Claim(ADD_REMOVE, (LaplaceRelease(1.0, 1.0),), 1e-9)
    # With hardly any delta, one release has the epsilon of pure differential privacy, 1 / z.
    assert noise_multiplier_for(EpsilonTarget(0.5), pure) == pytest.approx(2.0, rel=1e-3)
    z = noise_multiplier_for(BeliefTarget(0.9), claim)
    assert claim.with_noise(z).profile.belief_at(1e-5, claim.sensitivities) == pytest.approx(0.9, rel=1e-3)


def test_the_ratio_is_that_of_the_densities_and_residuals_are_normal() -> None:
    draw = np.random.default_rng(0)
    trials = 400
    size = 60
    shared, present, absent = (draw.standard_normal((trials, size)) for _ in range(3))
    bits = draw.random(trials) < 0.5
    scale = draw.uniform(0.5, 2.0, trials)
    noise = draw.laplace(size=(trials, size))
    release = shared + np.where(bits[:, None], present, absent) + scale[:, None] * noise
    tensors = [torch.from_numpy(comparison) for comparison in (shared, present, absent)]
    hypotheses = Hypotheses(*tensors)
    widths = torch.from_numpy(scale)
    distance = torch.from_numpy(hypotheses.sensitivity_in(VectorNorm.L2))
    (comparison,) = hypotheses.compare_with(torch.from_numpy(release))
    llrs = CentralLaplace(1.0).release_llrs(comparison, widths, distance, hypotheses)
    densities = [
        stats.laplace.logpdf(release, shared + contribution, scale[:, None]).sum(axis=1)
        for contribution in (present, absent)
    ]
    np.testing.assert_allclose(llrs.log_odds.numpy(), densities[0] - densities[1], rtol=1e-9, atol=1e-9)
    true = np.where(bits, llrs.scores[:, 0].numpy(), llrs.scores[:, 1].numpy())
    assert stats.kstest(true, "norm").pvalue > 0.001
    residuals = CentralLaplace(1.0).standard_residuals(torch.from_numpy(noise)).numpy().reshape(-1)
    assert stats.kstest(residuals, "norm").pvalue > 0.001
    assert CentralLaplace(1.0).standard_residuals(torch.tensor([-800.0, 0.0, 800.0])).isfinite().all()


def test_draws_have_the_laplace_distribution_and_residuals_give_the_normal_draws_back() -> None:
    normals = torch.from_numpy(np.random.default_rng(1).standard_normal((50, 400), dtype=np.float32))
    draws = CentralLaplace(1.0).server_draws()(lambda _: normals.clone(), 1)
    assert draws.dtype == torch.float32
    assert stats.kstest(draws.numpy().reshape(-1), "laplace").pvalue > 0.001
    back = CentralLaplace(1.0).standard_residuals(draws.double())
    np.testing.assert_allclose(back.numpy(), normals.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ratio", [0.3, 0.7, 1.0, 1.5])
def test_the_ratio_of_scales_follows_from_the_spread_of_residuals(ratio: float) -> None:
    def square(x: float) -> float:
        return float(stats.norm.ppf(0.5 * math.exp(-ratio * x)) ** 2 * math.exp(-x))

    deviation = math.sqrt(integrate.quad(square, 0, 300)[0])
    noise = CentralLaplace(1.0)
    assert noise.residual_ratio(ratio) == pytest.approx(deviation, rel=1e-7)
    assert noise.noise_ratio(deviation) == pytest.approx(ratio, rel=1e-6)


def test_a_small_shift_of_the_noise_shifts_residuals_as_stated() -> None:
    shift = 1e-3
    noise = CentralLaplace(1.0)
    nodes, weights = np.polynomial.laguerre.laggauss(80)
    noise_values = torch.from_numpy(np.concatenate([nodes, -nodes]))
    mean = float(noise.standard_residuals(noise_values + shift).numpy() @ np.concatenate([weights, weights]) / 2)
    assert mean / shift == pytest.approx(noise.residual_shift, rel=1e-2)


def test_what_it_does_not_go_together_with_is_refused() -> None:
    assert mechanism().global_sensitivity == 3.0
    named = "clipped in the L2 norm, and noise is 'laplace': accepted with it is the L1"
    assert_refused(named, lambda: mechanism(clipping=FixedClipping(3.0)))
    named = r"'laplace' at sampling rate 0.5, .*: accepted are cohorts"
    assert_refused(named, lambda: mechanism(participation=PoissonSampling(0.5)))


def test_epsilon_of_more_rounds_is_larger_and_scales_of_the_noise_follow_the_sensitivity() -> None:
    epsilons = [
        PrivacyProfile(mechanism().events(rounds, CLIENT_ALONE), ADD_REMOVE).epsilon(1e-5) for rounds in (1, 2, 9)
    ]
    assert all(epsilon < next_epsilon for epsilon, next_epsilon in pairwise(epsilons))
    np.testing.assert_array_equal(mechanism().server_scale(np.zeros(2)), np.full(2, 6.0))
