"""Accounting: compute the (epsilon, delta) guarantee of a composition of releases with a chosen accountant.

An epsilon is always reported with the accountant that computed it. The accountants are implemented in `gaussian`
(`gdp`), `renyi` (`rdp-classic`, `rdp`) and `pld` (`pld`). Functions raise `InputError` for numbers out of range.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from scipy.special import expit, log_ndtr, logit, ndtri

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError, require
from fl_audit.privacy import pld
from fl_audit.privacy.accounting_enums import Accountant as Accountant
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent, exact_gaussian_mu, local_events
from fl_audit.privacy.gaussian import gdp_delta, gdp_epsilon, gdp_mu, require_delta, require_epsilon, require_mu
from fl_audit.privacy.identifiability_bounds import (
    SignalToNoiseAdaptivity,
    gaussian_advantage,
    gaussian_log_odds_bound,
    require_prior,
)
from fl_audit.privacy.renyi import RDP_ORDERS, _rdp_mu, rdp_epsilon, renyi_divergences
from fl_audit.root_finding import largest_kept
from fl_audit.value_checks import require_number

_CHEAP = 50_000  # largest number of grid points for which quantiles are computed on a finer grid
_LARGEST = 700.0  # exp of more is no number


@dataclass(frozen=True)
class PrivacyProfile:
    """Privacy profile of a composition of releases: epsilon, delta, advantage, trade-off and belief bounds.

    If every release is Gaussian without sampling, all results are closed forms of mu = sqrt(sum of count
    (Delta/sigma)^2). Otherwise they are computed from a pessimistic privacy loss distribution (module `pld`): epsilon,
    delta, advantage and beliefs are never too small, the trade-off is never too large, and `error` bounds how much
    epsilon exceeds the exact value.

    Results hold for every post-processing, and for adaptively chosen releases whose sensitivities are at most those of
    the events. Only beliefs under `SignalToNoiseAdaptivity.FIXED` need the sensitivities of the events, and an
    adversary that sees the releases themselves. Raises `InputError` if there is no event or the prior is out of range.

    Examples
    --------
    >>> from fl_audit.privacy.events import GaussianRelease
    >>> release = GaussianRelease(sensitivity=1.0, sigma=9.952, count=30)
    >>> profile = PrivacyProfile((release,), Adjacency.ADD_REMOVE_RECORD)
    >>> round(profile.epsilon(0.001), 3), round(profile.advantage(), 3)
    (1.517, 0.217)
    >>> [round(profile.belief_at(0.001, sensitivities), 3) for sensitivities in SignalToNoiseAdaptivity]
    [0.864, 0.88]
    """

    events: tuple[ReleaseEvent, ...]  # the releases; at least one event
    adjacency: Adjacency  # the adjacency to which the events' sensitivities refer
    prior: float = 0.5  # the adversary's prior belief in the true training set, above 0 and below 1

    def __post_init__(self) -> None:
        require(len(self.events) > 0, "events are empty: accepted is at least one release")
        require_prior(self.prior)

    @property
    def gaussian_mu(self) -> float | None:
        """Gaussian-DP parameter mu if every event is Gaussian without sampling; otherwise None."""
        mus = [exact_gaussian_mu(event) for event in self.events]
        finite_mus = [mu for mu in mus if mu is not None]
        return math.hypot(*finite_mus) if len(finite_mus) == len(mus) else None

    @property
    def error(self) -> float:
        """Bound on the error of `epsilon(delta)`; 0 for closed forms.

        The computed epsilon exceeds the exact epsilon at delta - 1e-12 by at most this number.
        """
        return 0.0 if self.gaussian_mu is not None else self._curves.error

    @property
    def _curves(self) -> pld.PrivacyCurvePair:
        return pld.loss_curves(self.events, self.adjacency)

    def resolves(self, delta: float) -> bool:
        """Return whether `delta` is large enough for accurate bounds.

        Below a smallest delta, the numerical curves lose their tails to rounding, and bounds at `delta` are looser.
        """
        return self.gaussian_mu is not None or delta >= self._curves.smallest_delta

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon, at least 0, for which (epsilon, delta)-DP holds at a delta in (0, 1)."""
        require_delta(delta)
        mu = self.gaussian_mu
        return gdp_epsilon(delta, mu) if mu is not None else self._curves.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta, from 0 to 1, for which (epsilon, delta)-DP holds.

        `epsilon` is finite and at least 0.
        """
        require_epsilon(epsilon)
        mu = self.gaussian_mu
        return gdp_delta(epsilon, mu) if mu is not None else self._curves.delta(epsilon)

    def advantage(self) -> float:
        """Return the largest membership advantage TPR - FPR of any attack, 0 to 1.

        It is the total variation distance delta(0).
        """
        mu = self.gaussian_mu
        return gaussian_advantage(mu) if mu is not None else self._curves.delta(0.0)

    def belief_at(self, delta: float, adaptivity: SignalToNoiseAdaptivity) -> float:
        """Return a bound on the adversary's belief in the true training set, exceeded with probability at most delta.

        Parameters
        ----------
        delta
            Probability with which the belief may be exceeded, above 0 and below 1.
        adaptivity
            Whether the rounds' sensitivities are fixed in advance or may depend on earlier releases.
        """
        require_delta(delta)
        mu = self.gaussian_mu
        if mu is not None:
            log_odds = gaussian_log_odds_bound(mu, delta, adaptivity)
        else:
            curves = self._curves
            if adaptivity is SignalToNoiseAdaptivity.FIXED and curves.size <= _CHEAP:
                curves = pld.loss_curves(self.events, self.adjacency, pld.FINEST)
            log_odds = curves._log_odds_at(delta, adaptivity)
        return float(expit(float(logit(self.prior)) + log_odds))

    def tradeoff(self, alpha: float) -> float:
        """Return the trade-off function at alpha: the smallest type II error of a test with type I error alpha, 0 to 1.

        Source: Dong, Roth & Su 2022.
        """
        require_number("alpha is", alpha, "numbers from 0 to 1")
        mu = self.gaussian_mu
        if mu is not None:
            return float(math.exp(log_ndtr(-float(ndtri(alpha)) - mu))) if alpha < 1 else 0.0
        return self._curves.tradeoff(alpha)


def account(profile: PrivacyProfile, accountant: Accountant, delta: float) -> float:
    """Return the epsilon, at least 0, that an accountant computes for a composition of releases at delta.

    Raises `InputError` if delta is out of range or the accountant does not support an event.

    Parameters
    ----------
    profile
        Privacy profile with the releases and the adjacency.
    delta
        Delta of the guarantee, above 0 and below 1.
    accountant
        The accountant. `pld` discretises losses even if there is a closed form; its result exceeds the exact value by
        at most `pld.PrivacyCurvePair.error`.

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
    """Return the exact accountant of the events: `gdp` if all are Gaussian without sampling, otherwise `pld`."""
    return Accountant.PLD if any(exact_gaussian_mu(event) is None for event in events) else Accountant.GDP


def _require_accountable(profile: PrivacyProfile, accountant: Accountant) -> None:
    """Raise `InputError` with the first event that the accountant does not support."""
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
    """Return the epsilon at delta that an accountant computes for a Gaussian composition with parameter mu.

    Parameters
    ----------
    accountant
        The accountant.
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
            # Without sampling, the adjacency affects only mu, so any adjacency gives the same epsilon.
            return pld.loss_curves((GaussianRelease(mu, 1.0),), Adjacency.ADD_REMOVE_RECORD).epsilon(delta)
        case Accountant.GDP:
            return gdp_epsilon(delta, mu)
        case _:
            assert_never(accountant)


def mu_of_epsilon(accountant: Accountant, epsilon: float, delta: float) -> float:
    """Return the largest mu for which an accountant's epsilon at delta is at most a given epsilon.

    Under `pld` the result has a relative error of 1e-10. Raises `InputError` if a number is out of range or the
    accountant's epsilon is too large for every mu.

    Parameters
    ----------
    accountant
        Method that computes epsilon from mu.
    epsilon
        Largest accepted epsilon, at least 0.
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
    """Return each client's epsilon over all rounds of local DP-SGD with Opacus, in the order of `shard_sizes`.

    Units are records and the adjacency is add-remove, as in Opacus's accountants. Raises `InputError` if a number is
    out of range, or the accountant does not support sampling.

    Parameters
    ----------
    shard_sizes
        Number of records of each client, from 1.
    batch
        Batch size of every client's data loader, from 1.
    rounds
        Number of rounds in which every client trains, from 1.
    noise_multiplier
        Noise multiplier of Opacus: standard deviation of the noise on the sum over the clipping norm.
    epochs
        Number of epochs per round, unless `steps` is given.
    steps
        Number of steps per round, unless `epochs` is given.
    delta
        Delta of the guarantee, above 0 and below 1.
    accountant
        The accountant: `rdp` gives the epsilon of Opacus's `RDPAccountant`. `pld` gives a smaller epsilon that also
        holds. `gdp` does not support sampling, so it accepts only a batch size of at least the number of records.
    """

    def claimed(records: int) -> float:
        events = local_events(records, batch, rounds, noise_multiplier, epochs=epochs, steps=steps)
        return account(PrivacyProfile(events, Adjacency.ADD_REMOVE_RECORD), accountant, delta)

    epsilon_by_size = {records: claimed(records) for records in dict.fromkeys(shard_sizes)}
    return tuple(epsilon_by_size[records] for records in shard_sizes)


def group_epsilon(profile: PrivacyProfile, size: int, delta: float) -> float:
    """Return an epsilon that holds for a group of k units at delta; infinite if no finite one is known.

    For Gaussian noise without sampling, a group has the Gaussian-DP parameter k mu (Dong, Roth & Su 2022, theorem
    2.14). Otherwise, (epsilon, d)-DP for one unit implies (k epsilon, d (e^(k epsilon) - 1) / (e^epsilon - 1))-DP for k
    units (Vadhan 2017, lemma 2.2). The point (epsilon, d) of the profile with the smallest k epsilon is taken.

    Parameters
    ----------
    profile
        Privacy profile of one unit.
    size
        Number k of units, from 1.
    delta
        Delta of the group's guarantee, above 0 and below 1.

    Examples
    --------
    >>> from fl_audit.adjacency import Adjacency
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> profile = PrivacyProfile(gaussian_rounds(4.0, 1), Adjacency.ADD_REMOVE_RECORD)
    >>> round(group_epsilon(profile, 1, 1e-5), 3), round(group_epsilon(profile, 4, 1e-5), 3)
    (0.926, 4.377)
    """
    require_number("size of the group is", size, "whole numbers from 1")
    if size == 1:
        return profile.epsilon(delta)
    if profile.gaussian_mu is not None:
        return gdp_epsilon(delta, size * profile.gaussian_mu)

    def is_enough(epsilon: float) -> bool:
        delta_of_one = profile.delta(epsilon)
        # log of (e^(k epsilon) - 1) / (e^epsilon - 1)
        factor = math.log(math.expm1(size * epsilon)) - math.log(math.expm1(epsilon)) if epsilon > 0 else math.log(size)
        return delta_of_one == 0 or math.log(delta_of_one) + factor <= math.log(delta)

    low = 0.0
    high = min(profile.epsilon(delta), _LARGEST / size)
    while not is_enough(high):
        if high >= _LARGEST / size:
            return math.inf
        low = high
        high = min(1.25 * high + 0.01, _LARGEST / size)
    while high - low > 1e-9 * high:  # the lemma holds for every epsilon found
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return size * high
