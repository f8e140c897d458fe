"""Calibration: find the smallest noise multiplier that meets a privacy target.

The input is a target (module `targets`) and a claim with noise multiplier 1. The module `guarantee` computes the
guarantee of the calibrated noise.
"""

import math
from collections.abc import Callable, Sequence
from typing import assert_never

from scipy.special import ndtri

from fl_audit.errors import InputError, require
from fl_audit.privacy import identifiability_bounds, pld, targets
from fl_audit.privacy.accounting import Accountant, _require_accountable, account, epsilon_of_mu, mu_of_epsilon
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import full_participation_mu
from fl_audit.privacy.gaussian import gdp_mu
from fl_audit.privacy.reconstruction_bounds import as_add_remove, reconstruction_bound
from fl_audit.privacy.targets import Target
from fl_audit.root_finding import smallest_root

_HARDLY_EVER = 1e-6
"""If a unit participates in at least one round with a smaller probability, the search starts at the smallest noise."""
_PLD_TOLERANCE = 1e-5  # relative tolerance of the noise multiplier under `pld` with sampling
SMALLEST_SAMPLED_NOISE = 0.01
"""Smallest noise multiplier that calibration returns with sampling.

Sampling alone may meet a target, so that even less noise would suffice.
"""


def noise_multiplier_for(target: Target, claim: Claim) -> float:
    """Return the smallest noise multiplier, sigma over the sensitivity, with which a claim meets a privacy target.

    The relative excess over the smallest possible value is at most 1e-9 without sampling, 1e-8 with sampling, and 1e-5
    with sampling under `pld`. With sampling, the result is at least `SMALLEST_SAMPLED_NOISE`. Raises `InputError` if
    the claim has no noise, a number is out of range, or the accountant finds no noise that meets the target.

    Parameters
    ----------
    target
        The privacy target. A belief is bounded by Eq. (5) of Bernau et al. 2021 under `rdp-classic`, and by the tail of
        the log-odds under `gdp` and `pld`; `rdp` does not support it. The other targets are bounded exactly under every
        accountant. Under `rdp-classic` the score `rho_alpha` meets an advantage target as well, by Eq. (6) of the
        paper.
    claim
        The claim with noise multiplier 1; `claim.with_noise(z)` is the claim with noise multiplier z.

    Examples
    --------
    >>> from fl_audit.adjacency import Adjacency
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> from fl_audit.privacy.targets import BeliefTarget
    >>> claim = Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(1.0, 30), 0.001, 0.5, Accountant.RDP_CLASSIC)
    >>> round(noise_multiplier_for(BeliefTarget(0.9), claim), 3)
    9.952
    """
    has_noise = claim.noise_over_sensitivity is not None
    require(has_noise, "the claim has no noise to be scaled: accepted is at least one event with noise")
    match target:
        case targets.NoiseMultiplierTarget(noise_multiplier):
            return noise_multiplier
        case targets.EpsilonTarget(epsilon):
            return _for_epsilon(epsilon, claim)
        case targets.BeliefTarget(belief):
            return _for_belief(belief, claim)
        case targets.AdvantageTarget(advantage):
            return _for_advantage(advantage, claim)
        case targets.ReconstructionTarget():
            return _for_hits(target.probability, target.chance, claim)
        case _:
            assert_never(target)


def noise_multiplier_for_all(target: Target, claims: Sequence[Claim]) -> float:
    """Return the smallest noise multiplier with which each of several claims meets a privacy target.

    Raises `InputError` in the same cases as `noise_multiplier_for`.

    Parameters
    ----------
    target
        The privacy target.
    claims
        At least one claim with noise multiplier 1.
    """
    first, *other_claims = claims
    noise = noise_multiplier_for(target, first)
    while True:
        used = [_ratio_to_target(target, claim.with_noise(noise)) for claim in other_claims]
        missed = sorted((-share, number) for number, share in enumerate(used) if share > 1)
        if not missed:
            return noise
        noise = max(noise, noise_multiplier_for(target, other_claims[missed[0][1]]))
        other_claims = [other_claims[number] for _, number in missed[1:]]


def _ratio_to_target(target: Target, claim: Claim) -> float:
    """Return the value that a claim guarantees, such as its epsilon, divided by the value that the target allows.

    The target is met if the result is at most 1.
    """

    def epsilon() -> float:
        return account(claim.profile, claim.accountant, claim.delta)

    match target:
        case targets.NoiseMultiplierTarget():
            return 1.0
        case targets.EpsilonTarget(most):
            return epsilon() / most
        case targets.BeliefTarget(belief):
            if claim.accountant in (Accountant.RDP_CLASSIC, Accountant.RDP):
                return epsilon() / identifiability_bounds.epsilon_from_belief(belief, claim.prior)
            return claim.profile.belief_at(claim.delta, claim.sensitivities) / belief
        case targets.AdvantageTarget(advantage):
            exact = claim.profile.advantage() / advantage
            if claim.accountant is not Accountant.RDP_CLASSIC:
                return exact
            return max(exact, epsilon() / identifiability_bounds.epsilon_from_advantage(advantage, claim.delta))
        case targets.ReconstructionTarget():
            return reconstruction_bound(claim, target.chance) / target.probability
        case _:
            assert_never(target)


def _for_epsilon(epsilon: float, claim: Claim) -> float:
    _require_accountable(claim.profile, claim.accountant)
    unit = claim.profile.gaussian_mu
    if unit is not None:
        start = unit / mu_of_epsilon(claim.accountant, epsilon, claim.delta)
        return _raised_until(lambda z: epsilon_of_mu(claim.accountant, unit / z, claim.delta) <= epsilon, start)
    start = _start(claim, gdp_mu(epsilon, claim.delta))
    if claim.accountant is Accountant.PLD:
        return _by_curves(lambda curves: curves.epsilon(claim.delta) / epsilon - 1, claim, start)
    mu_of_epsilon(claim.accountant, epsilon, claim.delta)  # refuses an epsilon that is reported without any release

    def gap(z: float) -> float:
        return account(claim.with_noise(z).profile, claim.accountant, claim.delta) / epsilon - 1

    return smallest_root(gap, start, 1e-8, SMALLEST_SAMPLED_NOISE)


def _for_belief(belief: float, claim: Claim) -> float:
    identifiability_bounds._require_belief(belief, claim.prior)
    log_odds = identifiability_bounds.epsilon_from_belief(belief, claim.prior)
    match claim.accountant:
        case Accountant.RDP_CLASSIC:
            _require_above_floor(
                "belief", belief, log_odds, lambda floor: identifiability_bounds.rho_beta(floor, claim.prior), claim
            )
            return _for_epsilon(log_odds, claim)
        case Accountant.RDP:
            accepted = "accepted for a belief are rdp-classic, pld and, without sampling, gdp"
            raise InputError(f"accountant is rdp: its conversion bounds no belief; {accepted}")
        case Accountant.GDP | Accountant.PLD:
            _require_accountable(claim.profile, claim.accountant)
            delta = claim.delta
            kind = claim.sensitivities
            mu = identifiability_bounds.mu_from_belief(belief, delta, kind, claim.prior)
            return _for_mu(mu, claim, lambda curves: curves._log_odds_at(delta, kind) / log_odds - 1)
        case _:
            assert_never(claim.accountant)


def _for_advantage(advantage: float, claim: Claim) -> float:
    _require_accountable(claim.profile, claim.accountant)
    noise = _for_mu(
        identifiability_bounds.mu_from_advantage(advantage), claim, lambda curves: curves.delta(0.0) / advantage - 1
    )
    if claim.accountant is not Accountant.RDP_CLASSIC:
        return noise
    epsilon = identifiability_bounds.epsilon_from_advantage(advantage, claim.delta)
    _require_above_floor(
        "advantage", advantage, epsilon, lambda floor: identifiability_bounds.rho_alpha(floor, claim.delta), claim
    )
    return max(noise, _for_epsilon(epsilon, claim))


def _for_hits(probability: float, chance: float, claim: Claim) -> float:
    """Return the noise multiplier at which an attack succeeds with at most `probability`.

    `chance` is its probability of success without any release.
    """
    _require_accountable(claim.profile, claim.accountant)
    mu = float(ndtri(probability) - ndtri(chance))
    return _for_mu(mu, as_add_remove(claim), lambda curves: (1 - curves.tradeoff(chance)) / probability - 1)


def _for_mu(mu: float, claim: Claim, gap: Callable[[pld.PrivacyCurvePair], float]) -> float:
    """Return the noise multiplier at which the releases of the claim are mu-Gaussian DP.

    For Gaussian noise without sampling there is a formula. Otherwise the result is the noise multiplier at which `gap`,
    a function of the claim's privacy curves, is 0.
    """
    unit = claim.profile.gaussian_mu
    return unit / mu if unit is not None else _by_curves(gap, claim, _start(claim, mu))


def _require_above_floor(
    name: str, target: float, epsilon: float, target_at: Callable[[float], float], claim: Claim
) -> None:
    """Raise `InputError` if no noise can reach the target, because the accountant reports more even without a release.

    `name` and `target` are the kind of target and its value, such as a belief of 0.9. `epsilon` is the epsilon that
    corresponds to it. For the message, `target_at` converts the smallest epsilon that the accountant reports to a
    target.
    """
    floor = epsilon_of_mu(claim.accountant, 0.0, claim.delta)
    accepted = f"accepted by {claim.accountant} at delta {claim.delta} are numbers above {target_at(floor):.6g}"
    require(epsilon > floor, f"{name} is {target:.6g}: {accepted}, which it reports even where nothing is released")


def _start(claim: Claim, mu: float) -> float:
    """Return a noise multiplier at which to start the search for the Gaussian-DP parameter mu with sampling.

    This noise multiplier would be exact if sampling reduced mu in proportion to the sampling rate.
    """
    mus = [full_participation_mu(event) for event in claim.events]
    known_mus = [known_mu for known_mu in mus if known_mu is not None]
    if not known_mus:  # many small privacy losses of other noise add up to those of such Gaussian noise
        known_mus = [
            math.sqrt(event.count) * event.pure_epsilon
            for event in claim.events
            if event.noise_over_sensitivity is not None and event.pure_epsilon is not None
        ]
    unsampled = math.hypot(*known_mus) / mu
    return max(unsampled * claim.sampling_rate, min(0.5, unsampled), SMALLEST_SAMPLED_NOISE)


def _by_curves(gap: Callable[[pld.PrivacyCurvePair], float], claim: Claim, start: float) -> float:
    """Return the noise multiplier at which `gap`, a function of the claim's privacy curves, is 0.

    The search begins at `start`, first with a coarse grid of privacy losses, then with a fine one.
    """

    def at(points: int) -> Callable[[float], float]:
        return lambda z: gap(pld.loss_curves(claim.with_noise(z).events, claim.adjacency, points))

    if claim.participation < _HARDLY_EVER:
        start = SMALLEST_SAMPLED_NOISE  # it probably suffices, and a search from above would take long to reach it
    near = smallest_root(at(pld.COARSE), start, 10 * _PLD_TOLERANCE, SMALLEST_SAMPLED_NOISE)
    return smallest_root(at(pld.FINE), near, _PLD_TOLERANCE, SMALLEST_SAMPLED_NOISE)


def _raised_until(is_kept: Callable[[float], bool], noise_multiplier: float) -> float:
    """Return a noise multiplier at which `is_kept` is True: the given one, raised as little as rounding requires."""
    raised = noise_multiplier
    step = 1e-16
    while not is_kept(raised):
        step *= 2
        raised = noise_multiplier * (1 + step)
    return raised
