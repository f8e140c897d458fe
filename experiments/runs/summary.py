"""What a finished run found, in numbers: `summary.json` and the contents of the report."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logit

from experiments.runs.plan import AuditPlan
from fl_audit.evidence.belief.advantage import empirical_advantage, mean_advantage
from fl_audit.evidence.belief.empirical_epsilon import (
    EpsilonInterval,
    advantage_interval,
    belief_interval,
    sensitivity_interval,
)
from fl_audit.evidence.belief.innovations import InnovationGroup, check_innovations
from fl_audit.evidence.belief.verdict import VerdictResult, judge, unjudged
from fl_audit.evidence.bounds.lower_bounds import LowerBound, all_bounds
from fl_audit.privacy.calibration import Guarantee
from fl_audit.privacy.membership_bounds import membership_bounds
from fl_audit.privacy.release import SENSITIVITY_FLOOR, NoiseScaling
from fl_audit.report.contents import LawFacts, RunContents


@dataclass(frozen=True)
class Tables:
    """The tables of a run; see the README for their columns."""

    worlds: pd.DataFrame
    rounds: pd.DataFrame
    releases: pd.DataFrame
    clients: pd.DataFrame | None = None

    def by_world(self, column: str) -> NDArray[np.float64]:
        """Return a column of `rounds` as (worlds, rounds)."""
        table: NDArray[np.float64] = self.rounds[column].to_numpy().reshape(len(self.worlds), -1)
        return table


def summarise(plan: AuditPlan, tables: Tables, timing: dict[str, Any]) -> dict[str, Any]:
    """Return the content of `summary.json`, schema 1; what cannot be said is None.

    Parameters
    ----------
    plan
        What was promised and played.
    tables
        What came out.
    timing
        Seconds, and the engine.
    """
    return {
        "schema": 1,
        "guarantee": _guarantee(plan),
        **_audited(plan, tables),
        "epsilon_star": _epsilon_star(plan, tables),
        "client_epsilon_star": _client_epsilon_star(tables),
        "membership": _membership(plan, tables),
        "utility": _utility(tables),
        "timing": timing,
    }


def _utility(tables: Tables) -> dict[str, Any]:
    # Batches of an older version have no area.
    area = float(tables.worlds["test_auroc"].mean()) if "test_auroc" in tables.worlds else math.nan
    return {"test_accuracy": float(tables.worlds["test_accuracy"].mean()), "test_auroc": _finite(area)}


_PROMISED = ("epsilon", "delta", "noise_multiplier", "belief_bound", "advantage_bound", "advantage_bound_exact")


def _guarantee(plan: AuditPlan) -> dict[str, Any]:
    promise = plan.guarantee
    promised = {name: None if promise is None else getattr(promise, name) for name in _PROMISED}
    return promised | {
        "accountant": None if promise is None else str(promise.accountant),
        "rounds": plan.public.rounds,
        "sampling_rate": plan.public.law.sampling_rate,
    }


def _audited(plan: AuditPlan, tables: Tables) -> dict[str, Any]:
    """Return all that rests on the insider, the verdict with it."""
    promise = plan.guarantee
    if promise is None or not plan.public.with_insider:
        verdict_alone, scope = unjudged(promise)
        nothing = dict.fromkeys(("insider", "empirical_epsilon", "innovations"))
        return nothing | {"verdict": str(verdict_alone), "scope": scope}
    bits = tables.worlds["bit"].to_numpy() == 1
    log_odds = tables.worlds["log_odds"].to_numpy(dtype=np.float64)
    towards_truth = np.where(bits, log_odds, -log_odds)
    verdict = _verdict(plan, promise, log_odds, bits)
    return {
        "insider": _insider(plan, promise, tables, towards_truth),
        "empirical_epsilon": _empirical_epsilon(plan, promise, tables, towards_truth, verdict),
        "innovations": _innovations(tables, bits),
        "verdict": str(verdict.verdict),
        "scope": verdict.scope,
    }


def _insider(plan: AuditPlan, promise: Guarantee, tables: Tables, towards_truth: NDArray[np.float64]) -> dict[str, Any]:
    estimate = empirical_advantage(tables.worlds["won"].to_numpy(), plan.config.audit.confidence)
    # The promise bounds the log-odds; at a prior of 1/2 this counts the beliefs beyond the bound.
    limit = logit(promise.belief_bound) - logit(promise.prior)
    return {
        "worlds": estimate.worlds,
        "wins": estimate.wins,
        "advantage": estimate.advantage,
        "advantage_low": estimate.low,
        "advantage_high": estimate.high,
        "max_belief": float(tables.worlds["belief"].max()),
        "belief_violations": int((towards_truth > limit).sum()),
    }


def _verdict(
    plan: AuditPlan, promise: Guarantee, log_odds: NDArray[np.float64], bits: NDArray[np.bool_]
) -> VerdictResult:
    config = plan.config
    rank = "" if config.audit.neighbour_rank is None else f" (rank {config.audit.neighbour_rank})"
    neighbour = f"{config.privacy.adjacency}, neighbour {config.audit.neighbour}{rank}, data seed {config.data.seed}"
    return judge(
        log_odds[bits],
        log_odds[~bits],
        promise,
        config.audit.confidence,
        neighbour,
        "known to the challenger alone",
        config.privacy.sensitivity,
    )


def _empirical_epsilon(
    plan: AuditPlan,
    promise: Guarantee,
    tables: Tables,
    towards_truth: NDArray[np.float64],
    verdict: VerdictResult,
) -> dict[str, Any]:
    delta, confidence = promise.delta, plan.config.audit.confidence
    wins, worlds = int(tables.worlds["won"].sum()), len(tables.worlds)
    exact_mu = promise.mu if has_exact_final_law(plan, tables) else None
    intervals = {
        "from_sensitivity": sensitivity_interval(_signal(tables), delta, promise.accountant),
        "from_belief": belief_interval(towards_truth, confidence, exact_mu),
        "from_advantage": advantage_interval(wins, worlds, delta, confidence),
    }
    return {
        **{name: _finite(interval.epsilon) for name, interval in intervals.items()},
        "lower_bound": _finite(verdict.lower_bound),
        "confidence": verdict.confidence,
        "method": verdict.method,
        "assumption": verdict.assumption,
        "limit_of_detection": _finite(verdict.limit_of_detection),
        "lower_bound_at_violation_level": _finite(verdict.lower_bound_at_violation_level),
        "violation_level": verdict.violation_level,
        "intervals": {name: _interval(interval) for name, interval in intervals.items()},
        "bounds": _bounds(tables, delta, confidence),
    }


def _interval(interval: EpsilonInterval) -> dict[str, Any]:
    return {
        "low": _finite(interval.low),
        "high": _finite(interval.high),
        "confidence": interval.confidence,
        "note": interval.note,
    }


def _bounds(tables: Tables, delta: float, confidence: float) -> list[dict[str, Any]]:
    """Return the bound by every method that applies to the insider's log-odds; none where a group has no world."""
    member = tables.worlds["bit"].to_numpy() == 1
    if member.all() or not member.any():
        return []
    log_odds = tables.worlds["log_odds"].to_numpy(dtype=np.float64)
    found = all_bounds(log_odds[member], log_odds[~member], delta, confidence, normal_scores=True)
    return [bound_json(bound) for bound in found]


def bound_json(bound: LowerBound) -> dict[str, Any]:
    """Return a lower bound as JSON values."""
    return {
        "epsilon": _finite(bound.epsilon),
        "delta": bound.delta,
        "method": str(bound.method),
        "confidence": bound.confidence,
        "limit_of_detection": _finite(bound.limit_of_detection),
        "limit_meaning": bound.limit_meaning,
        "assumption": bound.assumption,
        "warnings": list(bound.warnings),
    }


def _innovations(tables: Tables, bits: NDArray[np.bool_]) -> dict[str, Any]:
    check = check_innovations(tables.by_world("log_odds"), _signal(tables), bits)
    groups = [_group(1, check.members), _group(0, check.nonmembers)]
    return {"holds": check.holds, "groups": groups}


def _group(bit: int, group: InnovationGroup) -> dict[str, Any]:
    return {
        "bit": bit,
        "count": group.count,
        "mean": group.mean,
        "variance": group.variance,
        "serial_correlation": group.serial_correlation,
        "ks_p": group.ks_p_value,
    }


def _signal(tables: Tables) -> NDArray[np.float64]:
    return tables.by_world("local_sensitivity") / tables.by_world("sigma")


def _epsilon_star(plan: AuditPlan, tables: Tables) -> dict[str, Any] | None:
    if not plan.config.audit.epsilon_star:
        return None
    values = tables.worlds["epsilon_star"]
    return {
        "mean": _finite(float(values.mean())),
        "max": _finite(float(values.max())),
        "delta": plan.config.privacy.delta,
        "cut": plan.config.audit.epsilon_star_cut,
    }


def _client_epsilon_star(tables: Tables) -> list[dict[str, Any]] | None:
    """Return Epsilon* of each client's shard at the last release over worlds; None where clients keep it."""
    if tables.clients is None:
        return None
    last = tables.clients[tables.clients["round"] == tables.clients["round"].max()]
    found = []
    for client, values in last.groupby("client")["epsilon_star"]:
        known = values.dropna().to_numpy(dtype=np.float64)
        # Order statistics, for an unbounded value has no mean and no neighbour to interpolate to.
        low, median, high = (
            np.quantile(known, (0.05, 0.5, 0.95), method="inverted_cdf") if known.size else (np.nan,) * 3
        )
        found.append(
            {
                "client": client,
                "worlds": int(known.size),
                "low": _finite(float(low)),
                "median": _finite(float(median)),
                "high": _finite(float(high)),
                "max": _finite(float(known.max())) if known.size else None,
            }
        )
    return found


_EVERY_RECORD = (
    "The bounds for members and others hold on average over data sets drawn from the population; by the luck of this D "
    "and this sample the advantage may lie beyond."
)
_THIS_RECORD_ONLY = (
    "No bound for members and others holds here: the noise follows the differing record, and no other record is "
    "promised anything. The bounds say what the same promise would be worth to every record."
)
_NOTHING_PROMISED = "Nothing was promised, so nothing but certainty bounds the advantage."


def _membership(plan: AuditPlan, tables: Tables) -> dict[str, Any] | None:
    """Return what the membership adversary achieved beside its bounds; None where it was left out."""
    columns = ["membership_advantage", "record_membership_guess"]
    if not set(columns) <= set(tables.worlds) or tables.worlds[columns].isna().any(axis=None):
        return None
    confidence = plan.config.audit.confidence
    over_worlds = mean_advantage(tables.worlds[columns[0]].to_numpy(dtype=np.float64), confidence)
    won = tables.worlds[columns[1]].to_numpy() == tables.worlds["bit"].to_numpy()
    record = empirical_advantage(won, confidence)
    return {
        "advantage": over_worlds.advantage,
        "low": over_worlds.low,
        "high": over_worlds.high,
        "confidence": confidence,
        **_membership_bounds(plan),
        "record": {
            "wins": record.wins,
            "advantage": record.advantage,
            "low": record.low,
            "high": record.high,
            "bound": None if plan.guarantee is None else plan.guarantee.advantage_bound_exact,
        },
    }


def _membership_bounds(plan: AuditPlan) -> dict[str, Any]:
    law = plan.public.law
    if plan.guarantee is None:
        return dict.fromkeys(("yeom_bound", "tradeoff_bound", "bound")) | {"bound_scope": _NOTHING_PROMISED}
    bounds = membership_bounds(plan.guarantee, law.relation)
    return {
        "yeom_bound": _finite(bounds.yeom),
        "tradeoff_bound": bounds.tradeoff,
        "bound": bounds.exact,
        "bound_scope": _EVERY_RECORD if law.is_private_release else _THIS_RECORD_ONLY,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def report_contents(plan: AuditPlan, tables: Tables, summary: dict[str, Any]) -> RunContents:
    """Return what the report is drawn from."""
    return RunContents(
        summary=summary,
        worlds=tables.worlds,
        rounds=tables.rounds,
        releases=tables.releases,
        configuration=plan.config.as_public_dict(),
        law=law_facts(plan, tables),
    )


def has_exact_final_law(plan: AuditPlan, tables: Tables) -> bool:
    """Return whether mu was the same in every world: local scaling, and no round with noise raised to the floor."""
    law = plan.public.law
    if law.clipping_norm is None or law.scaling is not NoiseScaling.LOCAL:
        return False
    floored = tables.rounds["local_sensitivity"] < SENSITIVITY_FLOOR * law.clipping_norm
    return not bool(floored.any())


def law_facts(plan: AuditPlan, tables: Tables) -> LawFacts:
    """Return the law of a run in the words and numbers that a report shows."""
    law, config = plan.public.law, plan.config
    return LawFacts(
        mu=law.gaussian_mu(plan.public.rounds),
        exact_final_law=has_exact_final_law(plan, tables),
        scaling=str(law.scaling),
        relation=str(law.relation),
        clipping_norm=math.inf if law.clipping_norm is None else law.clipping_norm,
        global_sensitivity=law.global_sensitivity,
        rounds=plan.public.rounds,
        prior=config.privacy.prior,
        is_private_release=law.is_private_release,
        optimizer=str(law.optimizer.kind),
        data_name=config.data.name,
        records=config.data.records,
        clients=config.data.clients,
        model=config.model.name,
        view=str(config.audit.view),
        partition=str(config.data.partition),
        sampling_rate=law.sampling_rate,
        has_noise=law.has_noise,
    )
