"""Claims of Bernau et al. 2021 that are tested by formulas alone, without runs.

rho_beta is the claimed bound on the adversary's belief in the true data set. rho_alpha is the claimed bound on its
advantage.
"""

from collections.abc import Iterator
from math import inf, log, sqrt

import numpy as np
from scipy.special import logit, ndtr

from fl_audit.experiments.papers.bernau2021.closed_forms import calibrated, printed_columns, table_3
from fl_audit.experiments.papers.bernau2021.insider_runs import MAIN_BELIEF, ROUNDS
from fl_audit.experiments.papers.bernau2021.noisy_query import DELTAS, EPSILONS, NoisyQuery
from fl_audit.experiments.papers.claims import PaperClaim, exact, read_claims
from fl_audit.privacy.identifiability_bounds import epsilon_from_belief, rho_alpha

CLAIMS = read_claims(__file__)


def closed_forms() -> Iterator[PaperClaim]:
    """Yield the claims that are tested by formulas alone, without runs."""
    frame = table_3().frame
    printed = frame[frame["published"].notna() & (frame["quantity"] != "delta")]
    agree = float(printed["note"].str.startswith("as printed").mean())
    yield CLAIMS["table-3"].on("Table 3", exact(agree))
    columns = {(belief, float(column["delta"])) for (_, belief), column in printed_columns().items()}
    ratios = {
        (belief, delta): (calibrated(belief, delta).advantage_bound_exact or 0.0)
        / rho_alpha(epsilon_from_belief(belief), delta)
        for belief, delta in sorted(columns)
    }
    largest = max(ratios.values())
    smallest = min(ratio for (belief, _), ratio in ratios.items() if belief >= 0.75)
    yield CLAIMS["rho-alpha-not-exceeded"].on("noise of the figures, every column of Table 3", exact(largest))
    yield CLAIMS["rho-alpha-reached"].on("noise of the figures, rho_beta from .75", exact(smallest))
    yield from noise_of_the_figures()
    queries = [NoisyQuery(epsilon, delta) for delta in DELTAS for epsilon in EPSILONS]
    passed = max(query.exceeded / query.delta for query in queries)
    yield CLAIMS["belief-exceeds-with-delta"].on("Figure 3, noise of Eq. (1)", exact(passed))
    apart = min(rho_alpha(epsilon, DELTAS[0]) / rho_alpha(epsilon, DELTAS[-1]) for epsilon in EPSILONS)
    yield CLAIMS["rho-alpha-by-delta"].on("Figure 3", exact(apart))
    yield CLAIMS["renyi-composition"].on("30 rounds, rho_beta .9", exact(_sequential_over_renyi()))


def noise_of_the_figures() -> Iterator[PaperClaim]:
    """Yield the claims at rho_beta = 0.9 that follow from the noise in the paper's figures.

    The claims do not depend on the data.
    """
    guarantees = [(delta, calibrated(MAIN_BELIEF, delta)) for delta in (0.01, 0.001)]
    apart = [
        (guarantee.advantage_bound_exact or 0.0) - rho_alpha(epsilon_from_belief(MAIN_BELIEF), delta)
        for delta, guarantee in guarantees
    ]
    where = "noise of the figures, rho_beta .9"
    quantity = "exact advantage less rho_alpha, farthest from 0"
    yield CLAIMS["advantage-is-rho-alpha"].on(where, exact(max(apart, key=abs)), quantity=quantity)
    over = [
        _largest_exceedance(sqrt(ROUNDS) / (guarantee.noise_multiplier or inf), MAIN_BELIEF) / delta
        for delta, guarantee in guarantees
    ]
    quantity = "largest probability that the noise allows, over delta"
    yield CLAIMS["beliefs-within-delta"].on(where, exact(max(over)), quantity=quantity, highest=1.0)


def _sequential_over_renyi() -> float:
    """Return the ratio of epsilon by sequential composition to epsilon by Rényi composition, for 30 rounds.

    The result is the smaller one of the ratios at delta 0.01 and 0.001. Sequential composition adds the epsilons of 30
    rounds, each by Eq. (1) at delta / 30.
    """
    ratios = []
    for delta in (0.01, 0.001):
        guarantee = calibrated(0.9, delta)
        assert guarantee.noise_multiplier is not None
        ratios.append(ROUNDS * sqrt(2 * log(1.25 * ROUNDS / delta)) / guarantee.noise_multiplier / guarantee.epsilon)
    return min(ratios)


def _largest_exceedance(mu: float, belief: float) -> float:
    """Return the worst-case probability that the belief in the truth exceeds `belief`, which is above 0.5.

    The belief may exceed it after any round. `mu` bounds the root of the sum of the squared mu_i of Gaussian DP of the
    rounds, which may depend on earlier rounds. The log-odds are a Brownian motion with drift 1/2 that stops by time
    mu^2, and the reflection principle gives the probability that its maximum exceeds a level.
    """
    passed = float(logit(belief))
    return float(ndtr(mu / 2 - passed / mu) + np.exp(passed) * ndtr(-mu / 2 - passed / mu))
