"""Make HTML tables for notebooks and reports; they bring no style of their own."""

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """A string that is HTML already and must not be escaped."""


def exactly_html(number: float | None, text: str) -> Markup:
    """Return a rounded number as HTML, in a `data` element that holds the number in full precision.

    `number`: None returns the text without an element.
    """
    text_html = escape(text)
    return Markup(text_html if number is None else f'<data value="{number}">{text_html}</data>')


def html_table(
    rows: Iterable[Sequence[str]], title: str, notes: Iterable[str] = (), columns: Sequence[str] = (), look: str = ""
) -> str:
    """Return an HTML table whose first column names the rows.

    Parameters
    ----------
    rows
        Cells of each row, equally many in all rows: plain text, or `Markup`.
    title
        Subject of the table, as plain text; empty for none.
    notes
        Sentences below the table, as plain text; empty for none.
    columns
        Names of the columns, as plain text; empty for a table without a header.
    look
        CSS class of the table.

    Examples
    --------
    >>> html_table([("delta", "0.001")], "Guarantee")
    '<table><caption>Guarantee</caption><tbody>\\n<tr><th scope="row">delta</th><td>0.001</td></tr>\\n</tbody></table>'
    """
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    head = f"<thead><tr>{head}</tr></thead>\n" if head else ""
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "\n".join(f"<tr>{''.join(_cells(row, columns))}</tr>" for row in rows)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    kind = f' class="{look}"' if look else ""
    return f"<table{kind}>{caption}{head}<tbody>\n{body}\n</tbody></table>{below}"


def _cells(row: Sequence[str], columns: Sequence[str]) -> Iterable[str]:
    for index, cell in enumerate(row):
        is_markup = isinstance(cell, Markup)
        text_html, kind = (cell, "value") if is_markup else (escape(cell), "aside")
        look = f' class="{kind}" data-label="{escape(columns[index])}"' if columns else ""
        yield f"<td{look}>{text_html}</td>" if index else f'<th scope="row">{text_html}</th>'
