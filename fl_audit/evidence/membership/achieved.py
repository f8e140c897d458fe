"""All that is said of one attack in the game of membership: rates, the curve, and what its scores prove."""

from dataclasses import dataclass
from math import floor

import numpy as np

from fl_audit.arrays import Floats
from fl_audit.canaries.bounds import OneRunBound, bound_of_guesses
from fl_audit.canaries.guesses import guesses_of_scores
from fl_audit.canaries.methods import OneRunMethod
from fl_audit.evidence.bounds.lower_bounds import LowerBound
from fl_audit.evidence.membership.one_target import epsilon_of_one_target
from fl_audit.evidence.membership.rates import MembershipRates, RocCurve, membership_rates, roc_curve
from fl_audit.game.membership import Membership
from fl_audit.randomness import Purpose, generator

GUESSED = 0.1
"""Share of its targets that an attacker calls members in a single run, and that it calls others; fixed beforehand."""
_PUBLIC_SEED = 0


@dataclass(frozen=True)
class AskedOfScores:
    """What is asked of an attack's scores."""

    delta: float  # delta of the lower bounds, at least 0 and below 1
    confidence: float  # of intervals and bounds, above 0.5 and below 1


@dataclass(frozen=True)
class Achieved:
    """What an attack achieved."""

    rates: MembershipRates  # AUC, TPR at small FPR and balanced accuracy
    roc: RocCurve  # the curve of all scores
    # The epsilon that its scores prove, from one target of every world; None where its worlds were each other's shadows
    # and none were kept apart.
    bound: LowerBound | None
    # The epsilon that the first world proves by itself; None of who knows other coins of it.
    one_run: OneRunBound | None
    # The same by the whole trade-off curve of (epsilon, delta)-DP, from the same guesses; each bound holds by itself.
    by_tradeoff: OneRunBound | None = None


def achieved_by_attack(
    scores: Floats, apart: Floats | None, membership: Membership, asked: AskedOfScores, knows_coins: bool = False
) -> Achieved:
    """Return what an attack on models achieved.

    Parameters
    ----------
    scores
        Higher for a likelier member, (worlds, targets), each world attacked with all others as shadows.
    apart
        The same where some worlds were shadows alone, which are NaN; all scores, if the attack has no shadows; None
        where no worlds were kept apart.
    membership
        Which targets were in, in which worlds.
    asked
        Delta and confidence of the bounds that are asked for.
    knows_coins
        Whether the attacker of a world knows some of its coins, so that its guesses are no test of a single run.
    """
    has_shadows = apart is not scores
    rates = membership_rates(scores, membership, _draws(), asked.confidence, shadows_of_each_other=has_shadows)
    one_run, by_tradeoff = None, None
    if not knows_coins:
        few = max(1, floor(GUESSED * membership.targets))
        guesses = guesses_of_scores(scores[0], membership.is_in[0], few, few)
        one_run = bound_of_guesses(guesses, asked.delta, asked.confidence, OneRunMethod.STEINKE)
        by_tradeoff = bound_of_guesses(guesses, asked.delta, asked.confidence, OneRunMethod.TRADE_OFF)
    return Achieved(rates, roc_curve(scores, membership), _bound(apart, membership, asked), one_run, by_tradeoff)


def achieved_by_insiders(log_odds: Floats, membership: Membership, asked: AskedOfScores) -> Achieved:
    """Return what the insiders achieved, one for each target, who know all coins but one; no shadows are needed.

    Parameters
    ----------
    log_odds
        Final log-odds of membership, (worlds, targets).
    membership
        Which targets were in, in which worlds.
    asked
        Delta and confidence of the bounds that are asked for.
    """
    rates = membership_rates(
        log_odds, membership, _draws(), asked.confidence, shadows_of_each_other=False, of_insiders=True
    )
    return Achieved(rates, roc_curve(log_odds, membership), _bound(log_odds, membership, asked), None)


def _bound(scores: Floats | None, membership: Membership, asked: AskedOfScores) -> LowerBound | None:
    if scores is None:
        return None
    rows = ~np.isnan(scores).any(axis=1)
    some = Membership(membership.is_in[rows])
    drawn = _draws()
    columns = drawn.integers(some.targets, size=some.worlds)
    was_in = some.is_in[np.arange(some.worlds), columns]
    if was_in.all() or not was_in.any():
        return None
    return epsilon_of_one_target(scores[rows], some, asked.delta, _draws(), asked.confidence)


def _draws() -> np.random.Generator:
    """Return the draws of resampled worlds and of one target a world, which depend on no score."""
    return generator(_PUBLIC_SEED, Purpose.TARGET_CHOICE, round=1)
