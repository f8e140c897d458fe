"""The report section on the crafted record: its clipped gradient norm, its sensitivity, and its image."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl_audit.audits.identifiability.findings_crafted_record import CraftedRecordInfluence, measure_crafted
from fl_audit.report.figure_style import finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section
from fl_audit.words import plural


def _crafted_sentence(numbers: CraftedRecordInfluence, _: ReportContents) -> str:
    return (
        "The record in which D and D' differ is in no data set: it was crafted, with the label "
        f"{numbers.initial.label}, so that the gradient of its loss is clipped, which no record can exceed, and at "
        "right angles to what all other records add up to (after CANIFE, Maddock et al. 2023). What is claimed holds "
        "for every record that somebody could bring, so for this one too."
    )


def _crafted_rows(numbers: CraftedRecordInfluence, contents: ReportContents) -> list[ReportNumber]:
    initial = numbers.initial
    over = f"mean over trials; {contents.plan.adjacency}"
    where = f"mean at the initial weights of {plural(initial.models, 'trial')}"
    rows = [
        ReportNumber("Label of the crafted record", initial.label, "chosen before the run"),
        ReportNumber(
            "Clipped gradient of x, over the clipping norm", initial.length, f"{where}; 1 where it is clipped"
        ),
        ReportNumber("The same, shortest", initial.shortest, "over those trials"),
        ReportNumber(
            "|Cosine| of the gradient of x and the sum of all others'",
            initial.cosine,
            f"{where}; 0 where training on the others leaves the loss of x as it is, to first order",
        ),
        ReportNumber("Change of the sum, over the global sensitivity", initial.sensitivity, where),
        ReportNumber("Local over global sensitivity, first round", numbers.first, over),
        ReportNumber("Local over global sensitivity, all rounds", numbers.mean, f"{over}, and over rounds"),
    ]
    return [row for row in rows if row.value is not None]


def _images(numbers: CraftedRecordInfluence) -> list[tuple[str, NDArray[np.float32]]]:
    """Return the crafted records as pairs of name and greyscale image; empty if the records are no images."""
    records = [("x, in D", numbers.initial.record), ("x', in D'", numbers.initial.opposite)]
    named_images = [(name, record) for name, record in records if record is not None]
    if any(len(record.shape) not in (2, 3) for _, record in named_images):
        return []
    return [(name, record.mean(axis=0) if record.ndim == 3 else record) for name, record in named_images]


def _crafted_figure(figure: Figure, numbers: CraftedRecordInfluence, _: ReportContents) -> None:
    images = _images(numbers)
    for index, (name, image) in enumerate(images):
        axes = figure.add_subplot(1, len(images), index + 1)
        picture = axes.imshow(image, cmap="gray", interpolation="nearest")
        finish_axes(axes, f"Crafted record {name}", "Column (pixel)", "Row (pixel)")
        axes.grid(False)
        figure.colorbar(picture, ax=axes, label="Value of the feature (no unit)", shrink=0.8)


CRAFTED = Section(
    "crafted",
    "The crafted record",
    CraftedRecordInfluence,
    measure_crafted,
    keys=("crafted",),
    sentence=_crafted_sentence,
    rows=_crafted_rows,
    picture=FindingFigure(
        "The crafted record",
        _crafted_figure,
        caption=lambda numbers, _: f"The crafted record as a grey image, label {numbers.initial.label}.",
        applies=lambda numbers, _: bool(_images(numbers)),
    ),
)
