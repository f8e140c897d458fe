"""The table and figure of a paper's claims, with the verdict on each."""

from collections.abc import Iterator, Sequence
from math import isfinite

import numpy as np
from matplotlib.axes import Axes

from fl_audit.experiments.papers.claims import ClaimVerdict, PaperClaim, counted, said_of, verdicts_said
from fl_audit.experiments.papers.item_results import ItemResult, measured_row, table
from fl_audit.report.figure_style import MUTED, SMALL_TEXT_SIZE, finish_axes, new_figure
from fl_audit.words import capital, phrase_list


def claims_table(claims: Sequence[PaperClaim], remarks: Sequence[str], data: Sequence[str]) -> ItemResult:
    """Return a table and a figure of claims: measured number, interval and verdict of each claim."""
    finite_claims = [claim for claim in claims if isfinite(claim.interval.value) and not claim.untestable]
    figure = new_figure(2.6 + 0.27 * len(finite_claims))
    # Numbers of like size have a panel of their own, for their axes differ.
    claims_of_panels = [
        (limit, claims_of_limit)
        for limit in _LIMITS
        if (claims_of_limit := [claim for claim in finite_claims if _limit(claim) == limit])
    ]
    panels = np.atleast_1d(
        figure.subplots(
            len(claims_of_panels), 1, height_ratios=[len(drawn_claims) + 1.5 for _, drawn_claims in claims_of_panels]
        )
    )
    for axes, (limit, drawn_claims) in zip(panels, claims_of_panels, strict=True):
        _draw(axes, drawn_claims, limit)
    rows = (
        measured_row(
            f"{claim.where} (section {claim.section})".strip(), claim.quantity, claim.interval, claim.trials, claim.note
        )
        for claim in claims
    )
    return ItemResult(
        table(rows),
        figure,
        "Each number with its interval (dot and line), and the range in which the claim has it (grey bar, cut at the "
        "frame). Filled: holds on our data; crossed: does not hold; open: not decided. Claims that cannot be tested "
        "have no line.",
        (verdicts_said(claims), *_by_statement(claims), *remarks),
        shown_rows=len(claims),
        data=tuple(data),
        claims=tuple(claims),
    )


def _by_statement(claims: Sequence[PaperClaim]) -> Iterator[str]:
    for statement in dict.fromkeys(claim.statement for claim in claims):
        claims_of_statement = [claim for claim in claims if claim.statement == statement]
        counts = {verdict: count for verdict, count in counted(claims_of_statement).items() if count}
        text = phrase_list([f"{count} {said_of(verdict, count)}" for verdict, count in counts.items()])
        if len(counts) == 1:
            number = {1: "it", 2: "both"}.get(len(claims_of_statement), f"all {len(claims_of_statement)}")
            text = f"{number} {said_of(claims_of_statement[0].verdict, len(claims_of_statement))}"
        else:
            text = f"of {len(claims_of_statement)}, {text}"
        yield f"{capital(statement)}: {text}."


_MARKS = {
    ClaimVerdict.HOLDS: ("o", "#12426e", "#12426e"),
    ClaimVerdict.FAILS: ("X", "#b35806", "#b35806"),
    ClaimVerdict.OPEN: ("o", "#5c5c5c", "white"),
}


_LIMITS = (0.3, 1.0, 5.0, 100.0)
"""The largest size of the numbers of a panel: differences of rates, rates, epsilons and ratios, counts."""


def _limit(claim: PaperClaim) -> float:
    sizes = [
        abs(number) for number in (claim.interval.value, claim.interval.low, claim.interval.high) if isfinite(number)
    ]
    return next((limit for limit in _LIMITS if max(sizes) <= limit), _LIMITS[-1])


def _draw(axes: Axes, claims: Sequence[PaperClaim], limit: float) -> None:
    numbers = [end for claim in claims for end in (claim.interval.value, claim.interval.low, claim.interval.high)]
    low_end = min(-0.05 * limit, *filter(isfinite, numbers))
    high_end = max(limit, *filter(isfinite, numbers))
    for index, claim in enumerate(claims):
        low = max(claim.lowest, low_end)
        high = min(claim.highest, high_end)
        axes.barh(
            index,
            max(high - low, 0.004 * (high_end - low_end)),
            left=low,
            height=0.62,
            color=MUTED,
            alpha=0.22,
            linewidth=0,
        )
        marker, colour, fill = _MARKS[claim.verdict]
        ends = np.nan_to_num(
            [claim.interval.low, claim.interval.high], nan=claim.interval.value, posinf=high_end, neginf=low_end
        )
        axes.plot(ends, [index, index], color=colour, linewidth=1.6)
        axes.plot(claim.interval.value, index, marker, color=colour, markerfacecolor=fill, markersize=6)
    axes.set_yticks(range(len(claims)), [f"{claim.where}: {_short(claim.quantity)}" for claim in claims])
    axes.set_ylim(len(claims) - 0.4, -0.6)
    axes.set_xlim(low_end, high_end)
    finish_axes(axes, "", f"Numbers up to {limit:g}" if limit < _LIMITS[-1] else "Larger numbers", "")
    axes.tick_params(axis="y", labelsize=SMALL_TEXT_SIZE - 3.5)


_LONGEST = 62


def _short(quantity: str) -> str:
    return quantity if len(quantity) <= _LONGEST else f"{quantity[: _LONGEST - 1].rstrip()}…"
