"""The result of an audit by trials, of a strategy or of an app from inside, in the form that every audit stores.

A finding adds the texts of its scenario to the test of a distinguisher.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import (
    claim_warning,
    floating_words,
    limit_of_detection,
    not_tried,
    numbers_of_trials_words,
    opening_sentences,
    refusal_words,
    trials_words,
)
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, DistinguisherTest
from fl_audit.array_types import finite
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES
from fl_audit.report.template_files import template_table
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, AuditScope
from fl_audit.verdict.verdict import with_doubt
from fl_audit.words import capital, percent, plural


class ScenarioTexts(NamedTuple):
    """The texts on a scenario of trials."""

    words: str  # what the target sends with it and without it
    usual_fix: str  # the usual fix for a leak in this scenario, used if the cause is unknown
    proviso: str = ""  # a sentence on when the update of this scenario can occur; empty if every client can send it


@dataclass(frozen=True)
class DistinguisherFinding:
    """The result of testing one distinguisher on fresh trials of its scenario, with texts for the report."""

    test: DistinguisherTest  # the test on fresh trials, with its numbers
    scenario: ScenarioTexts  # the texts on the scenario
    claimed_success: float  # the largest probability of a right guess that the claim allows, from 0.5 to 1

    @property
    def sentence(self) -> str:
        """The result of the test in one or two sentences, with the number of right guesses and the proven bound."""
        test = self.test
        text = trials_words(self.test)
        share = f"{percent(test.right / test.trials)}; the claim allows {percent(self.claimed_success)}"
        guessed = f"{test.right:,} of {plural(test.trials, 'trial')} were guessed right ({share})"
        sentence_text = f"looking at {test.distinguisher.group}, {guessed}. {capital(text)}".strip()
        if not test.is_broken:
            return f"{sentence_text} {capital(self.shown)}: no contradiction."
        if test.is_of_trials_alone:
            return f"{sentence_text} Whether clients other than those of the trials report it is not seen."
        return f"{sentence_text} With {percent(test.confidence)} confidence {self.shown}; {self.allowed}."

    @property
    def shown(self) -> str:
        """A clause that says what the trials prove about the guarantee.

        The trials test the inequality of (epsilon, delta)-DP at one point. If this point has epsilon > 0, the clause
        gives a lower bound on epsilon at its delta. If it has epsilon = 0, the clause says whether D and D' can be told
        apart in more trials than the claim allows.
        """
        limit = self.test.distinguisher.limit
        if limit.epsilon > 0:
            return f"epsilon is at least {self.test.bound:.2f} at delta {limit.delta:.3g}"
        if self.test.bound > 0:
            return f"more than {percent(self.claimed_success)} of trials can be told apart"
        return f"no more than {percent(self.claimed_success)} of trials were told apart for certain"

    @property
    def allowed(self) -> str:
        """A clause with the value that the claim allows for epsilon or for the share of right guesses."""
        epsilon = self.test.distinguisher.limit.epsilon
        return f"the claim allows {epsilon:.2f} there" if epsilon > 0 else "the claim allows no more than that"

    @property
    def cause(self) -> str:
        """Sentences on the probable cause of a difference between trials with D and with D'."""
        leak = self.test.cause
        noise = self.test.noise
        phrases = [leak.words] if leak is not None else []
        if noise is not None and self._is_short:
            what_changes = (
                "an update far beyond the clipping norm changes" if self.scenario.proviso else "one unit can change"
            )
            short = f"There is {noise.ratio:.1f} times too little noise for what {what_changes}"
            phrases.append(f"{short} (mu {noise.mu:.2f}, claimed {noise.claimed_mu:.2f}).")
        if not phrases:
            phrases.append(f"What told is {self.test.distinguisher.group}.")
        if self._is_short or leak is None:
            phrases.append(self.scenario.proviso)
        return " ".join(filter(None, phrases))

    @property
    def fix(self) -> str:
        """Sentences on how to fix the likely cause of the breach.

        If the noise is too weak, the usual fix for the scenario is added. If no fix of the cause is known, only the
        usual fix is given.
        """
        leak = self.test.cause
        if leak is None:
            return self.scenario.usual_fix
        return f"{leak.fix} {self.scenario.usual_fix}" if self._is_short else leak.fix

    @property
    def _is_short(self) -> bool:
        """Whether significantly too little noise explains the test, by a confidence bound that assumes Gaussian noise.

        It does not explain a number beside the model.
        """
        if self.test.is_beside_model:
            return False
        noise = self.test.noise
        return noise is not None and noise.ratio > 1 and noise.mu_low > noise.claimed_mu


def findings(claim_audit: ClaimAudit, texts: Mapping[str, ScenarioTexts]) -> tuple[DistinguisherFinding, ...]:
    """Return one finding for each tested distinguisher.

    Findings that refute the claim come first, ordered by scenario from plain to special. The others follow in the order
    of the result.

    `texts`: The texts on each scenario, keyed by its name, from plain scenarios to special ones.
    """
    order = list(texts)
    ranked = sorted(
        claim_audit.tests,
        key=lambda test: (not test.refutes_claim, order.index(test.distinguisher.kind) * test.refutes_claim),
    )
    success = claim_audit.claim.success
    return tuple(DistinguisherFinding(test, texts[test.distinguisher.kind], success) for test in ranked)


def result_json(claim_audit: ClaimAudit, findings: tuple[DistinguisherFinding, ...]) -> dict[str, Any]:
    """Return the result of an audit as a dict of JSON values, as `summary.json` stores it.

    The entry `lower_bound` is taken from the test with the strongest evidence.
    """
    worst = claim_audit.worst
    claim = claim_audit.claim
    claimed = {
        "words": claim.words,
        "adjacency": str(claim.adjacency),
        "unit": str(claim.neighbours.unit),
        "rounds": claim.rounds,
        "limits": [limit._asdict() for limit in claim.limits],
        # A claim by noise multiplier is exactly Gaussian. A claim by one epsilon and delta has no mu.
        "gdp_mu": claim.mu,
        "gdp_regret": None if claim.mu is None else 0.0,
    }
    return {
        "verdict": str(claim_audit.verdict),
        "lower_bound": None if worst is None else finite(worst.bound),
        "claim": claimed,
        "trial": None if worst is None else worst.distinguisher.kind,
        "findings": [_finding_json(finding) for finding in findings],
        "could_find_times_too_little_noise": finite(limit_of_detection(claim_audit)),
        "warning": claim_warning(claim),
        "floating_point": floating_words(claim_audit) or None,
        **{name: list(getattr(claim_audit, name)) for name in ("unplayed", "untried", "passed_over", "silent")},
        "rounds_without_noise": list(claim_audit.bare_rounds),
        "not_tried": {why: list(kinds) for why, kinds in not_tried(claim_audit).items()},
        "lower_bound_knowing_others": None if claim_audit.knowing is None else finite(claim_audit.knowing.bound),
        "knowing_others_refutes_nothing": None if claim_audit.knowing is None else str(claim_audit.not_covered),
        "refusals": [
            dict(zip(("trial", "said", "share_present", "share_absent", "allowed"), astuple(refusal), strict=True))
            for refusal in claim_audit.refusals
        ],
    }


def _finding_json(finding: DistinguisherFinding) -> dict[str, Any]:
    test = finding.test
    reading = test.noise
    gaussian = None
    if reading is not None:
        numbers = {name: getattr(reading, name) for name in ("mu", "mu_low", "claimed_mu", "shift", "spread")}
        gaussian = numbers | {"p_value_normal": reading.p_value}
    return {
        "trial": test.distinguisher.kind,
        "words": finding.scenario.words,
        "told_by": test.distinguisher.group,
        "cause": finding.cause if test.refutes_claim else None,
        "broken": test.refutes_claim,
        "of_trials_alone": test.is_of_trials_alone,
        "lower_bound": finite(test.bound),
        "claimed_epsilon": test.distinguisher.limit.epsilon,
        "delta": test.distinguisher.limit.delta,
        "confidence": test.confidence,
        "method": str(test.distinguisher.method),
        "ceiling": finite(test.ceiling),
        **{name: getattr(test, name) for name in ("trials", "share_of_trials", "right")},
        "claimed_success": finding.claimed_success,
        "transcript": list(test.lines),
        "if_gaussian": gaussian,
        "usual_fix": finding.fix,
    }


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
    lines += [("Numbers of clients", text) for text in filter(None, [numbers_of_trials_words(audit)])]
    lines += [("Refused", text) for text in refusal_words(audit.refusals)]
    lines += [("Claim", f"the strategy's own: {claim_source}")] if claim_source else []
    not_played = unseen_in("one-round") if audit.claim.rounds == 1 else ()
    lines += [("Not played", text) for text in not_played]
    return AuditResult(
        kind=AuditedKind.STRATEGY,
        name=name,
        verdict=audit.verdict,
        headline=opening_sentences(audit),
        lines=tuple(lines),
        guarantee=_guarantee_of_claim(audit.claim),
        scope=scope_of_trials(audit, rounds, audit.claim.rounds, (*unseen_in("strategy"), *not_played)),
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
    verdict = with_doubt(audit.verdict, rounds is not None and rounds > audit.claim.rounds)
    headline = opening_sentences(audit)
    if rounds is not None and verdict is not audit.verdict:
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
        scope=scope_of_trials(audit, rounds, audit.claim.rounds, unseen_in("app")),
        warning=claim_warning(audit.claim),
        numbers=result_json(audit, tuple(findings)) | {"notes": list(notes)},
    )


def _finding_lines(finding: DistinguisherFinding) -> list[tuple[str, str]]:
    """Return the lines of a test of a distinguisher: what was guessed and, of a broken claim, its cause and fix."""
    test = finding.test
    lines = [("Cause", finding.cause)] if test.refutes_claim else []
    lines.append((f"{test.distinguisher.kind} ({finding.scenario.words})", finding.sentence))
    if finding.test.noise is not None:
        lines.append(("Noise, if it is Gaussian", finding.test.noise.words))
    if test.refutes_claim:
        lines += [("Differs", line) for line in test.lines]
        lines.append(("Usual fix", finding.fix))
    return lines


def unseen_in(audited: str) -> tuple[str, ...]:
    """Return phrases on what an audit cannot see of a kind of code, such as "strategy", from their template."""
    return tuple(phrase for kind, phrase in template_table("unseen.md") if kind == audited)


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
