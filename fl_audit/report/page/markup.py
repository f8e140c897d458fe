"""Pieces of HTML that several pages are built of."""

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

from fl_audit.notebook import Markup, html_table
from fl_audit.report.wording import MISSING, number_text, percent


def html_figure(picture: bytes | str, alternative: str, caption: str, name: str = "") -> str:
    """Return a picture with its caption.

    Parameters
    ----------
    picture
        A PNG, or a drawing that stands in the page itself: an SVG element of `page.pictures`.
    alternative
        What it shows, plain text, for who cannot see it.
    caption
        HTML, escaped already.
    name
        Identifier that links lead to, plain text; empty for none.
    """
    shown = escape(alternative)
    if isinstance(picture, bytes):
        shown = f'<img alt="{shown}" src="data:image/png;base64,{base64.b64encode(picture).decode("ascii")}">'
    else:
        shown = picture.replace("$label", shown, 1)
    identifier = f' id="{escape(name)}"' if name else ""
    return f"<figure{identifier}>\n{shown}\n<figcaption>{caption}</figcaption></figure>"


def page_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numbers: Sequence[int] = (),
    links: Sequence[str] = (),
    title: str = "",
    look: str = "numbers",
) -> str:
    """Return a table in a box that scrolls where it is too wide, by keys too.

    Parameters
    ----------
    columns, title, look
        As for `fl_audit.notebook.html_table`.
    rows
        Cells, as many in each row as there are columns: plain text, numbers, or None for what was not determined.
    numbers
        Indices of columns whose text holds numbers.
    links
        Where the first cell of each row leads to, relative to the page; none where it leads nowhere.
    """
    targets = list(links) or [""] * len(rows)
    cells = [
        [_linked(row[0], target), *(_cell(cell, place in numbers) for place, cell in enumerate(row[1:], start=1))]
        for row, target in zip(rows, targets, strict=True)
    ]
    table = html_table(cells, title, columns=columns, look=look)
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(title or "Table")}">{table}</div>\n'


def _linked(cell: Any, target: str) -> str:
    shown = _cell(cell, True)
    return Markup(f'<a href="{escape(target)}">{shown}</a>') if target else shown


def _cell(cell: Any, is_number: bool) -> str:
    if isinstance(cell, Markup):
        return cell
    if isinstance(cell, str):
        return Markup(escape(cell)) if is_number else cell
    return Markup(value_html(cell))


def value_html(value: Any, is_share: bool = False, digits: int = 4) -> str:
    """Return a number for display, wrapped so that its full precision stays in the page.

    Parameters
    ----------
    value
        A number, or whatever else stands in a row.
    is_share
        Whether it is shown in percent.
    digits
        Digits that are shown of a number that is no share.
    """
    if value is None:
        return escape(MISSING)
    shown = percent(float(value)) if is_share else number_text(value, digits)
    return f'<data value="{escape(str(value))}">{escape(shown)}</data>'
