"""What other promises would cost: the noise that it takes to let nobody become surer than this or that."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import guarantee
from fl_audit.privacy.targets import BeliefTarget
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Picture, Section, Table
from fl_audit.report.style import BIT_STYLES, INK, SMALL_TEXT_SIZE, add_legend, finish_axes, report_figure
from fl_audit.report.wording import number_text, percent

BELIEFS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
_FOR_BELIEFS = {Accountant.RDP: Accountant.RDP_CLASSIC}
"""Who accounts for a belief where the run's own accountant bounds none."""


@dataclass(frozen=True)
class OtherPromise:
    """What one promise takes.

    Parameters
    ----------
    belief
        Nobody becomes surer than this, but for a chance of delta.
    epsilon
        What it amounts to at the delta of the run.
    noise_multiplier
        The noise that keeps it.
    """

    belief: float
    epsilon: float
    noise_multiplier: float


@dataclass(frozen=True)
class OtherPromises:
    """What is promised, of which others are looked at when the report is drawn."""

    claim: Claim

    def to_json(self) -> dict[str, Any]:
        """Return no entry: all of it follows from the promise."""
        return {}

    @property
    def accountant(self) -> Accountant:
        """Who accounts for the other promises."""
        return _FOR_BELIEFS.get(self.claim.accountant, self.claim.accountant)

    @property
    def each(self) -> tuple[OtherPromise, ...]:
        """The promises that can be kept by noise, the surest insider last."""
        return _promises(replace(self.claim, accountant=self.accountant))


@lru_cache(maxsize=8)
def _promises(claim: Claim) -> tuple[OtherPromise, ...]:
    found = []
    for belief in BELIEFS:
        if belief <= claim.prior:
            continue
        try:
            promise = guarantee(claim.with_noise(noise_multiplier_for(BeliefTarget(belief), claim)))
        except InputError:
            continue
        if promise.noise_multiplier is not None:
            found.append(OtherPromise(belief, promise.epsilon, promise.noise_multiplier))
    return tuple(found)


def _measure(run: FinishedRun, _: Findings) -> OtherPromises | None:
    promise = run.facts.guarantee
    if promise is None or promise.noise_multiplier is None:
        return None
    # A loss distribution of sampled releases takes seconds for each promise.
    slow = promise.accountant is Accountant.PLD and promise.claim.profile.gaussian_mu is None
    return None if slow else OtherPromises(promise.claim)


def _tables(numbers: OtherPromises, _: RunContents) -> list[Table]:
    here = numbers.claim.noise_multiplier
    assert here is not None, "only Gaussian noise is looked at"
    columns = ("Nobody becomes surer than", "Epsilon (nats)", "Noise multiplier", "Noise over that of this run")
    rows = tuple(
        (percent(one.belief), one.epsilon, one.noise_multiplier, one.noise_multiplier / here) for one in numbers.each
    )
    title = f"What other promises would cost, at delta = {numbers.claim.delta:g}, by {numbers.accountant}"
    return [Table(title, columns, rows)] if rows else []


def other_promises_figure(numbers: OtherPromises, contents: RunContents) -> Figure:
    """Draw the noise that each promise takes over the belief that it allows, with this run's own promise."""
    figure = report_figure(3.8)
    axes = figure.add_subplot()
    style, promise = BIT_STYLES[1], contents.facts.guarantee
    assert promise is not None, "only what was promised is compared"
    beliefs = np.array([100 * one.belief for one in numbers.each])
    noise = np.array([one.noise_multiplier for one in numbers.each])
    axes.plot(beliefs, noise, "-", color=style.colour, linewidth=2, marker=style.marker, label="other promises")
    for belief, height, one in zip(beliefs, noise, numbers.each, strict=True):
        axes.annotate(number_text(one.epsilon, 2), (belief, height), (4, 5), textcoords="offset points",
                      fontsize=SMALL_TEXT_SIZE, color=INK)  # fmt: skip
    here = numbers.claim.noise_multiplier or 0.0
    axes.plot([100 * promise.belief_bound], [here], "D", color=INK, markersize=8, label="this run")
    axes.set_yscale("log")
    axes.set_xlim(69, 101)
    axes.set_ylim(0.7 * min(noise.min(), here), 1.5 * max(noise.max(), here))  # this run may lie beyond them all
    axes.yaxis.set_major_locator(FixedLocator([float(number) for number in np.round(noise, 2)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    finish_axes(axes, "What other promises would cost", "Nobody becomes surer than (%); beside each, its epsilon",
                "Noise multiplier (logarithmic)")  # fmt: skip
    add_legend(axes, columns=2)
    return figure


def _caption(numbers: OtherPromises, _: RunContents) -> Caption:
    first, last = numbers.each[0], numbers.each[-1]
    ends = (
        f"{percent(first.belief)} takes a noise multiplier of {number_text(first.noise_multiplier, 3)} (epsilon "
        f"{number_text(first.epsilon, 2)}), {percent(last.belief)} takes {number_text(last.noise_multiplier, 3)} "
        f"(epsilon {number_text(last.epsilon, 2)}); this run has {number_text(numbers.claim.noise_multiplier, 3)}"
    )
    text = (
        f"How much noise it takes that nobody becomes surer than the number below, with the rounds, the delta and the "
        f"neighbours of this run, by {numbers.accountant}: {ends}. More noise costs accuracy; how much, a sweep over "
        "privacy.belief tells."
    )
    return Caption("What other promises would cost", text, f"Noise multiplier over the allowed belief: {ends}.")


OTHER_PROMISES = Section(
    numbers=OtherPromises,
    keys=(),
    measure=_measure,
    tables=_tables,
    pictures=(
        Picture("other-promises", other_promises_figure, _caption, lambda numbers, _: len(numbers.each) > 1),
    ),
)  # fmt: skip
