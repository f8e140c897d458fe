"""Guarantees against reconstruction: how often an attacker can identify what it could only guess before.

The attacker knows every record but one, sees every release, and names the missing record, or says something about it,
that it would hit with probability `chance` if the record had never been used. Where f is the trade-off curve between
the releases without the record and with it, it hits with probability at most 1 - f(chance) (Balle, Cherubin & Hayes
2022, section 5; Hayes, Mahloujifar & Balle 2023, theorem 2).

The reference is the sum of all other contributions, whether neighbours differ by a record more or by another record
in its place: one contribution counts, C, and not the distance of two, 2C.
"""

import math
from dataclasses import replace
from typing import assert_never

import scipy
from scipy.special import log_ndtr

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.errors import require, require_number
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import at_half_the_distance
from fl_audit.privacy.identifiability_bounds import SensitivityAdaptivity

_LEFT_OUT = {
    Adjacency.REPLACE_RECORD: Adjacency.ADD_REMOVE_RECORD,
    Adjacency.REPLACE_USER: Adjacency.ADD_REMOVE_USER,
    Adjacency.REPLACE_CLIENT: Adjacency.ADD_REMOVE_CLIENT,
}


def against_its_absence(claim: Claim) -> Claim:
    """Return the claim that compares the releases with the same releases without the contribution to reconstruct.

    Where units are replaced the sum of all others is half as far away as another sum with one further contribution. A
    randomized response has no release without its record: another record of the same owner replaces it, which is never
    better than the truth for the guarantee. Raises `InputError` if the noise follows the pair D and D' (`fixed`
    sensitivities): such noise guarantees nothing for other records.
    """
    adaptive = "adaptive, noise that is scaled to the longest contribution of anybody"
    found = f"sensitivities are {claim.sensitivities}"
    require(
        claim.sensitivities is SensitivityAdaptivity.ADAPTIVE, f"{found}: accepted for reconstruction is {adaptive}"
    )
    match claim.adjacency.relation:
        case Relation.ADD_REMOVE:
            return claim
        case Relation.REPLACE:
            events = tuple(at_half_the_distance(event) for event in claim.events)
            return replace(claim, events=events, adjacency=_LEFT_OUT[claim.adjacency])
        case _:
            assert_never(claim.adjacency.relation)


def reconstruction_bound(claim: Claim, chance: float) -> float:
    """Return the largest probability of identifying what would be a hit with probability `chance` by itself.

    Raises `InputError` if the chance is out of its range, or the noise follows the pair.

    Parameters
    ----------
    claim
        The claim on the releases.
    chance
        Largest probability of a hit before the releases, from 0 to 1: 1 / m among m equally likely candidates, or the
        share of the population that a description fits.

    Examples
    --------
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> claim = Claim("add-remove-record", gaussian_rounds(9.95, 30), 1e-3)
    >>> round(reconstruction_bound(claim, 1 / 1000), 4)
    0.0055
    """
    require_number("chance is", chance, "numbers from 0 to 1")
    return 1 - against_its_absence(claim).profile.tradeoff(chance)


def simplex_success(mu: float, candidates: int) -> float:
    """Return the success of the best attack on Gaussian noise among candidates at the largest equal distances.

    It is the integral of phi(x - mu') Phi(x)^(m - 1), mu' = mu sqrt(m / (m - 1)). At m = 2 it is
    `reconstruction_bound`; for larger m it is less, because no attack distinguishes so many directions: of Phi(mu -
    3.09) 87 % among a thousand at mu = 2.

    Parameters
    ----------
    mu
        Distance of each candidate's contribution from their mean, over the noise, from 0.
    candidates
        Number m of equally likely candidates, at least 2: the corners of a simplex.

    Examples
    --------
    >>> round(simplex_success(2.0, 1000), 4)
    0.1205
    """
    apart = mu * math.sqrt(candidates / (candidates - 1))

    def hit(x: float) -> float:
        return math.exp(-((x - apart) ** 2) / 2 + (candidates - 1) * float(log_ndtr(x))) / math.sqrt(2 * math.pi)

    return float(scipy.integrate.quad(hit, -10, apart + 12, limit=400, points=[0.0, apart])[0])
