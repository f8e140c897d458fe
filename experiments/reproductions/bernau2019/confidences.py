"""Panels (l) and (m) of Figure 7 of Bernau et al. 2019: how sure models are, by what an attack says."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from experiments.reproductions.bernau2019.runs import BINS, MembershipFindings
from experiments.reproductions.looks import empty_panel
from experiments.reproductions.papers import CONFIDENCE
from experiments.reproductions.statistics import welch_interval
from fl_audit.evidence.membership.rates import Interval
from fl_audit.report.style import SMALL_TEXT_SIZE, finish_axes

SHOWN_LEVELS = (1.0, 0.1)  # epsilon_i of the two panels
SUREST_LEVEL = 1.0  # epsilon_i at which, section 5.5 says, models are surer than at larger and at smaller ones
_LETTERS = ("l", "m")
_LOOKS = (("called a member", "#12426e", "-", "////"), ("called none", "#b35806", "--", ""))


def draw_confidences(axes: Axes, local: Sequence[MembershipFindings], panel: int) -> None:
    """Draw histograms of the largest confidence in a target's true record, by what the black-box attack calls it.

    Parameters
    ----------
    axes, local, panel
        The panel to draw in; the runs of a data set under local DP; 0 for (l), 1 for (m).
    """
    level = SHOWN_LEVELS[panel]
    title = f"Confidence, epsilon_i {level:g}"
    run = next((one for one in local if one.setting.level == level), None)
    if run is None or run.called is None:
        empty_panel(axes, f"({_LETTERS[panel]}) {title}", "this level was not played")
        return
    targets = run.called.counts.sum()
    for counts, mean, (name, colour, line, hatch) in zip(run.called.counts, run.called.means, _LOOKS, strict=True):
        if counts.any():
            axes.stairs(
                100 * counts / targets, BINS, color=colour, linestyle=line, hatch=hatch, linewidth=1.5,
                label=f"{name}: {counts.sum() / targets:.0%}, mean {mean:.3f}",
            )  # fmt: skip
    axes.set_ylim(top=1.45 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize=SMALL_TEXT_SIZE - 2, loc="upper left")
    finish_axes(axes, f"({_LETTERS[panel]}) {title}", "Largest confidence", "Targets, %")


def surest(local: Sequence[MembershipFindings], level: float = CONFIDENCE) -> Interval | None:
    """Return by how much models are surer at epsilon_i = 1 than at the other level where they are surest.

    Means over worlds of the mean of the largest confidence in true records of targets; intervals of all differences
    hold together (Bonferroni). None where that level or all others are not played.

    Parameters
    ----------
    local, level
        Runs under local DP; confidence of the interval.
    """
    own = next((one for one in local if one.setting.level == SUREST_LEVEL), None)
    others = [one for one in local if one is not own]
    if own is None or not others:
        return None
    confidence = 1 - (1 - level) / len(others)
    found = [welch_interval(own.confidence, one.confidence, confidence) for one in others]
    return Interval(*(min(one[end] for one in found) for end in range(3)))
