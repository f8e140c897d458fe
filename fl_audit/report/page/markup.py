"""Pieces of HTML that several pages are built of."""

import base64
from collections.abc import Sequence
from html import escape


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
    identifier = f' id="{escape(name)}"' if name else ""
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<figure{identifier}>\n<img alt="{escape(alternative)}" src="data:image/png;base64,{data}">\n'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    """Return a table whose first column names the rows.

    Parameters
    ----------
    columns
        Names, plain text.
    rows
        Cells, plain text, as many in each row as there are columns.
    numbers
        Indices of the columns that hold numbers.
    """
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "\n".join(
        "<tr>" + "".join(_cell(cell, index, numbers) for index, cell in enumerate(row)) + "</tr>" for row in rows
    )
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _cell(cell: str, index: int, numbers: Sequence[int]) -> str:
    if index == 0:
        return f'<th scope="row">{escape(cell)}</th>'
    kind = ' class="value"' if index in numbers else ' class="aside"'
    return f"<td{kind}>{escape(cell)}</td>"
