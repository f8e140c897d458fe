"""One page that shows everything that was reproduced and needs no other file."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from string import Template
from typing import Any

from experiments.reproductions.items import COLUMNS, ItemResult
from experiments.reproductions.papers import Extent, Item, Made, Paper
from fl_audit.report.page.markup import html_figure, html_table
from fl_audit.report.page.shell import html_page
from fl_audit.report.sections.law import SIMULATION_NOTICE
from fl_audit.report.wording import number_text, plural

BODY = Template("""$labels
<h2>Contents</h2>
<ul>
$contents
</ul>
<h2>What was played</h2>
$played
$items
<h2>Paper</h2>
<p>$paper</p>""")


def render_page(name: str, extent: Extent, paper: Paper[Any], made: Made, pictures: Mapping[str, bytes]) -> str:
    """Return the page.

    Parameters
    ----------
    name
        Name of the paper or item that was asked for.
    extent
        Full or quick.
    paper
        The paper that is reproduced.
    made
        The items that were made.
    pictures
        PNG bytes by the key of the item.
    """
    body = BODY.substitute(
        labels="\n".join(_labels(made)),
        contents="\n".join(
            f'<li><a href="#{escape(item.key)}">{escape(item.title)}</a></li>' for item, _ in made.results
        ),
        played=made.played,
        items="\n".join(_item(item, result, pictures[item.key]) for item, result in made.results),
        paper=escape(paper.reference),
    )
    form = "quick form" if extent is Extent.QUICK else "full form"
    return html_page(
        title=f"Reproduction: {name}",
        heading=f"Reproduction of {paper.heading}",
        subtitle=" · ".join((name, form, *made.basis)),
        opening=made.opening or _opening(made.results),
        body=body,
        footer=f"Written by fl_audit. {SIMULATION_NOTICE}",
    )


def _opening(results: Sequence[tuple[Item, ItemResult]]) -> str:
    compared = sum(result.compared for _, result in results)
    outside = sum(len(result.differences) for _, result in results)
    if not compared:
        printed = any(result.frame["published"].notna().any() for _, result in results)
        beside = "closed forms stand beside the printed numbers" if printed else "theory is given where there is any"
        return f"Nothing here is measured against a published number; {beside}."
    return (
        f"Of {plural(compared, 'published number')} with an interval of ours beside them, {compared - outside} lie "
        f"inside it and {outside} outside. The published numbers have errors of their own, which our intervals do not "
        "include. Each item below says where our numbers differ from the published ones, and what the reason may be."
    )


def _labels(made: Made) -> list[str]:
    warnings = [f'<p class="label">⚠ {escape(line)}</p>' for line in made.warnings]
    return warnings + [f'<p class="notice">{escape(line)}</p>' for line in (*made.remarks, *made.left_out)]


def _item(item: Item, result: ItemResult, png: bytes) -> str:
    figure = html_figure(png, f"{item.title}: {result.caption}", escape(result.caption))
    return (
        f'<h2 id="{escape(item.key)}">{escape(item.title)}</h2>\n'
        f"{figure}\n{_differences(result)}\n{_rows(item, result)}"
    )


def _differences(result: ItemResult) -> str:
    parts = ["<h3>Where ours differs, and why</h3>"]
    if result.compared:
        outside = result.differences
        said = f"{len(outside)} of {result.compared} published numbers lie outside our interval"
        parts.append(f"<p>{escape(said)}{':' if outside else '.'}</p>")
        if outside:
            parts.append("<ul>" + "".join(f"<li>{escape(line)}</li>" for line in outside) + "</ul>")
    reasons = "".join(f"<li>{escape(remark)}</li>" for remark in result.remarks)
    return "\n".join([*parts, f"<ul>{reasons}</ul>"])


def _rows(item: Item, result: ItemResult) -> str:
    shown = result.frame.head(result.shown_rows)
    rows = [tuple(_cell(column, getattr(row, column)) for column in COLUMNS) for row in shown.itertuples()]
    left = len(result.frame) - len(shown)
    rest = f"<p>{left:,} more rows in {escape(item.key)}.csv.</p>" if left else ""
    return html_table(tuple(column.capitalize() for column in COLUMNS), rows, numbers=range(2, 8)) + rest


def _cell(column: str, value: Any) -> str:
    if column in ("setting", "quantity", "note"):
        return str(value)
    if column == "repetitions":
        return f"{value:,}" if value else ""
    return "" if math.isnan(value) else number_text(float(value))
