"""Report sections on the mechanism of a run and on the local sensitivity of each round."""

import json
from collections.abc import Mapping
from typing import Any, assert_never

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.audits.common.sections_guarantee import GuaranteeFinding
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.run_tables import NORM_COLUMN, quantiles_by_round
from fl_audit.privacy.accounting_enums import NoiseDistribution, SensitivityKind
from fl_audit.report import mechanism_messages
from fl_audit.report.figure_style import INK, LIMIT, draw_spread, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, Section, Table, TableKind
from fl_audit.report.unit_words import unit_words
from fl_audit.words import capital, number_text, percent, plural

SMALL_SENSITIVITY = 0.05
"""If all medians are below this share of the clipping norm, the plot of sensitivities has a logarithmic axis."""

_LONGEST, _END = 400, 180  # characters of a setting in a report, and of each end of a longer one


def mechanism_tables(plan: RunPlan) -> list[Table]:
    """Return two report tables: the mechanism of a run, and the run's configuration without the seed."""
    local_randomizer = plan.federation.local_randomizer
    words = unit_words(plan.adjacency)
    federation = plan.federation
    played = (
        *(
            []
            if local_randomizer is None
            else [("What every owner did first", mechanism_messages.randomizer_text(local_randomizer))]
        ),
        ("Neighbours", f"{plan.adjacency}: training {words.there} or {words.not_there}"),
        (f"{capital(words.many)} that are protected", plural(plan.units, words.one)),
        ("What a round adds up", mechanism_messages.contribution_text(plan)),
        ("Who takes part", mechanism_messages.participation_text(plan)),
        (f"Sampling rate of {words.many}", plan.federation.mechanism.sampling_rate),
        ("Clipping", mechanism_messages.clipping_text(plan)),
        *_noise_rows(plan),
        (
            "Where the insider sits",
            mechanism_messages.threat_model_text(plan) if federation.with_insider else "no insider was asked",
        ),
        ("Prior belief in D", percent(plan.prior)),
        _server_step_row(plan),
        ("Seen of a round by an insider", mechanism_messages.seen_text(federation.view)),
        ("Partition", str(federation.partition)),
        ("Training records used", federation.records),
        ("Test records used", federation.test_records),
        ("Population records used", federation.population_records),
    )
    return [
        Table("The mechanism", ("Fact", "Value"), played, TableKind.PAIRS),
        Table(
            "Resolved configuration",
            ("Setting", "Value"),
            tuple(_flat(plan.config.as_public_dict())),
            TableKind.CONFIGURATION,
        ),
    ]


def _server_step_row(plan: RunPlan) -> tuple[str, str]:
    """Return what makes the next model: an optimizer or a Flower strategy."""
    if plan.federation.aggregation is None:
        return "Optimizer", str(plan.federation.mechanism.optimizer.kind)
    sees = "models of the clients" if plan.federation.aggregates_clients else "released mean alone"
    return "Aggregation", f"Flower strategy {plan.federation.aggregation}, which gets the {sees}"


def _noise_rows(plan: RunPlan) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [
        ("Noise", mechanism_messages.noise_source_text(plan)),
        ("Noise scaled to", mechanism_messages.scaling_text(plan)),
        ("Private release, if its noise were secret", "yes" if plan.federation.mechanism.is_private_release else "no"),
        ("Global sensitivity" + " in the first round" * plan.federation.mechanism.is_adaptive, plan.global_sensitivity),
    ]
    if plan.has_guarantee:
        noise = plan.federation.mechanism.noise
        is_gaussian = noise.distribution is NoiseDistribution.GAUSSIAN
        meaning = "of the distribution" if is_gaussian else f"(noise {noise.scale_words} over the sensitivity)"
        rows.append((f"Noise multiplier z {meaning}", plan.federation.mechanism.noise_multiplier))
    if known_noise := mechanism_messages.known_noise_text(plan):
        rows.append(("Noise that the insider knows", known_noise))
        rows.append(("Noise multiplier that the insider faces", plan.effective_noise_multiplier))
    return rows


def _flat(section: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return the settings of a nested configuration as pairs of a dotted key, such as "audit.kind", and a JSON text.

    The middle of a text that is longer than a report shows, such as a long path, is left out.
    """
    settings = list[tuple[str, str]]()
    for key, value in section.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            settings.extend(_flat(value, f"{name}."))
        else:
            text = json.dumps(value, ensure_ascii=False, default=str)
            settings.append((name, text if len(text) <= _LONGEST else f"{text[:_END]} ... {text[-_END:]}"))
    return settings


def _sentence(_: GuaranteeFinding, contents: ReportContents) -> str:
    """Return sentences that explain the figure of local sensitivities; empty without an insider."""
    plan = contents.plan
    words = contents.words
    if not contents.run.has_insider:
        return ""
    sentences = []
    if plan.largest_difference > plan.global_sensitivity * (1 + 1e-9):
        sentences.append(
            "To weigh noise that is correlated over rounds, the insider adds earlier rounds to each round, so that the "
            "noise of what it looks at is independent again: the curve is the difference in that. One contribution "
            f"moves a round by at most {number_text(plan.global_sensitivity, 3)}, all of them together by at most "
            f"{number_text(plan.largest_difference, 3)}."
        )
    sentences.append(plan.federation.mechanism.participation.curve_words(words.differing))
    return " ".join(filter(None, sentences))


def _caption(_: GuaranteeFinding, contents: ReportContents) -> str:
    plan = contents.plan
    match plan.federation.mechanism.scaling:
        case SensitivityKind.LOCAL:
            scaled = "The noise of each round was scaled to this curve."
        case SensitivityKind.GLOBAL:
            scaled = "The noise was scaled to the limit; the gap below it is noise spent on the worst case."
        case _:
            assert_never(plan.federation.mechanism.scaling)
    return f"How far the {contents.words.sum} moves between the two data sets, at the weights of that round. {scaled}"


def _local_sensitivity_figure(figure: Figure, _: GuaranteeFinding, contents: ReportContents) -> None:
    words = contents.words
    rounds = contents.rounds
    axes = figure.add_subplot()
    median = draw_spread(axes, rounds, "local_sensitivity")
    _draw_limits(axes, contents)
    if median.max() < SMALL_SENSITIVITY * contents.plan.federation.mechanism.clipping_norm:
        axes.set_yscale("log", nonpositive="clip")
    else:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    norm = contents.plan.federation.mechanism.clipping.measured_in
    finish_axes(
        axes,
        f"What {words.differing} can change",
        "Round (number)",
        f"Local sensitivity of the\n{words.sum}\n({norm} norm, {words.measure})",
    )


def _draw_limits(axes: Axes, contents: ReportContents) -> None:
    plan = contents.plan
    table = contents.rounds
    if NORM_COLUMN in table:
        rounds, (norms,) = quantiles_by_round(table, NORM_COLUMN, (0.5,))
        label = "global sensitivity, which follows the clipping norm (median)"
        axes.plot(rounds, plan.adjacency.sensitivity_of_sum(1.0) * norms, label=label, **LIMIT)
        return
    clip = plan.federation.mechanism.clipping_norm
    highest = plan.largest_difference
    if highest != clip:
        axes.axhline(clip, color=INK, linestyle=":", linewidth=1.8, label=f"clipping norm C = {number_text(clip, 3)}")
    name = "global sensitivity" if highest == plan.global_sensitivity else "largest difference of a round"
    name = "clipping norm C = global sensitivity" if highest == clip else name
    axes.axhline(highest, label=f"{name} = {number_text(highest, 3)}", **LIMIT)


LOCAL_SENSITIVITY = Section(
    "local-sensitivity",
    "What was played, and how far it moved",
    GuaranteeFinding,
    lambda _, findings: findings.find(GuaranteeFinding),
    sentence=_sentence,
    tables=lambda _, contents: mechanism_tables(contents.plan),
    picture=FindingFigure(
        "Local sensitivity", _local_sensitivity_figure, _caption, applies=lambda _, contents: contents.run.has_insider
    ),
)
