"""The crafted record: how much of what a record may change it changes, and what it has in common with the others."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl_audit.game.crafted import CraftedMeasures
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Section
from fl_audit.report.sections.insider import POINT
from fl_audit.report.style import finish_axes, report_figure
from fl_audit.report.wording import DASH, number_text, plural

_SOURCE = "gradient descent on the features; the design of CANIFE (Maddock et al. 2023)"


@dataclass(frozen=True)
class CraftedNumbers:
    """What the crafted record came to.

    Parameters
    ----------
    initial
        At the initial weights.
    first, mean
        Local sensitivity over the global one, mean over worlds: in the first round, and over all rounds. None where no
        insider measured it.
    """

    initial: CraftedMeasures
    first: float | None
    mean: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `crafted`."""
        return {
            "crafted": {
                "label": self.initial.label,
                "clipped_gradient_norm": self.initial.length,
                "shortest_clipped_gradient_norm": self.initial.shortest,
                "cosine_to_others": self.initial.cosine,
                "initial_sensitivity": self.initial.sensitivity,
                "weights_looked_at": self.initial.models,
                "first_round_sensitivity": self.first,
                "mean_sensitivity": self.mean,
            }
        }


def _measure(run: FinishedRun, _: Findings) -> CraftedNumbers | None:
    facts = run.facts
    if facts.crafted is None:
        return None
    if not run.has_insider or not facts.game.law.weighs_exactly:
        return CraftedNumbers(facts.crafted, None, None)
    share = run.by_world("local_sensitivity") / facts.global_sensitivity
    return CraftedNumbers(facts.crafted, float(share[:, 0].mean()), float(share.mean()))


def _console(numbers: CraftedNumbers, _: RunContents) -> list[tuple[str, str]]:
    initial = numbers.initial
    text = (
        f"clipped gradient {number_text(initial.length, 3)} of the clipping norm, |cosine| to the others' sum "
        f"{number_text(initial.cosine, 2)}"
    )
    later = "" if numbers.mean is None else f"; {number_text(numbers.mean, 3)} of the sensitivity over all rounds"
    return [("Crafted record", text + later)]


def _entries(numbers: CraftedNumbers, contents: RunContents) -> list[Entry]:
    initial = numbers.initial
    where = f"at the initial weights of {plural(initial.models, 'world')}"
    entries = [
        Entry("Clipped gradient of x, over the clipping norm", initial.length, DASH, POINT, f"mean {where}", _SOURCE),
        Entry("The same, shortest", initial.shortest, DASH, POINT, where, "1 where the gradient is clipped"),
        Entry("|Cosine| of the gradient of x and the sum of all others'", initial.cosine, DASH, POINT, f"mean {where}",
              "0 where training on the others leaves the loss of x as it is, to first order"),
        Entry("Change of the sum, over the global sensitivity", initial.sensitivity, DASH, POINT, f"mean {where}"),
    ]  # fmt: skip
    if numbers.first is not None and numbers.mean is not None:
        over = f"mean over worlds; {contents.facts.relation}"
        entries += [
            Entry("Local over global sensitivity, first round", numbers.first, DASH, POINT, over),
            Entry("Local over global sensitivity, all rounds", numbers.mean, DASH, POINT, f"{over}, and over rounds"),
        ]
    return entries


def _images(numbers: CraftedNumbers) -> list[tuple[str, NDArray[np.float32]]]:
    """Return the crafted records with their names, as images of one channel; none where they are no images."""
    records = [("x, in D", numbers.initial.record), ("x', in D'", numbers.initial.opposite)]
    named = [(name, record) for name, record in records if record is not None]
    if any(len(record.shape) not in (2, 3) for _, record in named):
        return []
    return [(name, record.mean(axis=0) if record.ndim == 3 else record) for name, record in named]


def crafted_figure(numbers: CraftedNumbers, _: RunContents) -> Figure:
    """Draw the crafted records as grey images."""
    figure, images = report_figure(), _images(numbers)
    for place, (name, image) in enumerate(images):
        axes = figure.add_subplot(1, len(images), place + 1)
        drawn = axes.imshow(image, cmap="gray", interpolation="nearest")
        finish_axes(axes, f"Crafted record {name}", "Column (pixel)", "Row (pixel)")
        axes.grid(False)
        figure.colorbar(drawn, ax=axes, label="Value of the feature (no unit)", shrink=0.8)
    return figure


def _caption(numbers: CraftedNumbers, _: RunContents) -> Caption:
    initial = numbers.initial
    text = (
        f"The record in which D and D' differ is in no data set: it was crafted, with the label {initial.label}, so "
        "that the gradient of its loss is clipped, which no record can exceed, and at right angles to what all other "
        f"records add up to. At the initial weights its clipped gradient is {number_text(initial.length, 3)} of the "
        f"clipping norm long, and the mean |cosine| to the others' sum is {number_text(initial.cosine, 2)}. What is "
        "promised holds for every record that somebody could bring, so for this one too."
    )
    return Caption("The crafted record", text, f"A grey image of the crafted record, label {initial.label}.")


CRAFTED = Section(
    numbers=CraftedNumbers,
    keys=("crafted",),
    measure=_measure,
    heading="The crafted record",
    entries=_entries,
    pictures=(Picture("crafted", crafted_figure, _caption, lambda numbers, _: bool(_images(numbers))),),
    console=_console,
)
