"""Epsilon of choosing the best of several private trainings, which is larger than that of a single training.

Who trains several times on the same records and publishes the best model has used all trainings to choose it. If their
number is fixed, the choice spends at most what all trainings spend together (composition). If their number is drawn at
random and stays secret, and every training draws its settings independently, the choice spends less: Papernot and
Steinke 2022, "Hyperparameter tuning with Renyi differential privacy" (arXiv:2110.03620), theorem 2 for the truncated
negative binomial distribution, and theorem 6 for the Poisson distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from scipy.optimize import brentq

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, account, exact_accountant
from fl_audit.privacy.accounting_enums import TrainingCount
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.renyi import RDP_ORDERS, rdp_epsilon, renyi_divergences

_SHAPES = {TrainingCount.LOGARITHMIC: 0.0, TrainingCount.GEOMETRIC: 1.0}
"""Shape eta of the truncated negative binomial distributions."""


@dataclass(frozen=True)
class SelectionCost:
    """Epsilon of publishing the best of several private trainings on the same records, at one delta."""

    trainings: int  # number of trainings, at least 2
    delta: float  # the delta of all numbers
    single: float  # largest epsilon of a single training, which does not cover the choice
    composed: float  # epsilon of all trainings together, which covers the choice of any of them
    # Epsilon if the number of trainings is drawn at random with the mean `trainings`, and stays secret.
    random: dict[TrainingCount, float]


def selection_cost(claims: Sequence[Claim]) -> SelectionCost | None:
    """Return the epsilon of publishing the best of several private trainings on the same records.

    None if there are fewer than two trainings, or their adjacency or delta differ, so that there is no one number.

    Parameters
    ----------
    claims
        The claim of each training.
    """
    if len(claims) < 2 or len({(claim.adjacency, claim.delta) for claim in claims}) > 1:
        return None
    adjacency = claims[0].adjacency
    delta = claims[0].delta
    together = tuple(event for claim in claims for event in claim.events)
    return SelectionCost(
        trainings=len(claims),
        delta=delta,
        single=max(account(claim.profile, claim.accountant, delta) for claim in claims),
        composed=account(PrivacyProfile(together, adjacency), exact_accountant(together), delta),
        random={count: random_count_epsilon(claims, count, float(len(claims))) for count in TrainingCount},
    )


def selection_cost_of(guarantees: Sequence[Guarantee | None]) -> SelectionCost | None:
    """Return the epsilon of publishing the best of several trainings, by their guarantees; those without are left out.

    None as of `selection_cost`, and where a guarantee consists of several claims.
    """
    known_guarantees = [guarantee for guarantee in guarantees if guarantee is not None]
    if any(len(set(guarantee.claims)) > 1 for guarantee in known_guarantees):
        return None
    return selection_cost([guarantee.claim for guarantee in known_guarantees])


def random_count_epsilon(claims: Sequence[Claim], count: TrainingCount, mean: float) -> float:
    """Return the epsilon of the best of a random number of trainings, each of which draws its claim independently.

    It is converted from Renyi divergences as Opacus does (accountant `rdp`).

    Parameters
    ----------
    claims
        Claims of the settings that a training may draw, of one adjacency and delta.
    count
        Distribution of the number of trainings.
    mean
        Mean of this distribution, above 1.

    Examples
    --------
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> claim = Claim("add-remove-record", gaussian_rounds(20.0, 10), 1e-5)
    >>> [round(random_count_epsilon([claim], count, 40.0), 2) for count in TrainingCount]
    [1.25, 1.58, 2.42]
    """
    return rdp_epsilon(Accountant.RDP, selection_divergences(claims, count, mean), claims[0].delta)


def selection_divergences(claims: Sequence[Claim], count: TrainingCount, mean: float) -> Floats:
    """Return the Renyi divergence of the best of a random number of trainings at each order of `RDP_ORDERS`.

    Its parameters are those of `random_count_epsilon`.
    """
    require(mean > 1, f"mean number of trainings is {mean}: accepted are numbers above 1")
    # A training draws one of several settings: the divergence of the mixture is at most the largest.
    curves = [renyi_divergences(claim.events, None, claim.adjacency) for claim in claims]
    divergences = np.asarray(np.max(curves, axis=0), dtype=np.float64)
    match count:
        case TrainingCount.LOGARITHMIC | TrainingCount.GEOMETRIC:
            chosen = _negative_binomial(divergences, _SHAPES[count], mean)
        case TrainingCount.POISSON:
            chosen = _poisson(divergences, _poisson_deltas(claims), mean)
        case _:
            assert_never(count)
    # A divergence grows with its order, so that a bound at a larger order holds too.
    return np.asarray(np.minimum.accumulate(chosen[::-1])[::-1])


def drawn_number(count: TrainingCount, mean: float, generator: np.random.Generator) -> int:
    """Return a number of trainings that is drawn from a distribution with a mean above 1."""
    match count:
        case TrainingCount.LOGARITHMIC:
            return int(generator.logseries(1 - negative_binomial_parameter(_SHAPES[count], mean)))
        case TrainingCount.GEOMETRIC:
            return int(generator.geometric(negative_binomial_parameter(_SHAPES[count], mean)))
        case TrainingCount.POISSON:
            return int(generator.poisson(mean))
        case _:
            assert_never(count)


def negative_binomial_parameter(shape: float, mean: float) -> float:
    """Return the parameter gamma, in (0, 1), of the truncated negative binomial distribution with a mean above 1.

    The mean is 1 / gamma for the shape 1 (geometric), and (1 / gamma - 1) / log(1 / gamma) for the shape 0
    (logarithmic).
    """
    if shape == 1:
        return 1 / mean
    require(shape == 0, f"shape is {shape}: accepted are 0 and 1")
    log_inverse = brentq(lambda t: math.expm1(t) / t - mean, 1e-12, 700.0)
    return math.exp(-float(log_inverse))


def _negative_binomial(divergences: Floats, shape: float, mean: float, orders: Floats = RDP_ORDERS) -> Floats:
    """Return the Renyi divergence of the best training at each order, by theorem 2 of Papernot and Steinke 2022.

    It is eps + (1 + eta) (1 - 1/l) eps_l + (1 + eta) log(1/gamma) / l + log(mean) / (order - 1), for any order l with
    the divergence eps_l; the smallest is taken.
    """
    log_inverse = -math.log(negative_binomial_parameter(shape, mean))
    second = (1 - 1 / orders) * divergences + log_inverse / orders
    return np.asarray(divergences + (1 + shape) * float(second.min()) + math.log(mean) / (orders - 1))


def _poisson(divergences: Floats, deltas: Floats, mean: float, orders: Floats = RDP_ORDERS) -> Floats:
    """Return the Renyi divergence of the best training at each order, by theorem 6 of Papernot and Steinke 2022.

    It is eps + mean delta_hat + log(mean) / (order - 1), if a training is (log(1 + 1/(order - 1)), delta_hat)-DP.
    """
    return np.asarray(divergences + mean * deltas + math.log(mean) / (orders - 1))


def _poisson_deltas(claims: Sequence[Claim]) -> Floats:
    """Return the delta of a single training at the epsilon that theorem 6 takes at each order of `RDP_ORDERS`."""
    epsilons = np.log1p(1 / (RDP_ORDERS - 1))
    return np.array([max(claim.profile.delta(float(epsilon)) for claim in claims) for epsilon in epsilons])


def selection_text(cost: SelectionCost | None) -> str:
    """Return a sentence on what the best of several private trainings spends; without a cost, without numbers."""
    if cost is None:
        return (
            "The best of several private trainings on the same records spends more than the epsilon of one: it spends "
            "at most what all of them spend together (fl-audit account --ledger adds them up)."
        )
    drawn_text = ", ".join(f"{epsilon:.3g} ({count})" for count, epsilon in cost.random.items())
    return (
        f"The best of these {cost.trainings} private trainings spends more than the epsilon of one, {cost.single:.3g}: "
        f"all of them together spend {cost.composed:.3g} at delta {cost.delta:g}. Had their number been drawn at "
        f"random with the mean {cost.trainings}, and each its settings, the best would spend at most {drawn_text} "
        "(Papernot and Steinke 2022)."
    )
