"""Report sections on the audited pair D and D': estimates from the insider's beliefs, and the crafted record."""

from dataclasses import asdict
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl_audit.array_types import finite
from fl_audit.audits.identifiability.estimates_from_beliefs import ASSUMPTION
from fl_audit.audits.identifiability.findings_estimates_from_beliefs import (  # fmt: skip
    CraftedRecordFinding,
    EstimatesFromBeliefsFinding,
    advantage_of_beliefs,
    epsilon_of_beliefs,
    measure_crafted,
    measure_pair,
)
from fl_audit.plurals import plural
from fl_audit.report.figure_style import finish_axes
from fl_audit.report.finding import FindingFigure, ReportContents, Row, Section, Table
from fl_audit.report.formatting import percent

_BETTING = "betting interval (Waudby-Smith & Ramdas 2024)"


def _rows(numbers: EstimatesFromBeliefsFinding, contents: ReportContents) -> list[Row]:
    guarantee, found, shown = contents.guarantee, numbers.advantage, numbers.calibration
    basis = f"mean over trials of the chance to be right that the belief states; {_BETTING}; {ASSUMPTION}"
    rows = [
        Row("Advantage from beliefs", found.mean, basis, found.low, found.high, found.confidence,
            guarantee.advantage_bound_exact, largest=1.0, wide=partial(advantage_of_beliefs, contents.run)),
        Row("Its standard error", finite(found.standard_error), "spread over trials, over the root of their number"),
    ]  # fmt: skip
    if (epsilon := numbers.epsilon) is not None:
        basis = f"where delta(epsilon) of the pair is {guarantee.delta:g}, the larger of both directions; {_BETTING}"
        rows.append(Row("Epsilon of the pair from beliefs (nats)", finite(epsilon.value), basis, finite(epsilon.low),
                        finite(epsilon.high), epsilon.confidence, guarantee.epsilon,
                        wide=partial(epsilon_of_beliefs, contents.run)))  # fmt: skip
    return [
        *rows,
        Row("Right guesses that the beliefs expect", shown.expected_wins,
            f"sum of the insider's chances; {shown.wins:,} were counted"),
        Row("Counted against expected (p-value)", shown.wins_p_value,
            "exact, two-sided: Poisson-binomial distribution"),
        Row("Calibration of the beliefs (p-value)", shown.p_value,
            "smallest p-value of the groups below, times their number: never too small"),
    ]  # fmt: skip


def _tables(numbers: EstimatesFromBeliefsFinding, _: ReportContents) -> list[Table]:
    bins = tuple(
        (f"{percent(part.lowest)} to {percent(part.highest)}", part.trials, part.members, part.mean_belief, part.share,
         part.low, part.high, part.p_value)
        for part in numbers.calibration.bins
    )  # fmt: skip
    at = f"intervals at {percent(numbers.calibration.confidence)} confidence"
    columns = ("Beliefs in D", "Trials", "D was used in", "Mean belief", "Share", "Lower end", "Upper end", "p-value")
    tables = [Table(f"Of the trials with such a belief in D, the share that used it ({at})", columns, bins)]
    if numbers.curve:
        points = tuple(tuple(asdict(point).values()) for point in numbers.curve)
        names = ("Epsilon (nats)", "Delta from beliefs", "Lower end", "Upper end", "Counted", "Lower end", "Upper end")
        tables.append(Table(f"delta(epsilon) of the audited pair ({at})", names, points))
    return tables


PAIR = Section(
    "pair", "What the beliefs say of the audited pair", EstimatesFromBeliefsFinding, measure_pair, keys=("pair",),
    trusts=True, rows=_rows, tables=_tables,
)  # fmt: skip


def _crafted_sentence(numbers: CraftedRecordFinding, _: ReportContents) -> str:
    return (
        "The record in which D and D' differ is in no data set: it was crafted, with the label "
        f"{numbers.initial.label}, so that the gradient of its loss is clipped, which no record can exceed, and at "
        "right angles to what all other records add up to (after CANIFE, Maddock et al. 2023). What is claimed holds "
        "for every record that somebody could bring, so for this one too."
    )


def _crafted_rows(numbers: CraftedRecordFinding, contents: ReportContents) -> list[Row]:
    initial, over = numbers.initial, f"mean over trials; {contents.facts.relation}"
    where = f"mean at the initial weights of {plural(initial.models, 'trial')}"
    rows = [
        Row("Label of the crafted record", initial.label, "chosen before the run"),
        Row("Clipped gradient of x, over the clipping norm", initial.length, f"{where}; 1 where it is clipped"),
        Row("The same, shortest", initial.shortest, "over those trials"),
        Row("|Cosine| of the gradient of x and the sum of all others'", initial.cosine,
            f"{where}; 0 where training on the others leaves the loss of x as it is, to first order"),
        Row("Change of the sum, over the global sensitivity", initial.sensitivity, where),
        Row("Local over global sensitivity, first round", numbers.first, over),
        Row("Local over global sensitivity, all rounds", numbers.mean, f"{over}, and over rounds"),
    ]  # fmt: skip
    return [row for row in rows if row.value is not None]


def _images(numbers: CraftedRecordFinding) -> list[tuple[str, NDArray[np.float32]]]:
    """Return the crafted records as pairs of name and greyscale image; empty if the records are no images."""
    records = [("x, in D", numbers.initial.record), ("x', in D'", numbers.initial.opposite)]
    named = [(name, record) for name, record in records if record is not None]
    if any(len(record.shape) not in (2, 3) for _, record in named):
        return []
    return [(name, record.mean(axis=0) if record.ndim == 3 else record) for name, record in named]


def _crafted_figure(figure: Figure, numbers: CraftedRecordFinding, _: ReportContents) -> None:
    images = _images(numbers)
    for place, (name, image) in enumerate(images):
        axes = figure.add_subplot(1, len(images), place + 1)
        drawn = axes.imshow(image, cmap="gray", interpolation="nearest")
        finish_axes(axes, f"Crafted record {name}", "Column (pixel)", "Row (pixel)")
        axes.grid(False)
        figure.colorbar(drawn, ax=axes, label="Value of the feature (no unit)", shrink=0.8)


CRAFTED = Section(
    "crafted", "The crafted record", CraftedRecordFinding, measure_crafted, keys=("crafted",),
    sentence=_crafted_sentence, rows=_crafted_rows, picture=FindingFigure("The crafted record", _crafted_figure,
        caption=lambda numbers, _: f"The crafted record as a grey image, label {numbers.initial.label}.",
        applies=lambda numbers, _: bool(_images(numbers))),
)  # fmt: skip
