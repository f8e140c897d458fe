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


def html_drawing(svg: str, alternative: str, caption: str, name: str) -> str:
    """Return a drawing that stands in the page itself with its caption; see `html_figure`.

    Parameters
    ----------
    svg
        The drawing, an SVG element of `page.svg`.
    alternative, caption, name
        As for `html_figure`.
    """
    drawn = svg.replace("$label", escape(alternative), 1)
    return f'<figure id="{escape(name)}">\n{drawn}\n<figcaption>{caption}</figcaption></figure>'


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int], links: Sequence[str] = ()
) -> str:
    """Return a table whose first column names the rows.

    Parameters
    ----------
    columns
        Names, plain text.
    rows
        Cells, plain text, as many in each row as there are columns.
    numbers
        Indices of the columns that hold numbers.
    links
        Where the first cell of each row leads to, relative to the page; none where it leads nowhere.
    """
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    targets = list(links) or [""] * len(rows)
    body = "\n".join(
        f"<tr>{_cells(columns, row, numbers, target)}</tr>" for row, target in zip(rows, targets, strict=True)
    )
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
    return scrolling(table)


def scrolling(table: str, name: str = "Table") -> str:
    """Return a table (HTML) in a box that scrolls where it is too wide, by keys too; `name` is spoken, plain text."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(name)}">{table}</div>'


def _cells(columns: Sequence[str], row: Sequence[str], numbers: Sequence[int], target: str) -> str:
    name = f'<a href="{escape(target)}">{escape(row[0])}</a>' if target else escape(row[0])
    rest = list(enumerate(zip(columns, row, strict=True)))[1:]
    return f'<th scope="row">{name}</th>' + "".join(
        _cell(column, cell, index, numbers) for index, (column, cell) in rest
    )


def _cell(column: str, cell: str, index: int, numbers: Sequence[int]) -> str:
    kind = ' class="value"' if index in numbers else ' class="aside"'
    return f'<td{kind} data-label="{escape(column)}">{escape(cell)}</td>'
