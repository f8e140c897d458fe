"""Bound the success probability of reconstruction and singling-out attacks from above.

The attacker knows every record but one and sees every release. It guesses the missing record, or a property of it. The
baseline success `chance` is its probability of a right guess if the record had not been used. Let f be the trade-off
function between the releases without and with the record. Then the attack succeeds with probability at most 1 -
f(chance) (Balle, Cherubin & Hayes 2022, section 5; Hayes, Mahloujifar & Balle 2023, theorem 2).

Under the replace adjacency, too, the releases with the record are compared with the releases without it. So their
distance is that of one contribution, C, and not the distance between two contributions, 2C.
"""

import math
from dataclasses import replace
from typing import assert_never

import scipy
from scipy.special import log_ndtr

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.errors import require
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import with_half_sensitivity
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.value_checks import require_number

_LEFT_OUT = {
    Adjacency.REPLACE_RECORD: Adjacency.ADD_REMOVE_RECORD,
    Adjacency.REPLACE_USER: Adjacency.ADD_REMOVE_USER,
    Adjacency.REPLACE_CLIENT: Adjacency.ADD_REMOVE_CLIENT,
}


def as_add_remove(claim: Claim) -> Claim:
    """Convert a claim with replace adjacency to add-remove adjacency, which compares a contribution with its absence.

    Sensitivities are halved, because leaving a contribution out changes the sum half as much as replacing it. A claim
    with add-remove adjacency stays as it is. Events of randomised response stay unchanged too: randomised response
    always needs a record, so leaving it out is not defined, and the bound with the unchanged event is valid. Raises
    `InputError` if the noise is scaled to the pair D, D', because such noise gives no guarantee for other records.
    """
    adaptive = "adaptive, noise that is scaled to the longest contribution of anybody"
    description = f"sensitivities are {claim.sensitivities}"
    require(
        claim.sensitivities is SignalToNoiseAdaptivity.ADAPTIVE,
        f"{description}: accepted for reconstruction is {adaptive}",
    )
    match claim.adjacency.relation:
        case Relation.ADD_REMOVE:
            return claim
        case Relation.REPLACE:
            events = tuple(with_half_sensitivity(event) for event in claim.events)
            return replace(claim, events=events, adjacency=_LEFT_OUT[claim.adjacency])
        case _:
            assert_never(claim.adjacency.relation)


def reconstruction_bound(claim: Claim, chance: float) -> float:
    """Return the largest success probability of a reconstruction or singling-out attack, given its baseline `chance`.

    Raises `InputError` if the chance is out of range, or the noise is scaled to the pair D, D'.

    Examples
    --------
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> claim = Claim("add-remove-record", gaussian_rounds(9.95, 30), 1e-3)
    >>> round(reconstruction_bound(claim, 1 / 1000), 4)
    0.0055
    """
    require_number("chance is", chance, "numbers from 0 to 1")
    return 1 - as_add_remove(claim).profile.tradeoff(chance)


def simplex_success(mu: float, candidates: int) -> float:
    """Return the largest probability of picking the right candidate, if all candidates are equally far apart.

    Gaussian noise is added to the contribution of one of m candidates. The contributions are the corners of a regular
    simplex. The result is the integral over x of phi(x - mu') Phi(x)^(m - 1), with mu' = mu sqrt(m / (m - 1)) and with
    phi and Phi, the density and the distribution function of N(0, 1). For m = 2 the result equals
    `reconstruction_bound`. For larger m it is smaller: 87 % of the bound for m = 1000 and mu = 2.

    Examples
    --------
    >>> round(simplex_success(2.0, 1000), 4)
    0.1205
    """
    apart = mu * math.sqrt(candidates / (candidates - 1))

    def hit(x: float) -> float:
        return math.exp(-((x - apart) ** 2) / 2 + (candidates - 1) * float(log_ndtr(x))) / math.sqrt(2 * math.pi)

    return float(scipy.integrate.quad(hit, -10, apart + 12, limit=400, points=[0.0, apart])[0])
