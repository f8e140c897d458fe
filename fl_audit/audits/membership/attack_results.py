"""Results of one attack in the membership audit: its rates, its ROC curve, and lower bounds on epsilon from its scores.

Scores of one trial share its model, so a lower bound that needs independent scores must not use all of them. If one
target of each trial is drawn before scores are seen, the pairs of its score and its coin are i.i.d. over trials. The
score has the distribution P1 if the coin says in, and P0 if not.

**P1 and P0 are close if the mechanism is private.** For fixed coins of all other targets, P1 and P0 are distributions
of a function of the releases of two neighbours, so that P1(A) <= e^epsilon P0(A) + delta for every event A, and the
same holds with both exchanged. Coins are independent, so both inequalities still hold after averaging over the other
coins and over the drawn target. Nothing else is assumed; records may depend on each other.

**What scores may depend on.** The score of a trial may depend on its own release and on shadow trials that are not used
for the bound. If every trial were a shadow of all others, a trial's coin would influence other trials' scores, and they
would no longer be independent. Attacks take the shadow trials as an argument; pass only scores of the other trials to
these functions.
"""

from dataclasses import dataclass
from math import floor, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats, Integers
from fl_audit.audits.canaries.bounds import OneRunBound, bound_of_guesses
from fl_audit.audits.canaries.guessing_bounds import guesses_of_scores
from fl_audit.audits.canaries.methods import OneRunMethod
from fl_audit.audits.membership.rates import MembershipRates, RocCurve, membership_rates, roc_curve
from fl_audit.errors import require, require_number
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.randomness import Purpose, generator
from fl_audit.statistics.lower_bounds import LowerBound, epsilon_lower_bound
from fl_audit.statistics.methods import BoundMethod

_GUESSED = 0.1
"""Share of targets called members in a one-run audit, and share called nonmembers; fixed beforehand."""
_PUBLIC_SEED = 0
_LARGEST_PHI = 2.0  # cut of phi in the paper


class OneTargetScores(NamedTuple):
    """Scores of one drawn target per trial, of members (n1,) and nonmembers (n0,), and the targets drawn (trials,)."""

    members: Floats
    nonmembers: Floats
    targets: Integers


def one_target_scores(scores: ArrayLike, membership: TargetMembership, draw: np.random.Generator) -> OneTargetScores:
    """Draw one target of every trial and return its score.

    Parameters
    ----------
    scores
        Scores of trials that served no other trial as shadows, no NaN, shape (trials, targets).
    membership
        Membership of the targets in the trials of `scores`.
    draw
        Generator that draws the targets; it must not depend on the scores.

    Raises
    ------
    InputError
        If shapes do not fit.
    """
    values = np.asarray(scores, dtype=np.float64)
    shape = (membership.trials, membership.targets)
    require(values.shape == shape, f"scores have shape {values.shape}: accepted is {shape}, trials and targets")
    targets = draw.integers(membership.targets, size=membership.trials)
    rows = np.arange(membership.trials)
    drawn, was_in = values[rows, targets], membership.is_in[rows, targets]
    return OneTargetScores(drawn[was_in], drawn[~was_in], np.asarray(targets, dtype=np.int64))


def epsilon_of_one_target(
    scores: ArrayLike, membership: TargetMembership, delta: float, draw: np.random.Generator, confidence: float = 0.95
) -> LowerBound | None:
    """Return a lower bound on epsilon from one target of each trial; None if all drawn targets were in, or all out.

    Parameters
    ----------
    scores
        Scores of the trials, as for `one_target_scores`.
    membership
        Membership of the targets in the trials of `scores`.
    draw
        Generator that draws the targets, as for `one_target_scores`.
    delta
        Delta at which epsilon is bounded, at least 0 and below 1.
    confidence
        Confidence of the bound, above 0.5 and below 1.

    Raises
    ------
    InputError
        If shapes do not fit, a score is NaN, or a number is out of its range.
    """
    drawn = one_target_scores(scores, membership, draw)
    if not (drawn.members.size and drawn.nonmembers.size):
        return None
    return epsilon_lower_bound(drawn.members, drawn.nonmembers, delta, confidence, BoundMethod.ORDER_STATISTIC)


@dataclass(frozen=True)
class AttackResults:
    """The results of a membership attack: its rates, its ROC curve, and lower bounds on epsilon."""

    rates: MembershipRates  # AUC, TPR at small FPR and balanced accuracy
    roc: RocCurve  # the curve of all scores
    # The epsilon that its scores prove, from one target of every trial; None where its trials were each other's shadows
    # and none were kept apart.
    bound: LowerBound | None
    # Epsilon that the first trial alone proves; None for an adversary that knows other coins of this trial.
    one_run: OneRunBound | None
    # Epsilon that the same guesses prove by the whole trade-off curve of (epsilon, delta)-DP; each of both bounds holds
    # by itself.
    by_tradeoff: OneRunBound | None = None


def achieved_by_attack(
    scores: Floats,
    apart: Floats | None,
    membership: TargetMembership,
    delta: float,
    confidence: float,
    knows_coins: bool = False,
) -> AttackResults:
    """Return the rates and the lower bounds on epsilon of an attack on models.

    Parameters
    ----------
    scores
        Scores, higher for a likelier member, (trials, targets), where each trial is attacked with all others as
        shadows.
    apart
        Scores by separate shadow trials, (trials, targets), with NaN in these; `scores` itself if the attack has no
        shadows; None if there are no separate shadow trials.
    membership
        Membership of the targets in all trials.
    delta
        Delta of the bounds, at least 0 and below 1.
    confidence
        Confidence of the bounds, above 0.5 and below 1.
    knows_coins
        Whether the attacker of a trial knows some of its coins, so that one-run bounds do not apply.
    """
    has_shadows = apart is not scores
    rates = rates_of(scores, membership, confidence, has_shadows, of_insiders=False)
    one_run, by_tradeoff = None, None
    if not knows_coins:
        few = max(1, floor(_GUESSED * membership.targets))
        guesses = guesses_of_scores(scores[0], membership.is_in[0], few, few)
        one_run = bound_of_guesses(guesses, delta, confidence, OneRunMethod.STEINKE)
        by_tradeoff = bound_of_guesses(guesses, delta, confidence, OneRunMethod.TRADE_OFF)
    bound = bound_of_scores(apart, membership, delta, confidence)
    return AttackResults(rates, roc_curve(scores, membership), bound, one_run, by_tradeoff)


def achieved_by_insiders(
    log_odds: Floats, membership: TargetMembership, delta: float, confidence: float
) -> AttackResults:
    """Return the rates and the lower bound of the insiders, one for each target, who know all other coins.

    Parameters
    ----------
    log_odds
        Final log-odds of membership, shape (trials, targets).
    membership
        Membership of the targets in all trials.
    delta
        Delta of the bounds, at least 0 and below 1.
    confidence
        Confidence of the bounds, above 0.5 and below 1.
    """
    rates = rates_of(log_odds, membership, confidence, has_shadows=False, of_insiders=True)
    bound = bound_of_scores(log_odds, membership, delta, confidence)
    return AttackResults(rates, roc_curve(log_odds, membership), bound, None)


def rates_of(
    scores: Floats, membership: TargetMembership, confidence: float, has_shadows: bool, of_insiders: bool
) -> MembershipRates:
    """Return the rates of an attack with bootstrap intervals; resamples are the same for every confidence.

    Parameters
    ----------
    scores
        Scores, higher for a likelier member, shape (trials, targets).
    membership
        Membership of the targets in all trials.
    confidence
        Confidence of the intervals, above 0.5 and below 1.
    has_shadows
        Whether the trials are each other's shadows.
    of_insiders
        Whether the scores are log-odds of insiders.
    """
    return membership_rates(
        scores, membership, _draws(), confidence, shadows_of_each_other=has_shadows, of_insiders=of_insiders
    )


def bound_of_scores(
    apart: Floats | None, membership: TargetMembership, delta: float, confidence: float
) -> LowerBound | None:
    """Return a lower bound on epsilon from the scores of one target of each trial; None without usable scores.

    Parameters
    ----------
    apart
        Scores by separate shadow trials, with NaN in these, or all scores of an attack without shadows, shape (trials,
        targets); None if there are no separate shadow trials.
    membership
        Membership of the targets in all trials.
    delta
        Delta at which epsilon is bounded, at least 0 and below 1.
    confidence
        Confidence of the bound, above 0.5 and below 1.
    """
    if apart is None:
        return None
    rows = ~np.isnan(apart).any(axis=1)
    return epsilon_of_one_target(apart[rows], TargetMembership(membership.is_in[rows]), delta, _draws(), confidence)


def _draws() -> np.random.Generator:
    """Return the generator that resamples trials and draws one target per trial; it does not depend on scores."""
    return generator(_PUBLIC_SEED, Purpose.TARGET_CHOICE, round=1)


def relative_tradeoff(auc_without: float, auc: float, accuracy_without: float, accuracy: float, classes: int) -> float:
    """Return phi, from 0 to 2, which is above 1 if privacy gained relatively more than accuracy lost.

    It is phi = max(0, AUC_o - AUC) (ACC_o - 1/C) / (max(0, ACC_o - ACC) (AUC_o - 1/2)), cut off at 2; it is 2, as in
    the paper, if no accuracy was lost. It is NaN if there was nothing to lose, because without privacy the attack or
    the model was no better than guessing. Source: Bernau, Grassal, Robl & Kerschbaum 2019, Assessing differentially
    private deep learning with membership inference, section on the relative privacy-accuracy trade-off.

    Parameters
    ----------
    auc_without
        AUC of a membership attack on the model without differential privacy, from 0 to 1.
    auc
        AUC of the same attack on the model with differential privacy, from 0 to 1.
    accuracy_without
        Test accuracy of the model without differential privacy, from 0 to 1.
    accuracy
        Test accuracy of the model with differential privacy, from 0 to 1.
    classes
        Number of classes, at least 2; 1 / classes is the accuracy of guessing.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    for value, name in ((auc_without, "AUC"), (auc, "AUC"), (accuracy_without, "accuracy"), (accuracy, "accuracy")):
        require_number(f"{name} is", value, "numbers from 0 to 1")
    require_number("number of classes is", classes, "whole numbers from 2")
    to_lose, leak = accuracy_without - 1 / classes, auc_without - 0.5
    if to_lose <= 0 or leak <= 0:
        return nan
    lost = max(0.0, accuracy_without - accuracy) * leak
    return min(_LARGEST_PHI, max(0.0, auc_without - auc) * to_lose / lost) if lost else _LARGEST_PHI
