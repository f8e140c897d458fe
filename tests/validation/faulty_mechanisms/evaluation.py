"""Evaluation of faulty mechanisms: every claim is tested by trials, whose result becomes a row of a table and of a
page.
"""

import inspect
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from fl_audit.app_audits.black_box import scenario, scenarios, system_audit, trial_models
from fl_audit.app_audits.claim_audit import (
    claim_audit_procedure,
    claim_audit_results,
    distinguisher_search,
    distinguishers,
    features,
)
from fl_audit.app_audits.claim_audit.claim_audit_results import QUICK, ClaimAudit, Tell, TrialBudget
from fl_audit.verdict.verdict import Verdict
from tests.validation.faulty_mechanisms.honest_twins import FaultyMechanism, HonestMechanism

BUDGETS = tuple(replace(budget, until_broken=True) for budget in (QUICK, TrialBudget()))
"""The budgets of `fl-audit strategy`, quick and full: the full one is played where the quick one finds nothing.

An audit ends with the first distinguisher that breaks the claim.
"""
CONFIDENCE = 1 - 0.05 / len(BUDGETS)
"""Confidence of each audit, with which a true claim is called violated by neither with a probability of 95 %."""

FLOATING = "floating-point leak"
"""The verdict on a mechanism that keeps its claim for real numbers, but whose low bits reveal more."""


@dataclass(frozen=True)
class EvaluationRow:
    """The result of one audit."""

    name: str  # of the faulty mechanism or the honest mechanism
    claim: str  # in words
    verdict: str  # of the trial
    trial: str  # name of the scenario that revealed most; empty if nothing could be played
    group: str  # name of the group of features that revealed most; empty if nothing could be played
    bound: float  # epsilon that was certified in this scenario
    allowed: float  # epsilon that the claim allows at `delta`
    delta: float  # delta of both epsilons
    right: float  # share of trials that were guessed right
    allowed_right: float  # largest share of right guesses that the claim allows
    trials: int  # trials of the attempt
    seconds: float  # duration
    processor_seconds: float  # duration on all cores together: on busy machines `seconds` says little
    rule: str = ""  # digest of the rule by which it was evaluated


def rule_of(budgets: Sequence[TrialBudget]) -> str:
    """Return a digest of how faulty mechanisms are evaluated: the budgets, and the code that finds and judges
    distinguishers.
    """
    judging = (features, distinguishers, distinguisher_search, claim_audit_procedure, claim_audit_results)
    code = [inspect.getsource(module) for module in (*judging, system_audit, scenario, scenarios, trial_models)]
    return sha256("\n".join([repr(budgets), *code]).encode()).hexdigest()[:8]


def evaluate(
    mechanism: FaultyMechanism | HonestMechanism,
    budgets: Sequence[TrialBudget] = BUDGETS,
    processes: int = 2,
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> EvaluationRow:
    """Audit one mechanism, and return the row of the table.

    `budgets` are numbers of trials of successive attempts, the last of which is the first that finds something. `tell`
    receives messages on progress.
    """
    start = time.monotonic()
    processor = _processor_seconds()
    rule = rule_of(budgets)
    for budget in budgets:
        came = system_audit.audit_system(
            mechanism.system,
            mechanism.claim,
            budget=budget,
            confidence=CONFIDENCE,
            seed=seed,
            processes=processes,
            include=mechanism.trials,
            tell=tell,
        )
        row = _row(mechanism, came, time.monotonic() - start, _processor_seconds() - processor)
        if not problems([(mechanism, row)]) and isinstance(mechanism, FaultyMechanism):
            break
    return replace(row, rule=rule)


def _processor_seconds() -> float:
    """Return the processor seconds of this process and its finished children so far."""
    used = [resource.getrusage(process_scope) for process_scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _row(
    mechanism: FaultyMechanism | HonestMechanism, result: ClaimAudit, seconds: float, processor: float
) -> EvaluationRow:
    worst = result.worst
    verdict = str(result.verdict)
    nothing = float("nan")
    if result.verdict is not Verdict.VIOLATED and result.floating is not None and result.floating.is_broken:
        worst = result.floating
        verdict = FLOATING
    trial = ""
    group = ""
    bound = nothing
    allowed = nothing
    delta = nothing
    right = nothing
    trials = 0
    if worst is not None:
        trial = worst.distinguisher.kind
        group = worst.distinguisher.group
        bound = worst.bound
        trials = worst.trials
        right = worst.right
        right = right / trials
        allowed = worst.distinguisher.limit.epsilon
        delta = worst.distinguisher.limit.delta
    return EvaluationRow(
        mechanism.name,
        result.claim.words,
        verdict,
        trial,
        group,
        bound,
        allowed,
        delta,
        right,
        result.claim.success,
        trials,
        seconds,
        processor,
    )


def problems(rows: Sequence[tuple[FaultyMechanism | HonestMechanism, EvaluationRow]]) -> list[str]:
    """Return the contradictions to the catalogue: faulty mechanisms that were not caught, and honest ones that were."""
    contradictions = []
    for mechanism, row in rows:
        is_caught = row.verdict == Verdict.VIOLATED
        if isinstance(mechanism, FaultyMechanism) and not (
            is_caught or (mechanism.is_rounding and row.verdict == FLOATING)
        ):
            contradictions.append(f"{row.name} was not caught: {row.verdict}")
        if isinstance(mechanism, HonestMechanism) and is_caught:
            contradictions.append(f"{row.name} is honest, and was called violated in {row.trial!r} by {row.group!r}")
    return contradictions


_HEAD = """# Sharp edges of federated DP

Pitfalls of private federated training,
each played as a mechanism of the catalogue and held to the guarantee that its author
would make. They are ranked by how much they tell: by how far the share of trials that were guessed right passes the
largest share that the guarantee allows. The bounds on epsilon assume nothing of the mechanism; they end where so many
trials can prove no more. Each is evaluated as `fl-audit strategy --quick` does it,
and as it does without `--quick` where
that finds nothing; in 95 % of such evaluations a claim that holds is not called violated. All of it is made by
`python -m tests.validation faulty_mechanisms --out FILE`, and every pitfall alone by the command below its name.
"""


def page(caught: Mapping[FaultyMechanism, EvaluationRow], honest: Mapping[str, EvaluationRow]) -> str:
    """Return the page, the most telling faulty mechanism first."""
    ranked = dict(sorted(caught.items(), key=lambda entry: entry[1].allowed_right - entry[1].right))
    sections = (
        f"\n## {faulty.name}\n\n{faulty.wrong}\n\n    python -m tests.validation faulty_mechanisms --only "
        f"{faulty.name}\n\n"
        f"* Seen: {faulty.source}\n* Fix: {faulty.fix}\n"
        f"* Told by: {row.trial}, {row.group}; {row.right:.1%} of {row.trials} trials guessed right, the claim allows "
        f"{row.allowed_right:.1%}."
        for faulty, row in ranked.items()
    )
    return "\n".join([_HEAD, *_table(ranked, honest), *sections]) + "\n"


def bound_text(row: EvaluationRow) -> str:
    """Return the bound of a row next to the claim's limit."""
    return f"{row.bound:.2f} of {row.allowed:.2f} at delta {row.delta:.2g}" if row.trials else "-"


def _table(caught: Mapping[FaultyMechanism, EvaluationRow], honest: Mapping[str, EvaluationRow]) -> list[str]:
    verdicts = {name: row.verdict for name, row in honest.items()}
    return [
        "| pitfall | claim | guessed right, of allowed | epsilon at least, of claimed | told by | honest twin |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| [{faulty.name}](#{faulty.name}) | {row.claim} | {row.right:.1%} of {row.allowed_right:.1%} "
            f"| {bound_text(row)} | {row.trial}: {row.group} "
            f"| {faulty.twin.name}: {verdicts.get(faulty.twin.name, 'not played')} |"
            for faulty, row in caught.items()
        ),
    ]
