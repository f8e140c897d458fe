"""From a promise that a person can relate to, to the noise that keeps it, and back.

A target is one of four values; `noise_multiplier_for` finds the smallest noise that keeps it, `guarantee` says all that
a noise multiplier promises.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.privacy import accounting, pld
from fl_audit.privacy.accounting import Accountant, account, gaussian_mu, gdp_mu, mu_of_epsilon, require_delta
from fl_audit.privacy.events import GaussianRelease, SampledGaussianRelease, require_sampling_rate
from fl_audit.privacy.profile import PrivacyProfile
from fl_audit.privacy.scores import (
    epsilon_from_advantage,
    epsilon_from_belief,
    gaussian_advantage,
    gaussian_belief_bound,
    mu_from_advantage,
    mu_from_belief,
    require_belief,
    require_prior,
    rho_alpha,
    rho_beta,
)
from fl_audit.privacy.search import smallest_kept, smallest_root
from fl_audit.privacy.targets import AdvantageTarget, BeliefTarget, EpsilonTarget, NoiseMultiplierTarget, Target

__all__ = [
    "AdvantageTarget",
    "BeliefTarget",
    "EpsilonTarget",
    "Guarantee",
    "NoiseMultiplierTarget",
    "Target",
    "guarantee",
    "noise_multiplier_for",
]

PLD_TOLERANCE = 1e-5
"""Relative width to which a noise multiplier is searched under `pld` where the record is sampled."""


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
        sqrt(k) / z, the Gaussian-DP parameter without sampling: exact if nobody is sampled, otherwise what holds for an
        insider who sees who takes part.
    belief_bound
        Belief in the true D that is passed with probability at most delta. `rdp-classic`: `rho_beta` of epsilon;
        `rdp`: the same, through the classic conversion of its Renyi divergences, since its own conversion bounds no
        belief; `gdp` and `pld`: the quantile of the law of the log-odds.
    advantage_bound
        `rho_alpha` of epsilon and delta (theorem 3), which does not hold for exactly calibrated noise.
    advantage_bound_exact
        The total variation, which always holds: 2 Phi(mu/2) - 1, or with sampling delta(0) of the privacy loss
        distribution, whatever the accountant.
    sampling_rate
        Probability with which a record takes part in a round; 1 is always.
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
    sampling_rate: float = 1.0


def _profile(
    noise_multiplier: float, rounds: int, prior: float, sampling_rate: float, relation: Adjacency
) -> PrivacyProfile:
    if sampling_rate == 1:
        return PrivacyProfile((GaussianRelease(1.0, noise_multiplier, rounds),), relation, prior)
    return PrivacyProfile((SampledGaussianRelease(noise_multiplier, sampling_rate, rounds),), relation, prior)


def noise_multiplier_for(
    target: Target,
    accountant: Accountant,
    rounds: int,
    delta: float,
    prior: float = 0.5,
    sampling_rate: float = 1.0,
    relation: Adjacency = Adjacency.ADD_REMOVE_RECORD,
) -> float:
    """Return the smallest noise multiplier that keeps the target over all rounds.

    What is returned keeps the promise as `guarantee` states it, and is the smallest that does to 1e-9 of itself (with
    sampling 1e-8, `pld` with sampling 1e-5).

    Parameters
    ----------
    target
        What is promised.
    accountant
        Who accounts for it. A belief is kept through Eq. (5) by `rdp-classic` and through the law of the log-odds by
        `gdp` and `pld`; `rdp` refuses it. An advantage is kept exactly by `gdp` and `pld`; `rdp-classic` and `rdp` take
        the larger of what Eq. (6) asks, so that the reported `rho_alpha` stays at the target, and of what the exact
        advantage needs, because theorem 3 fails at small epsilon and for tighter accountants.
    rounds
        k, at least 1.
    delta
        Above 0 and below 1.
    prior
        The insider's belief in D before anything is seen, above 0 and below 1. Only a belief depends on it.
    sampling_rate
        Probability with which a record takes part in a round, above 0 and up to 1.
    relation
        How neighbours differ; matters with sampling only.

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
    require_sampling_rate(sampling_rate)
    setting = _Setting(accountant, rounds, delta, prior, sampling_rate, relation)
    match target:
        case NoiseMultiplierTarget(noise_multiplier):
            return noise_multiplier
        case EpsilonTarget(epsilon):
            return setting.for_epsilon(epsilon)
        case BeliefTarget(belief):
            return setting.for_belief(belief)
        case AdvantageTarget(advantage):
            return setting.for_advantage(advantage)
        case _:
            assert_never(target)


@dataclass(frozen=True)
class _Setting:
    """Everything but the target."""

    accountant: Accountant
    rounds: int
    delta: float
    prior: float
    sampling_rate: float
    relation: Adjacency

    @property
    def sampled(self) -> bool:
        return self.sampling_rate < 1

    def profile(self, noise_multiplier: float) -> PrivacyProfile:
        return _profile(noise_multiplier, self.rounds, self.prior, self.sampling_rate, self.relation)

    def z(self, mu: float) -> float:
        return math.sqrt(self.rounds) / mu

    def for_epsilon(self, epsilon: float) -> float:
        if not self.sampled:
            start = self.z(mu_of_epsilon(self.accountant, epsilon, self.delta))
            return _raised_until(
                lambda z: accounting.epsilon(self.accountant, z, self.rounds, self.delta) <= epsilon, start
            )
        self._refuse_gdp()
        start = self._start(gdp_mu(epsilon, self.delta))
        match self.accountant:
            case Accountant.PLD:
                return self._by_curves(lambda curves: curves.epsilon(self.delta) / epsilon - 1, start)
            case _:
                mu_of_epsilon(self.accountant, epsilon, self.delta)  # refuses what it reports without any release
                return smallest_kept(
                    lambda z: account(self.profile(z), self.accountant, self.delta) <= epsilon, start, 1e-8
                )

    def for_belief(self, belief: float) -> float:
        require_belief(belief, self.prior)
        match self.accountant:
            case Accountant.RDP_CLASSIC:
                return self.for_epsilon(epsilon_from_belief(belief, self.prior))
            case Accountant.RDP:
                raise InputError(
                    "accountant is rdp: its conversion bounds no belief; accepted for a belief are rdp-classic, pld "
                    "and, without sampling, gdp"
                )
            case Accountant.GDP | Accountant.PLD:
                mu = mu_from_belief(belief, self.delta, self.prior)
                if not self.sampled:
                    return self.z(mu)
                self._refuse_gdp()
                log_odds = epsilon_from_belief(belief, self.prior)
                return self._by_curves(lambda curves: curves.quantile(self.delta) / log_odds - 1, self._start(mu))

    def for_advantage(self, advantage: float) -> float:
        exact = mu_from_advantage(advantage)
        if not self.sampled:
            noise = self.z(exact)
        else:
            self._refuse_gdp()
            noise = self._by_curves(lambda curves: curves.delta(0.0) / advantage - 1, self._start(exact))
        match self.accountant:
            case Accountant.RDP_CLASSIC | Accountant.RDP:
                return max(noise, self.for_epsilon(epsilon_from_advantage(advantage, self.delta)))
            case Accountant.GDP | Accountant.PLD:
                return noise

    def _refuse_gdp(self) -> None:
        if self.accountant is Accountant.GDP:
            raise InputError(
                "gdp accounts for Gaussian releases without sampling only: not for "
                f"{self.rounds} x Poisson-sampled Gaussian release (sampling rate {self.sampling_rate:g})"
            )

    def _start(self, mu: float) -> float:
        """Return a first guess with sampling: amplification by q, but not under a noise multiplier of 1/2."""
        return max(self.z(mu) * self.sampling_rate, min(0.5, self.z(mu)))

    def _by_curves(self, gap: Callable[[pld.LossCurves], float], start: float) -> float:
        """Return the root of a gap: near it on a coarse grid first, then on the grid that the answer is stated on."""

        def at(points: int) -> Callable[[float], float]:
            return lambda z: gap(pld.loss_curves(self.profile(z).events, self.relation, points))

        near = smallest_root(at(pld.COARSE), start, 10 * PLD_TOLERANCE)
        return smallest_root(at(pld.FINE), near, PLD_TOLERANCE)


def _raised_until(kept: Callable[[float], bool], noise_multiplier: float) -> float:
    """Return the noise multiplier, raised by the few units of rounding after which the target is kept."""
    raised, step = noise_multiplier, 1e-16
    while not kept(raised):
        step *= 2
        raised = noise_multiplier * (1 + step)
    return raised


def guarantee(
    accountant: Accountant,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    prior: float = 0.5,
    sampling_rate: float = 1.0,
    relation: Adjacency = Adjacency.ADD_REMOVE_RECORD,
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
    sampling_rate
        Probability with which a record takes part in a round, above 0 and up to 1.
    relation
        How neighbours differ; matters with sampling only.

    Raises
    ------
    InputError
        If a number is out of its range or the accountant cannot account for the releases.

    Examples
    --------
    >>> promise = guarantee(Accountant.RDP_CLASSIC, 9.952, rounds=30, delta=0.001)
    >>> round(promise.belief_bound, 3), round(promise.advantage_bound_exact, 3)
    (0.9, 0.217)
    """
    require_prior(prior)
    require_sampling_rate(sampling_rate)
    mu = gaussian_mu(noise_multiplier, rounds)
    sampled = sampling_rate < 1
    profile = _profile(noise_multiplier, rounds, prior, sampling_rate, relation)
    if sampled:
        epsilon = account(profile, accountant, delta)
    else:
        epsilon = accounting.epsilon(accountant, noise_multiplier, rounds, delta)
    match accountant:
        case Accountant.RDP_CLASSIC:
            belief_bound = rho_beta(epsilon, prior)
        case Accountant.RDP:
            belief_bound = rho_beta(account(profile, Accountant.RDP_CLASSIC, delta), prior)
        case Accountant.GDP | Accountant.PLD:
            belief_bound = profile.belief_at(delta) if sampled else gaussian_belief_bound(mu, delta, prior)
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
        advantage_bound_exact=profile.advantage() if sampled else gaussian_advantage(mu),
        sampling_rate=sampling_rate,
    )
