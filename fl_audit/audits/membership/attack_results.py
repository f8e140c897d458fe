"""Results of one attack in the membership audit: its rates, its ROC curve, and lower bounds on epsilon from its scores.

**One target of each trial.** The scores of a trial come from the same model, so a lower bound that needs independent
scores must not use all of them. Instead one target of each trial is drawn before the scores are seen. A coin decides
whether a target is a member. The pairs of the drawn target's score and coin are i.i.d. over trials. The score has the
distribution P1 if the target is a member, and P0 if not.

**P1 and P0 are close if the mechanism is private.** For fixed coins of all other targets, P1 and P0 are distributions
of a function of the releases of two neighbours. So P1(A) <= e^epsilon P0(A) + delta for every event A, and the same
holds with P1 and P0 exchanged. Coins are independent, so both inequalities still hold after averaging over the other
coins and over the drawn target. Nothing else is assumed; records may depend on each other.

**Shadow trials.** An attack learns from the models and the membership of shadow trials. The score of a trial may depend
on its own release and on shadow trials that are not used for the bound. If every trial were a shadow of all others, a
trial's coin would influence the scores of other trials, and the scores would not be independent. So these functions
must only get scores of trials that are not shadow trials.
"""

from dataclasses import dataclass
from math import floor, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats, Integers
from fl_audit.audits.canaries.bounds import OneRunBound, bound_of_guesses
from fl_audit.audits.canaries.guessing_bounds import guesses_of_scores
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.audits.common.target_log_odds import log_odds_of_targets
from fl_audit.audits.membership.roc_metrics import RocCurve, RocSummary, membership_rates, roc_curve
from fl_audit.errors import require
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.randomness import Purpose, generator
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import LowerBound, epsilon_lower_bound
from fl_audit.value_checks import require_number

_GUESSED = 0.1
"""Share of the targets that are guessed members in a one-run bound, and also the share guessed nonmembers."""
_PUBLIC_SEED = 0
_LARGEST_PHI = 2.0  # largest value of phi, as in the paper of `relative_tradeoff`


class OneTargetPerTrialScores(NamedTuple):
    """Scores of one drawn target of each trial, separately for trials in which it was a member and a nonmember."""

    members: Floats  # scores of drawn targets that were members, shape (n1,)
    nonmembers: Floats  # scores of drawn targets that were not members, shape (n0,)
    targets: Integers  # index of the drawn target of each trial, shape (trials,)


def one_target_scores(
    scores: ArrayLike, membership: TargetMembership, draw: np.random.Generator
) -> OneTargetPerTrialScores:
    """Draw one target of each trial at random, and return the scores of the drawn targets.

    Shapes: `scores` (trials, targets).

    `scores`: No trial may have been a shadow trial for the scores of another.
    """
    values = np.asarray(scores, dtype=np.float64)
    shape = (membership.trials, membership.targets)
    require(values.shape == shape, f"scores have shape {values.shape}: accepted is {shape}, trials and targets")
    targets = draw.integers(membership.targets, size=membership.trials)
    rows = np.arange(membership.trials)
    scores_drawn = values[rows, targets]
    was_in = membership.is_in[rows, targets]
    return OneTargetPerTrialScores(scores_drawn[was_in], scores_drawn[~was_in], np.asarray(targets, dtype=np.int64))


def epsilon_of_one_target(
    scores: ArrayLike, membership: TargetMembership, delta: float, draw: np.random.Generator, confidence: float = 0.95
) -> LowerBound | None:
    """Return a lower bound on epsilon from the score of one target of each trial.

    None if all drawn targets were members, or all were nonmembers.

    Shapes: `scores` (trials, targets).
    """
    drawn_scores = one_target_scores(scores, membership, draw)
    if not (drawn_scores.members.size and drawn_scores.nonmembers.size):
        return None
    return epsilon_lower_bound(
        drawn_scores.members, drawn_scores.nonmembers, delta, confidence, BoundMethod.ORDER_STATISTIC
    )


@dataclass(frozen=True)
class AttackResults:
    """The results of one membership attack: its rates, its ROC curve, and lower bounds on epsilon from its scores."""

    rates: RocSummary  # AUC, TPR at small FPR and balanced accuracy
    roc: RocCurve  # ROC curve of the scores of all targets in all trials
    # Lower bound on epsilon from the score of one target of each trial; None if the attack needs shadow trials and no
    # separate trials served as shadows.
    bound: LowerBound | None
    # Lower bound on epsilon from the first trial alone; None if the attacker knows coins of other targets.
    one_run: OneRunBound | None
    # Lower bound on epsilon from the same guesses as `one_run`, by the trade-off curve of (epsilon, delta)-DP. The
    # confidence is that of each bound, not of both together.
    by_tradeoff: OneRunBound | None = None


@dataclass(frozen=True)
class AttackScores:
    """The scores of one attack, or the log-odds of the insiders, for all targets in all trials."""

    # Scores, higher for a likelier member, (trials, targets). If the attack uses shadows, each trial is attacked with
    # all other trials as shadows.
    values: Floats
    # Scores with separate shadow trials, with NaN in these; None without such trials; `values` itself without shadows.
    apart: Floats | None
    membership: TargetMembership  # membership of the targets in all trials
    of_insiders: bool = False  # whether the scores are log-odds of insiders, one for each target
    knows_coins: bool = False  # whether the attacker of a trial knows the membership of some other targets of the trial

    def rates(self, confidence: float) -> RocSummary:
        """Return the AUC and other rates of these scores, with confidence intervals.

        Bootstrap samples of the trials are the same in every call.
        """
        has_shadows = self.apart is not self.values
        return membership_rates(
            self.values,
            self.membership,
            _draws(),
            confidence,
            shadows_of_each_other=has_shadows,
            of_insiders=self.of_insiders,
        )

    def bound(self, delta: float, confidence: float) -> LowerBound | None:
        """Return a lower bound on epsilon from the score of one randomly drawn target in each trial.

        Trials that serve as shadows are left out. None if no trial is left, or if the drawn targets are all members or
        all nonmembers.
        """
        if self.apart is None:
            return None
        rows = ~np.isnan(self.apart).any(axis=1)
        members = TargetMembership(self.membership.is_in[rows])
        return epsilon_of_one_target(self.apart[rows], members, delta, _draws(), confidence)

    def results(self, delta: float, confidence: float) -> AttackResults:
        """Return the rates, the ROC curve and the lower bounds on epsilon of these scores."""
        one_run = None
        by_tradeoff = None
        if not self.knows_coins:
            fewest_guesses = max(1, floor(_GUESSED * self.membership.targets))
            guesses = guesses_of_scores(self.values[0], self.membership.is_in[0], fewest_guesses, fewest_guesses)
            one_run = bound_of_guesses(guesses, delta, confidence, OneRunMethod.STEINKE)
            by_tradeoff = bound_of_guesses(guesses, delta, confidence, OneRunMethod.TRADE_OFF)
        roc = roc_curve(self.values, self.membership)
        return AttackResults(self.rates(confidence), roc, self.bound(delta, confidence), one_run, by_tradeoff)


def _draws() -> np.random.Generator:
    """Return a generator with a fixed seed, which resamples trials and draws one target of each trial."""
    return generator(_PUBLIC_SEED, Purpose.TARGET_CHOICE, round=1)


def relative_tradeoff(auc_without: float, auc: float, accuracy_without: float, accuracy: float, classes: int) -> float:
    """Return phi, the relative trade-off between privacy gained and accuracy lost by DP, from 0 to 2.

    It is above 1 if DP gained relatively more privacy than it lost accuracy. With C classes, and AUC_o and ACC_o
    without DP, phi = max(0, AUC_o - AUC) (ACC_o - 1/C) / (max(0, ACC_o - ACC) (AUC_o - 1/2)), cut off at 2. It is 2, as
    in the paper, if no accuracy was lost. It is NaN if without DP the attack or the model was no better than guessing.
    Source: Bernau, Grassal, Robl & Kerschbaum 2019, Assessing differentially private deep learning with membership
    inference, section on the relative privacy-accuracy trade-off.
    """
    for value, name in ((auc_without, "AUC"), (auc, "AUC"), (accuracy_without, "accuracy"), (accuracy, "accuracy")):
        require_number(f"{name} is", value, "numbers from 0 to 1")
    require_number("number of classes is", classes, "whole numbers from 2")
    to_lose = accuracy_without - 1 / classes
    leak = auc_without - 0.5
    if to_lose <= 0 or leak <= 0:
        return nan
    lost = max(0.0, accuracy_without - accuracy) * leak
    return min(_LARGEST_PHI, max(0.0, auc_without - auc) * to_lose / lost) if lost else _LARGEST_PHI


def target_scores(run: FinishedRun) -> OneTargetPerTrialScores | None:
    """Return the insiders' log-odds for one randomly drawn target of each trial.

    The result is None if the run is no membership audit, or if it has no insiders.
    """
    if (results := log_odds_of_targets(run, is_exactly_one=False)) is None:
        return None
    log_odds, is_in = results
    return one_target_scores(log_odds, TargetMembership(is_in), generator(0, Purpose.TARGET_CHOICE, round=1))


def can_compare_targets(run: FinishedRun) -> bool:
    """Return whether attacks can be measured on a run.

    They can if there are at least two trials, of which at least one has both members and nonmembers.
    """
    if (table := run.tables.targets) is None or run.trials < 2:
        return False
    inside = table.groupby("trial")["is_in"].agg(["any", "all"])
    return bool((inside["any"] & ~inside["all"]).any())
