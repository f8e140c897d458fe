"""Pieces of HTML that several pages are built of."""

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

from fl_audit.report.wording import MISSING, number_text, percent


def html_figure(png: bytes, alternative: str, caption: str, name: str = "") -> str:
    """Return a picture with its caption.

    Parameters
    ----------
    png
        The picture.
    alternative
        What it shows, plain text, for who cannot see it.
    caption
        HTML, escaped already.
    name
        Identifier that links lead to, plain text; empty for none.
    """
    data = base64.b64encode(png).decode("ascii")
    return _figure(f'<img alt="{escape(alternative)}" src="data:image/png;base64,{data}">', caption, name)


def html_drawing(svg: str, alternative: str, caption: str, name: str) -> str:
    """Return a drawing that stands in the page itself with its caption; see `html_figure`.

    Parameters
    ----------
    svg
        The drawing, an SVG element of `page.svg`.
    alternative, caption, name
        As for `html_figure`.
    """
    return _figure(svg.replace("$label", escape(alternative), 1), caption, name)


def _figure(picture: str, caption: str, name: str) -> str:
    identifier = f' id="{escape(name)}"' if name else ""
    return f"<figure{identifier}>\n{picture}\n<figcaption>{caption}</figcaption></figure>"


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numbers: Sequence[int] = (),
    links: Sequence[str] = (),
    title: str = "",
    look: str = "numbers",
) -> str:
    """Return a table whose first column names the rows, in a box that scrolls where it is too wide, by keys too.

    Parameters
    ----------
    columns
        Names, plain text.
    rows
        Cells, as many in each row as there are columns: plain text, numbers, or None for what was not determined.
    numbers
        Indices of columns whose text holds numbers.
    links
        Where the first cell of each row leads to, relative to the page; none where it leads nowhere.
    title
        What it shows, plain text; empty for none.
    look
        Class of the style sheet.
    """
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    targets = list(links) or [""] * len(rows)
    body = "\n".join(_row(columns, row, numbers, target) for row, target in zip(rows, targets, strict=True))
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    table = f'<table class="{look}">{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(title or "Table")}">{table}</div>\n'


def value_html(value: Any, is_share: bool = False, digits: int = 4) -> str:
    """Return a number for display, wrapped so that its full precision stays in the page.

    Parameters
    ----------
    value
        A number, or whatever else stands in a row.
    is_share
        Whether it is shown in percent.
    digits
        That count.
    """
    if value is None:
        return escape(MISSING)
    shown = percent(float(value)) if is_share else number_text(value, digits)
    return f'<data value="{escape(str(value))}">{escape(shown)}</data>'


class Markup(str):
    """Text that is HTML already; `kind` is the class of its cell."""

    kind = "value"


def _row(columns: Sequence[str], row: Sequence[Any], numbers: Sequence[int], target: str) -> str:
    name = f'<a href="{escape(target)}">{_cell(row[0])}</a>' if target else _cell(row[0])
    cells = "".join(
        f'<td class="{_kind(cell, place in numbers)}" data-label="{escape(column)}">{_cell(cell)}</td>'
        for place, (column, cell) in enumerate(zip(columns, row, strict=True))
        if place
    )
    return f'<tr><th scope="row">{name}</th>{cells}</tr>'


def _kind(cell: Any, is_number: bool) -> str:
    return "aside" if isinstance(cell, str) and not isinstance(cell, Markup) and not is_number else "value"


def _cell(cell: Any) -> str:
    if isinstance(cell, Markup):
        return cell
    return escape(cell) if isinstance(cell, str) else value_html(cell)
