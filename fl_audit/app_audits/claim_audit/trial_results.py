"""The result of an audit by trials, of a strategy or of an app from inside, in the form that every audit stores."""

from collections.abc import Mapping, Sequence
from typing import Any

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import (
    claim_warning,
    not_tried,
    opening_sentences,
    refusal_words,
)
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit
from fl_audit.app_audits.claim_audit.findings import DistinguisherFinding, result_json
from fl_audit.array_types import finite
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, AuditScope
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import plural

_UNSEEN_OF_STRATEGY = (
    "what clients do with their records before they reply",
    "what the server does beside this strategy",
)
_UNSEEN_OF_APP = ("what clients do with their records before they reply, unless the trials change records",)
_CARRIED = "what the strategy carries from round to round, such as a factor: --rounds 2 or more has trials play it"


def strategy_result(
    name: str,
    audit: ClaimAudit,
    findings: Sequence[DistinguisherFinding],
    rounds: int | None = None,
    clients: int | None = None,
    claim_source: str | None = None,
) -> AuditResult:
    """Return the result of the audit of a strategy.

    `rounds` is the number of rounds of the whole training, None if nobody named it; `clients` is the number of clients
    of a trial, and `claim_source` says where the strategy itself states its claim, None if it does not.
    """
    lines = [line for finding in findings for line in _finding_lines(finding)]
    lines += [("Refused", text) for text in refusal_words(audit.refusals)]
    lines += [("Claim", f"the strategy's own: {claim_source}")] if claim_source else []
    not_played = (_CARRIED,) if audit.claim.rounds == 1 else ()
    lines += [("Not played", text) for text in not_played]
    return AuditResult(
        kind=AuditedKind.STRATEGY,
        name=name,
        verdict=audit.verdict,
        headline=opening_sentences(audit),
        lines=tuple(lines),
        guarantee=_guarantee_of_claim(audit.claim),
        scope=scope_of_trials(audit, rounds, audit.claim.rounds, (*_UNSEEN_OF_STRATEGY, *not_played)),
        warning=claim_warning(audit.claim),
        numbers=result_json(audit, tuple(findings)) | {"clients": clients, "claim_source": claim_source},
    )


def in_app_result(
    name: str,
    audit: ClaimAudit,
    findings: Sequence[DistinguisherFinding],
    rounds: int | None,
    refusals: Sequence[str],
    notes: Sequence[str],
) -> AuditResult:
    """Return the result of an audit inside an app, with sentences on refused trials and notes.

    `rounds` is the number of rounds of the app's own training, None if it is not known. If trials play fewer, the
    result is never consistent, since nothing is known of the others.
    """
    verdict = audit.verdict
    headline = opening_sentences(audit)
    if verdict is Verdict.CONSISTENT and rounds is not None and rounds > audit.claim.rounds:
        verdict = Verdict.INCONCLUSIVE
        played = f"trials play {audit.claim.rounds} of its {plural(rounds, 'round')}"
        headline = f"Inconclusive as to the whole training: {played}. The trials alone: {headline}"
    lines = [line for finding in findings for line in _finding_lines(finding)]
    lines += [("Refused", text) for text in refusals]
    lines += [("Note", text) for text in notes]
    return AuditResult(
        kind=AuditedKind.APP,
        name=name,
        verdict=verdict,
        headline=headline,
        lines=tuple(lines),
        guarantee=_guarantee_of_claim(audit.claim),
        scope=scope_of_trials(audit, rounds, audit.claim.rounds, _UNSEEN_OF_APP),
        warning=claim_warning(audit.claim),
        numbers=result_json(audit, tuple(findings)) | {"notes": list(notes)},
    )


def _finding_lines(finding: DistinguisherFinding) -> list[tuple[str, str]]:
    """Return the lines of a test of a distinguisher: what was guessed and, of a broken claim, its cause and fix."""
    test = finding.test
    lines = [("Cause", finding.cause)] if test.is_broken else []
    lines.append((f"{test.distinguisher.kind} ({finding.words})", finding.sentence))
    if finding.test.noise is not None:
        lines.append(("Noise, if it is Gaussian", finding.test.noise.words))
    if test.is_broken:
        lines += [("Differs", line) for line in test.lines]
        lines.append(("Usual fix", finding.fix))
    return lines


def scope_of_trials(
    audit: ClaimAudit, rounds: int | None, played_rounds: int | None, unseen: tuple[str, ...]
) -> AuditScope:
    """Return which scenarios were tried, and which were not, and why."""
    reasons = {kind: reason for reason, kinds in not_tried(audit).items() for kind in kinds}
    scenarios = dict.fromkeys(test.distinguisher.kind for test in audit.tests)
    return AuditScope(rounds, played_rounds, tuple(kind for kind in scenarios if kind not in reasons), reasons, unseen)


def _guarantee_of_claim(claim: StatedClaim) -> Mapping[str, Any]:
    """Return the values of the guarantee that was stated for the strategy, for all rounds of the claim."""
    epsilon = gdp_epsilon(claim.delta, claim.allowed_mu) if claim.epsilon is None else claim.epsilon
    values = {"epsilon": finite(epsilon), "delta": claim.delta, "adjacency": str(claim.adjacency)}
    values |= {"unit": str(claim.neighbours.unit), "gdp_mu": claim.mu, "gdp_regret": None if claim.mu is None else 0.0}
    return dict.fromkeys(GUARANTEE_NAMES) | values
