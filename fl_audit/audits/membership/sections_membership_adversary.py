"""Finding and report section on the membership adversary, which attacks the losses of the final model."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fl_audit.adjacency import Relation, Unit
from fl_audit.array_types import finite
from fl_audit.audits.identifiability.sections_insider import InsiderFinding, advantage_row
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.guarantee import MembershipBounds, membership_bounds
from fl_audit.report.mechanism_messages import at_delta, exact_accountant, noise_text
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.report.unit_words import unit_words
from fl_audit.statistics.advantage import (
    AdvantageFromWins,
    AdvantageInterval,
    advantage_ends,
    empirical_advantage,
    mean_advantage,
)
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import LowerBound, bound_json, epsilon_lower_bound
from fl_audit.words import percent

_COLUMNS = ["membership_advantage", "record_membership_guess"]
_SCORE = "record_score"


def membership_ends(run: FinishedRun, confidence: float) -> tuple[float, float]:
    """Return the ends of the confidence interval of the membership adversary's mean advantage."""
    interval = mean_advantage(run.tables.trials[_COLUMNS[0]].to_numpy(dtype=np.float64), confidence)
    return interval.low, interval.high


def record_bound_end(run: FinishedRun, confidence: float) -> tuple[float, float]:
    """Return the lower bound on epsilon from the losses on the differing record, and infinity as the upper end."""
    return _record_bound(run, confidence).epsilon, math.inf


def _record_bound(run: FinishedRun, confidence: float) -> LowerBound:
    """Return a lower bound on epsilon from the final model's losses on the differing record alone."""
    assert run.plan.guarantee is not None, "only a guarantee names a delta"
    scores = run.tables.trials[_SCORE].to_numpy(dtype=np.float64)
    method = BoundMethod.ORDER_STATISTIC
    return epsilon_lower_bound(scores[run.bits], scores[~run.bits], run.plan.guarantee.delta, confidence, method)


@dataclass(frozen=True)
class FinalModelMembershipFinding:
    """The two advantages of the membership adversary, each with an upper bound that follows from the guarantee.

    One is the advantage in telling all members from nonmembers. The other is the advantage in deciding whether the one
    record in which D and D' differ is a member.
    """

    over_trials: AdvantageInterval  # advantage in telling members from nonmembers, mean over trials
    record: AdvantageFromWins  # advantage in guessing whether the differing record is a member
    bounds: MembershipBounds | None  # upper bounds on `over_trials` by the guarantee; None without a guarantee
    record_bound: float | None  # upper bound on the advantage in `record` by the guarantee; None without a guarantee
    # Lower bound on epsilon from the losses on the differing record, valid for any distribution of the losses; None
    # without a guarantee, or without trials with D or with D'.
    lower_bound: LowerBound | None = None

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `membership`, for `summary.json`."""
        bounds = self.bounds
        low = self.lower_bound
        mean = {name: getattr(self.over_trials, name) for name in ("advantage", "low", "high", "confidence")}
        record = {name: getattr(self.record, name) for name in ("wins", "advantage", "low", "high")}
        record |= {"bound": self.record_bound, "lower_bound": None if low is None else bound_json(low)}
        yeom, tradeoff, exact = (finite(bounds.yeom), bounds.tradeoff, bounds.exact) if bounds else (None, None, None)
        limits = {"yeom_bound": yeom, "tradeoff_bound": tradeoff, "bound": exact}
        return {"membership": mean | limits | {"record": record}}


def measure_membership(run: FinishedRun, _: Findings) -> FinalModelMembershipFinding | None:
    """Return the success of the membership adversary on the final models' losses; None if it was not evaluated."""
    trials = run.tables.trials
    plan = run.plan
    if not set(_COLUMNS) <= set(trials) or trials[_COLUMNS].isna().any(axis=None):
        return None
    guarantee = plan.guarantee
    mean = mean_advantage(trials[_COLUMNS[0]].to_numpy(dtype=np.float64), plan.confidence)
    record = empirical_advantage(trials[_COLUMNS[1]].to_numpy() == trials["bit"].to_numpy(), plan.confidence)
    bounds, limit = (
        (None, None) if guarantee is None else (membership_bounds(guarantee), guarantee.advantage_bound_exact)
    )
    has_bound = guarantee is not None and _SCORE in trials and run.has_both_bits
    proven = _record_bound(run, plan.confidence) if has_bound else None
    return FinalModelMembershipFinding(mean, record, bounds, limit, proven)


def _scope_of(plan: RunPlan) -> str:
    """Return sentences for the report that say for which units and data sets the bounds on the advantage hold."""
    if not plan.has_guarantee:
        of_training = "" if plan.federation.local_randomizer is None else " of the training"
        return f"Nothing was claimed{of_training}, so nothing but certainty bounds the advantage."
    words = unit_words(plan.adjacency)
    if not plan.federation.mechanism.is_private_release:
        return (
            f"No bound for members and others holds here: the noise follows {words.differing}, and no other "
            f"{words.one} is claimed anything. The bounds say what the same guarantee would be worth to everyone."
        )
    text = (
        "The bounds for members and others hold on average over data sets drawn from the population; by the luck of "
        "this D and this sample the advantage may lie beyond."
    )
    if plan.adjacency.unit is Unit.CLIENT:
        text = f"What is claimed to a client holds for each of its records, where these are drawn alike. {text}"
    if plan.adjacency.relation is Relation.ADD_REMOVE:
        text += (
            " One of the population in the place of a member is one removed and one added: these bounds count what is "
            "claimed to either twice."
        )
    return text


def _membership_sentence(finding: FinalModelMembershipFinding, contents: ReportContents) -> str:
    insider = contents.find(InsiderFinding)
    mean = _mean_row(finding, contents.run)
    beside = ""
    if insider is not None and insider.estimate.trials > 1:
        scored = advantage_row(insider.estimate, contents)
        beside = f"; the insider scores {scored.shown.value}{scored.comparison_in_brackets}"
    return (
        "An outsider who sees only the finished model, and tells its training cases by how well it does on them, "
        f"scores {mean.shown.value}{mean.comparison_in_brackets} on a scale "
        f"where 0 is coin-flipping and 1 is always right{beside}. {_scope_of(contents.plan)}"
    )


def _mean_row(finding: FinalModelMembershipFinding, run: FinishedRun) -> ReportNumber:
    mean = finding.over_trials
    attack = "a member where the final loss is at most the average one in training"
    basis = f"TPR - FPR, mean over trials; {attack} (Yeom et al. 2018); betting interval, for this D and this sample"
    limit = None if finding.bounds is None else finding.bounds.exact
    return ReportNumber(
        "Membership advantage",
        mean.advantage,
        basis,
        mean.low,
        mean.high,
        mean.confidence,
        limit,
        largest=1.0,
        on_page=True,
        wide=partial(membership_ends, run),
    )


def _membership_rows(finding: FinalModelMembershipFinding, contents: ReportContents) -> list[ReportNumber]:
    record = finding.record
    bounds = finding.bounds
    differing = contents.words.differing
    rows = [
        _mean_row(finding, contents.run),
        ReportNumber(
            f"Right guesses about {differing}", record.wins, "counted; the same rule, threshold from all others"
        ),
        ReportNumber(
            f"Advantage about {differing}",
            record.advantage,
            "twice the share of right guesses - 1; Clopper-Pearson interval",
            record.low,
            record.high,
            record.confidence,
            finding.record_bound,
            largest=1.0,
            wide=partial(advantage_ends, record.wins, record.trials),
        ),
    ]
    guarantee = contents.plan.guarantee
    exact_by = exact_accountant(contents.plan)
    if guarantee is not None and bounds is not None:
        epsilon = "(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1) (Kairouz et al. 2015, Humphries et al. 2023)"
        rows += [
            ReportNumber(
                "Bound for members, exact", bounds.exact, f"total variation between neighbours, by {exact_by}"
            ),
            ReportNumber(
                "Bound for members by epsilon and delta", bounds.tradeoff, f"{epsilon}, by {guarantee.accountant}"
            ),
            ReportNumber(
                "Bound for members by epsilon",
                finite(bounds.yeom),
                "exp(epsilon) - 1 (Yeom et al. 2018, theorem 1), at delta = 0; above 1 it says nothing",
            ),
            ReportNumber(
                f"Bound about {differing}, exact",
                finding.record_bound,
                f"that of the insider (Bernau et al. 2021, prop. 1), by {exact_by}; {noise_text(contents.plan)}",
            ),
        ]
    if (bound := finding.lower_bound) is not None:
        rows += [
            ReportNumber(
                f"Lower bound from the loss of {differing} (nats)",
                finite(bound.epsilon),
                f"holds at {percent(bound.confidence)} confidence; {bound.method}{at_delta(bound.delta)}; final "
                f"release alone, less the loss of what takes its place; {bound.assumption}",
                limit=None if guarantee is None else guarantee.epsilon,
                is_bound=True,
                wide=partial(record_bound_end, contents.run),
            ),
            ReportNumber(
                "Largest bound that so many losses could prove (nats)",
                finite(bound.limit_of_detection),
                f"{bound.method}; {bound.limit_meaning}",
            ),
        ]
    return rows


MEMBERSHIP = Section(
    "membership",
    "The membership adversary",
    FinalModelMembershipFinding,
    measure_membership,
    keys=("membership",),
    sentence=_membership_sentence,
    rows=_membership_rows,
    said=lambda finding, run: {"membership": finding.to_json()["membership"] | {"bound_scope": _scope_of(run.plan)}},
)
