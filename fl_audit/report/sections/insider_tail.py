"""How often the insider became how sure, beside the limit that the promise sets: a tail, and never a density."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import logit

from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.contents import RunContents
from fl_audit.report.section import Caption
from fl_audit.report.sections.verdict import VerdictNumbers
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    PALE,
    SMALL_TEXT_SIZE,
    add_legend,
    draw_band,
    finish_axes,
    report_figure,
)
from fl_audit.report.theory import Floats
from fl_audit.report.wording import number_text, percent, plural

_REACH = 5.0
"""Where the axis of evidence ends, in nats, in every report whose bound lies well within."""
_FLOOR = 1e-3
"""Where the axis of shares begins, in every report whose delta is not smaller."""
_BELIEFS = (0.5, 0.7, 0.9, 0.97, 0.99, 0.999)


def bound_in_log_odds(promise: Guarantee) -> float:
    """Return the evidence that the belief bound stands for, in nats without the prior; infinite of a bound of 1."""
    return float(logit(promise.belief_bound) - logit(promise.prior))


def passed_shares(evidence: Floats, thresholds: Floats, confidence: float) -> tuple[Floats, Floats, Floats]:
    """Return which share of the worlds passes each threshold, with the ends of its interval, each (thresholds,)."""
    counts = evidence.size - np.searchsorted(np.sort(evidence), thresholds, side="right")
    ends = {int(count): clopper_pearson(int(count), evidence.size, confidence) for count in np.unique(counts)}
    low, high = (np.array([ends[int(count)][side] for count in counts]) for side in (0, 1))
    return counts / evidence.size, low, high


def tail_figure(contents: RunContents) -> Figure:
    """Draw the share of worlds in which the evidence for the truth passes a threshold, beside the promised limit."""
    figure = report_figure(4.4)
    axes = figure.add_subplot()
    run, promise, style = contents.run, contents.facts.guarantee, BIT_STYLES[1]
    assert promise is not None, "only what was promised is drawn"
    bound = bound_in_log_odds(promise)
    end = math.ceil(1.2 * bound) if 0.9 * _REACH <= bound < math.inf else _REACH
    floor = min(_FLOOR, 10.0 ** math.floor(math.log10(promise.delta)))
    grid = np.linspace(0.0, end, 240)
    share, low, high = passed_shares(run.towards_truth, grid, contents.facts.confidence)
    name = f"its {percent(contents.facts.confidence)} band, point by point"
    draw_band(axes, grid, np.maximum(low, floor), np.maximum(high, floor), facecolor=PALE, edgecolor=style.colour,
              linewidth=0.8, label=name)  # fmt: skip
    axes.plot(grid, np.where(share > 0, share, np.nan), "-", color=style.colour, linewidth=2.2,
              label=f"measured, {plural(run.worlds, 'world')}")  # fmt: skip
    axes.plot(grid, limit_of(promise, grid), "-.", color=INK, linewidth=1.8, label="limit while the promise is kept")
    if math.isfinite(bound):
        name = f"promise: {percent(promise.belief_bound)}, passed by {percent(promise.delta)} at most"
        axes.plot([bound], [promise.delta], "D", color=INK, markersize=7, clip_on=False, label=name)
    axes.set(yscale="log", ylim=(floor, 1.05), xlim=(0.0, end))
    finish_axes(axes, "How often the insider became how sure", "Evidence for the truth (log-odds in nats)",
                "Share of worlds that pass it")  # fmt: skip
    if promise.prior == 0.5:
        _add_beliefs(axes, end)
    add_legend(axes)
    return figure


def limit_of(promise: Guarantee, log_odds: Floats) -> Floats:
    """Return the largest probability with which a kept promise lets each threshold be passed, of the same shape."""
    profile, chosen = promise.claim.profile, promise.claim.sensitivities
    return np.array([profile.passing_probability(float(at), chosen) for at in log_odds])


def _add_beliefs(axes: Axes, end: float) -> None:
    """Name some beliefs at the upper edge, at their evidence; only at an even prior are those in D and D' alike."""
    above = axes.secondary_xaxis("top")
    shown = [belief for belief in _BELIEFS if logit(belief) <= end]
    above.set_xticks([float(logit(belief)) for belief in shown], [percent(belief) for belief in shown])
    above.tick_params(labelsize=SMALL_TEXT_SIZE, colors=INK, length=3)
    above.spines["top"].set_visible(False)


def tail_caption(contents: RunContents) -> Caption:
    """Return the words for `tail_figure`."""
    run, promise = contents.run, contents.facts.guarantee
    assert promise is not None, "only what was promised is drawn"
    beliefs = " At its upper edge stand the beliefs that this makes." if promise.prior == 0.5 else ""
    text = (
        f"Share of {plural(run.worlds, 'world')} in which the insider's evidence for the data set that was really "
        f"used passed the number below, without the prior.{beliefs} The dash-dotted line is a limit: while the claimed "
        f"noise is there, no number is passed with a larger probability, whatever the data and the model. "
        f"{_diamond(promise)} {_finding(contents, promise)}"
    )
    passed = _passed(contents, promise)
    alternative = f"Falling curve of the share of worlds over the evidence, beside its limit. {passed}"
    return Caption("How often the insider became how sure", text, alternative)


def _diamond(promise: Guarantee) -> str:
    evidence = bound_in_log_odds(promise)
    if not math.isfinite(evidence):
        return f"The promise itself ({promise.accountant}) limits no belief, so that nothing marks it."
    of_d = "" if promise.prior == 0.5 else f" in D (evidence of {number_text(evidence, 3)} nats)"
    return (
        f"The diamond is the promise itself ({promise.accountant}): a belief of {percent(promise.belief_bound)}{of_d} "
        f"is passed with probability {percent(promise.delta)} at most."
    )


def _finding(contents: RunContents, promise: Guarantee) -> str:
    verdict = contents.find(VerdictNumbers)
    broken = verdict is not None and verdict.judgement is not None and bool(verdict.judgement.broken)
    chance = "The promise was broken" if broken else "By chance a few places of the curve may lie above the line"
    return (
        f"{_passed(contents, promise)} {chance}; evidence is what the insider makes of the releases on the word of the "
        "promise, so that noise that is missing need not show here: the tests of the verdict look for it."
    ).strip()


def _passed(contents: RunContents, promise: Guarantee) -> str:
    worlds = contents.run.worlds
    if not math.isfinite(bound_in_log_odds(promise)):
        return ""
    count = int((contents.run.towards_truth > bound_in_log_odds(promise)).sum())
    if worlds == 1:
        return f"The one world of this run {'passed' if count else 'did not pass'} it."
    return f"In this run {count if count else 'none'} of {plural(worlds, 'world')} passed it."
