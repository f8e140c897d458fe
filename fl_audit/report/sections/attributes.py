"""Attribute inference: what models give away of members beyond what they give away of everybody."""

from typing import Any

from fl_audit.evidence.belief.advantage import MeanAdvantage
from fl_audit.evidence.findings.attributes import (
    GUESSED,
    GUESSED_BLINDLY,
    GUESSED_BY_LAW,
    AttributeNumbers,
    Guesser,
    measure_attributes,
)
from fl_audit.report.finding import PagePlace, Row, RunContents, Section, Table
from fl_audit.report.reading import aside, interval_beside, reading_of
from fl_audit.report.wording import number_text, percent

_NAMES = {
    GUESSED_BLINDLY: "Without a model: the commonest value",
    GUESSED: "By the least loss",
    GUESSED_BY_LAW: "By the law of members' losses",
}


def _interval(found: MeanAdvantage, limit: float | None) -> str:
    return interval_beside(found.advantage, found.low, found.high, limit)


def _best(numbers: AttributeNumbers) -> Guesser:
    return max((numbers.by_name[name] for name in (GUESSED, GUESSED_BY_LAW)), key=lambda one: one.advantage.advantage)


def _sentence(numbers: AttributeNumbers, _: RunContents) -> str:
    best = _best(numbers)
    gain = best.advantage
    note = aside(reading_of(gain.advantage, gain.low, gain.high, numbers.largest))
    return (
        f"Somebody who knew all of a record but its {_quoted(numbers)}, and asked the model how well each possible "
        f"value fits, guessed it right for {percent(best.members)} of the records that were trained with and for "
        f"{percent(best.others)} of the others: the difference{note} is what training with a "
        "record gives away of it."
    )


def _quoted(numbers: AttributeNumbers) -> str:
    return f"column {numbers.attribute}" if numbers.attribute.isdecimal() else f"attribute '{numbers.attribute}'"


def _tables(numbers: AttributeNumbers, contents: RunContents) -> list[Table]:
    columns = ("Who guesses", "Right, members", "Right, others", "Advantage")
    rows: list[tuple[Any, ...]] = [
        (said, percent(found.members), percent(found.others), _interval(found.advantage, numbers.largest))
        for name, said in _NAMES.items()
        for found in (numbers.by_name[name],)
    ]
    if numbers.largest is not None:
        rows.append(("Anybody, by the promise", None, None, f"at most {number_text(numbers.largest, 3)}"))
    title = f"Inference of {_quoted(numbers)}, intervals at {percent(contents.facts.confidence)} confidence each"
    return [Table(title, columns, tuple(rows))]


def _rows(numbers: AttributeNumbers, _: RunContents) -> list[Row]:
    how = (
        "share of members guessed right less that of others, mean over worlds (Yeom et al. 2018, definition 5); worlds "
        "are independent, members and others of one world share its model; the promise allows the total variation "
        "between two trainings, each with one of two records and without the other"
    )
    return [
        Row(f"Advantage on the attribute, {_NAMES[name][0].lower()}{_NAMES[name][1:]}", one.advantage.advantage, how,
            one.advantage.low, one.advantage.high, one.advantage.confidence, numbers.largest, on_page=name == GUESSED)
        for name, one in numbers.by_name.items()
        if name != GUESSED_BLINDLY
    ]  # fmt: skip


ATTRIBUTES = Section(
    name="attributes", title="Attribute inference", numbers=AttributeNumbers, measure=measure_attributes,
    keys=("attribute",), place=PagePlace.PAGE, sentence=_sentence, rows=_rows, tables=_tables,
)  # fmt: skip
