"""The released model: how well it does its job, beside the most frequent class and training without privacy."""

import math

from matplotlib.figure import Figure

from fl_audit.evidence.findings.released_model import ModelNumbers, measure_model
from fl_audit.report.finding import Picture, Row, RunContents, Section
from fl_audit.report.style import INK, MUTED, draw_spread, finish_axes
from fl_audit.report.wording import percent, plural

_UNUSED = "test records were not used in training"


def beside_text(numbers: ModelNumbers) -> str:
    """Return the accuracies to hold that of this run against, in words to follow it; nothing where none is known."""
    known = []
    if numbers.unprotected is not None:
        known.append(f"{percent(numbers.unprotected.final)} without privacy")
    if numbers.commonest is not None:
        known.append(f"{percent(round(numbers.commonest, 3))} by always naming the most frequent class")
    return f" ({', '.join(known)})" if known else ""


def _sentence(numbers: ModelNumbers, contents: RunContents) -> str:
    kept = ""
    if (chosen := contents.run.chosen_releases) is not None:
        kept = f"Each training kept the model after which errors on new cases fell no more: {_numbers_of(chosen)}. "
    return f"{kept}The released model is right for {percent(numbers.test_accuracy)} of new cases{beside_text(numbers)}."


def _numbers_of(chosen: tuple[int, int]) -> str:
    first, last = chosen
    return f"release {first}" if first == last else f"a release from {first} to {last}"


def _rows(numbers: ModelNumbers, _: RunContents) -> list[Row]:
    final = f"of the final release, mean over worlds; {_UNUSED}"
    rows = [
        Row("Test accuracy", numbers.test_accuracy, f"share of right predictions {final}", is_share=True, on_page=True)
    ]
    if numbers.commonest is not None:
        basis = "share of the most frequent class among the test records"
        rows.append(Row("Accuracy of naming one class", numbers.commonest, basis, is_share=True, on_page=True))
    if (other := numbers.unprotected) is not None:
        basis = f"the same of {other.run}, without clipping and noise, {plural(other.worlds, 'world')}; {_UNUSED}"
        rows.append(Row("Test accuracy without privacy", other.final, basis, is_share=True, on_page=True))
    if math.isfinite(numbers.test_auroc):
        rows.append(Row("Test AUROC (probability)", numbers.test_auroc, f"area under the ROC {final}"))
    return rows


def _caption(numbers: ModelNumbers, contents: RunContents) -> str:
    shown = "The one world" if contents.run.worlds == 1 else "Median, middle half and range of the worlds"
    text = f"{shown}; {percent(numbers.test_accuracy)} at the final release{beside_text(numbers)}."
    if (chosen := contents.run.chosen_releases) is not None:
        rounds = plural(contents.facts.game.rounds, "round")
        text += (
            f" Early stopping chose {_numbers_of(chosen)}, by public records alone; the promise counts all {rounds}."
        )
    return text


def _accuracy_figure(figure: Figure, numbers: ModelNumbers, contents: RunContents) -> None:
    releases = contents.releases
    axes = figure.add_subplot()
    draw_spread(axes, releases, "test_accuracy", 100.0)
    if (other := numbers.unprotected) is not None:
        shares = [100.0 * share for share in other.accuracy]
        axes.plot(other.rounds, shares, color=INK, linestyle="--", linewidth=1.5, label="without privacy (mean)")
    if numbers.commonest is not None:
        axes.axhline(100.0 * numbers.commonest, color=MUTED, linestyle=":", linewidth=1.8, label="most frequent class")
    axes.set_ylim(0, 100)  # the same in every report
    finish_axes(axes, "Accuracy of each released model", "Release (number; 0 = initial model)", "Test accuracy (%)")


RELEASED_MODEL = Section(
    name="accuracy", title="The released model", numbers=ModelNumbers, measure=measure_model, keys=("utility",),
    on_page=True, sentence=_sentence, rows=_rows, picture=Picture("Accuracy", _accuracy_figure, _caption),
)  # fmt: skip
