"""List all sections of a report in their order; a new section has to be added to this list.

A section computes one finding of a run, and shows it in the report.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fl_audit.audits.canaries.sections_one_run import ONE_RUN
from fl_audit.audits.common.report_cautions import cautions_for_reader
from fl_audit.audits.common.sections_accuracy import RELEASED_MODEL
from fl_audit.audits.common.sections_client_guarantees import CLIENT_GUARANTEES
from fl_audit.audits.common.sections_client_metrics import CLIENT_METRICS
from fl_audit.audits.common.sections_clipping import CLIPPING
from fl_audit.audits.common.sections_colluders import COLLUDERS
from fl_audit.audits.common.sections_data_protection_officer import OFFICER
from fl_audit.audits.common.sections_epsilon_star import EPSILON_STAR
from fl_audit.audits.common.sections_guarantee import GUARANTEE
from fl_audit.audits.common.sections_mechanism import LOCAL_SENSITIVITY
from fl_audit.audits.common.sections_other_guarantees import OTHER_GUARANTEES
from fl_audit.audits.common.sections_privacy_units import LEVELS
from fl_audit.audits.common.sections_provenance import ORIGIN
from fl_audit.audits.common.sections_record_guarantee import RECORD_GUARANTEE
from fl_audit.audits.common.sections_user_losses import USERS
from fl_audit.audits.identifiability.sections_belief_rounds import BELIEF_ROUNDS
from fl_audit.audits.identifiability.sections_crafted_record import CRAFTED
from fl_audit.audits.identifiability.sections_empirical_epsilon import EMPIRICAL_EPSILON
from fl_audit.audits.identifiability.sections_innovations import INNOVATIONS
from fl_audit.audits.identifiability.sections_insider import INSIDER
from fl_audit.audits.identifiability.sections_roc import SCORES, TRADEOFF
from fl_audit.audits.membership.sections_attacks import ATTACKS
from fl_audit.audits.membership.sections_attribute_inference import ATTRIBUTES
from fl_audit.audits.membership.sections_membership_adversary import MEMBERSHIP
from fl_audit.audits.reconstruction.sections_reconstruction import INVERSION, RECONSTRUCTION
from fl_audit.audits.registry import audit_of
from fl_audit.errors import require
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section, SectionError, noted_in
from fl_audit.run_files import SCHEMA
from fl_audit.statistics.claim_comparisons import Reading
from fl_audit.user_modules import import_object
from fl_audit.verdict.audit_result import AuditedKind
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.judging import without_tests
from fl_audit.verdict.sections_noise import NOISE
from fl_audit.verdict.sections_verdict import verdict_section
from fl_audit.verdict.verdict import Verdict

VERDICT = verdict_section(
    judge=lambda run: audit_of(run.plan.federation).guarantee_tests.judge(run),
    covers=lambda plan: audit_of(plan.federation).guarantee_tests.covers(plan),
    why_not_compared=lambda run: audit_of(run.plan.federation).guarantee_tests.why_not_compared(run),
)
"""The section of the verdict, which the tests of the run's kind of audit give."""

SECTIONS: tuple[Section[Any], ...] = (
    # the verdict and the claim
    VERDICT,
    GUARANTEE,
    RECORD_GUARANTEE,
    NOISE,
    # the success of insiders and attackers
    INSIDER,
    SCORES,
    ONE_RUN,
    ATTACKS,
    ATTRIBUTES,
    RECONSTRUCTION,
    INVERSION,
    # the accuracy of the models, and the costs of other guarantees
    RELEASED_MODEL,
    CLIENT_METRICS,
    OTHER_GUARANTEES,
    # the insiders' evidence in detail
    EMPIRICAL_EPSILON,
    LEVELS,
    TRADEOFF,
    BELIEF_ROUNDS,
    INNOVATIONS,
    # the information in models alone, and the claims to and by each client
    MEMBERSHIP,
    EPSILON_STAR,
    USERS,
    CLIENT_GUARANTEES,
    COLLUDERS,
    # the mechanism, and the origin of the run
    CLIPPING,
    CRAFTED,
    LOCAL_SENSITIVITY,
    ORIGIN,
    # for the data-protection officer
    OFFICER,
)
"""The general sections in their order; a section may use the findings of earlier sections."""


def own_section(name: str) -> Section[Any]:
    """Return a report section that a user has written; it will not be shown on the first page of the report."""
    section = import_object(name, "section")
    label = f"section {name!r} is a {type(section).__name__}"
    require(isinstance(section, Section), f"{label}: accepted is a fl_audit.report.report_elements.Section")
    selected = {word for section in SECTIONS for word in (section.name, *section.keys)} & {section.name, *section.keys}
    require(
        not selected, f"section {name!r} has the name or key {', '.join(sorted(selected))} of a section of fl_audit"
    )
    return replace(section, on_page=False)


def report_contents(
    run: FinishedRun, sections: tuple[Section[Any], ...] | None = None, earlier_errors: Sequence[SectionError] = ()
) -> ReportContents:
    """Return all contents of the report of a run, for which each section measures its finding.

    `sections`: None uses the general sections, the sections of the kind of audit, and the user's own sections that the
    configuration names.

    `earlier_errors`: What could not be computed before the sections, such as a membership attack.
    """
    if sections is None:
        user_sections = run.plan.config.audit.sections
        of_kind = audit_of(run.plan.federation).sections()
        sections = (*SECTIONS, *of_kind, *map(own_section, user_sections))
    results: dict[type, Any] = {}
    summary: dict[str, Any] = {"schema": SCHEMA, "kind": str(AuditedKind.RUN)}
    errors = list(earlier_errors)
    for section in sections:
        summary |= dict.fromkeys(section.keys)
        with noted_in(errors, section.title):
            numbers = section.measure(run, Findings(dict(results)))
            if numbers is not None:
                results[section.numbers] = numbers
                summary |= numbers.to_json() | dict(section.said(numbers, run))
    contents = _without_contradictions(ReportContents(run, Findings(results), summary, sections), errors)
    summary["findings"] = [row.to_json() for row in page_rows(contents)]
    summary["look_at"] = cautions_for_reader(contents)
    summary["not_computed"] = [error.to_json() for error in contents.errors]
    return contents


def _without_contradictions(contents: ReportContents, errors: list[SectionError]) -> ReportContents:
    """Return contents whose verdict agrees with all numbers beside it, without sections that cannot be shown.

    `errors`: Errors of sections that could not be computed; those of sections that cannot be shown are added.
    """
    verdict = contents.find(VerdictFinding) or VerdictFinding(
        Verdict.INCONCLUSIVE, without_tests(contents.run.plan.confidence)
    )
    contents = replace(
        contents, findings=contents.findings.replaced(verdict), is_violated=verdict.verdict is Verdict.VIOLATED
    )
    sections = list[Section[Any]]()
    for section, numbers in sections_with_findings(contents):
        with noted_in(errors, section.title):
            section.sentence(numbers, contents), section.read_rows(numbers, contents), section.tables(numbers, contents)
            sections.append(section)
    contents = replace(contents, sections=tuple(sections))
    if verdict is None:
        return replace(contents, errors=tuple(errors))
    # A page must not say `consistent` beside a number that is broken.
    broken = tuple(row.name for row in _rows(contents) if row.reading is Reading.BROKEN)
    verdict = verdict.with_contradictions(broken).with_errors((*verdict.errors, *errors))
    contents.summary.update(verdict.to_json())
    return replace(contents, findings=contents.findings.replaced(verdict), errors=verdict.errors)


def sections_with_findings(contents: ReportContents) -> list[tuple[Section[Any], Any]]:
    """Return the sections that have a finding in this run, in order, as pairs of a section and its finding."""
    results = [(section, contents.find(section.numbers)) for section in contents.sections]
    return [(section, numbers) for section, numbers in results if numbers is not None]


def page_rows(contents: ReportContents) -> list[ReportNumber]:
    """Return the rows of numbers that the table on the first page of a report shows."""
    return [row for row in _rows(contents) if row.on_page]


def _rows(contents: ReportContents) -> list[ReportNumber]:
    return [
        row for section, numbers in sections_with_findings(contents) for row in section.read_rows(numbers, contents)
    ]
