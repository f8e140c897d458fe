"""Finding and report section on the crafted record: its clipped gradient norm, its sensitivity, and its image."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl_audit.federation.crafted_records import CraftedMeasures
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.figure_style import finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section
from fl_audit.words import plural


@dataclass(frozen=True)
class CraftedRecordInfluence:
    """The clipped gradient norm and the local sensitivity of a record that was crafted to have a large effect."""

    initial: CraftedMeasures  # measures at the initial weights
    first: float | None  # local over global sensitivity in round 1, mean over trials; None if not measured
    mean: float | None  # local over global sensitivity, mean over trials and rounds; None if not measured

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `crafted`, for `summary.json`."""
        initial = self.initial
        return {
            "crafted": {
                "label": initial.label,
                "clipped_gradient_norm": initial.length,
                "shortest_clipped_gradient_norm": initial.shortest,
                "cosine_to_others": initial.cosine,
                "initial_sensitivity": initial.sensitivity,
                "weights_looked_at": initial.models,
                "first_round_sensitivity": self.first,
                "mean_sensitivity": self.mean,
            }
        }


def measure_crafted(run: FinishedRun, _: Findings) -> CraftedRecordInfluence | None:
    """Return the gradient norm and the local sensitivity of the run's crafted record; None if the run has none."""
    if run.crafted is None:
        return None
    if not run.has_insider or not run.plan.federation.mechanism.knows_llr:
        return CraftedRecordInfluence(run.crafted, None, None)
    share = run.by_trial("local_sensitivity") / run.plan.global_sensitivity
    return CraftedRecordInfluence(run.crafted, float(share[:, 0].mean()), float(share.mean()))


def _crafted_sentence(influence: CraftedRecordInfluence, _: ReportContents) -> str:
    return (
        "The record in which D and D' differ is in no data set: it was crafted, with the label "
        f"{influence.initial.label}, so that the gradient of its loss is clipped, which no record can exceed, and at "
        "right angles to what all other records add up to (after CANIFE, Maddock et al. 2023). What is claimed holds "
        "for every record that somebody could bring, so for this one too."
    )


def _crafted_rows(influence: CraftedRecordInfluence, contents: ReportContents) -> list[ReportNumber]:
    initial = influence.initial
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
        ReportNumber("Local over global sensitivity, first round", influence.first, over),
        ReportNumber("Local over global sensitivity, all rounds", influence.mean, f"{over}, and over rounds"),
    ]
    return [row for row in rows if row.value is not None]


def _images(influence: CraftedRecordInfluence) -> list[tuple[str, NDArray[np.float32]]]:
    """Return the crafted records as pairs of name and greyscale image; empty if the records are no images."""
    records = [("x, in D", influence.initial.record), ("x', in D'", influence.initial.opposite)]
    named_images = [(name, record) for name, record in records if record is not None]
    if any(len(record.shape) not in (2, 3) for _, record in named_images):
        return []
    return [(name, record.mean(axis=0) if record.ndim == 3 else record) for name, record in named_images]


def _crafted_figure(figure: Figure, influence: CraftedRecordInfluence, _: ReportContents) -> None:
    images = _images(influence)
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
        caption=lambda influence, _: f"The crafted record as a grey image, label {influence.initial.label}.",
        applies=lambda influence, _: bool(_images(influence)),
    ),
)
