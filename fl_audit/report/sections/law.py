"""The release law that was played: its facts, the configuration, and what the differing record could change."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.mechanisms.participation import Everybody, FixedCohort, PoissonSampling
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.curves import draw_median, median_name, quantiles_by_round
from fl_audit.report.finished_run import NORM_COLUMN, FinishedRun, RunFacts
from fl_audit.report.law_words import (
    clipping_text,
    contribution_text,
    known_noise_text,
    noise_source_text,
    participation_text,
    randomiser_text,
    standpoint_text,
    units_text,
)
from fl_audit.report.section import Caption, Picture, Place, Section, Table
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    PALE,
    add_legend,
    draw_band,
    finish_axes,
    report_figure,
    whole_number_axis,
)
from fl_audit.report.theory import Floats
from fl_audit.report.wording import capital, number_text, percent, plural, relation_text

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
    if facts.has_promise:
        return AUDIT_DEVICE
    if facts.game.randomiser is not None:
        return "Private as far as the records are randomised: no clipping, no noise"
    return "Not a private release: no clipping, no noise, no promise"


def scaling_text(facts: RunFacts) -> str:
    """Return what the noise is scaled to, in a few words."""
    if not facts.game.law.weighs_exactly:
        return "clipping norm, in every step of the clients' training"
    return f"{facts.scaling} sensitivity" if facts.has_promise else "no clipping, no noise"


def _measure(_: FinishedRun, __: Findings) -> LawNumbers:
    return LawNumbers()


def _tables(_: LawNumbers, contents: RunContents) -> list[Table]:
    facts = contents.facts
    rows = (*_promise_rows(facts), *_noise_rows(facts), *_game_rows(facts))
    settings = tuple(_flat(facts.configuration))
    return [
        Table("The release law", ("Fact", "Value"), rows, Place.CONFIGURATION, "short pairs"),
        Table("Resolved configuration", ("Setting", "Value"), settings, Place.CONFIGURATION, "configuration"),
    ]


def _promise_rows(facts: RunFacts) -> list[tuple[str, Any]]:
    """Return whom the law protects, and what a round is made of."""
    randomiser = facts.game.randomiser
    return [
        *([] if randomiser is None else [("What every owner did first", randomiser_text(randomiser))]),
        ("Neighbours", f"{facts.relation}: {relation_text(facts.relation)}"),
        (f"{capital(facts.words.many)} that are protected", units_text(facts)),
        ("What a round adds up", contribution_text(facts)),
        ("Who takes part", participation_text(facts)),
        (f"Sampling rate of {facts.words.many}", facts.sampling_rate),
        ("Clipping", clipping_text(facts)),
    ]


def _noise_rows(facts: RunFacts) -> list[tuple[str, Any]]:
    """Return which noise there is, and how much of it the insider faces."""
    rows: list[tuple[str, Any]] = [
        ("Noise", noise_source_text(facts)),
        ("Noise scaled to", scaling_text(facts)),
        ("Private release", "yes" if facts.is_private_release else "no"),
        ("Global sensitivity" + " in the first round" * facts.game.law.is_adaptive, facts.global_sensitivity),
    ]
    if facts.has_promise:
        rows.append(("Noise multiplier z of the law", facts.game.law.noise_multiplier))
    if known := known_noise_text(facts):
        rows.append(("Noise that the insider knows", known))
        rows.append(("Noise multiplier that the insider faces", facts.faced_multiplier))
    return rows


def _game_rows(facts: RunFacts) -> list[tuple[str, Any]]:
    """Return where the insider sits, and what was played on."""
    return [
        ("Where the insider sits", standpoint_text(facts) if facts.game.with_insider else "no insider was asked"),
        ("Prior belief in D", percent(facts.prior)),
        ("Optimizer", facts.optimizer),
        ("Released to clients", str(facts.game.view)),
        ("Partition", str(facts.game.partition)),
        ("Training records used", facts.game.records),
        ("Test records used", facts.game.test_records),
        ("Population records used", facts.game.population_records),
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
    text = (
        f"How far the {facts.words.sum} moves between the two data sets, at the weights of that round. "
        f"{_limit_sentence(facts)}{_scaling_sentence(facts)}{_turns_sentence(facts)}"
    )
    alternative = (
        f"Curve of the local sensitivity over {plural(facts.game.rounds, 'round')}, with lines at the clipping norm "
        "and the largest difference that a round can make."
    )
    return Caption("Local sensitivity", text, alternative)


def _limit_sentence(facts: RunFacts) -> str:
    """Return what the curve cannot exceed."""
    highest, clip = number_text(facts.global_sensitivity, 3), number_text(facts.clipping_norm, 3)
    if facts.game.law.is_adaptive:
        return (
            f"It cannot exceed the global sensitivity ({facts.relation}), which follows the clipping norm of its world "
            "from round to round. "
        )
    if facts.largest_difference > facts.global_sensitivity * (1 + 1e-9):
        return (
            "To weigh noise that is correlated over rounds, the insider adds earlier rounds to each round, so that the "
            "noise of what it looks at is independent again: the curve is the difference in that. One contribution "
            f"moves a round by at most {highest} ({facts.relation}, clipping norm C = {clip}), all of them together by "
            f"at most {number_text(facts.largest_difference, 3)}. "
        )
    return f"It cannot exceed the global sensitivity, {highest} ({facts.relation}, clipping norm C = {clip}). "


def _turns_sentence(facts: RunFacts) -> str:
    """Say why the curve is 0 in some rounds, or means only a part of the worlds."""
    match facts.game.law.participation:
        case FixedCohort():
            return f" In rounds in which {facts.words.differing} is not in the cohort it changes nothing."
        case PoissonSampling():
            return f" It is what {facts.words.differing} changes in a round in which it takes part."
        case Everybody():
            return ""
        case _:
            assert_never(facts.game.law.participation)


def _scaling_sentence(facts: RunFacts) -> str:
    match facts.scaling:
        case NoiseScaling.LOCAL:
            return "The noise of each round was scaled to this curve (local scaling)."
        case NoiseScaling.GLOBAL:
            return (
                "The noise was scaled to the largest contribution that the clipping allows; the gap below that line is "
                "noise spent on the worst case."
            )
        case _:
            assert_never(facts.scaling)


def local_sensitivity_figure(_: LawNumbers, contents: RunContents) -> Figure:
    """Draw the local sensitivities over the rounds against the clipping norm and the global sensitivity."""
    figure, words = report_figure(), contents.facts.words
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
        f"What {words.differing} can change",
        "Round (number)",
        f"Local sensitivity of the\n{words.sum}\n(L2 norm, {words.measure})",
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
    facts = contents.facts
    if NORM_COLUMN in contents.rounds:
        _draw_moving_limit(axes, contents)
        return
    clip, highest = facts.clipping_norm, facts.largest_difference
    if highest == clip:
        label = f"clipping norm C = global sensitivity = {number_text(clip, 3)}"
        axes.axhline(clip, color=INK, linestyle="-.", linewidth=1.8, label=label)
        return
    axes.axhline(clip, color=INK, linestyle=":", linewidth=1.8, label=f"clipping norm C = {number_text(clip, 3)}")
    name = "global sensitivity" if highest == facts.global_sensitivity else "largest difference of a round"
    label = f"{name} = {number_text(highest, 3)}"
    axes.axhline(highest, color=INK, linestyle="-.", linewidth=1.8, label=label)


def _draw_moving_limit(axes: Axes, contents: RunContents) -> None:
    """Draw the global sensitivity where it follows an adaptive clipping norm: its median over the worlds."""
    rounds, (norms,) = quantiles_by_round(contents.rounds, NORM_COLUMN, (0.5,))
    highest = contents.facts.relation.sensitivity_of_sum(1.0) * norms
    label = "global sensitivity, which follows the clipping norm (median)"
    axes.plot(rounds, highest, color=INK, linestyle="-.", linewidth=1.8, label=label)


LAW = Section(
    numbers=LawNumbers,
    keys=(),
    measure=_measure,
    tables=_tables,
    pictures=(
        Picture("local-sensitivity", local_sensitivity_figure, _caption, lambda _, contents: contents.run.has_insider),
    ),
)
