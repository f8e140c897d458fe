"""Findings of the membership attacks on many targets and of the insiders, with the limits that the guarantee sets."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from fl_audit.array_types import Floats
from fl_audit.audits.membership.attack_limits import largest_auc, largest_auc_within_training, largest_tpr
from fl_audit.audits.membership.attack_results import AttackResults, AttackScores, can_compare_targets
from fl_audit.audits.membership.attacks.registry import attack_named
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.statistics.lower_bounds import bound_json

SCORE = "score_"
APART = "apart_"
"""Prefixes of the columns with an attack's scores: with all other trials as shadows, or separate shadow trials."""
INSIDER = "insider"
_RATES = 4  # number of rates of an attack whose intervals hold jointly
_TRIALS_OF_PAIRS = 100
"""Number of trials whose pairs of a member and a nonmember are used for the insiders' expected AUC."""


@dataclass(frozen=True)
class AllAttacksFinding:
    """The results of all membership attacks and of the insiders, with the limits that the guarantee sets to them."""

    # Results keyed by attack, in the order of the configuration, `INSIDER` last.
    achieved: dict[str, AttackResults]
    trials: int  # number of trials
    targets: int  # number of targets
    # Expected AUC of the insiders from their signal-to-noise ratios; None without insiders, or if participation is
    # sampled in secret.
    insider_auc: float | None
    # Largest AUC of an insider, whose scores are compared over trials, under the guarantee; None without a guarantee.
    largest_auc: float | None
    # Largest AUC of an attacker who orders members and nonmembers of the same trial, under the guarantee; None without
    # a guarantee.
    largest_order: float | None
    # Under the guarantee: largest TPR at FPR 0.1 % and at FPR 1 %, and largest balanced accuracy; None without one.
    largest_rates: tuple[float | None, float | None, float | None]

    @property
    def outsiders(self) -> dict[str, AttackResults]:
        """The results of the attacks that use only models, keyed by attack; those of the insiders are left out."""
        return {name: attack_results for name, attack_results in self.achieved.items() if name != INSIDER}

    def largest_auc_of(self, name: str) -> float | None:
        """Return the largest AUC that the guarantee allows the attack with the given name; None without a guarantee."""
        return self.largest_auc if name == INSIDER else self.largest_order

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `attacks`, for `summary.json`."""
        limits = {"largest_auc": self.largest_auc, "largest_auc_within_trials": self.largest_order}
        limits |= {"insider_auc_from_signal": self.insider_auc}
        by_name = {name: _json(attack_results) for name, attack_results in self.achieved.items()}
        return {"attacks": {"trials": self.trials, "targets": self.targets} | limits | {"by_name": by_name}}


def _json(results: AttackResults) -> dict[str, Any]:
    rates = results.rates
    one_run = results.one_run
    rate_names = ("auc", "tpr_at_fpr_0001", "tpr_at_fpr_001", "balanced_accuracy")
    values: dict[str, Any] = {name: asdict(getattr(rates, name)) for name in rate_names}
    values |= {
        "confidence": rates.confidence,
        "lower_bound": None if results.bound is None else bound_json(results.bound),
    }
    if one_run is None or results.by_tradeoff is None:
        return values | {"one_run": None}
    counts = {name: getattr(one_run.guesses, name) for name in ("coins", "guessed", "right")}
    bounds = {"epsilon": one_run.epsilon, "ceiling": one_run.limit_of_detection}
    return values | {"one_run": json_of(bounds | {"epsilon_by_tradeoff": results.by_tradeoff.epsilon}) | counts}


def scores_of(run: FinishedRun, name: str) -> AttackScores:
    """Return the scores of an attack, or the log-odds of the insiders, in all trials of a run."""
    table = run.tables.targets
    assert table is not None, "only the membership audit has targets"
    trials = table["trial"].nunique()

    def column(rate_name: str) -> Floats:
        return table[rate_name].to_numpy(dtype=np.float64).reshape(trials, -1)

    membership = TargetMembership(column("is_in").astype(np.bool_))
    if name == INSIDER:
        odds = column("log_odds")
        return AttackScores(odds, odds, membership, of_insiders=True, knows_coins=True)
    scores = column(SCORE + name)
    apart = column(APART + name) if APART + name in table else None
    attack = attack_named(name)
    independent = apart if attack.learns_from_shadows else scores
    return AttackScores(scores, independent, membership, knows_coins=attack.sees_gradients)


def rate_ends(run: FinishedRun, name: str, rate: str, confidence: float) -> tuple[float, float]:
    """Return the ends of the confidence interval of a single rate of an attack."""
    # The four intervals share the error probability.
    interval = getattr(scores_of(run, name).rates(1 - _RATES * (1 - confidence)), rate)
    return interval.low, interval.high


def bound_end(run: FinishedRun, name: str, confidence: float) -> tuple[float, float]:
    """Return an attack's lower bound on epsilon at the given confidence, and infinity as the upper end.

    The lower bound is 0 if the attack has no usable scores.
    """
    bound = scores_of(run, name).bound(run.plan.config.privacy.delta, confidence)
    return 0.0 if bound is None else bound.epsilon, math.inf


def measure_attacks(run: FinishedRun, _: Findings) -> AllAttacksFinding | None:
    """Return the results of all attacks and insiders; None if the run is no membership audit or has no attack.

    The result is also None if the trials are too few to measure attacks (`can_compare_targets`).
    """
    table = run.tables.targets
    guarantee = run.plan.guarantee
    if (
        table is None
        or run.plan.federation.membership_scheme is MembershipScheme.EXACTLY_ONE
        or not can_compare_targets(run)
    ):
        return None
    trials = table["trial"].nunique()
    delta = run.plan.config.privacy.delta
    confidence = run.plan.confidence
    achieved = dict[str, AttackResults]()
    membership = TargetMembership(table["is_in"].to_numpy(dtype=np.bool_).reshape(trials, -1))
    for name in (str(column)[len(SCORE) :] for column in table.columns if str(column).startswith(SCORE)):
        achieved[name] = scores_of(run, name).results(delta, confidence)
    known_accuracy = None
    if "log_odds" in table:
        achieved[INSIDER] = scores_of(run, INSIDER).results(delta, confidence)
        is_secret = run.plan.is_sampled and not run.plan.federation.threat_model.sees_participation
        mu = table["mu"].to_numpy(dtype=np.float64).reshape(trials, -1)
        known_accuracy = None if is_secret else _auc_of_signals(mu, membership)
    if not achieved:
        return None
    if guarantee is None:
        return AllAttacksFinding(achieved, trials, membership.targets, known_accuracy, None, None, (None, None, None))
    profile = guarantee.claim.profile
    auc = largest_auc(profile)
    order = largest_auc_within_training(profile)
    at_0001, at_001 = largest_tpr(profile, np.array([1e-3, 1e-2]))
    rates = (float(at_0001), float(at_001), (1 + guarantee.advantage_bound_exact) / 2)
    return AllAttacksFinding(achieved, trials, membership.targets, known_accuracy, auc, order, rates)


def _auc_of_signals(mu: Floats, membership: TargetMembership) -> float | None:
    """Return the expected AUC over pairs of a member and a nonmember of the same trial; None without such pairs.

    If the signal-to-noise ratios of the pair are mu_1 and mu_0, the difference of the log-odds is N(s^2/2, s^2) with
    s^2 = mu_1^2 + mu_0^2.
    """
    right = 0.0
    pairs = 0
    for squares, is_in in zip(np.square(mu[:_TRIALS_OF_PAIRS]), membership.is_in[:_TRIALS_OF_PAIRS], strict=True):
        spread = np.sqrt(squares[is_in, np.newaxis] + squares[~is_in])
        right = right + float(ndtr(spread / 2).sum())
        pairs = pairs + spread.size
    return right / pairs if pairs else None
