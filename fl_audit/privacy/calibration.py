"""From a promise that a person can relate to, to the noise that keeps it, and back.

A target is one of four values; `noise_multiplier_for` finds the smallest noise that keeps it, `guarantee` says all that
a noise multiplier promises.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fl_audit.errors import require
from fl_audit.privacy import accounting
from fl_audit.privacy.accounting import Accountant, gaussian_mu, mu_of_epsilon, require_delta
from fl_audit.privacy.scores import (
    epsilon_from_advantage,
    epsilon_from_belief,
    gaussian_advantage,
    gaussian_belief_bound,
    mu_from_advantage,
    mu_from_belief,
    require_advantage,
    require_belief,
    require_prior,
    rho_alpha,
    rho_beta,
)


@dataclass(frozen=True)
class BeliefTarget:
    """With probability 1 - delta the insider's belief in the true D stays at or under `belief` (prior < belief < 1)."""

    belief: float


@dataclass(frozen=True)
class AdvantageTarget:
    """The insider's advantage, 2 P(right guess) - 1 under equal priors, stays at or under `advantage` (0 to 1)."""

    advantage: float

    def __post_init__(self) -> None:
        require_advantage(self.advantage)


@dataclass(frozen=True)
class EpsilonTarget:
    """The accountant reports at most `epsilon`, positive and finite."""

    epsilon: float

    def __post_init__(self) -> None:
        accepted = self.epsilon > 0 and math.isfinite(self.epsilon)
        require(accepted, f"epsilon is {self.epsilon}: accepted are positive finite numbers")


@dataclass(frozen=True)
class NoiseMultiplierTarget:
    """The noise multiplier itself, positive and finite: nothing is calibrated."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        gaussian_mu(self.noise_multiplier, 1)


Target = BeliefTarget | AdvantageTarget | EpsilonTarget | NoiseMultiplierTarget
"""What a user asks for; exactly one of the four."""


@dataclass(frozen=True)
class Guarantee:
    """All that a noise multiplier promises over all rounds.

    Parameters
    ----------
    epsilon, delta
        The (epsilon, delta)-DP that the accountant reports.
    accountant
        Who reported epsilon.
    noise_multiplier
        z, noise standard deviation over sensitivity.
    rounds
        k.
    prior
        The insider's belief in D before anything is seen.
    mu
        sqrt(k) / z, the exact Gaussian-DP parameter.
    belief_bound
        Belief in the true D that is passed with probability at most delta: `rho_beta` of epsilon under `rdp-classic`,
        the quantile of the exact law under `gdp`.
    advantage_bound
        `rho_alpha` of epsilon and delta (theorem 3), which does not hold for exactly calibrated noise.
    advantage_bound_exact
        2 Phi(mu/2) - 1, which always holds.
    """

    epsilon: float
    delta: float
    accountant: Accountant
    noise_multiplier: float
    rounds: int
    prior: float
    mu: float
    belief_bound: float
    advantage_bound: float
    advantage_bound_exact: float


def noise_multiplier_for(
    target: Target, accountant: Accountant, rounds: int, delta: float, prior: float = 0.5
) -> float:
    """Return the smallest noise multiplier that keeps the target over all rounds.

    Parameters
    ----------
    target
        What is promised.
    accountant
        Who accounts for it. A belief is kept through Eq. (5) by `rdp-classic` and through the law of the log-odds by
        `gdp`. An advantage is kept exactly by `gdp`; `rdp-classic` takes the larger of what Eq. (6) asks, so that the
        reported `rho_alpha` stays at the target, and of what the exact advantage needs, because theorem 3 fails at
        small epsilon.
    rounds
        k, at least 1.
    delta
        Above 0 and below 1.
    prior
        The insider's belief in D before anything is seen, above 0 and below 1. Only a belief depends on it.

    Returns
    -------
    float
        z, the noise standard deviation in units of the sensitivity.

    Raises
    ------
    InputError
        If a number is out of its range or the accountant cannot reach the target.

    Examples
    --------
    >>> round(noise_multiplier_for(BeliefTarget(0.9), Accountant.RDP_CLASSIC, rounds=30, delta=0.001), 3)
    9.952
    """
    gaussian_mu(1.0, rounds)
    require_delta(delta)
    require_prior(prior)

    match target:
        case NoiseMultiplierTarget(noise_multiplier):
            return noise_multiplier
        case EpsilonTarget(epsilon):
            return _for_epsilon(epsilon, accountant, rounds, delta)
        case BeliefTarget(belief):
            return _for_belief(belief, accountant, rounds, delta, prior)
        case AdvantageTarget(advantage):
            return _for_advantage(advantage, accountant, rounds, delta)


def _for_epsilon(epsilon: float, accountant: Accountant, rounds: int, delta: float) -> float:
    noise_multiplier = math.sqrt(rounds) / mu_of_epsilon(accountant, epsilon, delta)
    return _raised_until(lambda z: accounting.epsilon(accountant, z, rounds, delta) <= epsilon, noise_multiplier)


def _for_belief(belief: float, accountant: Accountant, rounds: int, delta: float, prior: float) -> float:
    require_belief(belief, prior)
    match accountant:
        case Accountant.RDP_CLASSIC:
            return _for_epsilon(epsilon_from_belief(belief, prior), accountant, rounds, delta)
        case Accountant.GDP:
            return math.sqrt(rounds) / mu_from_belief(belief, delta, prior)


def _for_advantage(advantage: float, accountant: Accountant, rounds: int, delta: float) -> float:
    exact = math.sqrt(rounds) / mu_from_advantage(advantage)
    match accountant:
        case Accountant.RDP_CLASSIC:
            return max(exact, _for_epsilon(epsilon_from_advantage(advantage, delta), accountant, rounds, delta))
        case Accountant.GDP:
            return exact


def _raised_until(kept: Callable[[float], bool], noise_multiplier: float) -> float:
    """Return the noise multiplier, raised by the few units of rounding after which the target is kept."""
    raised, step = noise_multiplier, 1e-16
    while not kept(raised):
        step *= 2
        raised = noise_multiplier * (1 + step)
    return raised


def guarantee(
    accountant: Accountant, noise_multiplier: float, rounds: int, delta: float, prior: float = 0.5
) -> Guarantee:
    """Return all that a noise multiplier promises over all rounds.

    Parameters
    ----------
    accountant
        Who accounts for epsilon.
    noise_multiplier
        z, positive.
    rounds
        k, at least 1.
    delta
        Above 0 and below 1.
    prior
        The insider's belief in D before anything is seen, above 0 and below 1.

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> promise = guarantee(Accountant.RDP_CLASSIC, 9.952, rounds=30, delta=0.001)
    >>> round(promise.belief_bound, 3), round(promise.advantage_bound_exact, 3)
    (0.9, 0.217)
    """
    require_prior(prior)
    mu = gaussian_mu(noise_multiplier, rounds)
    epsilon = accounting.epsilon(accountant, noise_multiplier, rounds, delta)
    match accountant:
        case Accountant.RDP_CLASSIC:
            belief_bound = rho_beta(epsilon, prior)
        case Accountant.GDP:
            belief_bound = gaussian_belief_bound(mu, delta, prior)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        accountant=accountant,
        noise_multiplier=noise_multiplier,
        rounds=rounds,
        prior=prior,
        mu=mu,
        belief_bound=belief_bound,
        advantage_bound=rho_alpha(epsilon, delta),
        advantage_bound_exact=gaussian_advantage(mu),
    )
