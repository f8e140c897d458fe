"""Findings of the attacks on many targets, on an attribute and on the final model, with the limits of the guarantee."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from fl_audit.array_types import Floats, finite
from fl_audit.audits.membership.attack_limits import largest_auc, largest_order, largest_tpr
from fl_audit.audits.membership.attack_names import Attack, has_shadows
from fl_audit.audits.membership.attack_results import (  # fmt: skip
    SingleAttackResults,
    achieved_by_attack,
    achieved_by_insiders,
    bound_of_scores,
    rates_of,
)
from fl_audit.audits.membership.judging import can_compare_targets
from fl_audit.audits.membership.roc_metrics import MembershipRates
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.privacy.guarantee import MembershipBounds, membership_bounds
from fl_audit.statistics.advantage import AdvantageEstimate, AdvantageInterval, empirical_advantage, mean_advantage
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import LowerBound, bound_json, epsilon_lower_bound

SCORE, APART = "score_", "apart_"
"""Prefixes of the columns with an attack's scores: with all other trials as shadows, or separate shadow trials."""
INSIDER = "insider"
_RATES = 4  # number of rates of an attack whose intervals hold jointly
_TRIALS_OF_PAIRS = 100
"""Number of trials whose pairs of a member and a nonmember are used for the insiders' expected AUC."""


@dataclass(frozen=True)
class AllAttacksFinding:
    """The results of all membership attacks and of the insiders, with the limits that the guarantee sets to them."""

    achieved: dict[
        str, SingleAttackResults
    ]  # results keyed by attack, in the order of the configuration, `INSIDER` last
    trials: int  # number of trials
    targets: int  # number of targets
    # Expected AUC of the insiders from their signal-to-noise ratios; None without insiders, or if participation is
    # sampled in secret.
    insider_auc: float | None
    largest_auc: (
        float | None
    )  # largest AUC of an insider, whose scores are compared over trials, under the guarantee; None without a guarantee
    # Largest AUC of an attacker who orders members and nonmembers of the same trial, under the guarantee; None without
    # a guarantee.
    largest_order: float | None
    # Under the guarantee: largest TPR at FPR 0.1 % and at FPR 1 %, and largest balanced accuracy; None without one.
    largest_rates: tuple[float | None, float | None, float | None]

    @property
    def outsiders(self) -> dict[str, SingleAttackResults]:
        """The results of the attacks that use only models, keyed by attack; those of the insiders are left out."""
        return {name: found for name, found in self.achieved.items() if name != INSIDER}

    def largest_auc_of(self, name: str) -> float | None:
        """Return the largest AUC that the guarantee allows the attack with the given name; None without a guarantee."""
        return self.largest_auc if name == INSIDER else self.largest_order

    def to_json(self) -> dict[str, Any]:
        """Return this finding as JSON values in a dict with the one key `attacks`, for `summary.json`."""
        limits = {"largest_auc": self.largest_auc, "largest_auc_within_trials": self.largest_order}
        limits |= {"insider_auc_from_signal": self.insider_auc}
        by_name = {name: _json(found) for name, found in self.achieved.items()}
        return {"attacks": {"trials": self.trials, "targets": self.targets} | limits | {"by_name": by_name}}


def _json(found: SingleAttackResults) -> dict[str, Any]:
    rates, one_run = found.rates, found.one_run
    named = ("auc", "tpr_at_fpr_0001", "tpr_at_fpr_001", "balanced_accuracy")
    told: dict[str, Any] = {name: asdict(getattr(rates, name)) for name in named}
    told |= {"confidence": rates.confidence, "lower_bound": None if found.bound is None else bound_json(found.bound)}
    if one_run is None or found.by_tradeoff is None:
        return told | {"one_run": None}
    counted = {name: getattr(one_run.guesses, name) for name in ("coins", "guessed", "right")}
    bounds = {"epsilon": one_run.epsilon, "ceiling": one_run.limit_of_detection}
    return told | {"one_run": json_of(bounds | {"epsilon_by_tradeoff": found.by_tradeoff.epsilon}) | counted}


@dataclass(frozen=True)
class AttackScores:
    """The scores of one attack, or the log-odds of the insiders, for all targets in all trials."""

    values: Floats  # scores, higher for a likelier member, (trials, targets)
    # Scores with separate shadow trials, with NaN in these; None without such trials; `values` itself without shadows.
    apart: Floats | None
    membership: TargetMembership  # membership of the targets in all trials
    of_insiders: bool = False  # whether the scores are log-odds of insiders

    def rates(self, confidence: float) -> MembershipRates:
        """Return the AUC and other rates of these scores, with intervals that hold jointly at the given confidence."""
        has_shadows = not self.of_insiders and self.apart is not self.values
        return rates_of(self.values, self.membership, confidence, has_shadows, self.of_insiders)


def scores_of(run: FinishedRun, name: str) -> AttackScores:
    """Return the scores of an attack, or the log-odds of the insiders, in all trials of a run.

    Parameters
    ----------
    run
        A finished run of the membership audit.
    name
        Name of the attack, or `INSIDER` for the log-odds of the insiders.
    """
    table = run.tables.targets
    assert table is not None, "only the membership audit has targets"
    trials = table["trial"].nunique()

    def column(named: str) -> Floats:
        return table[named].to_numpy(dtype=np.float64).reshape(trials, -1)

    membership = TargetMembership(column("is_in").astype(np.bool_))
    if name == INSIDER:
        odds = column("log_odds")
        return AttackScores(odds, odds, membership, of_insiders=True)
    scores = column(SCORE + name)
    apart = column(APART + name) if APART + name in table else None
    has = has_shadows(Attack(name) if name in list(Attack) else name)
    return AttackScores(scores, apart if has else scores, membership)


def rate_ends(run: FinishedRun, name: str, rate: str, confidence: float) -> tuple[float, float]:
    """Return the lower and upper end of the confidence interval of a single rate of an attack.

    The confidence is that of this interval alone, not of all rates jointly.

    Parameters
    ----------
    run
        A finished run of the membership audit.
    name
        Name of the attack, or `INSIDER` for the insiders.
    rate
        Name of the rate, which is a field of `MembershipRates`.
    confidence
        Confidence of the interval, above 1/2 and below 1.
    """
    # The four intervals share the level of the confidence.
    found = getattr(scores_of(run, name).rates(1 - _RATES * (1 - confidence)), rate)
    return found.low, found.high


def bound_end(run: FinishedRun, name: str, confidence: float) -> tuple[float, float]:
    """Return an attack's lower bound on epsilon at the given confidence, and infinity as the upper end.

    The lower bound is 0 without usable scores.

    Parameters
    ----------
    run
        A finished run of the membership audit.
    name
        Name of the attack, or `INSIDER` for the insiders.
    confidence
        Confidence of the bound, above 1/2 and below 1.
    """
    scores = scores_of(run, name)
    delta = float(run.facts.configuration["privacy"]["delta"])
    found = bound_of_scores(scores.apart, scores.membership, delta, confidence)
    return 0.0 if found is None else found.epsilon, math.inf


def measure_attacks(run: FinishedRun, _: Findings) -> AllAttacksFinding | None:
    """Return the results of all attacks and insiders; None if the run is no membership audit or has no attack.

    Also None if the trials are too few to measure attacks (`can_compare_targets`).
    """
    table, guarantee = run.tables.targets, run.facts.guarantee
    if (
        table is None
        or run.facts.federation.membership_scheme is MembershipScheme.EXACTLY_ONE
        or not can_compare_targets(run)
    ):
        return None
    trials = table["trial"].nunique()
    delta = float(run.facts.configuration["privacy"]["delta"])
    confidence, achieved = run.facts.confidence, dict[str, SingleAttackResults]()
    membership = TargetMembership(table["is_in"].to_numpy(dtype=np.bool_).reshape(trials, -1))
    for name in (str(named)[len(SCORE) :] for named in table.columns if str(named).startswith(SCORE)):
        found, sees_weights = scores_of(run, name), name in list(Attack) and Attack(name).sees_weights
        achieved[name] = achieved_by_attack(found.values, found.apart, membership, delta, confidence, sees_weights)
    known = None
    if "log_odds" in table:
        achieved[INSIDER] = achieved_by_insiders(scores_of(run, INSIDER).values, membership, delta, confidence)
        is_secret = run.facts.is_sampled and not run.facts.federation.threat_model.sees_participation
        mu = table["mu"].to_numpy(dtype=np.float64).reshape(trials, -1)
        known = None if is_secret else _auc_of_signals(mu, membership)
    if not achieved:
        return None
    if guarantee is None:
        return AllAttacksFinding(achieved, trials, membership.targets, known, None, None, (None, None, None))
    profile = guarantee.claim.profile
    auc, order = largest_auc(profile), largest_order(profile)
    at_0001, at_001 = largest_tpr(profile, np.array([1e-3, 1e-2]))
    rates = (float(at_0001), float(at_001), (1 + guarantee.advantage_bound_exact) / 2)
    return AllAttacksFinding(achieved, trials, membership.targets, known, auc, order, rates)


def _auc_of_signals(mu: Floats, membership: TargetMembership) -> float | None:
    """Return the expected AUC of log-odds that separate members from nonmembers; None without pairs of both.

    The log-odds of a target are N(mu^2/2, mu^2) for a member and N(-mu^2/2, mu^2) for a nonmember. The AUC is the mean
    over pairs of a member and a nonmember of the same trial, in the first 100 trials. In a pair with mu_1 and mu_0 the
    difference of the log-odds is N(s^2/2, s^2) with s^2 = mu_1^2 + mu_0^2.

    Parameters
    ----------
    mu
        Signal-to-noise ratio of each target, shape (trials, targets).
    membership
        Which targets are members in each trial.
    """
    right, pairs = 0.0, 0
    for squares, is_in in zip(np.square(mu[:_TRIALS_OF_PAIRS]), membership.is_in[:_TRIALS_OF_PAIRS], strict=True):
        spread = np.sqrt(squares[is_in, np.newaxis] + squares[~is_in])
        right, pairs = right + float(ndtr(spread / 2).sum()), pairs + spread.size
    return right / pairs if pairs else None


TRUTH, GUESSED_BLINDLY, GUESSED, GUESSED_BY_DISTRIBUTION = (
    "attribute",
    "attribute_prior",
    "attribute_loss",
    "attribute_distribution",
)
"""Columns of the table of targets: index of the attribute's true value, and the value that each adversary guesses."""
GUESSERS = (GUESSED_BLINDLY, GUESSED, GUESSED_BY_DISTRIBUTION)


@dataclass(frozen=True)
class AttributeGuesser:
    """The accuracy of one adversary that guesses an attribute of each target.

    It is given for members, for nonmembers, and as the difference of the two.
    """

    members: float  # share of correct guesses among members, over all trials
    others: float  # share of correct guesses among nonmembers, over all trials
    advantage: AdvantageInterval  # share among members minus share among nonmembers in a trial, mean over trials


@dataclass(frozen=True)
class AttributeFinding:
    """The accuracies of all adversaries that guess an attribute of the targets, and a bound on their advantages.

    The bound follows from the guarantee.
    """

    attribute: str  # name or number of the attribute's column
    values: int  # number of different values of the attribute
    by_name: dict[str, AttributeGuesser]  # results of each adversary, keyed by the column of its guesses
    # The largest advantage that the guarantee allows; None without a guarantee. Members and nonmembers are of the same
    # training, as for `largest_order`.
    largest: float | None

    def to_json(self) -> dict[str, Any]:
        """Return this finding as JSON values in a dict with the one key `attribute`, for `summary.json`."""
        told = {name.removeprefix("attribute_"): json_of(found) for name, found in self.by_name.items()}
        numbers = {"attribute": self.attribute, "values": self.values, "largest_advantage": self.largest}
        return {"attribute": numbers | {"by_name": told}}


def measure_attributes(run: FinishedRun, _: Findings) -> AttributeFinding | None:
    """Return the accuracies of the adversaries that guess an attribute; None if no attribute was guessed.

    Also None if the trials are too few to measure attacks (`can_compare_targets`).
    """
    table, guarantee = run.tables.targets, run.facts.guarantee
    if table is None or TRUTH not in table or not can_compare_targets(run):
        return None
    found = {name: _guesser(table, name, run.facts.confidence) for name in GUESSERS}
    truth = table[TRUTH].to_numpy()
    largest = None if guarantee is None else 2 * largest_order(guarantee.claim.profile) - 1
    return AttributeFinding(str(run.facts.configuration["audit"]["attribute"]), len(np.unique(truth)), found, largest)


def _guesser(table: pd.DataFrame, name: str, confidence: float) -> AttributeGuesser:
    """Return the accuracy of one adversary for members and for nonmembers, and its advantage.

    Parameters
    ----------
    table
        One row for each trial and target, sorted by trial, with the true attribute and the guess of each adversary.
    name
        Column with the guesses of this adversary.
    confidence
        Confidence of the interval of the advantage, above 0 and below 1.
    """
    trials = table["trial"].nunique()
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(trials, -1)
    members, others = is_in.sum(axis=1), (~is_in).sum(axis=1)
    both = (members > 0) & (others > 0)  # a trial with everybody in, or nobody, has no advantage
    right = (table[name].to_numpy() == table[TRUTH].to_numpy()).reshape(trials, -1)
    hits, others_hit = (right & is_in).sum(axis=1), (right & ~is_in).sum(axis=1)
    shares = float(hits.sum() / members.sum()), float(others_hit.sum() / others.sum())
    advantages = hits[both] / members[both] - others_hit[both] / others[both]
    return AttributeGuesser(*shares, mean_advantage(advantages, confidence))


def attribute_ends(run: FinishedRun, name: str, confidence: float) -> tuple[float, float]:
    """Return the ends of the confidence interval of the advantage of an adversary that guesses an attribute.

    Parameters
    ----------
    run
        A finished run in which an attribute was guessed.
    name
        Name of the column with the adversary's guesses.
    confidence
        Confidence of the interval, above 0 and below 1.
    """
    assert run.tables.targets is not None, "an attribute is guessed of targets"
    found = _guesser(run.tables.targets, name, confidence).advantage
    return found.low, found.high


_COLUMNS, _SCORE = ["membership_advantage", "record_membership_guess"], "record_score"


def membership_ends(run: FinishedRun, confidence: float) -> tuple[float, float]:
    """Return the ends of the confidence interval of the membership adversary's mean advantage.

    Parameters
    ----------
    run
        A finished run in which the membership adversary (an attack on the losses of the final model) was evaluated.
    confidence
        Confidence of the interval, above 0 and below 1.
    """
    found = mean_advantage(run.tables.trials[_COLUMNS[0]].to_numpy(dtype=np.float64), confidence)
    return found.low, found.high


def record_bound_end(run: FinishedRun, confidence: float) -> tuple[float, float]:
    """Return the lower bound on epsilon from the losses on one record, and infinity as the upper end.

    The record is the one in which D and D' differ.

    Parameters
    ----------
    run
        A finished run with a guarantee, and with trials of both D and D'.
    confidence
        Confidence of the bound, above 1/2 and below 1.
    """
    assert run.facts.guarantee is not None, "only a guarantee names a delta"
    scores, method = run.tables.trials[_SCORE].to_numpy(dtype=np.float64), BoundMethod.ORDER_STATISTIC
    groups = scores[run.bits], scores[~run.bits]  # the record's losses: an audit of the final model alone
    return epsilon_lower_bound(*groups, run.facts.guarantee.delta, confidence, method).epsilon, math.inf


@dataclass(frozen=True)
class MembershipFinding:
    """Advantages of the membership adversary, which attacks the final model's losses, and upper bounds on them.

    There are two advantages: in telling all members from nonmembers, and in deciding whether the one record in which D
    and D' differ is a member. The guarantee bounds both from above.
    """

    over_trials: AdvantageInterval  # advantage in telling members from nonmembers, mean over trials
    record: AdvantageEstimate  # advantage in guessing whether the differing record is a member
    bounds: MembershipBounds | None  # upper bounds on `over_trials` by the guarantee; None without a guarantee
    record_bound: float | None  # upper bound on the advantage in `record` by the guarantee; None without a guarantee
    # Lower bound on epsilon from the losses on the differing record, valid for any distribution of the losses; None
    # without a guarantee, or without trials with D or with D'.
    lower_bound: LowerBound | None = None

    def to_json(self) -> dict[str, Any]:
        """Return this finding as JSON values in a dict with the one key `membership`, for `summary.json`."""
        bounds, low = self.bounds, self.lower_bound
        mean = {name: getattr(self.over_trials, name) for name in ("advantage", "low", "high", "confidence")}
        record = {name: getattr(self.record, name) for name in ("wins", "advantage", "low", "high")}
        record |= {"bound": self.record_bound, "lower_bound": None if low is None else bound_json(low)}
        yeom, tradeoff, exact = (finite(bounds.yeom), bounds.tradeoff, bounds.exact) if bounds else (None, None, None)
        limits = {"yeom_bound": yeom, "tradeoff_bound": tradeoff, "bound": exact}
        return {"membership": mean | limits | {"record": record}}


def measure_membership(run: FinishedRun, _: Findings) -> MembershipFinding | None:
    """Return the success of the membership adversary on the final models' losses; None if it was not evaluated."""
    trials, facts = run.tables.trials, run.facts
    if not set(_COLUMNS) <= set(trials) or trials[_COLUMNS].isna().any(axis=None):
        return None
    guarantee = facts.guarantee
    mean = mean_advantage(trials[_COLUMNS[0]].to_numpy(dtype=np.float64), facts.confidence)
    record = empirical_advantage(trials[_COLUMNS[1]].to_numpy() == trials["bit"].to_numpy(), facts.confidence)
    bounds, limit = (
        (None, None) if guarantee is None else (membership_bounds(guarantee), guarantee.advantage_bound_exact)
    )
    proven = None
    if guarantee is not None and _SCORE in trials and run.has_both_bits:
        scores = trials[_SCORE].to_numpy(dtype=np.float64)  # the record's losses: an audit of the final model alone
        groups, method = (scores[run.bits], scores[~run.bits]), BoundMethod.ORDER_STATISTIC
        proven = epsilon_lower_bound(*groups, guarantee.delta, facts.confidence, method)
    return MembershipFinding(mean, record, bounds, limit, proven)
