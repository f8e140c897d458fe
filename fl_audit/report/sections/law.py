"""The release law that was played: its facts, the configuration, and what the differing record could change."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.curves import draw_median, median_name, quantiles_by_round
from fl_audit.report.finished_run import FinishedRun, RunFacts
from fl_audit.report.section import Caption, Picture, Place, Section, Table
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    PALE,
    add_legend,
    draw_band,
    finish_axes,
    new_figure,
    whole_number_axis,
)
from fl_audit.report.theory import Floats
from fl_audit.report.wording import number_text, percent, plural, relation_text

SMALL_SENSITIVITY = 0.05
"""Where every median lies below this share of the clipping norm, the axis of the sensitivities is logarithmic."""

AUDIT_DEVICE = "Not a private release: noise follows the data (audit device)"
SIMULATION_NOTICE = (
    "All noise in this run comes from a seed, so that the run can be repeated. Whoever knows the seed can remove the "
    "noise: this is a simulation and no secure release."
)


@dataclass(frozen=True)
class LawNumbers:
    """Nothing measured: what the law is stands in the facts of the run, and in `guarantee` of the summary."""

    def to_json(self) -> dict[str, Any]:
        """Return no entry."""
        return {}


def not_private_label(facts: RunFacts) -> str:
    """Return why the models are no private release, in a line; empty where they are one."""
    if facts.is_private_release:
        return ""
    return AUDIT_DEVICE if facts.has_promise else "Not a private release: no clipping, no noise, no promise"


def scaling_text(facts: RunFacts) -> str:
    """Return what the noise is scaled to, in a few words."""
    if not facts.game.law.weighs_exactly:
        return "clipping norm, in every step of a client's own training"
    return f"{facts.scaling} sensitivity" if facts.has_promise else "no clipping, no noise"


def _measure(_: FinishedRun, __: Findings) -> LawNumbers:
    return LawNumbers()


def _tables(_: LawNumbers, contents: RunContents) -> list[Table]:
    facts = contents.facts
    rows = (
        ("Neighbours", f"{facts.relation}: {relation_text(facts.relation)}"),
        ("Noise scaled to", scaling_text(facts)),
        ("Private release", "yes" if facts.is_private_release else "no"),
        ("Clipping norm C", facts.clipping_norm if facts.has_promise else "no clipping"),
        ("Global sensitivity", facts.global_sensitivity),
        ("Sampling rate of records", facts.sampling_rate),
        ("Prior belief in D", percent(facts.prior)),
        ("Optimizer", facts.optimizer),
        ("Released to clients", str(facts.game.view)),
        ("Partition", str(facts.game.partition)),
        ("Training records used", facts.game.records),
        ("Test records used", facts.game.test_records),
        ("Population records used", facts.game.population_records),
    )
    settings = tuple(_flat(facts.configuration))
    return [
        Table("The release law", ("Fact", "Value"), rows, Place.CONFIGURATION, "short pairs"),
        Table("Resolved configuration", ("Setting", "Value"), settings, Place.CONFIGURATION, "configuration"),
    ]


def _flat(section: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return all settings as dotted name and JSON text."""
    settings: list[tuple[str, str]] = []
    for key, value in section.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            settings.extend(_flat(value, f"{name}."))
        else:
            settings.append((name, json.dumps(value, ensure_ascii=False, default=str)))
    return settings


def _caption(_: LawNumbers, contents: RunContents) -> Caption:
    facts = contents.facts
    highest, clip = number_text(facts.global_sensitivity), number_text(facts.clipping_norm)
    text = (
        "How far the sum of clipped gradients moves between the two data sets, at the weights of that round. "
        f"It cannot exceed the global sensitivity, {highest} ({facts.relation}, clipping norm C = {clip}). "
        f"{_scaling_sentence(facts)}"
    )
    alternative = (
        f"Curve of the local sensitivity over {plural(facts.game.rounds, 'round')}, with lines at the clipping norm "
        f"{clip} and the global sensitivity {highest}."
    )
    return Caption("Local sensitivity", text, alternative)


def _scaling_sentence(facts: RunFacts) -> str:
    match facts.scaling:
        case NoiseScaling.LOCAL:
            return "The noise of each round was scaled to this curve (local scaling)."
        case NoiseScaling.GLOBAL:
            return (
                "The noise was scaled to the global sensitivity; the gap below that line is noise spent on the worst "
                "case."
            )


def local_sensitivity_figure(_: LawNumbers, contents: RunContents) -> Figure:
    """Draw the local sensitivities over the rounds against the clipping norm and the global sensitivity."""
    figure = new_figure()
    axes = figure.add_subplot()
    rounds, quantiles = quantiles_by_round(contents.rounds, "local_sensitivity", (0, 0.25, 0.5, 0.75, 1))
    if contents.run.worlds > 1:
        _draw_spread(axes, rounds, quantiles)
    draw_median(axes, rounds, quantiles[2], median_name(contents.run.worlds))
    _draw_sensitivity_limits(axes, contents)
    if quantiles[2].max() < SMALL_SENSITIVITY * contents.facts.clipping_norm:
        axes.set_yscale("log", nonpositive="clip")
    else:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    whole_number_axis(axes, int(rounds[0]), int(rounds[-1]))
    finish_axes(
        axes,
        "What the differing record can change",
        "Round (number)",
        "Local sensitivity of the gradient sum\n(L2 norm, gradient units)",
    )
    add_legend(axes, columns=2)
    return figure


def _draw_spread(axes: Axes, rounds: Floats, quantiles: list[Floats]) -> None:
    """Draw the whole range of the worlds and, darker, their middle half."""
    draw_band(
        axes, rounds, quantiles[0], quantiles[4], facecolor=PALE, edgecolor=MUTED, linewidth=0.6,
        label="smallest to largest world",
    )  # fmt: skip
    style = BIT_STYLES[1]
    draw_band(
        axes, rounds, quantiles[1], quantiles[3], facecolor=style.fill, edgecolor=style.colour, linewidth=0.6,
        hatch="////", alpha=0.7, label="middle half of the worlds",
    )  # fmt: skip


def _draw_sensitivity_limits(axes: Axes, contents: RunContents) -> None:
    law = contents.facts
    clip = number_text(law.clipping_norm)
    if law.global_sensitivity == law.clipping_norm:
        label = f"clipping norm C = global sensitivity = {clip}"
        axes.axhline(law.clipping_norm, color=INK, linestyle="-.", linewidth=1.8, label=label)
        return
    axes.axhline(law.clipping_norm, color=INK, linestyle=":", linewidth=1.8, label=f"clipping norm C = {clip}")
    label = f"global sensitivity = {number_text(law.global_sensitivity)}"
    axes.axhline(law.global_sensitivity, color=INK, linestyle="-.", linewidth=1.8, label=label)


LAW = Section(
    numbers=LawNumbers,
    keys=(),
    measure=_measure,
    tables=_tables,
    pictures=(
        Picture("local-sensitivity", local_sensitivity_figure, _caption, lambda _, contents: contents.run.has_insider),
    ),
)
