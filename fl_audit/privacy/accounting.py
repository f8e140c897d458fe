"""From what is released to (epsilon, delta), by the name of who accounts.

No epsilon is reported without the name of the accountant that computed it. How each of them computes stands in
`gaussian` (`gdp`), `renyi` (`rdp-classic`, `rdp`) and `pld` (`pld`). Numbers out of their range raise `InputError`.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.privacy import pld
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent, exact_gaussian_mu, local_events
from fl_audit.privacy.gaussian import gdp_epsilon, gdp_mu, require_delta, require_mu
from fl_audit.privacy.names import Accountant as Accountant
from fl_audit.privacy.profile import PrivacyProfile
from fl_audit.privacy.renyi import RDP_ORDERS, _rdp_mu, rdp_epsilon, renyi_divergences
from fl_audit.search import largest_kept


def account(profile: PrivacyProfile, accountant: Accountant, delta: float) -> float:
    """Return the epsilon that an accountant promises for a composition, at least 0, in nats.

    Raises `InputError` if delta is out of its range or the accountant cannot handle an event, which the message names.

    Parameters
    ----------
    profile, delta
        What is released, and how neighbours differ; above 0 and below 1.
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
    """Return who accounts exactly: `gdp` where every event is Gaussian noise without sampling, otherwise `pld`."""
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
    """Return the epsilon that an accountant promises at delta for a Gaussian composition with parameter mu.

    Parameters
    ----------
    accountant, mu, delta
        Which accountant; the Gaussian-DP parameter, at least 0; above 0 and below 1.
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
    """Return the largest mu that the named accountant accounts with at most epsilon at delta.

    Under `pld` it is found to 1e-10 of itself, by search from the exact answer. Raises `InputError` if a number is out
    of its range or the accountant cannot reach epsilon.

    Parameters
    ----------
    accountant, epsilon, delta
        Whose epsilon it is, at least 0, and its delta, above 0 and below 1.
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
    """Return the epsilon that every client that trains with Opacus promises its records over all rounds, in order.

    Records come or go (add-remove), as in Opacus' accountants.

    Raises `InputError` if a number is out of its range, or the accountant cannot account for sampling.

    Parameters
    ----------
    shard_sizes
        Number of records of each client, from 1.
    batch, rounds, noise_multiplier, epochs, steps
        As for `local_events`, the same for all clients.
    delta, accountant
        Above 0 and below 1; `rdp` reports what Opacus' `RDPAccountant` does, `pld` the tighter answer, and `gdp`
        accounts for one batch only.
    """

    def promised(records: int) -> float:
        events = local_events(records, batch, rounds, noise_multiplier, epochs=epochs, steps=steps)
        return account(PrivacyProfile(events, Adjacency.ADD_REMOVE_RECORD), accountant, delta)

    known = {records: promised(records) for records in dict.fromkeys(shard_sizes)}
    return tuple(known[records] for records in shard_sizes)
