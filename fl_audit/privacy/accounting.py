"""Accounting from releases to (epsilon, delta) by the chosen accountant; any composition of releases is one value.

No epsilon is reported without the name of the accountant that computed it. How each of them computes stands in
`gaussian` (`gdp`), `renyi` (`rdp-classic`, `rdp`) and `pld` (`pld`). Numbers out of their range raise `InputError`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from scipy.special import expit, log_ndtr, logit, ndtri

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError, require, require_number
from fl_audit.privacy import pld
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent, exact_gaussian_mu, local_events
from fl_audit.privacy.gaussian import gdp_delta, gdp_epsilon, gdp_mu, require_delta, require_epsilon, require_mu
from fl_audit.privacy.identifiability_bounds import (
    SensitivityAdaptivity,
    gaussian_advantage,
    gaussian_log_odds_bound,
    require_prior,
)
from fl_audit.privacy.names import Accountant as Accountant
from fl_audit.privacy.renyi import RDP_ORDERS, _rdp_mu, rdp_epsilon, renyi_divergences
from fl_audit.root_finding import largest_kept

_CHEAP = 50_000  # grid points up to which a distribution is put on a finer grid for its quantiles


@dataclass(frozen=True)
class PrivacyProfile:
    """A composition of releases between neighbours, and the insider's prior belief.

    If every release is Gaussian without sampling, all answers are closed forms of mu = sqrt(sum of count
    (Delta/sigma)^2). Otherwise they come from a pessimistic privacy loss distribution (module `pld`): epsilon, delta,
    advantage and beliefs are never too small, the trade-off is never too large, and `error` bounds the excess of
    epsilon over the truth.

    Epsilon, delta, advantage and trade-off hold for releases that are chosen adaptively, as long as the sensitivities
    are never larger than the events say, and for every coarser view of them. So do beliefs under
    `SensitivityAdaptivity.ADAPTIVE`. Beliefs under `SensitivityAdaptivity.FIXED` are those of an insider who sees
    the releases themselves, with sensitivities as large as the events say. Raises `InputError` if there is no event
    or the prior is out of its range.

    Examples
    --------
    >>> from fl_audit.privacy.events import GaussianRelease
    >>> release = GaussianRelease(sensitivity=1.0, sigma=9.952, count=30)
    >>> profile = PrivacyProfile((release,), Adjacency.ADD_REMOVE_RECORD)
    >>> round(profile.epsilon(0.001), 3), round(profile.advantage(), 3)
    (1.517, 0.217)
    >>> [round(profile.belief_at(0.001, sensitivities), 3) for sensitivities in SensitivityAdaptivity]
    [0.864, 0.88]
    """

    events: tuple[ReleaseEvent, ...]  # the releases; at least one event
    adjacency: Adjacency  # the relation between neighbours, to which the events' sensitivities refer
    prior: float = 0.5  # the insider's belief in the true data set before anything is seen, above 0 and below 1

    def __post_init__(self) -> None:
        require(len(self.events) > 0, "events are empty: accepted is at least one release")
        require_prior(self.prior)

    @property
    def gaussian_mu(self) -> float | None:
        """The Gaussian-DP parameter mu if every event is Gaussian noise without sampling, otherwise None."""
        each = [exact_gaussian_mu(event) for event in self.events]
        known = [mu for mu in each if mu is not None]
        return math.hypot(*known) if len(known) == len(each) else None

    @property
    def error(self) -> float:
        """Largest excess of `epsilon` over the truth (at a delta smaller by 1e-12): 0 for closed forms."""
        return 0.0 if self.gaussian_mu is not None else self._curves.error

    @property
    def _curves(self) -> pld.LossCurves:
        return pld.loss_curves(self.events, self.adjacency)

    def resolves(self, delta: float) -> bool:
        """Return whether epsilon and beliefs at delta come from closed forms or curves, rather than bounds alone."""
        return self.gaussian_mu is not None or delta >= self._curves.smallest_delta

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon with (epsilon, delta)-DP."""
        require_delta(delta)
        mu = self.gaussian_mu
        return gdp_epsilon(delta, mu) if mu is not None else self._curves.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta with (epsilon, delta)-DP."""
        require_epsilon(epsilon)
        mu = self.gaussian_mu
        return gdp_delta(epsilon, mu) if mu is not None else self._curves.delta(epsilon)

    def advantage(self) -> float:
        """Return the largest advantage of an insider with even prior odds: the total variation, delta(0)."""
        mu = self.gaussian_mu
        return gaussian_advantage(mu) if mu is not None else self._curves.delta(0.0)

    def belief_at(self, delta: float, sensitivities: SensitivityAdaptivity) -> float:
        """Return the belief in the true data set that the insider exceeds with probability at most delta.

        Parameters
        ----------
        delta
            Probability with which the belief may be exceeded, above 0 and below 1.
        sensitivities
            Whether the sensitivities of the rounds are fixed or chosen from earlier releases.
        """
        require_delta(delta)
        mu = self.gaussian_mu
        if mu is not None:
            log_odds = gaussian_log_odds_bound(mu, delta, sensitivities)
        else:
            curves = self._curves
            if sensitivities is SensitivityAdaptivity.FIXED and curves.size <= _CHEAP:
                curves = pld.loss_curves(self.events, self.adjacency, pld.FINEST)
            log_odds = curves._log_odds_at(delta, sensitivities)
        return float(expit(float(logit(self.prior)) + log_odds))

    def tradeoff(self, alpha: float) -> float:
        """Return the smallest type II error of a test whose type I error is alpha (Dong, Roth & Su 2022)."""
        require_number("alpha is", alpha, "numbers from 0 to 1")
        mu = self.gaussian_mu
        if mu is not None:
            return float(math.exp(log_ndtr(-float(ndtri(alpha)) - mu))) if alpha < 1 else 0.0
        return self._curves.tradeoff(alpha)


def account(profile: PrivacyProfile, accountant: Accountant, delta: float) -> float:
    """Return the epsilon that an accountant guarantees for a composition, at least 0, in nats.

    Raises `InputError` if delta is out of its range or the accountant cannot handle an event, which the message names.

    Parameters
    ----------
    profile
        The releases and the relation between neighbours.
    delta
        Delta of the guarantee, above 0 and below 1.
    accountant
        `pld` puts losses on a grid even where a closed form exists; its result is above the truth by at most the error
        that `pld.loss_curves` states.

    Examples
    --------
    >>> from fl_audit.privacy.events import SampledGaussianRelease
    >>> lfw = PrivacyProfile((SampledGaussianRelease(2.0, 16 / 368, 2530),), Adjacency.ADD_REMOVE_RECORD)
    >>> round(account(lfw, Accountant.RDP_CLASSIC, 1 / 368), 2)
    4.75
    """
    require_delta(delta)
    _require_accountable(profile, accountant)
    mu = profile.gaussian_mu
    if mu is not None:
        return epsilon_of_mu(accountant, mu, delta)
    if accountant is Accountant.PLD:
        return pld.loss_curves(profile.events, profile.adjacency).epsilon(delta)
    divergences = renyi_divergences(profile.events, str(accountant), profile.adjacency)  # of gdp nothing is left
    return rdp_epsilon(accountant, divergences, delta)


def exact_accountant(events: Iterable[ReleaseEvent]) -> Accountant:
    """Return the exact accountant: `gdp` where every event is Gaussian noise without sampling, otherwise `pld`."""
    return Accountant.PLD if any(exact_gaussian_mu(event) is None for event in events) else Accountant.GDP


def _require_accountable(profile: PrivacyProfile, accountant: Accountant) -> None:
    """Raise `InputError` with the first event that the accountant cannot handle, if there is one."""
    match accountant:
        case Accountant.RDP_CLASSIC | Accountant.RDP:
            renyi_divergences(profile.events, str(accountant), profile.adjacency)
        case Accountant.GDP:
            for event in profile.events:
                if exact_gaussian_mu(event) is None:
                    raise InputError(f"gdp accounts for Gaussian releases without sampling only: not for {event}")
        case Accountant.PLD:
            pass
        case _:
            assert_never(accountant)


def epsilon_of_mu(accountant: Accountant, mu: float, delta: float) -> float:
    """Return the epsilon that an accountant guarantees at delta for a Gaussian composition with parameter mu.

    Parameters
    ----------
    accountant
        The accountant that computes epsilon.
    mu
        Gaussian-DP parameter, at least 0.
    delta
        Delta of the guarantee, above 0 and below 1.
    """
    match accountant:
        case Accountant.RDP_CLASSIC | Accountant.RDP:
            require_mu(mu)
            return rdp_epsilon(accountant, RDP_ORDERS * (mu * mu / 2), delta)
        case Accountant.PLD:
            require_mu(mu)
            require_delta(delta)
            if mu == 0:
                return 0.0
            # Without sampling the adjacency is in mu alone, so that any one gives the same answer.
            return pld.loss_curves((GaussianRelease(mu, 1.0),), Adjacency.ADD_REMOVE_RECORD).epsilon(delta)
        case Accountant.GDP:
            return gdp_epsilon(delta, mu)
        case _:
            assert_never(accountant)


def mu_of_epsilon(accountant: Accountant, epsilon: float, delta: float) -> float:
    """Return the largest mu to which the accountant assigns at most epsilon at delta.

    Under `pld` it is found to 1e-10 of itself, by search from the exact answer. Raises `InputError` if a number is out
    of its range or the accountant cannot reach epsilon.

    Parameters
    ----------
    accountant
        The accountant that computes epsilon.
    epsilon
        Epsilon by this accountant, at least 0.
    delta
        Delta of the guarantee, above 0 and below 1.
    """
    match accountant:
        case Accountant.RDP_CLASSIC | Accountant.RDP:
            return _rdp_mu(accountant, epsilon, delta)
        case Accountant.PLD:
            return largest_kept(lambda mu: epsilon_of_mu(accountant, mu, delta) <= epsilon, gdp_mu(epsilon, delta))
        case Accountant.GDP:
            return gdp_mu(epsilon, delta)
        case _:
            assert_never(accountant)


def client_epsilons(
    shard_sizes: Sequence[int],
    batch: int,
    rounds: int,
    noise_multiplier: float,
    delta: float,
    accountant: Accountant,
    *,
    epochs: int | None = None,
    steps: int | None = None,
) -> tuple[float, ...]:
    """Return the epsilon over all rounds of every client that trains with Opacus for its records, in order.

    Records are added or removed (add-remove), as in Opacus' accountants. Raises `InputError` if a number is out of its
    range, or the accountant cannot account for sampling.

    Parameters
    ----------
    shard_sizes
        Number of records of each client, from 1.
    batch
        Batch size of every client, as for `local_events`.
    rounds
        Number of rounds in which every client trains, as for `local_events`.
    noise_multiplier
        Noise multiplier of Opacus, the same for every client, as for `local_events`.
    epochs
        Number of epochs in a round of every client; exactly one of `epochs` and `steps` is given.
    steps
        Number of steps in a round of every client; exactly one of `epochs` and `steps` is given.
    delta
        Delta of the guarantee, above 0 and below 1.
    accountant
        The accountant: `rdp` gives the epsilon of Opacus' `RDPAccountant`, `pld` a smaller one that holds as well, and
        `gdp` accepts one batch only, which is no sampling.
    """

    def claimed(records: int) -> float:
        events = local_events(records, batch, rounds, noise_multiplier, epochs=epochs, steps=steps)
        return account(PrivacyProfile(events, Adjacency.ADD_REMOVE_RECORD), accountant, delta)

    known = {records: claimed(records) for records in dict.fromkeys(shard_sizes)}
    return tuple(known[records] for records in shard_sizes)
