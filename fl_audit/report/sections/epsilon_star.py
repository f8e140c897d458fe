"""What a released model gives away by its losses alone: Epsilon*, over the releases."""

import math

import numpy as np
from matplotlib.figure import Figure

from fl_audit.evidence.findings.found import finite
from fl_audit.evidence.findings.released_model import StarNumbers, measure_star
from fl_audit.report.finding import Picture, Row, RunContents, Section
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.style import LIMIT, MUTED, draw_spread, finish_axes
from fl_audit.report.wording import number_text

SQUASH = 4.0  # a promised epsilon more than this many times above the largest Epsilon* drawn would flatten the curve


def _sentence(star: StarNumbers, contents: RunContents) -> str:
    if not math.isfinite(star.mean):
        return "How much a released model gives away by its losses was not determined."
    text = (
        f"Judged by its losses alone, a released model scores {number_text(star.mean, 3)} on the leakage scale "
        f"Epsilon* (at most {number_text(star.max, 3)}), where 0 means that it treats people in the training data "
        "like others."
    )
    if math.isfinite(star.untrained_mean):
        is_pretrained = contents.facts.configuration.get("model", {}).get("initial") == "pretrained"
        start = "pretrained" if is_pretrained else "untrained"
        text += (
            f" Chance alone reaches {number_text(star.untrained_mean, 3)} (at most "
            f"{number_text(star.untrained_max, 3)}): that is what {start} models score, which cannot leak."
        )
    promise = contents.facts.guarantee
    if promise is not None and star.max > promise.epsilon:
        text += (
            " The promised epsilon is another quantity, over all repetitions: single models may exceed it by chance."
        )
    return f"{text}{_losses_text(contents)}"


def _losses_text(contents: RunContents) -> str:
    """Return what owners told of their losses, where these were not pooled."""
    audit = contents.facts.configuration.get("audit", {})
    if audit.get("epsilon-star-losses") != "federated":
        return ""
    told = " The losses stayed with their owners: each told their number, and mean and spread after the transform"
    if audit.get("loss-range") is None:
        return f"{told}, and the smallest and the largest loss."
    low, high = (number_text(end) for end in audit["loss-range"])
    return f"{told}; losses beyond the public range from {low} to {high} count as its ends."


def _rows(star: StarNumbers, _: RunContents) -> list[Row]:
    cut = f", error rates within {star.cut:g} of 0 and 1 left out" if star.cut else ""
    how = (
        f"Negoescu et al. 2023{at_delta(star.delta)}{cut}; losses of members and of a population sample are "
        "normal after a logit transform"
    )
    chance = "the same of release 0, which cannot leak: what chance reaches"
    return [
        Row("Epsilon*, mean over worlds (nats)", finite(star.mean), f"of the final release, {how}", on_page=True),
        Row("Epsilon*, largest world (nats)", finite(star.max), "an extreme value"),
        Row("Epsilon* of untrained models, mean (nats)", finite(star.untrained_mean), chance),
        Row("Epsilon* of untrained models, largest (nats)", finite(star.untrained_max), "likewise, an extreme value"),
        Row("Delta of Epsilon* (probability)", star.delta, "chosen before the run"),
        Row("Error rates left out", star.cut, "chosen before the run"),
    ]


def _caption(star: StarNumbers, contents: RunContents) -> str:
    spread = "" if contents.run.worlds == 1 else " Median, middle half and range of the worlds."
    at, promise = number_text(star.delta), contents.facts.guarantee
    text = f"Measured from losses alone at δ = {at}.{spread} Under the floor chance decides."
    if promise is None or promise_fits(contents):
        return text
    return f"{text} The promise, {number_text(promise.epsilon, 3)}, lies far above."


def promise_fits(contents: RunContents) -> bool:
    """Whether a line at the promised epsilon leaves the curve of Epsilon* readable."""
    promise, column = contents.facts.guarantee, contents.releases["epsilon_star"]
    values = column.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    return promise is not None and bool(values.size) and promise.epsilon <= SQUASH * float(values.max())


def _star_figure(figure: Figure, star: StarNumbers, contents: RunContents) -> None:
    releases, promise = contents.releases, contents.facts.guarantee
    axes = figure.add_subplot()
    draw_spread(axes, releases, "epsilon_star")
    if promise is not None and promise_fits(contents):
        label = f"promised epsilon = {number_text(promise.epsilon, 3)} ({promise.accountant})"
        axes.axhline(promise.epsilon, label=label, **LIMIT)
    if math.isfinite(star.untrained_mean):
        label = f"floor by chance: {number_text(star.untrained_mean, 2)}"
        axes.axhline(star.untrained_mean, color=MUTED, linestyle=":", linewidth=1.8, label=label)
    axes.set_ylim(0, 1.05 * max(axes.get_ylim()[1], 1e-3))
    name = f"Epsilon* (nats)\nat δ = {number_text(star.delta)}"
    finish_axes(axes, "Epsilon* of each released model", "Release (number; 0 = initial model)", name)


EPSILON_STAR = Section(
    name="epsilon-star", title="What the models' losses give away (Epsilon*)", numbers=StarNumbers,
    measure=measure_star, keys=("epsilon_star",), sentence=_sentence, rows=_rows,
    picture=Picture("Epsilon*", _star_figure, _caption, lambda star,
            contents: bool(contents.releases["epsilon_star"].notna().any())),
)  # fmt: skip
