"""A self-contained HTML page with all tables and figures of a reproduction."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from fl_audit.experiments.papers.item_results import COLUMNS, ItemResult
from fl_audit.experiments.papers.papers import ComputeExtent, Paper, PaperItem, PaperResults
from fl_audit.report.mechanism_messages import SIMULATION_NOTICE
from fl_audit.report.page import (
    Banner,
    VerdictLook,
    heading_html,
    html_figure,
    html_page,
    joined_html,
    link_html,
    list_html,
    page_table,
    paragraph_html,
    warning_html,
)
from fl_audit.words import number_text, plural

_MOST_LISTED = 10
_WORDS = ("setting", "quantity", "note")


def render_page(
    name: str, extent: ComputeExtent, paper: Paper, paper_results: PaperResults, pictures: Mapping[str, bytes]
) -> str:
    """Return the HTML page of a reproduction, which contains its pictures and needs no other file."""
    results = [result for _, result in paper_results.results]
    notices = (*paper_results.remarks, *paper_results.left_out)
    contents = list_html(link_html(item.key, item.title) for item, _ in paper_results.results)
    items = [_item(item, result, pictures[item.key]) for item, result in paper_results.results]
    body = (
        *map(warning_html, paper_results.warnings),
        *(paragraph_html(line, "notice") for line in notices),
        heading_html("Contents"),
        contents,
        heading_html("What was played"),
        paper_results.procedures_html,
        *items,
        heading_html("Paper"),
        paragraph_html(paper.reference),
    )
    form = "quick form" if extent is ComputeExtent.QUICK else "full form"
    return html_page(
        title=f"Reproduction: {name}",
        heading=f"Reproduction of {paper.heading}",
        subtitle=" · ".join((name, form, *paper_results.basis)),
        opening=paper_results.opening or _opening(results),
        body=joined_html(*body),
        footer=SIMULATION_NOTICE,
        banner=_banner(results),
        step="Read below of each item where ours differs, and why. Its CSV file beside this page has every row.",
    )


def _banner(results: Sequence[ItemResult]) -> Banner:
    """Return the banner: the number of results, and how many printed numbers lie inside our intervals."""
    compared, outside = _compared_counts(results, "published")
    items = plural(len(results), "item")
    if not compared:
        return Banner(
            f"{items} made again", "Nothing here is held against a printed number by an interval.", VerdictLook.NONE
        )
    line = f"{compared - outside:,} of {plural(compared, 'printed number')} lie inside our 95 % intervals."
    return Banner(f"{items} made again", line, VerdictLook.GOOD if not outside else VerdictLook.OPEN)


def _opening(results: Sequence[ItemResult]) -> str:
    """Return the opening paragraph of the page, which counts agreements with printed numbers and with theory."""
    compared, outside = _compared_counts(results, "published")
    theory, missed = _compared_counts([result for result in results if not result.finding], "theory")
    computed = [result.computed for result in results]
    printed = sum(count for count, _ in computed)
    differing = sum(len(lines) for _, lines in computed)
    phrases = list(dict.fromkeys(result.finding.rstrip(".") for result in results if result.finding))
    if compared:
        phrases.append(
            f"{compared - outside:,} of {plural(compared, 'printed number')} lie inside our intervals of about 95 %. "
            "The printed numbers have errors of their own, which our intervals do not include"
        )
    if printed:
        alike = f"{printed - differing:,} of {plural(printed, 'printed number')}"
        phrases.append(f"{alike} follow from theory in all printed digits")
    if theory:
        phrases.append(
            f"{theory - missed:,} of {plural(theory, 'number')} by theory lie inside our intervals; of so many about "
            f"{number_text(round(theory / 20))} miss by chance"
        )
    if not phrases:
        return "Nothing here is held against a printed number or theory: the figures show what our own runs give."
    return f"{'. '.join(phrases)}. Each item below says where numbers differ, and what the reason may be."


def _compared_counts(results: Sequence[ItemResult], column: str) -> tuple[int, int]:
    """Return how many numbers in `column` ("published" or "theory") have a measured interval beside them.

    The second result is how many of these numbers lie outside the interval.
    """
    return sum(result.comparable_rows(column) for result in results), sum(
        len(result.outside_sentences(column)) for result in results
    )


def _item(item: PaperItem, result: ItemResult, png: bytes) -> str:
    return joined_html(
        heading_html(item.title, item.key),
        html_figure(png, f"{item.title}: {result.caption}", result.caption),
        differences_html(result),
        rows_html(result.frame.head(result.shown_rows), len(result.frame), f"{item.key}.csv"),
    )


def differences_html(result: ItemResult) -> str:
    """Return HTML that lists printed and theoretical numbers outside our intervals, and the remarks on the result."""
    phrases = ["<h3>Where ours differs, and why</h3>"]
    if compared := result.comparable_rows("published"):
        outside = result.outside_sentences("published")
        phrases.append(_listed(_outside(outside, compared, "published numbers"), outside))
    computed, differing = result.computed
    if computed:
        alike = f"{computed - len(differing)} of {plural(computed, 'printed number')}"
        # If most numbers differ, all of them are in the table, and the remarks say why.
        listed = differing if len(differing) <= _MOST_LISTED else ()
        phrases.append(_listed(f"{alike} follow from theory in all printed digits", listed))
    if compared_rows := result.comparable_rows("theory"):
        missed = result.outside_sentences("theory")
        introduction = _outside(missed, compared_rows, "numbers by theory")
        phrases.append(
            f"<p>{introduction}. {escape(result.finding)}.</p>" if result.finding else _listed(introduction, missed)
        )
    reasons = "".join(f"<li>{with_code(escape(remark))}</li>" for remark in result.remarks)
    return "\n".join([*phrases, f"<ul>{reasons}</ul>"])


def with_code(text: str) -> str:
    """Return an HTML text in which the parts between backticks have become `<code>` elements.

    The given text is escaped already. HTML lists need this, because Markdown inside them is not rendered.
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def _outside(outside: Sequence[str], compared: int, description: str) -> str:
    return f"{len(outside)} of {compared} {description} {'lies' if len(outside) == 1 else 'lie'} outside our interval"


def _listed(introduction: str, lines: Sequence[str]) -> str:
    if not lines:
        return f"<p>{escape(introduction)}.</p>"
    return f"<p>{escape(introduction)}:</p><ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def rows_html(frame: pd.DataFrame, rows: int, file: str, look: str = "numbers") -> str:
    """Return rows of a table or figure as HTML, followed by the number of further rows in its CSV file."""
    cells = {column: [_cell(column, value) for value in frame[column]] for column in COLUMNS}
    columns = [column for column in COLUMNS if any(cells[column])]  # a column without a number tells nothing
    lines = list(zip(*(cells[column] for column in columns), strict=True))
    numbers = [index for index, column in enumerate(columns) if column not in _WORDS]
    remainder = f"<p>{rows - len(frame):,} more rows in {escape(file)}.</p>" if rows > len(frame) else ""
    return page_table(tuple(column.capitalize() for column in columns), lines, numbers, look=look) + remainder


def _cell(column: str, value: Any) -> str:
    if column in _WORDS:
        return "" if value != value else str(value)  # a file has no empty words
    if column == "repetitions":
        return f"{int(value):,}" if value else ""
    return "" if math.isnan(value) else number_text(float(value))
