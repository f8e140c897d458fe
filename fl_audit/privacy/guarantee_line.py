"""Write a guarantee as one line, in the same form wherever it is printed or stored.

The line has all values that are needed to compare two guarantees: epsilon and delta, the accountant, the adjacency and
the unit. It also has the Gaussian parameter mu that fits the whole privacy profile, and the error of this fit (arXiv
2503.10945).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import finite
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.gdp_fit import GdpFit, gdp_fit

GUARANTEE_NAMES = ("epsilon", "delta", "accountant", "adjacency", "unit", "gdp_mu", "gdp_regret")
"""The names of the values that `guarantee_values` returns, in its order."""


def fit_of_all(claims: Sequence[Claim]) -> GdpFit:
    """Return the Gaussian-DP parameter mu that covers every claim, with an upper bound on the error of the fit.

    Mu and the error are those of the claim with the largest mu. The error is an upper bound, because the trade-off
    curve of all claims together is nowhere above the curve of that claim.
    """
    return max(gdp_fit(claim.profile) for claim in claims)


def guarantee_values(epsilon: float, claims: Sequence[Claim]) -> dict[str, Any]:
    """Return the values that the one-line text of a guarantee contains, as JSON values keyed by `GUARANTEE_NAMES`.

    The Gaussian-DP parameter and its regret are None where no noise is Gaussian.
    """
    first = claims[0]
    has_gaussian_noise = any(claim.noise_multiplier is not None for claim in claims)
    fit = fit_of_all(claims).to_json() if has_gaussian_noise else {"gdp_mu": None, "gdp_regret": None}
    return {
        "epsilon": finite(epsilon),
        "delta": first.delta,
        "accountant": str(first.accountant),
        "adjacency": str(first.adjacency),
        "unit": str(first.adjacency.unit),
        **fit,
    }


def guarantee_line(values: Mapping[str, Any]) -> str:
    """Return a guarantee as one line without a full stop."""
    epsilon = values["epsilon"]
    adjacency = Adjacency(values["adjacency"])
    epsilon_text = "without bound" if epsilon is None else f"{epsilon:.4g}"
    # The claim of somebody else's code names no accountant.
    accountant_text = "" if values["accountant"] is None else f" by {values['accountant']}"
    line = f"epsilon {epsilon_text} at delta {values['delta']:g}{accountant_text}, neighbours by {adjacency}"
    line += f" (the unit is a {adjacency.unit})"
    mu = values.get("gdp_mu")
    if mu is None:
        return line
    return f"{line}; {mu_text(mu, values['gdp_regret'])}"


def mu_text(mu: float, regret: float) -> str:
    """Return the part of a guarantee's line that states the Gaussian-DP parameter mu and the error of its fit."""
    return f"as mu-GDP: mu {mu:.4g} with a regret of {regret:.2g} (the error of the fit)"
