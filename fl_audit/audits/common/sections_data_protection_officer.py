"""The report section for a data-protection officer: claims, findings, answers, and lines to fill in."""

from enum import Enum
from typing import Any

from fl_audit.adjacency import Relation
from fl_audit.audits.common.sections_guarantee import GuaranteeFinding
from fl_audit.audits.registry import audit_of
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.defaults import CANDIDATES
from fl_audit.privacy.guarantee_line import fit_of_all
from fl_audit.report.guarantee_warnings import is_weak_guarantee
from fl_audit.report.report_elements import ReportContents, Section, Table, TableKind
from fl_audit.report.template_files import template_lines, template_table, template_texts
from fl_audit.verdict.claim_standing import ClaimStanding, standing_of_claim
from fl_audit.verdict.declared_tests import OF_OPENED, TestName
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.scope import short_scope
from fl_audit.verdict.sections_verdict import banner
from fl_audit.verdict.verdict import VerdictDetails
from fl_audit.words import is_certainty

ANSWERED = "answered here"
OPERATOR = "declared by the operator"
UNKNOWN = "not known"
_IN_PART = "answered in part"
_OPEN = "left open by the verdict"
_WEAK = "answered here: next to nothing is assured"
_NOTHING_CLAIMED = "nothing is claimed, so nothing limits it"
_INDIRECT = (TestName.CANARIES, TestName.SCORES, TestName.CANDIDATES)
"""The tests that do not measure the noise itself."""


class Framework(Enum):
    """A list of questions that others ask: the title of its table, and its template of answers."""

    NIST = "NIST SP 800-226: the parts of a guarantee", "nist_sp_800_226.md"
    ANONYMOUS_DATA = (
        "The three questions about anonymous data (Opinion 05/2014; EDPB Opinion 28/2024)",
        "anonymous_data.md",
    )
    SATRE = "SATRE v2.0.1: outputs that cannot be checked by hand (3.3.07), and what belongs to it", "satre.md"


def answers_of(framework: Framework, contents: ReportContents) -> tuple[tuple[str, ...], ...]:
    """Return the questions of a framework, each with its answer, and where the answer is or why there is none."""
    guarantee = contents.plan.guarantee
    claimed = _claimed(contents)
    mechanism, reason = _mechanism(contents)
    _, template = framework.value
    return template_table(
        template,
        claimed=claimed,
        is_answered=claimed == ANSWERED,
        has_claim=guarantee is not None,
        nothing_claimed=_NOTHING_CLAIMED,
        mechanism=mechanism,
        mechanism_reason=reason,
        answered=ANSWERED,
        operator=OPERATOR,
        unknown=UNKNOWN,
        candidates=CANDIDATES,
        names_candidates=guarantee is not None and guarantee.reconstruction_bound(1 / CANDIDATES) is not None,
        is_reconstruction=contents.plan.federation.audit == "reconstruction",
        is_private_release=contents.plan.federation.mechanism.is_private_release,
    )


def _claimed(contents: ReportContents) -> str:
    """Return the answer to a question that the claimed limits answer, if they hold."""
    if contents.plan.guarantee is None:
        return UNKNOWN
    standing = standing_of_claim(contents)
    if standing is not ClaimStanding.HELD:
        return str(standing)
    return _WEAK if is_weak_guarantee(contents.guarantee) else ANSWERED


def _judgement(contents: ReportContents) -> VerdictDetails | None:
    numbers = contents.find(VerdictFinding)
    return None if numbers is None else numbers.judgement


def _mechanism(contents: ReportContents) -> tuple[str, str]:
    """Return the answer about the mechanism, and what it rests on."""
    details = _judgement(contents)
    names = set[TestName]() if details is None else {test.name for test in details.tests}
    indirect = next((name for name in _INDIRECT if name in names), None)
    sees_secret = any(name.is_about_secret for name in names)
    reasons = template_lines(
        "officer_mechanism.md",
        has_tests=details is not None,
        has_claim=contents.plan.guarantee is not None,
        made=len(names),
        missing=0 if details is None else len(details.not_offered),
        indirect=indirect if names <= {*_INDIRECT, *OF_OPENED} else None,
        sees_secret=sees_secret,
    )
    standing = standing_of_claim(contents)
    if details is None:
        answer = UNKNOWN
    elif standing is ClaimStanding.REFUTED:
        answer = str(standing)
    elif standing is ClaimStanding.UNCONFIRMED:
        answer = _OPEN
    else:
        answer = ANSWERED if sees_secret else _IN_PART
    return answer, "; ".join(reasons)


TO_FILL_IN = "_" * 48


def _facts_table(contents: ReportContents) -> Table:
    facts = _facts_of_run(contents) | _facts_of_guarantee(contents)
    rows = tuple(template_texts("officer_facts.md", **facts).items())
    return Table("What is processed, claimed and found", ("", ""), rows, TableKind.PAIRS)


def _facts_of_run(contents: ReportContents) -> dict[str, Any]:
    """Return what the table of facts says of the records, the unit and the run; what is not known is None."""
    federation = contents.plan.federation
    adjacency = contents.plan.adjacency
    origin = contents.run.provenance
    session = None if origin is None else origin.sessions[-1]
    verdict = contents.find(VerdictFinding)
    return {
        "blank": TO_FILL_IN,
        "data": federation.data.title,
        "records": federation.records,
        "users": federation.users,
        "pool": None if origin is None else origin.pool,
        "digest": None if origin is None else origin.data,
        "is_keyed": origin is not None and origin.is_keyed,
        "unit": contents.words.one,
        "that": contents.words.that,
        "adjacency": adjacency,
        "is_replaced": adjacency.relation is Relation.REPLACE,
        "verdict": None if verdict is None else verdict.verdict,
        "versions": None if session is None else ", ".join(f"{k} {v}" for k, v in session.versions.items()),
        "began": None if session is None else session.began,
        "trials": contents.run.trials,
    }


def _facts_of_guarantee(contents: ReportContents) -> dict[str, Any]:
    """Return what the table of facts says of the claimed limits."""
    guarantee = contents.plan.guarantee
    if guarantee is None:
        return {"has_guarantee": False}
    standing = standing_of_claim(contents)
    is_gaussian = contents.plan.federation.mechanism.noise.distribution is NoiseDistribution.GAUSSIAN
    fit = fit_of_all(guarantee.claims) if is_gaussian else None
    return {
        "has_guarantee": True,
        "standing": "" if standing is ClaimStanding.HELD else standing,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "accountant": guarantee.accountant,
        "belief": guarantee.belief_bound,
        "is_certain": is_certainty(guarantee.belief_bound),
        "advantage": guarantee.advantage_bound_exact,
        "mu": None if fit is None else fit.mu,
        "regret": None if fit is None else fit.regret,
        "candidates": CANDIDATES,
        "naming": guarantee.reconstruction_bound(1 / CANDIDATES),
        "found": 1 - guarantee.claim.profile.tradeoff(0.01),
    }


def _tables(_: GuaranteeFinding, contents: ReportContents) -> list[Table]:
    published = "Epsilons that others have published: what was bearable there, and not what is safe here"
    columns = ("What is asked", "Answer", "Where, or why not")
    return [
        _facts_table(contents),
        _checked(contents),
        *(Table(framework.value[0], columns, answers_of(framework, contents)) for framework in Framework),
        Table(published, ("What is released", "Unit", "Epsilon", "Source"), template_table("published_epsilons.md")),
    ]


def _checked(contents: ReportContents) -> Table:
    """Return a table of the verdict, of what was checked, and of cautions about the data."""
    numbers = contents.find(VerdictFinding)
    notes = contents.summary.get("look_at") or ()
    reason = "none" if numbers is None else f"{numbers.verdict}: {banner(contents).line}"
    scope = "\n".join(_scope(contents)) or str(contents.summary.get("scope") or "nothing")
    rows = (
        ("Verdict, and why", reason),
        ("What was checked, and what could not be seen", scope),
        *(("What to know about the data", str(note)) for note in notes),
    )
    return Table("What was checked, and what could not be seen", ("", ""), rows, TableKind.PAIRS)


def _scope(contents: ReportContents) -> list[str]:
    """Return what was checked, a sentence for each line; empty if nothing was tested."""
    numbers = contents.find(VerdictFinding)
    tests = audit_of(contents.plan.federation).guarantee_tests
    if numbers is None:
        return []
    lines = short_scope(numbers, contents.run, tests.covers(contents.plan))
    return [*lines, *filter(None, [tests.why_not_compared(contents.run).strip()])] if lines else []


def _sentence(_: GuaranteeFinding, __: ReportContents) -> str:
    return " ".join(template_lines("officer_note.md"))


OFFICER = Section(
    "officer",
    "For a data-protection officer",
    GuaranteeFinding,  # which every run has; the annex repeats numbers of other findings
    lambda _, findings: findings.find(GuaranteeFinding),
    sentence=_sentence,
    tables=_tables,
)
