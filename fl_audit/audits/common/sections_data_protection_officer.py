"""The report section for a data-protection officer: claims, findings, and lines for the operator to fill in."""

from dataclasses import dataclass
from typing import Any, assert_never

from fl_audit.adjacency import Relation
from fl_audit.audits.common.officer_answers import Framework, answers_of
from fl_audit.audits.registry import audit_of
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.defaults import CANDIDATES
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.guarantee_line import fit_of_all
from fl_audit.report.report_elements import ReportContents, Section, Table, TableKind
from fl_audit.report.template_files import template_table
from fl_audit.verdict.claim_standing import name_with_standing, standing_of_claim
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.scope import short_scope
from fl_audit.verdict.sections_verdict import banner
from fl_audit.words import is_certainty, limit_text, number_text, one_in, percent, plural

TO_FILL_IN = "_" * 48
_OF_DATA = ("Controller", "Purpose", "System", "Data set, as its owner calls it", "Whose data these are")
_OF_REPORT = ("How long model, data and report are kept",)


@dataclass(frozen=True)
class OfficerAnnex:
    """The annex for a data-protection officer; it repeats numbers of other findings, and has none of its own."""

    def to_json(self) -> dict[str, Any]:
        """Return an empty dict, because the annex adds nothing to `summary.json`."""
        return {}


def _measure(_: FinishedRun, __: Findings) -> OfficerAnnex:
    return OfficerAnnex()


def _facts_table(contents: ReportContents) -> Table:
    of_data, of_report = ([(title, TO_FILL_IN) for title in titles] for titles in (_OF_DATA, _OF_REPORT))
    rows = [*of_data, *_of_records(contents), *_of_guarantee(contents), *_of_run(contents), *of_report]
    return Table("What is processed, claimed and found", ("", ""), tuple(rows), TableKind.PAIRS)


def _of_records(contents: ReportContents) -> list[tuple[str, str]]:
    federation = contents.plan.federation
    origin = contents.run.provenance
    pool = "" if origin is None or origin.pool is None else f" of {origin.pool:,}"
    users = f", of {plural(federation.users, 'user')}" if federation.users else ""
    digest = "not noted" if origin is None or origin.data is None else f"SHA-256 {origin.data}"
    keyed = ", keyed" if origin is not None and origin.is_keyed else ""
    return [
        ("Data set as it was read", federation.data.title),
        ("Digest of the records that were used", digest + keyed),
        ("How many records", f"{federation.records:,}{pool} records{users}"),
        ("Unit that is protected, and how neighbours differ", _unit(contents)),
    ]


def _unit(contents: ReportContents) -> str:
    relation = contents.plan.adjacency
    unit_name = contents.words.one
    if contents.plan.guarantee is None:
        return f"none, since nothing is claimed; the data sets that are compared differ in one {unit_name} ({relation})"
    match relation.relation:
        case Relation.ADD_REMOVE:
            aim = "nobody should tell a training with it from the same training without it"
        case Relation.REPLACE:
            aim = "nobody should tell a training with it from the same training with another in its place"
        case _:
            assert_never(relation.relation)
    return f"one {unit_name}: {aim} ({relation})"


def _mu_row(guarantee: Guarantee, contents: ReportContents) -> list[tuple[str, str]]:
    """Return a row with one number for the whole guarantee; none where the noise is not Gaussian."""
    if contents.plan.federation.mechanism.noise.distribution is not NoiseDistribution.GAUSSIAN:
        return []
    fit = fit_of_all(guarantee.claims)
    meaning = (
        "the error of that one number; 0 would be perfect privacy, and of two guarantees about the same unit the "
        "smaller mu is the stronger"
    )
    text = f"{number_text(fit.mu, 4)}, with a regret of {fit.regret:.2g} ({meaning})"
    return [("The whole guarantee as one Gaussian mu", text)]


def _of_guarantee(contents: ReportContents) -> list[tuple[str, str]]:
    guarantee = contents.plan.guarantee
    if guarantee is None:
        return [("Epsilon and delta", "nothing is claimed")]
    named_bound = guarantee.reconstruction_bound(1 / CANDIDATES)
    power = 1 - guarantee.claim.profile.tradeoff(0.01)
    rows = [
        (
            "Epsilon and delta",
            f"{number_text(guarantee.epsilon, 4)} at delta {guarantee.delta:g}, by accountant {guarantee.accountant}",
        ),
        *_mu_row(guarantee, contents),
        _surer_row(guarantee, contents),
        ("Advantage over guessing, at most", limit_text(guarantee.advantage_bound_exact)),
        *(
            []
            if named_bound is None
            else [(f"Named right among {CANDIDATES:,} equally likely, at most", limit_text(named_bound))]
        ),
        ("Found as a member at 1 % false alarms, at most", limit_text(power)),
    ]
    standing = standing_of_claim(contents)
    return [(name_with_standing(name, standing), sentence) for name, sentence in rows]


def _surer_row(guarantee: Guarantee, contents: ReportContents) -> tuple[str, str]:
    """Return the row on the largest belief; unlike the other limits, it fails with probability delta."""
    if is_certainty(guarantee.belief_bound):
        return "How sure somebody may become", f"entirely sure that {contents.words.that}: epsilon limits nothing here"
    bound = f"{percent(guarantee.belief_bound)} that {contents.words.that}"
    return "Nobody becomes surer than", f"{bound}, except with a chance of at most {one_in(guarantee.delta)}"


def _of_run(contents: ReportContents) -> list[tuple[str, str]]:
    origin = contents.run.provenance
    verdict = contents.find(VerdictFinding)
    session = None if origin is None else origin.sessions[-1]
    return [
        ("Verdict", "none" if verdict is None else str(verdict.verdict)),
        ("Versions", "not noted" if session is None else ", ".join(f"{k} {v}" for k, v in session.versions.items())),
        ("Date of the run", "not noted" if session is None else session.began),
        ("Trials", f"{contents.run.trials:,}"),
    ]


def _tables(_: OfficerAnnex, contents: ReportContents) -> list[Table]:
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


def _sentence(_: OfficerAnnex, __: ReportContents) -> str:
    return (
        "The operator fills in the empty lines by hand. Nobody checked what the operator declares. No number here "
        "decides a legal question: these are the facts for such a decision. More published epsilons, with their "
        "sources, are in the list of deployments by D. Desfontaines, desfontain.es."
    )


OFFICER = Section(
    "officer", "For a data-protection officer", OfficerAnnex, _measure, sentence=_sentence, tables=_tables
)
