"""How values look in a notebook: a small table, escaped, with the look of the notebook around it."""

from collections.abc import Iterable
from html import escape


def html_table(title: str, rows: Iterable[tuple[str, str]], notes: Iterable[str] = ()) -> str:
    """Return a table of two columns as HTML.

    Parameters
    ----------
    title
        What the table is about, as plain text.
    rows
        Name and value of each number, as plain text.
    notes
        Sentences below the table, as plain text.

    Examples
    --------
    >>> html_table("Promise", [("delta", "0.001")])
    '<table><caption>Promise</caption><tbody><tr><th scope="row">delta</th><td>0.001</td></tr></tbody></table>'
    """
    lines = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<table><caption>{escape(title)}</caption><tbody>{lines}</tbody></table>{below}"
