"""Tables as HTML, for notebooks, whose style they take, and for pages."""

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already."""


def exactly_html(number: float | None, text: str) -> Markup:
    """Return a text as HTML that keeps the number in full.

    Parameters
    ----------
    number
        The number; None where there is none.
    text
        Text that shows the number.
    """
    shown = escape(text)
    return Markup(shown if number is None else f'<data value="{number}">{shown}</data>')


def html_table(
    rows: Iterable[Sequence[str]],
    title: str = "",
    notes: Iterable[str] = (),
    columns: Sequence[str] = (),
    look: str = "",
) -> str:
    """Return a table whose first column names the rows.

    Parameters
    ----------
    rows
        Cells, as many in each row: plain text, or `Markup`.
    title
        Subject of the table, as plain text; empty for none.
    notes
        Sentences below the table, as plain text; empty for none.
    columns
        Names of the columns, as plain text; empty for pairs of a name and its value.
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
    for place, cell in enumerate(row):
        is_markup = isinstance(cell, Markup)
        shown, kind = (cell, "value") if is_markup else (escape(cell), "aside")
        look = f' class="{kind}" data-label="{escape(columns[place])}"' if columns else ""
        yield f"<td{look}>{shown}</td>" if place else f'<th scope="row">{shown}</th>'
