"""Report section on Epsilon*, an empirical epsilon of a released model from its losses."""

import math

import numpy as np
from matplotlib.figure import Figure

from fl_audit.array_types import finite
from fl_audit.audits.common import findings_epsilon_star as evidence
from fl_audit.audits.common.report_cautions import NOT_MEANINGFUL, chance_text, star_text
from fl_audit.learning.training_enums import InitialWeightsSource
from fl_audit.released_model.minimum_sample_size import FEWEST
from fl_audit.released_model.normal_fit_tests import FIT
from fl_audit.released_model.star_methods import EpsilonStarLocation, cut_text
from fl_audit.report.figure_style import LIMIT, MUTED, draw_spread, finish_axes
from fl_audit.report.mechanism_messages import at_delta
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section
from fl_audit.words import number_text, plural

SQUASH = 4.0  # the claimed epsilon is plotted if it is at most this many times the largest Epsilon*


def _star_sentence(star: evidence.EpsilonStarFinding, contents: ReportContents) -> str:
    if not math.isfinite(star.mean):
        return "How much a released model gives away by its losses was not determined."
    if not star.is_meaningful:
        return f"{star_text(star)}.{_losses_text(contents)}"
    at_least = "at least " if star.is_lower_bound else ""
    text = (
        f"Judged by its losses alone, a released model scores {at_least}{number_text(star.mean, 3)} on the leakage "
        f"scale Epsilon* (at most {number_text(star.max, 3)}), where 0 means that it treats people in the training "
        f"data like others ({cut_text(star.cut)} count). {_fit_text(star, contents)}"
    )
    if math.isfinite(star.untrained_mean):
        text += (
            f" Chance alone reaches {number_text(star.untrained_mean, 3)} (at most "
            f"{number_text(star.untrained_max, 3)}): that is what {_start(contents)} models score, which cannot leak."
        )
    guarantee = contents.plan.guarantee
    other_text = " The claimed epsilon is another quantity, over all repetitions:"
    if guarantee is not None and star.max > guarantee.epsilon:
        text += f"{other_text} single models may exceed it by chance."
    return f"{text}{_losses_text(contents)}"


def _fit_text(star: evidence.EpsilonStarFinding, contents: ReportContents) -> str:
    """Return a sentence on the normality test of the losses, and on the resulting estimator of Epsilon*."""
    if star.is_lower_bound:
        few_losses = (
            f"fewer than {FEWEST} losses of a set give no value, only a lower bound that holds for any distributions"
        )
        return f"It is at least this: {few_losses}."
    if star.fit_tested == 0 and star.by_normals is not None:
        return "Losses are counted, for whether they are normal could not be tested."
    if star.fit_tested == 0:
        owned = _stay_with_owners(contents)
        reason = "the losses stay with their owners" if owned else f"a test takes {FEWEST} losses of each set"
        why = f": {reason}" if owned or FIT in contents.trials else ""
        return f"It rests on normals, whose fit was not tested{why}."
    tested = f"a test rejects that in {star.fit_rejected:,} of {plural(star.fit_tested, 'trial')}"
    if star.by_normals is None:
        return f"It takes the losses for normal after a logit transform; {tested}."
    normal = f"{number_text(star.by_normals.mean, 3)} ({cut_text(star.by_normals.cut)})"
    return (
        f"Losses are counted, for they are not normal after a logit transform: {tested}. Normals would give {normal}."
    )


def _star_note(star: evidence.EpsilonStarFinding, contents: ReportContents) -> str:
    """Return a note on how Epsilon* was estimated, and on the Epsilon* that untrained models have by chance."""
    if not math.isfinite(star.untrained_mean) or (level := chance_text(star.untrained_mean)) is None:
        return _fit_note(star)
    level += " for records" if contents.find(evidence.UserEpsilonStarFinding) is not None else ""
    chance = f"chance alone gives {level}, for {_start(contents)} models, which learned nothing of anybody"
    return f"{chance}; {_fit_note(star)}"


def _start(contents: ReportContents) -> str:
    """Return "pretrained" or "untrained", the word for the models before the first round of training (release 0)."""
    is_pretrained = contents.plan.config.model.initial is InitialWeightsSource.PRETRAINED
    return "pretrained" if is_pretrained else "untrained"


def _fit_note(star: evidence.EpsilonStarFinding) -> str:
    if star.is_lower_bound:
        return f"{cut_text(star.cut)}; a lower bound for any distributions, since losses are few"
    if star.fit_tested == 0 and star.by_normals is not None:
        return f"{cut_text(star.cut)}; losses are counted, since the fit of normals could not be tested"
    if star.fit_tested == 0:
        return f"{cut_text(star.cut)}; by normals, whose fit was not tested"
    tested = f"rejected in {star.fit_rejected:,} of {plural(star.fit_tested, 'trial')}"
    kind = "by normals" if star.by_normals is None else "losses are counted, since the fit of normals was"
    return f"{cut_text(star.cut)}; {kind}{',' if star.by_normals is None else ''} {tested}"


def _stay_with_owners(contents: ReportContents) -> bool:
    return contents.plan.config.audit.epsilon_star_losses is EpsilonStarLocation.FEDERATED


def _losses_text(contents: ReportContents) -> str:
    """Return a sentence on the statistics of losses that clients reported.

    The text is empty if the losses themselves were pooled.
    """
    if not _stay_with_owners(contents):
        return ""
    return (
        " The losses stayed with their owners: each told their number, and mean and spread after the transform, and "
        "the smallest and the largest loss."
    )


def _star_rows(star: evidence.EpsilonStarFinding, contents: ReportContents) -> list[ReportNumber]:
    basis_text = (
        f"Negoescu et al. 2023{at_delta(star.delta)}, {cut_text(star.cut)}. {_fit_text(star, contents).rstrip('.')}"
    )
    chance = "the same of release 0, which cannot leak: what chance reaches"
    at_least = " at least" if star.is_lower_bound else ""
    doubt = "" if star.is_meaningful else f": {NOT_MEANINGFUL}"
    return [
        ReportNumber(
            f"Epsilon*{at_least}, mean over trials (nats){doubt}",
            finite(star.mean),
            f"of the final release, {basis_text}",
            on_page=True,
            note=_star_note(star, contents),
        ),
        ReportNumber("Epsilon*, largest trial (nats)", finite(star.max), "an extreme value"),
        ReportNumber("Epsilon* of untrained models, mean (nats)", finite(star.untrained_mean), chance),
        ReportNumber(
            "Epsilon* of untrained models, largest (nats)", finite(star.untrained_max), "likewise, an extreme value"
        ),
        ReportNumber("Delta of Epsilon* (probability)", star.delta, "chosen before the run"),
        ReportNumber("Error rates left out", star.cut, "chosen before the run"),
    ]


def _star_caption(star: evidence.EpsilonStarFinding, contents: ReportContents) -> str:
    spread = "" if contents.run.trials == 1 else " Median, middle half and range of the trials."
    at = number_text(star.delta)
    guarantee = contents.plan.guarantee
    meaning = "Under the floor chance decides." if star.is_meaningful else f"It is {NOT_MEANINGFUL}: the floor is high."
    cut = star.cut
    basis_text = ""
    if star.by_normals is not None:
        cut = star.by_normals.cut
        basis_text = " by normals, which are not known to fit: the numbers beside it count losses"
    text = f"Measured from losses alone at δ = {at}, {cut_text(cut)}{basis_text}.{spread} {meaning}"
    if guarantee is None or guarantee_fits(contents):
        return text
    return f"{text} The guarantee, {number_text(guarantee.epsilon, 3)}, lies far above."


def guarantee_fits(contents: ReportContents) -> bool:
    """Return whether the plot of Epsilon* stays readable with a line at the claimed epsilon.

    It does if the claimed epsilon is at most four times the largest finite Epsilon*. False without a guarantee.
    """
    guarantee = contents.plan.guarantee
    column = contents.releases["epsilon_star"]
    values = column.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    return guarantee is not None and bool(values.size) and guarantee.epsilon <= SQUASH * float(values.max())


def _star_figure(figure: Figure, star: evidence.EpsilonStarFinding, contents: ReportContents) -> None:
    releases = contents.releases
    guarantee = contents.plan.guarantee
    axes = figure.add_subplot()
    draw_spread(axes, releases, "epsilon_star")
    if guarantee is not None and guarantee_fits(contents):
        label = f"claimed epsilon = {number_text(guarantee.epsilon, 3)} ({guarantee.accountant})"
        axes.axhline(guarantee.epsilon, label=label, **LIMIT)
    floor = (star if star.by_normals is None else star.by_normals).untrained_mean
    if math.isfinite(floor):
        label = f"floor by chance: {number_text(floor, 2)}"
        axes.axhline(floor, color=MUTED, linestyle=":", linewidth=1.8, label=label)
    axes.set_ylim(0, 1.05 * max(axes.get_ylim()[1], 1e-3))
    name = f"Epsilon* (nats)\nat δ = {number_text(star.delta)}"
    finish_axes(axes, "Epsilon* of each released model", "Release (number; 0 = initial model)", name)


EPSILON_STAR = Section(
    "epsilon-star",
    "What the models' losses give away (Epsilon*)",
    evidence.EpsilonStarFinding,
    evidence.measure_star,
    keys=("epsilon_star",),
    sentence=_star_sentence,
    rows=_star_rows,
    picture=FindingFigure(
        "Epsilon*",
        _star_figure,
        _star_caption,
        applies=lambda _, contents: bool(contents.releases["epsilon_star"].notna().any()),
    ),
)
