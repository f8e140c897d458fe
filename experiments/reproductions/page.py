"""One page over everything that was reproduced; it needs no other file."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from string import Template
from typing import Any

from experiments.reproductions.bernau2021.runs import Findings
from experiments.reproductions.bernau2021.settings import (
    ACCOUNTANT,
    CLIPPING_NORM,
    LEARNING_RATE,
    OPTIMIZER,
    ROUNDS,
    Extent,
)
from experiments.reproductions.bernau2021.sources import DataFound
from experiments.reproductions.catalogue import Item
from experiments.reproductions.items import COLUMNS, ItemResult
from fl_audit.report.narrative import AUDIT_DEVICE, SIMULATION_NOTICE
from fl_audit.report.shell import html_page
from fl_audit.report.wording import number_text, plural

PAPER_LINE = (
    "D. Bernau, G. Eibl, P. W. Grassal, H. Keller, F. Kerschbaum (2021). Quantifying identifiability to choose and "
    "audit epsilon in differentially private deep learning. PVLDB 14(13)."
)
QUICK_LABEL = "Quick form: few worlds, wide intervals. It shows that everything works, and proves little."

BODY = Template("""$labels
<h2>Contents</h2>
<ul>
$contents
</ul>
<h2>What was played</h2>
$settings
$items
<h2>Paper</h2>
<p>$paper</p>""")


@dataclass(frozen=True)
class PageFacts:
    """What the page says besides its items.

    Parameters
    ----------
    name
        What was asked for.
    extent
        As published, or quick.
    found
        Which data sets were there.
    left_out
        A line for every item that could not be made.
    runs
        What was played.
    """

    name: str
    extent: Extent
    found: DataFound
    left_out: tuple[str, ...]
    runs: tuple[Findings, ...]


def render_page(results: Sequence[tuple[Item, ItemResult]], pictures: Mapping[str, bytes], facts: PageFacts) -> str:
    """Return the page.

    Parameters
    ----------
    results
        Each item with its result, in order.
    pictures
        PNG bytes by the key of the item.
    facts
        What else it says.
    """
    body = BODY.substitute(
        labels="\n".join(_labels(facts)),
        contents="\n".join(f'<li><a href="#{escape(item.key)}">{escape(item.title)}</a></li>' for item, _ in results),
        settings=_settings(facts),
        items="\n".join(_item(item, result, pictures[item.key]) for item, result in results),
        paper=escape(PAPER_LINE),
    )
    return html_page(
        title=f"Reproduction: {facts.name}",
        heading="Reproduction of Bernau et al. 2021",
        subtitle=_subtitle(facts),
        opening=_opening(results),
        body=body,
        footer=f"Written by fl_audit. {SIMULATION_NOTICE}",
    )


def _subtitle(facts: PageFacts) -> str:
    form = "quick form" if facts.extent is Extent.QUICK else "as published"
    data = ", ".join(one.title for one in facts.found.data) or "no data needed"
    return " · ".join((facts.name, form, data, plural(len(facts.runs), "run")))


def _opening(results: Sequence[tuple[Item, ItemResult]]) -> str:
    compared = sum(result.compared for _, result in results)
    outside = sum(len(result.differences) for _, result in results)
    if not compared:
        return "Nothing here is measured against a published number; closed forms stand beside what is printed."
    return (
        f"Of {plural(compared, 'published number')} with an interval of ours beside them, {compared - outside} lie "
        f"inside it and {outside} outside. The published numbers have errors of their own, which the intervals leave "
        "out. Each item says below where ours differs, and why it may."
    )


def _labels(facts: PageFacts) -> list[str]:
    labels = []
    if facts.extent is Extent.QUICK and facts.runs:
        labels.append(f'<p class="label">⚠ {escape(f"{QUICK_LABEL} {_other_measures(facts)}".strip())}</p>')
    if facts.runs:
        labels.append(f'<p class="label">⚠ Settings marked LS: {escape(AUDIT_DEVICE)}</p>')
    missing = (*facts.found.remarks, *facts.left_out)
    return labels + [f'<p class="notice">{escape(line)}</p>' for line in missing]


def _other_measures(facts: PageFacts) -> str:
    """Return a sentence about the data sets whose neighbours were chosen by another measure than the paper's."""
    others = {
        f"on {found.setting.data.title} by the {found.config.audit.dissimilarity} measure instead of "
        f"{found.setting.data.dissimilarity}"
        for found in facts.runs
        if str(found.config.audit.dissimilarity) != found.setting.data.dissimilarity
    }
    return f"Neighbours are chosen {', '.join(sorted(others))}." if others else ""


def _settings(facts: PageFacts) -> str:
    if not facts.runs:
        return "<p>Nothing: all of this follows from closed forms and a simulated query.</p>"
    common = (
        f"Every run: {ROUNDS} full-batch rounds over 10 clients, C = {CLIPPING_NORM:g}, {OPTIMIZER.capitalize()} at "
        f"learning rate {LEARNING_RATE:g} as in the authors' code, noise by {ACCOUNTANT}; most dissimilar neighbour "
        "unless named."
    )
    rows = [
        (found.setting.label, f"{found.setting.data.model}, n = {found.setting.data.records:,}",
         str(found.config.audit.dissimilarity), number_text(found.summary["guarantee"]["noise_multiplier"]),
         f"{found.repetitions:,}", found.engine)
        for found in facts.runs
    ]  # fmt: skip
    columns = ("Setting", "Model and records", "Dissimilarity", "Noise multiplier", "Worlds", "Engine")
    return f"<p>{escape(common)}</p>\n{_table(columns, rows, numbers=(3, 4))}"


def _item(item: Item, result: ItemResult, png: bytes) -> str:
    image = base64.b64encode(png).decode("ascii")
    alternative = f"{item.title}: {result.caption}"
    return (
        f'<h2 id="{escape(item.key)}">{escape(item.title)}</h2>\n'
        f'<figure><img alt="{escape(alternative)}" src="data:image/png;base64,{image}">\n'
        f"<figcaption>{escape(result.caption)}</figcaption></figure>\n"
        f"{_differences(result)}\n{_rows(item, result)}"
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
    return _table(tuple(column.capitalize() for column in COLUMNS), rows, numbers=range(2, 8)) + rest


def _cell(column: str, value: Any) -> str:
    if column in ("setting", "quantity", "note"):
        return str(value)
    if column == "repetitions":
        return f"{value:,}" if value else ""
    return "" if math.isnan(value) else number_text(float(value))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "\n".join(
        "<tr>" + "".join(_data(cell, index, numbers) for index, cell in enumerate(row)) + "</tr>" for row in rows
    )
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _data(cell: str, index: int, numbers: Sequence[int]) -> str:
    if index == 0:
        return f'<th scope="row">{escape(cell)}</th>'
    kind = ' class="value"' if index in numbers else ' class="aside"'
    return f"<td{kind}>{escape(cell)}</td>"
