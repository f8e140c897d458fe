"""Attribute inference: what models give away of members beyond what they give away of everybody."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_audit.evidence.belief.advantage import MeanAdvantage, mean_advantage
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Entry, Section, Table
from fl_audit.report.wording import DASH, number_text, percent

Flags = NDArray[np.bool_]

TRUTH, GUESSED_BLINDLY, GUESSED, GUESSED_BY_LAW = "attribute", "attribute_prior", "attribute_loss", "attribute_law"
"""Columns of the table of targets: the true value, from 0, and who guesses which."""
_NAMES = {
    GUESSED_BLINDLY: "Without a model: the commonest value",
    GUESSED: "By the least loss",
    GUESSED_BY_LAW: "By the law of members' losses",
}
_INDEPENDENT = "worlds are independent; targets of one world share its model"


@dataclass(frozen=True)
class Guesser:
    """What somebody achieved who guessed an attribute of every target.

    Parameters
    ----------
    members, others
        Shares guessed right, of targets that were in and of those that were not, over all worlds.
    advantage
        The first less the second, the mean over worlds.
    """

    members: float
    others: float
    advantage: MeanAdvantage


@dataclass(frozen=True)
class AttributeNumbers:
    """What was found out about an attribute.

    Parameters
    ----------
    attribute
        Name of the column, or its number.
    values
        How many of its values occur.
    by_name
        What everybody achieved, by the column of their guesses.
    largest
        The advantage that the promise allows; None without a promise.
    """

    attribute: str
    values: int
    by_name: dict[str, Guesser]
    largest: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `attribute`."""
        told = {name.removeprefix("attribute_"): asdict(found) for name, found in self.by_name.items()}
        return {
            "attribute": {
                "attribute": self.attribute,
                "values": self.values,
                "largest_advantage": self.largest,
                "by_name": told,
            }
        }


def _measure(run: FinishedRun, _: Findings) -> AttributeNumbers | None:
    table, promise = run.tables.targets, run.facts.guarantee
    if table is None or TRUTH not in table:
        return None
    worlds = table["world"].nunique()
    truth, is_in = table[TRUTH].to_numpy(), table["is_in"].to_numpy(dtype=np.bool_).reshape(worlds, -1)
    found = {}
    for name in _NAMES:
        right = (table[name].to_numpy() == truth).reshape(worlds, -1)
        found[name] = _guesser(right, is_in, run.facts.confidence)
    largest = None if promise is None else promise.advantage_bound_exact
    return AttributeNumbers(str(run.facts.configuration["audit"]["attribute"]), len(np.unique(truth)), found, largest)


def _guesser(right: Flags, is_in: Flags, confidence: float) -> Guesser:
    """Return what guesses (worlds, targets) achieved; a world with everybody in, or nobody, has no advantage."""
    members, others = is_in.sum(axis=1), (~is_in).sum(axis=1)
    both = (members > 0) & (others > 0)
    hits, other_hits = (right & is_in).sum(axis=1), (right & ~is_in).sum(axis=1)
    advantages = hits[both] / members[both] - other_hits[both] / others[both]
    return Guesser(
        members=float(hits.sum() / members.sum()),
        others=float(other_hits.sum() / others.sum()),
        advantage=mean_advantage(advantages, confidence),
    )


def _interval(found: MeanAdvantage) -> str:
    return f"{number_text(found.advantage, 3)} ({number_text(found.low, 3)} to {number_text(found.high, 3)})"


def _best(numbers: AttributeNumbers) -> Guesser:
    return max((numbers.by_name[name] for name in (GUESSED, GUESSED_BY_LAW)), key=lambda one: one.advantage.advantage)


def _sentence(numbers: AttributeNumbers, contents: RunContents) -> str:
    best = _best(numbers)
    return (
        f"Somebody who knew all of a record but its {_quoted(numbers)}, and asked the model how well each possible "
        f"value fits, guessed it right for {percent(best.members)} of the records that were trained with and for "
        f"{percent(best.others)} of the others: the difference is what training with a record gives away of it."
    )


def _quoted(numbers: AttributeNumbers) -> str:
    return f"column {numbers.attribute}" if numbers.attribute.isdecimal() else f"attribute '{numbers.attribute}'"


def _tables(numbers: AttributeNumbers, contents: RunContents) -> list[Table]:
    columns = ("Who guesses", "Right, members", "Right, others", "Advantage")
    rows: list[tuple[Any, ...]] = [
        (said, percent(found.members), percent(found.others), _interval(found.advantage))
        for name, said in _NAMES.items()
        for found in (numbers.by_name[name],)
    ]
    if numbers.largest is not None:
        rows.append(("Anybody, by the promise", None, None, f"at most {number_text(numbers.largest, 3)}"))
    at = percent(contents.facts.confidence)
    title = f"Inference of {_quoted(numbers)}, intervals at {at} confidence each"
    return [Table(title, columns, tuple(rows))]


def _entries(numbers: AttributeNumbers, contents: RunContents) -> list[Entry]:
    found = [
        Entry(f"Advantage, {_NAMES[name]}", one.advantage.advantage, DASH,
              f"{number_text(one.advantage.low, 3)} to {number_text(one.advantage.high, 3)} at about "
              f"{percent(one.advantage.confidence)}",
              "share of members guessed right less that of others, mean over worlds (Yeom et al. 2018, definition 5)",
              _INDEPENDENT)
        for name, one in numbers.by_name.items()
        if name != GUESSED_BLINDLY
    ]  # fmt: skip
    if numbers.largest is not None:
        found.append(
            Entry("Advantage on an attribute that the promise allows", numbers.largest, "exact profile", "holds always",
                  "total variation: a guess that is right or wrong tells two worlds apart no better than any test",
                  DASH)
        )  # fmt: skip
    return found


def _console(numbers: AttributeNumbers, contents: RunContents) -> list[tuple[str, str]]:
    best = _best(numbers)
    said = f"right for {percent(best.members)} of members, {percent(best.others)} of others"
    return [("Attribute", f"{_quoted(numbers)}: {said}; advantage {_interval(best.advantage)}")]


ATTRIBUTES = Section(
    numbers=AttributeNumbers,
    keys=("attribute",),
    measure=_measure,
    heading="Attribute inference",
    entries=_entries,
    tables=_tables,
    sentence=_sentence,
    console=_console,
)
