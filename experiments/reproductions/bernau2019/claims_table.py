"""What became of the claims of Bernau et al. 2019: a row and a mark for each of them."""

from collections.abc import Iterator, Sequence
from math import isfinite

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.reproductions.bernau2019.claims import MARGIN, ClaimVerdict, PaperClaim, claims_of, counted
from experiments.reproductions.bernau2019.figures import Runs
from experiments.reproductions.bernau2019.settings import MembershipData
from experiments.reproductions.items import ItemResult, ItemRow, table
from experiments.reproductions.looks import name_panel
from fl_audit.report.style import MUTED, SMALL_TEXT_SIZE, new_figure


def claims_table(data: Sequence[MembershipData], runs: Runs) -> ItemResult:
    """Return every claim with its number, its interval and what our runs say of it.

    Parameters
    ----------
    data, runs
        The data sets, and their finished runs.
    """
    claims = claims_of(data, runs)
    figure = new_figure(2.6 + 0.27 * len(claims))
    _draw_all(figure, claims)
    return ItemResult(
        table(map(_claim_row, claims)),
        figure,
        "Each number with its 95 % interval (dot and line), and the range in which the claim has it (grey bar, cut at "
        "the frame). Filled: holds on our data; crossed: does not hold; open: not decided.",
        tuple(_remarks(claims)),
        shown_rows=len(claims),
        data=tuple(one.title for one in data),
    )


def _claim_row(claim: PaperClaim) -> ItemRow:
    return ItemRow(
        f"{claim.where} (section {claim.section})", claim.quantity, measured=claim.found.value, low=claim.found.low,
        high=claim.found.high, note=f"{claim.verdict}: {claim.statement}; claimed: {claim.range_text}",
    )  # fmt: skip


def _remarks(claims: Sequence[PaperClaim]) -> Iterator[str]:
    for statement in dict.fromkeys(claim.statement for claim in claims):
        own = [claim for claim in claims if claim.statement == statement]
        said = ", ".join(f"{count} {verdict}" for verdict, count in counted(own).items() if count)
        yield f"{statement[0].upper()}{statement[1:]}: of {len(own)}, {said}."
    yield (
        f"Differences of up to {MARGIN:g} count as none: the smallest that the paper speaks of. A claim holds where "
        "the whole interval lies in the range, does not hold where none of it does, and is not decided otherwise. The "
        "intervals are Student's or of resampled worlds: each holds by itself with about 95 %, and with less where few "
        "worlds differ much. Of twenty verdicts one or more may be chance."
    )


_MARKS = {
    ClaimVerdict.HOLDS: ("o", "#12426e", "#12426e"),
    ClaimVerdict.FAILS: ("X", "#b35806", "#b35806"),
    ClaimVerdict.OPEN: ("o", "#5c5c5c", "white"),
}


def _draw_all(figure: Figure, claims: Sequence[PaperClaim]) -> None:
    """Draw every kind of number in a panel of its own, for their axes differ."""
    kinds = [(name, [claim for claim in claims if _kind(claim) == name]) for name in _AXES]
    there = [(name, own) for name, own in kinds if own]
    panels = np.atleast_1d(figure.subplots(len(there), 1, height_ratios=[len(own) + 1.5 for _, own in there]))
    for axes, (name, own) in zip(panels, there, strict=True):
        _draw(axes, own, name)


_AXES = {
    "AUC or test accuracy": (0.3, 1.0),
    "Difference of AUC, test accuracy or confidence": (-0.3, 0.3),
    "phi": (-1.0, 2.1),
}
"""What the panels show, and the least range of their axes."""


def _kind(claim: PaperClaim) -> str:
    level, difference, of_phi = _AXES
    if "phi" in claim.quantity:
        return of_phi
    return difference if " less " in claim.quantity else level


def _draw(axes: Axes, claims: Sequence[PaperClaim], name: str) -> None:
    ends = [end for claim in claims for end in (claim.found.low, claim.found.high) if isfinite(end)]
    left, right = min([_AXES[name][0], *ends]), max([_AXES[name][1], *ends])
    for place, claim in enumerate(claims):
        low, high = max(claim.lowest, left), min(claim.highest, right)
        axes.barh(place, high - low, left=low, height=0.62, color=MUTED, alpha=0.22, linewidth=0)
        marker, colour, fill = _MARKS[claim.verdict]
        axes.plot([claim.found.low, claim.found.high], [place, place], color=colour, linewidth=1.6)
        axes.plot(claim.found.value, place, marker, color=colour, markerfacecolor=fill, markersize=6)
    named = [f"{claim.where}: {_short(claim.quantity)}" for claim in claims]
    axes.set_yticks(range(len(claims)), named)
    axes.set_ylim(len(claims) - 0.4, -0.6)
    axes.set_xlim(left, right)
    name_panel(axes, "", "", name, "")
    axes.tick_params(axis="y", labelsize=SMALL_TEXT_SIZE - 3.5)


def _short(quantity: str) -> str:
    for long, short in (
        ("white-box AUC less black-box AUC, mean over settings", "white less black"),
        (", at the same test accuracy", ""), ("smallest difference of test accuracies, LDP less CDP, level by level",
        "accuracy, LDP less CDP"), ("under LDP less under CDP", "LDP less CDP"),
        ("confidence at epsilon_i 1 less the largest at another level", "confidence, level 1 less others"),
        ("under CDP less under LDP", "CDP less LDP"), ("(white-box AUC)", "(white-box)"),
    ):  # fmt: skip
        quantity = quantity.replace(long, short)
    return quantity
