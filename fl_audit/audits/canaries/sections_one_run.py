"""Finding and report section on the one-run audit: the lower bounds from its canaries beside the claimed values."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.adjacency import Relation
from fl_audit.array_types import finite
from fl_audit.audits.canaries.canary_contributions import PublicCanaryFacts
from fl_audit.audits.canaries.canary_detection_limit import (
    CanaryDetectionLimit,
    canaries_needed_text,
    canary_detection_limit,
)
from fl_audit.audits.canaries.epsilon_from_scores import CanaryEpsilonBounds, certify
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.audits.canaries.other_clients_variance import other_clients_variance, squared_spread
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.learning.private_training import opacus_epsilon
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import local_events
from fl_audit.report.mechanism_messages import at_delta
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.statistics.shift_bound import root_sum_of_squared_deviations
from fl_audit.verdict.declared_tests import FAMILY_LEVEL, TestName, TestResult
from fl_audit.verdict.judging import judged_by_one
from fl_audit.verdict.verdict import AuditKindPhrases, VerdictDetails
from fl_audit.words import number_text, percent, plural


@dataclass(frozen=True)
class CanaryBoundsFinding:
    """The lower bounds from the canaries of the first training, and a summary of the bounds from all trainings."""

    bounds: CanaryEpsilonBounds  # lower bounds from the first training
    # The mu of Gaussian DP of a canary in one round (in one local step for DP-SGD at the clients), from the noise that
    # the mechanism prescribes.
    mu_true: float
    trials: int  # number of trainings
    held: int  # number of trainings whose lower bound on mu was at most `mu_true`
    mean_mu_lower: float  # mean over trainings of the lower bound on mu
    # Epsilon that the accountant of the canaries' client reports; None if there is no such report.
    epsilon_told: float | None = None

    @property
    def is_reported_epsilon_too_low(self) -> bool:
        """Whether the accountant of the canaries' client reports an epsilon below the lower bound from the canaries."""
        return self.epsilon_told is not None and self.bounds.epsilon_lower > self.epsilon_told

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `one_run`, for `summary.json`."""
        bounds = self.bounds
        names = ("canaries", "rounds", "mu", "mu_lower", "mu_claimed", "delta", "confidence")
        values = {name: getattr(bounds, name) for name in (*names, "epsilon_round", "epsilon_lower", "epsilon_claimed")}
        values |= {"method": bounds.method, "assumption": bounds.method.assumption, "mu_true": self.mu_true}
        values |= {"trials": self.trials, "trials_held": self.held, "mean_mu_lower": self.mean_mu_lower}
        return {"one_run": json_of(values | {"epsilon_told": self.epsilon_told})}


def measure_one_run(run: FinishedRun, _: Findings) -> CanaryBoundsFinding | None:
    """Return the lower bounds from the canaries of the first training, and a summary of the bounds from all trainings.

    None if the run has no canaries or no guarantee.
    """
    table = run.tables.canaries
    guarantee = run.plan.guarantee
    facts = run.find(PublicCanaryFacts)
    if table is None or guarantee is None or facts is None:
        return None
    claim = _claim_of_canaries(run, facts)
    by_training = [_certified(run, frame, claim, run.plan.confidence) for _, frame in table.groupby("trial", sort=True)]
    lower = np.array([bounds.mu_lower for bounds in by_training])
    covered = int((lower <= facts.mu).sum())
    mean = float(lower.mean())
    client_epsilon = _client_epsilon(run, facts, claim)
    return CanaryBoundsFinding(by_training[0], facts.mu, len(by_training), covered, mean, client_epsilon)


def certified_at(run: FinishedRun, confidence: float) -> CanaryEpsilonBounds:
    """Return the lower bounds on privacy loss from the canaries of the first training, at the given confidence."""
    table = run.tables.canaries
    facts = run.find(PublicCanaryFacts)
    assert table is not None, "only a run with canaries certifies anything"
    assert facts is not None, "only a run with canaries certifies anything"
    first = table[table["trial"] == table["trial"].min()]
    return _certified(run, first, _claim_of_canaries(run, facts), confidence)


_WORDS = AuditKindPhrases(
    shown_by="canaries",
    blind="The canaries cannot tell: they are too few, or what other clients send could hide any breach from them, and "
    "they showed none.",
    lists_questions=False,
)


def judge_canaries(run: FinishedRun) -> VerdictDetails | None:
    """Judge the guarantee of a run by the scores of the canaries of all its trainings together.

    Returns None if the run has no canaries or no guarantee. If clients train with DP-SGD, the client that holds the
    canaries reports an epsilon from its accountant. This epsilon is judged as well.
    """
    table = run.tables.canaries
    guarantee = run.plan.guarantee
    facts = run.find(PublicCanaryFacts)
    if table is None or guarantee is None or facts is None:
        return None
    claim = _claim_of_canaries(run, facts)
    bound, at_level = (
        _certified(run, table, claim, confidence) for confidence in (run.plan.confidence, 1 - FAMILY_LEVEL)
    )
    inclusion = (table["part"] * table["is_in"]).to_numpy(dtype=np.float64)
    root = root_sum_of_squared_deviations(inclusion)
    limit = CanaryDetectionLimit()
    if root > 0:
        federation = run.plan.federation
        is_replaced = federation.mechanism.adjacency.relation is Relation.REPLACE
        squared = squared_spread(facts.others, federation.canaries, facts.size, is_replaced)
        hidden = other_clients_variance(
            squared, at_level.mu_claimed, at_level.mu, at_level.mu_lower, (root, inclusion.size - 2)
        )
        limit = canary_detection_limit((root, inclusion.size), federation.rounds, hidden, claim, at_level.mu_claimed)
    client_epsilon = _client_epsilon(run, facts, claim)
    is_broken = at_level.is_violated or (client_epsilon is not None and at_level.epsilon_lower > client_epsilon)
    claimed = guarantee.epsilon if client_epsilon is None else min(guarantee.epsilon, client_epsilon)
    details = {"delta": guarantee.delta}
    lower = at_level.epsilon_lower
    p_value = 0.0 if is_broken else 1.0
    test = TestResult(TestName.CANARIES, lower, p_value, lower, claimed, limit.limit_of_detection, more=details)
    bounds = (bound.epsilon_lower, lower)
    method = str(TestName.CANARIES)
    assumption = at_level.method.assumption
    judged = judged_by_one(test, bounds, confidence=run.plan.confidence, method=method, assumption=assumption)
    needed = canaries_needed_text(limit)
    words = replace(_WORDS, to_find_more=needed, next_step=needed)
    return replace(judged, limit_of_detection=limit.limit_of_detection, conclusive=limit.conclusive, words=words)


def _certified(run: FinishedRun, table: pd.DataFrame, claim: Claim, confidence: float) -> CanaryEpsilonBounds:
    """Return the lower bounds from the canaries of all trainings in `table`, pooled."""
    federation = run.plan.federation
    canaries = table[table["canary"] < federation.canaries]
    scores, coins, partial_scores = (
        canaries[name].to_numpy().reshape(-1, federation.canaries) for name in ("score", "is_in", "part")
    )
    has_decoys = federation.mechanism.adjacency.relation is Relation.ADD_REMOVE
    decoys = table.loc[table["canary"] >= federation.canaries, "score"].to_numpy() if has_decoys else ()
    given_parts = partial_scores if isinstance(federation.mechanism.contribution, PrivateTraining) else ()
    bounds = certify(scores, coins.astype(np.bool_), claim, confidence, OneRunMethod.SHIFT, decoys, given_parts)
    return replace(bounds, rounds=bounds.rounds // table["trial"].nunique())


def _claim_of_canaries(run: FinishedRun, facts: PublicCanaryFacts) -> Claim:
    """Return the claim that covers the canaries.

    If clients train by DP-SGD, it is the claim of the client that has the canaries.
    """
    guarantee = run.plan.guarantee
    mechanism = run.plan.federation.mechanism
    assert guarantee is not None, "only a guarantee is held against its canaries"
    if not isinstance(mechanism.contribution, PrivateTraining):
        return guarantee.claim
    schedule = mechanism.contribution.schedule
    events = local_events(
        facts.records,
        schedule.batch,
        run.plan.federation.rounds,
        mechanism.noise_multiplier,
        epochs=schedule.epochs,
        steps=schedule.steps,
    )
    return replace(guarantee.claim, events=events)


def _client_epsilon(run: FinishedRun, facts: PublicCanaryFacts, claim: Claim) -> float | None:
    """Return the epsilon that the client with the canaries accounts for itself; None if its steps were not recorded.

    It is computed as Opacus does, from the client's recorded noise multiplier, sampling rate and number of steps.
    """
    table = run.tables.clients
    if facts.client is None or table is None or "accounted_steps" not in table:
        return None
    last = table[(table["client"] == facts.client) & (table["round"] == table["round"].max())].iloc[0]
    noise = float(last["accounted_noise_multiplier"])
    rate = float(last["accounted_sampling_rate"])
    return opacus_epsilon(noise, rate, int(last["accounted_steps"]), claim.delta)


def _sentence(numbers: CanaryBoundsFinding, contents: ReportContents) -> str:
    bounds = numbers.bounds
    text = (
        f"This one training was its own audit. In each of {plural(bounds.rounds, 'round')}, "
        f"{plural(bounds.canaries, 'canary', 'canaries')} tossed a coin each; at heads a canary sent the largest "
        "contribution that clipping lets pass, in a random direction. Looking for them in what was released certifies "
        f"an epsilon of at least {number_text(bounds.epsilon_lower, 3)} over the training "
        f"({percent(bounds.confidence)} "
        f"confidence); {number_text(bounds.epsilon_claimed, 3)} is claimed."
    )
    if not numbers.is_reported_epsilon_too_low:
        return text
    return f"{text} The client's own accountant names {number_text(numbers.epsilon_told, 3)}, which cannot be true."


def _rows(finding: CanaryBoundsFinding, contents: ReportContents) -> list[ReportNumber]:
    bounds = finding.bounds
    mechanism = contents.plan.federation.mechanism
    unit_of_time = "step" if isinstance(mechanism.contribution, PrivateTraining) else "round"
    basis_text = f"{bounds.method}, {percent(bounds.confidence)} confidence; {bounds.method.assumption}"
    delta = at_delta(bounds.delta)
    rows = [
        ReportNumber("Canaries", bounds.canaries, f"each tossed a coin in each of {plural(bounds.rounds, 'round')}"),
        ReportNumber(
            f"mu of a {unit_of_time}, estimated",
            bounds.mu,
            "distance of the mean scores over their spread; no confidence",
        ),
        ReportNumber(
            f"mu of a {unit_of_time}, at least",
            bounds.mu_lower,
            basis_text,
            limit=bounds.mu_claimed,
            is_bound=True,
            on_page=True,
            wide=lambda confidence: (certified_at(contents.run, confidence).mu_lower, math.inf),
        ),
        ReportNumber(
            f"mu of a {unit_of_time} by the distribution of the noise",
            finding.mu_true,
            "the truth, if the noise is what it should be",
        ),
        ReportNumber(
            "Epsilon of the training, at least (nats)",
            finite(bounds.epsilon_lower),
            f"{basis_text} Composed by the claimed accountant{delta}",
            limit=finite(bounds.epsilon_claimed),
            is_bound=True,
            wide=lambda confidence: (certified_at(contents.run, confidence).epsilon_lower, math.inf),
            on_page=True,
        ),
    ]
    if finding.epsilon_told is not None:
        rows.append(ReportNumber("Epsilon that the client's accountant names", finding.epsilon_told, f"Opacus{delta}"))
    if finding.trials > 1:
        rows.append(ReportNumber("Trainings whose bound holds", finding.held, f"of {finding.trials:,}"))
    return rows


ONE_RUN = Section(
    "one-run",
    "One training as its own audit",
    CanaryBoundsFinding,
    measure_one_run,
    keys=("one_run",),
    on_page=True,
    sentence=_sentence,
    rows=_rows,
)
