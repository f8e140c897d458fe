"""Attribute inference: what models give away of members beyond what they give away of everybody."""

from typing import Any

from fl_audit.evidence.findings.attacks import (
    GUESSED,
    GUESSED_BLINDLY,
    GUESSED_BY_LAW,
    AttributeNumbers,
    measure_attributes,
)
from fl_audit.report.finding import Row, RunContents, Section, Table
from fl_audit.report.wording import number_text, percent, uncapital

_NAMES = {
    GUESSED_BLINDLY: "Without a model: the commonest value",
    GUESSED: "By the least loss",
    GUESSED_BY_LAW: "By the law of members' losses",
}


def _row(name: str, numbers: AttributeNumbers) -> Row:
    found = numbers.by_name[name].advantage
    how = (
        "share of members guessed right less that of others, mean over worlds (Yeom et al. 2018, definition 5); worlds "
        "are independent, members and others of one world share its model; the promise allows the total variation "
        "between two trainings, each with one of two records and without the other"
    )
    return Row(f"Advantage on the attribute, {uncapital(_NAMES[name])}", found.advantage, how, found.low, found.high,
               found.confidence, numbers.largest, on_page=name == GUESSED)  # fmt: skip


def _rows(numbers: AttributeNumbers, _: RunContents) -> list[Row]:
    return [_row(name, numbers) for name in numbers.by_name if name != GUESSED_BLINDLY]


def _sentence(numbers: AttributeNumbers, _: RunContents) -> str:
    name = max((GUESSED, GUESSED_BY_LAW), key=lambda name: numbers.by_name[name].advantage.advantage)
    best = numbers.by_name[name]
    return (
        f"Somebody who knew all of a record but its {_quoted(numbers)}, and asked the model how well each possible "
        f"value fits, guessed it right for {percent(best.members)} of the records that were trained with and for "
        f"{percent(best.others)} of the others: the difference{_row(name, numbers).aside} is what training with a "
        "record gives away of it."
    )


def _quoted(numbers: AttributeNumbers) -> str:
    return f"column {numbers.attribute}" if numbers.attribute.isdecimal() else f"attribute '{numbers.attribute}'"


def _tables(numbers: AttributeNumbers, contents: RunContents) -> list[Table]:
    columns = ("Who guesses", "Right, members", "Right, others", "Advantage")
    rows: list[tuple[Any, ...]] = [
        (said, percent(found.members), percent(found.others), _row(name, numbers).text)
        for name, said in _NAMES.items()
        for found in (numbers.by_name[name],)
    ]
    if numbers.largest is not None:
        rows.append(("Anybody, by the promise", None, None, f"at most {number_text(numbers.largest, 3)}"))
    title = f"Inference of {_quoted(numbers)}, intervals at {percent(contents.facts.confidence)} confidence each"
    return [Table(title, columns, tuple(rows))]


ATTRIBUTES = Section(
    name="attributes", title="Attribute inference", numbers=AttributeNumbers, measure=measure_attributes,
    keys=("attribute",), on_page=True, sentence=_sentence, rows=_rows, tables=_tables,
)  # fmt: skip
