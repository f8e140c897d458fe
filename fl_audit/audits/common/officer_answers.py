"""Answers of the annex for a data-protection officer to questions of others, each as far as the run tested it."""

from enum import Enum

from fl_audit.privacy.defaults import CANDIDATES
from fl_audit.report.guarantee_warnings import is_weak_guarantee
from fl_audit.report.report_elements import ReportContents
from fl_audit.report.template_files import template_lines, template_table
from fl_audit.verdict.claim_standing import ClaimStanding, standing_of_claim
from fl_audit.verdict.declared_tests import OF_OPENED, TestName
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import VerdictDetails

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
