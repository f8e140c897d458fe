"""The report section on adversaries that guess an attribute of a record."""

from functools import partial
from typing import Any

from fl_audit.audits.membership import findings_attribute_inference as evidence
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section, Table
from fl_audit.verdict.claim_standing import standing_of_claim, with_standing_in_brackets
from fl_audit.words import number_text, percent, uncapital

_GUESSERS = {
    evidence.GUESSED_BLINDLY: "Without a model: the commonest value",
    evidence.GUESSED: "By the least loss",
    evidence.GUESSED_BY_DISTRIBUTION: "By the distribution of members' losses",
}


def _attribute_row(name: str, finding: evidence.AttributeFinding, run: FinishedRun) -> ReportNumber:
    advantage = finding.by_name[name].advantage
    basis_text = (
        "share of members guessed right less that of others, mean over trials (Yeom et al. 2018, definition 5); trials "
        "are independent, members and others of one trial share its model; the guarantee allows the total variation "
        "between two trainings, each with one of two records and without the other"
    )
    return ReportNumber(
        f"Advantage on the attribute, {uncapital(_GUESSERS[name])}",
        advantage.advantage,
        basis_text,
        advantage.low,
        advantage.high,
        advantage.confidence,
        finding.largest,
        largest=1.0,
        on_page=name == evidence.GUESSED,
        wide=partial(evidence.attribute_ends, run, name),
    )


def _attribute_sentence(finding: evidence.AttributeFinding, contents: ReportContents) -> str:
    name = max(
        (evidence.GUESSED, evidence.GUESSED_BY_DISTRIBUTION), key=lambda name: finding.by_name[name].advantage.advantage
    )
    best = finding.by_name[name]
    aside = _attribute_row(name, finding, contents.run).comparison_in_brackets
    return (
        f"Somebody who knew all of a record but its {_quoted(finding)}, and asked the model how well each possible "
        f"value fits, guessed it right for {percent(best.members)} of the records that were trained with and for "
        f"{percent(best.others)} of the others: the difference{aside} is what training with a record gives away of it."
    )


def _quoted(finding: evidence.AttributeFinding) -> str:
    return f"column {finding.attribute}" if finding.attribute.isdecimal() else f"attribute '{finding.attribute}'"


def _attribute_tables(finding: evidence.AttributeFinding, contents: ReportContents) -> list[Table]:
    columns = ("Who guesses", "Right, members", "Right, others", "Advantage")
    guessers = [(name, guesser_text, finding.by_name[name]) for name, guesser_text in _GUESSERS.items()]
    rows: list[tuple[Any, ...]] = [
        (
            guesser_text,
            percent(accuracy.members),
            percent(accuracy.others),
            _attribute_row(name, finding, contents.run).text,
        )
        for name, guesser_text, accuracy in guessers
    ]
    if finding.largest is not None:
        whose = with_standing_in_brackets("Anybody, by the guarantee", standing_of_claim(contents))
        rows.append((whose, None, None, f"at most {number_text(finding.largest, 3)}"))
    title = f"Inference of {_quoted(finding)}, intervals at {percent(contents.plan.confidence)} confidence each"
    return [Table(title, columns, tuple(rows))]


ATTRIBUTES = Section(
    "attributes",
    "Attribute inference",
    evidence.AttributeFinding,
    evidence.measure_attributes,
    keys=("attribute",),
    on_page=True,
    sentence=_attribute_sentence,
    tables=_attribute_tables,
    rows=lambda finding, contents: [
        _attribute_row(name, finding, contents.run) for name in finding.by_name if name != evidence.GUESSED_BLINDLY
    ],
)
