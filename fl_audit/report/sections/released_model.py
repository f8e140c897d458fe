"""The released model: how well it does its job, and what it gives away by its losses alone (Epsilon*)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.evidence.star.epsilon_star import StarSettings
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.curves import draw_median, median_name, quantiles_by_round
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Section, finite
from fl_audit.report.sections.insider import POINT
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    add_legend,
    draw_band,
    finish_axes,
    report_figure,
    whole_number_axis,
)
from fl_audit.report.unprotected import Unprotected
from fl_audit.report.wording import DASH, MISSING, capital, number_text, percent, plural

SQUASH = 4.0
"""A promised epsilon more than this many times above the largest Epsilon* drawn would flatten the curve."""


@dataclass(frozen=True)
class StarNumbers:
    """Epsilon* of the final releases.

    Parameters
    ----------
    mean, largest
        Over the worlds, in nats; infinite or NaN where it was not determined.
    untrained_mean, untrained_largest
        The same of the initial models, which cannot leak: what chance alone reaches with so many losses. NaN where it
        was not computed for them.
    settings
        Its delta, and the error rates that were left out.
    """

    mean: float
    largest: float
    untrained_mean: float
    untrained_largest: float
    settings: StarSettings

    def to_json(self) -> dict[str, Any]:
        """Return the content of the entry `epsilon_star`."""
        found = {"mean": finite(self.mean), "max": finite(self.largest)}
        chance = {"untrained_mean": finite(self.untrained_mean), "untrained_max": finite(self.untrained_largest)}
        return found | {"delta": self.settings.delta, "cut": self.settings.cut} | chance


@dataclass(frozen=True)
class ModelNumbers:
    """What the final releases are worth, and what they give away.

    Parameters
    ----------
    test_accuracy
        Share of right predictions on test records, mean over worlds.
    test_auroc
        Area under the ROC on test records, mean over worlds; NaN where there is none.
    star
        Epsilon*; None where it was turned off.
    unprotected
        What the same training without privacy is worth; None where no such run was named.
    """

    test_accuracy: float
    test_auroc: float
    star: StarNumbers | None
    unprotected: Unprotected | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entries `epsilon_star` and `utility`."""
        return {
            "epsilon_star": None if self.star is None else self.star.to_json(),
            "utility": {
                "test_accuracy": self.test_accuracy,
                "test_auroc": finite(self.test_auroc),
                "test_accuracy_without_privacy": None if self.unprotected is None else self.unprotected.final,
            },
        }

    @property
    def beside(self) -> str:
        """The accuracy without privacy in words, to follow that of this run; nothing where it is not known."""
        return "" if self.unprotected is None else f" ({percent(self.unprotected.final)} without privacy)"


def _measure(run: FinishedRun, _: Findings) -> ModelNumbers:
    worlds = run.tables.worlds
    # Batches of an older version have no area.
    area = float(worlds["test_auroc"].mean()) if "test_auroc" in worlds else math.nan
    return ModelNumbers(float(worlds["test_accuracy"].mean()), area, _star(run), run.unprotected)


def _star(run: FinishedRun) -> StarNumbers | None:
    if run.facts.star is None:
        return None
    values, releases = run.tables.worlds["epsilon_star"], run.tables.releases
    untrained = releases.loc[releases["round"] == 0, "epsilon_star"]
    return StarNumbers(
        mean=float(values.mean()),
        largest=float(values.max()),
        untrained_mean=float(untrained.mean()),
        untrained_largest=float(untrained.max()),
        settings=run.facts.star,
    )


def _is_drawn(contents: RunContents) -> bool:
    """Whether Epsilon* was computed for the releases."""
    releases = contents.releases
    if contents.facts.star is None or "epsilon_star" not in releases:
        return False
    return bool(releases["epsilon_star"].notna().any())


def _sentence(numbers: ModelNumbers, contents: RunContents) -> str:
    """Return how the released model fares, by Epsilon* and accuracy."""
    useful = f"The released model is right for {percent(numbers.test_accuracy)} of new cases{numbers.beside}"
    star, useful = numbers.star, f"{_kept_release(contents)}{useful}"
    if star is None or not math.isfinite(star.mean):
        return f"{useful}; how much it gives away by itself was not measured."
    many = contents.run.worlds > 1
    worst = f" (at worst {number_text(star.largest, 3)})" if many else ""
    worst_by_chance = f" (at worst {number_text(star.untrained_largest, 3)})" if many else ""
    chance = (
        f" Chance alone reaches {number_text(star.untrained_mean, 3)} there{worst_by_chance}: that is what "
        f"{_beginning(contents)} "
        f"score{'' if many else 's'}, which cannot give anything away."
        if math.isfinite(star.untrained_mean) and math.isfinite(star.untrained_largest)
        else ""
    )
    return (
        f"{useful}; judged by its errors alone, it scores {number_text(star.mean, 3)}{worst} on the leakage scale "
        f"Epsilon*, where 0 means that it treats people in the training data just like others.{chance}"
    )


def _kept_release(contents: RunContents) -> str:
    """Say which release was kept, where early stopping chose it, in a sentence with a space behind it."""
    if (chosen := contents.run.chosen_releases) is None:
        return ""
    return (
        f"Of each training the model was kept after which its errors on new cases fell no more: {_numbers_of(chosen)}. "
    )


def _numbers_of(chosen: tuple[int, int]) -> str:
    first, last = chosen
    return f"release {first}" if first == last else f"a release from {first} to {last}"


def _chosen_sentence(contents: RunContents) -> str:
    """Say what is called final, and what the promise counts, where early stopping chose the release."""
    if (chosen := contents.run.chosen_releases) is None:
        return ""
    rounds = plural(contents.facts.game.rounds, "round")
    return (
        f" Early stopping chose {_numbers_of(chosen)} of each world as its final one, and the last point is that of "
        "the chosen models; before it, once every world had stopped, the curve repeats what was looked at last. The "
        f"choice reads releases and public records alone; the promise counts all {rounds}."
    )


def _console(numbers: ModelNumbers, contents: RunContents) -> list[tuple[str, str]]:
    star = numbers.star
    if star is None or not math.isfinite(star.mean):
        leak = MISSING
    else:
        at = number_text(star.settings.delta)
        leak = f"{number_text(star.mean, 3)} on average, {number_text(star.largest, 3)} at most, at delta {at}"
        if math.isfinite(star.untrained_mean):
            leak += f"; untrained {number_text(star.untrained_mean, 3)}, {number_text(star.untrained_largest, 3)}"
        promise = contents.facts.guarantee
        if promise is not None and star.largest > promise.epsilon:
            leak += " (single models may exceed the promised epsilon by chance)"
    return [("Epsilon*", leak), ("Accuracy", f"{percent(numbers.test_accuracy)} on test records{numbers.beside}")]


def _entries(numbers: ModelNumbers, _: RunContents) -> list[Entry]:
    unused, accuracy = "test records were not used in training", "share of right predictions of the final release"
    entries = [
        *_star_entries(numbers.star),
        Entry("Test accuracy", numbers.test_accuracy, DASH, POINT, f"{accuracy}, mean over worlds", unused, True),
    ]
    if numbers.unprotected is not None:
        other = numbers.unprotected
        method = (
            f"the same of {other.run}, the same training without clipping and noise, {plural(other.worlds, 'world')}"
        )
        entries.append(Entry("Test accuracy without privacy", other.final, DASH, POINT, method, unused, True))
    if math.isfinite(numbers.test_auroc):
        method = "area under the ROC of the final release, mean over worlds"
        entries.append(Entry("Test AUROC (probability)", numbers.test_auroc, DASH, POINT, method, unused))
    return entries


def _star_entries(star: StarNumbers | None) -> list[Entry]:
    if star is None:
        return [Entry("Epsilon*, mean over worlds (nats)", None, DASH, "turned off")]
    cut = number_text(star.settings.cut) if star.settings.cut else ""
    method = f"Epsilon* of the final release (Negoescu et al. 2023){at_delta(star.settings.delta)}"
    method += f", error rates beyond {cut} and 1 - {cut} left out" if cut else ""
    losses = "losses of members and of a population sample, after a logit transform, are normal"
    return [
        Entry("Epsilon*, mean over worlds (nats)", finite(star.mean), DASH, POINT, method, losses),
        Entry("Epsilon*, largest world (nats)", finite(star.largest), DASH, "none: an extreme value", method, losses),
        Entry(
            "Epsilon* of the untrained models, mean (nats)",
            finite(star.untrained_mean),
            DASH,
            POINT,
            f"the same of release 0, which cannot leak: what chance reaches{at_delta(star.settings.delta)}",
            losses,
        ),
        Entry(
            "Epsilon* of the untrained models, largest (nats)",
            finite(star.untrained_largest),
            DASH,
            "none: an extreme value",
            "likewise",
            losses,
        ),
        Entry("Delta of Epsilon* (probability)", star.settings.delta, DASH, DASH, "chosen before the run"),
    ]


def _caption(numbers: ModelNumbers, contents: RunContents) -> Caption:
    accuracy = percent(numbers.test_accuracy)
    mean = ", mean over worlds" if contents.run.worlds > 1 else ""
    text = f"{_what_is_drawn(contents)} Test accuracy of the final release{mean}: {accuracy}{numbers.beside}."
    text += _chosen_sentence(contents)
    alternative = f"Curve of test accuracy over releases, ending at {accuracy}."
    star = numbers.star
    if star is None or not _is_drawn(contents):
        return Caption("Accuracy", f"{text} Epsilon* was turned off or not determined.", alternative)
    text += (
        f" Epsilon* at δ = {number_text(star.settings.delta)} measures one released model from its losses alone; "
        f"0 means that members and others look alike.{_losses_sentence(contents)} {_promise_sentence(contents)} "
        f"{_relation(star, contents)}"
    )
    alternative += f" Curve of Epsilon* over releases, ending at {number_text(finite(star.mean), 3)} on average."
    return Caption("Accuracy and Epsilon*", text, alternative)


def _losses_sentence(contents: RunContents) -> str:
    """Return what owners told of their losses, where these were not pooled."""
    audit = contents.facts.configuration.get("audit", {})
    if audit.get("epsilon-star-losses") != "federated":
        return ""
    told = " The losses stayed with their owners: each told their number, and mean and spread after the transform"
    if audit.get("loss-range") is None:
        return f"{told}, and the smallest and the largest loss."
    low, high = (number_text(end) for end in audit["loss-range"])
    return f"{told}; losses beyond the public range from {low} to {high} count as its ends."


def _what_is_drawn(contents: RunContents) -> str:
    if contents.run.worlds == 1:
        return "The one world of this run, release by release."
    return "Median over worlds and the range of the middle 90 %."


def _how_far(star: StarNumbers, contents: RunContents) -> str:
    if contents.run.worlds == 1:
        return f"shows how far: {number_text(star.untrained_mean, 3)}."
    return (
        f"show how far: {number_text(star.untrained_mean, 3)} on average and "
        f"{number_text(star.untrained_largest, 3)} at most."
    )


def _beginning(contents: RunContents) -> str:
    """Return what the models of release 0 are, whose Epsilon* is chance alone."""
    models = "model" if contents.run.worlds == 1 else "models"
    return f"the untrained {models}" if not contents.facts.is_pretrained else f"the pretrained {models}"


def _promise_sentence(contents: RunContents) -> str:
    guarantee = contents.facts.guarantee
    if guarantee is None:
        return ""
    promise = f"promised epsilon, {number_text(guarantee.epsilon, 3)} ({guarantee.accountant})"
    if promise_fits(contents):
        return f"The dash-dotted line is the {promise}."
    return f"The {promise}, lies far above the curve and is not drawn."


def _relation(star: StarNumbers, contents: RunContents) -> str:
    """Return how Epsilon* and the promised epsilon go together, above all where the first exceeds the second."""
    promise = contents.facts.guarantee
    if promise is None:
        return ""
    text = (
        "The two are not the same quantity: the promised epsilon bounds what anybody learns of one "
        f"{contents.facts.words.one}, over all repetitions of the training; Epsilon* is estimated for each model by "
        "itself, from a limited number of losses, and single models exceed the promise by chance."
    )
    if math.isfinite(star.untrained_largest):
        text += f" {capital(_beginning(contents))} at release 0, which cannot leak, {_how_far(star, contents)}"
    if star.largest > promise.epsilon:
        text += (
            f" So the largest value of this run, {number_text(star.largest, 3)}, lies above the promised "
            f"{number_text(promise.epsilon, 3)} and does not contradict it."
        )
    return text


def releases_figure(numbers: ModelNumbers, contents: RunContents) -> Figure:
    """Draw test accuracy and, where it was computed, Epsilon* over the releases."""
    with_star = _is_drawn(contents)
    figure = report_figure(5.6 if with_star else 3.8)
    panels = figure.subplots(2 if with_star else 1, 1, sharex=True, squeeze=False)[:, 0]
    first, last = int(contents.releases["round"].min()), int(contents.releases["round"].max())
    x_name = "Release (number; 0 = initial model)"
    _draw_release_curve(panels[0], contents, "test_accuracy", 100.0)
    _draw_without_privacy(panels[0], numbers.unprotected)
    panels[0].set_ylim(0, 100)  # the same in every report
    finish_axes(panels[0], "Accuracy of each released model", "" if with_star else x_name, "Test accuracy (%)")
    if with_star:
        _draw_release_curve(panels[1], contents, "epsilon_star", 1.0)
        _draw_promised_epsilon(panels[1], contents)
        _draw_chance_floor(panels[1], numbers.star, contents)
        panels[1].set_ylim(0, 1.05 * max(panels[1].get_ylim()[1], 1e-3))
        finish_axes(panels[1], "Epsilon* of each released model", x_name, f"Epsilon* (nats){_at_delta(contents)}")
    whole_number_axis(panels[-1], first, last)
    add_legend(panels[-1])  # the lowest panel has every kind of line that the others have
    return figure


def promise_fits(contents: RunContents) -> bool:
    """Whether a line at the promised epsilon leaves the curve of Epsilon* readable."""
    promise = contents.facts.guarantee
    if promise is None or not _is_drawn(contents):
        return False
    _, (high,) = quantiles_by_round(contents.releases, "epsilon_star", (0.95,))
    return promise.epsilon <= SQUASH * float(np.nanmax(high))


def _draw_release_curve(axes: Axes, contents: RunContents, column: str, scale: float) -> None:
    rounds, (low, middle, high) = quantiles_by_round(contents.releases, column, (0.05, 0.5, 0.95))
    style = BIT_STYLES[1]
    if contents.run.worlds > 1:
        draw_band(
            axes, rounds, scale * low, scale * high, facecolor=style.fill, edgecolor=style.colour, linewidth=0.6,
            alpha=0.6, label="5 % to 95 % of the worlds",
        )  # fmt: skip
    draw_median(axes, rounds, scale * middle, median_name(contents.run.worlds))


def _draw_without_privacy(axes: Axes, other: Unprotected | None) -> None:
    """Draw the mean accuracy of the same training without privacy, with a legend of its own line."""
    if other is not None:
        shares = [100.0 * share for share in other.accuracy]
        axes.plot(other.rounds, shares, color=INK, linestyle="--", linewidth=1.5, label="without privacy (mean)")
        add_legend(axes)


def _draw_promised_epsilon(axes: Axes, contents: RunContents) -> None:
    promise = contents.facts.guarantee
    if promise is not None and promise_fits(contents):
        label = f"promised epsilon = {number_text(promise.epsilon, 3)} ({promise.accountant})"
        axes.axhline(promise.epsilon, color=INK, linestyle="-.", linewidth=1.8, label=label)


def _draw_chance_floor(axes: Axes, star: StarNumbers | None, contents: RunContents) -> None:
    """Draw what untrained models score, which cannot leak: what lies below says nothing."""
    if star is not None and math.isfinite(star.untrained_mean):
        label = f"floor by chance ({_beginning(contents).removeprefix('the ')}): {number_text(star.untrained_mean, 2)}"
        axes.axhline(star.untrained_mean, color=MUTED, linestyle=":", linewidth=1.8, label=label)


def _at_delta(contents: RunContents) -> str:
    star = contents.facts.star
    return "" if star is None else f"\nat δ = {number_text(star.delta)}"


RELEASED_MODEL = Section(
    numbers=ModelNumbers,
    keys=("epsilon_star", "utility"),
    measure=_measure,
    heading="The released model",
    entries=_entries,
    pictures=(Picture("releases", releases_figure, _caption),),
    sentence=_sentence,
    console=_console,
)
