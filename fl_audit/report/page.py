"""Render every page of HTML, of runs and of all other audits: frame, banner, facts, texts, figures and tables.

The HTML itself stands in the template `page.md`. A page needs no other file.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fl_audit.html_tables import Markup, html_table
from fl_audit.report.stylesheet import STYLESHEET
from fl_audit.report.template_files import page_part
from fl_audit.words import DASH, MISSING, day_text, number_text, percent


class VerdictLook(Enum):
    """The look of a verdict: its CSS class, its symbol, and its style on a terminal.

    Pages without a verdict, such as those of sweeps and papers, have a look too, so it is no property of `Verdict`.
    """

    BAD = "violated", "✗", "bold red"
    GOOD = "consistent", "✓", "bold green"
    OPEN = "inconclusive", "?", "bold bright_black"
    NONE = "open", DASH, "bold bright_black"


@dataclass(frozen=True)
class Banner:
    """The banner of a report: the name of the verdict, a line of plain text below it, and the look of the verdict."""

    word: str
    line: str
    look: VerdictLook


def html_figure(picture: bytes | str, alternative: str, caption: str, name: str = "") -> Markup:
    """Return a picture with its caption; an SVG element has `$label` in the place of its alternative text."""
    if isinstance(picture, bytes):
        markup = page_part("picture", data=base64.b64encode(picture).decode("ascii"), label=alternative)
    else:
        markup = Markup(picture.replace("$label", escape(alternative), 1))
    return page_part("figure", shown=markup, caption=caption, name=name)


def page_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numbers: Sequence[int] = (),
    links: Sequence[str] = (),
    title: str = "",
    look: str = "numbers",
) -> str:
    """Return an HTML table in a box that scrolls sideways if the table is too wide, also by keyboard."""
    targets = list(links) or [""] * len(rows)
    cells = [[_cell(cell, index in (0, *numbers)) for index, cell in enumerate(row)] for row in rows]
    for row, target in zip(cells, targets, strict=True):
        row[0] = Markup(f'<a href="{escape(target)}">{row[0]}</a>') if target else row[0]
    table = html_table(cells, title, columns=columns, look=look)
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(title or "Table")}">{table}</div>\n'


def _cell(cell: Any, is_number: bool) -> str:
    if isinstance(cell, Markup):
        return cell
    if isinstance(cell, str):
        return Markup(escape(cell)) if is_number else cell
    return Markup(value_html(cell))


def value_html(value: Any, is_share: bool = False, digits: int = 4) -> str:
    """Return a rounded number as an HTML `data` element that keeps its full precision.

    For None, return the text that stands for a missing value.
    """
    if value is None:
        return escape(MISSING)
    value_text = percent(float(value)) if is_share else number_text(value, digits)
    return f'<data value="{escape(str(value))}">{escape(value_text)}</data>'


@dataclass(frozen=True)
class Fact:
    """A number that a page shows in large letters, with its name and a number to compare it with."""

    name: str  # name of the number, in a few words
    value: str  # the number, as text
    note: str  # phrase with the number to compare it with
    joint: str = "; "  # separator between `value` and `note` in a line of text


def banner_html(banner: Banner) -> Markup:
    """Return the verdict of a page in large letters."""
    kind, sign, _ = banner.look.value
    return page_part("banner", kind=kind, sign=sign, word=banner.word, line=banner.line)


def warning_html(warning: str) -> Markup:
    """Return a warning as a paragraph with a sign."""
    return page_part("warning", text=warning)


def step_html(step: str, label: str = "Next") -> Markup:
    """Return the next step for the reader as a paragraph."""
    return page_part("step", label=label, text=step)


def facts_html(facts: Sequence[Fact]) -> Markup:
    """Return numbers in large letters, side by side."""
    return page_part("facts", facts=facts)


def paragraph_html(text: str, look: str = "") -> Markup:
    """Return a paragraph, with a CSS class if `look` names one."""
    return page_part("paragraph", text=text, look=look)


def heading_html(text: str, name: str = "") -> Markup:
    """Return a heading, which links may lead to if it has a name."""
    return page_part("heading", text=text, name=name)


def list_html(texts: Iterable[str]) -> Markup:
    """Return texts as a list, one entry each; empty if there are none."""
    entries = list(texts)
    return page_part("listing", texts=entries) if entries else Markup("")


def pairs_html(pairs: Iterable[tuple[str, str]], look: str = "") -> Markup:
    """Return pairs of a name and a text as a list of descriptions."""
    return page_part("pairs", pairs=list(pairs), look=look)


def folded_html(title: str, inside: str, name: str = "") -> Markup:
    """Return HTML that is folded below its title at first; links may lead to it if it has a name."""
    return page_part("folded", title=title, inside=inside, name=name)


def joined_html(*phrases: str) -> Markup:
    """Return pieces of HTML below each other, without empty ones."""
    return Markup("\n".join(phrase for phrase in phrases if phrase))


def _written_by() -> str:
    try:
        release = f" {version('fl-audit')}"
    except PackageNotFoundError:
        release = ""
    return f"Written by fl_audit{release} on {day_text(datetime.now(UTC).isoformat())}."


def link_html(target: str, text: str) -> Markup:
    """Return a link to a part of the same page."""
    return page_part("link", target=target, text=text)


def strong_html(text: str, following: str) -> Markup:
    """Return a text in bold letters, and a text that follows it."""
    return page_part("strong", text=text, following=following)


def block_html(inside: str, look: str, name: str = "") -> Markup:
    """Return HTML in a block with a CSS class; links may lead to it if it has a name."""
    return page_part("block", inside=inside, look=look, name=name)


def html_page(
    title: str,
    heading: str,
    subtitle: str,
    opening: str,
    body: str,
    footer: str = "",
    banner: Banner | None = None,
    step: str = "",
    warning: str | None = None,
) -> str:
    """Return a whole HTML page, with a content security policy that forbids scripts and external resources.

    Images are embedded as data. The footer names the version of the package and the date of writing. A warning stands
    below the banner.
    """
    markups = (
        banner and banner_html(banner),
        warning and warning_html(warning),
        opening and paragraph_html(opening, "opening"),
        step and step_html(step),
    )
    return page_part(
        "page",
        title=title,
        heading=heading,
        subtitle=subtitle,
        footer=f"{_written_by()} {footer}".strip(),
        style=STYLESHEET,
        parts=[joined_html(*(element for element in markups if element)), body],
    )
