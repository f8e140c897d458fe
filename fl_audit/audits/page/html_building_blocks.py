"""HTML building blocks of all pages: the page frame, banner, figures and tables, without external resources."""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from string import Template
from typing import Any

from fl_audit.audits.page.stylesheet import STYLESHEET
from fl_audit.html_tables import Markup, html_table
from fl_audit.report.banner import Banner
from fl_audit.words import MISSING, day_text, number_text, percent


def html_figure(picture: bytes | str, alternative: str, caption: str, name: str = "") -> str:
    """Return an HTML figure element with a picture and its caption."""
    label, identifier = escape(alternative), f' id="{escape(name)}"' if name else ""
    if isinstance(picture, bytes):
        shown = f'<img alt="{label}" src="data:image/png;base64,{base64.b64encode(picture).decode("ascii")}">'
    else:
        shown = picture.replace("$label", label, 1)
    return f"<figure{identifier}>\n{shown}\n<figcaption>{caption}</figcaption></figure>"


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
    cells = [[_cell(cell, place in (0, *numbers)) for place, cell in enumerate(row)] for row in rows]
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
    shown = percent(float(value)) if is_share else number_text(value, digits)
    return f'<data value="{escape(str(value))}">{escape(shown)}</data>'


_SHELL = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header>
<h1>$heading</h1>
<p class="subtitle">$subtitle</p>
</header>
<main>
$opening
$body
</main>
<footer>$footer</footer>
</body>
</html>
""")


def banner_html(banner: Banner) -> str:
    """Return the verdict of a page as an HTML section in large letters."""
    kind, sign, _ = banner.look.value
    shown = f'<span class="sign" aria-hidden="true">{sign}</span>'
    said = f'<div><h2 class="word">{escape(banner.word)}</h2><p>{escape(banner.line)}</p></div>'
    return f'<section class="verdict {kind}" aria-label="Verdict">{shown}{said}</section>'


def warning_html(warning: str) -> str:
    """Return a warning as an HTML paragraph with a sign."""
    return f'<p class="label"><span aria-hidden="true">⚠ </span>{escape(warning)}</p>'


def next_step_html(step: str) -> str:
    """Return the next step for the reader as an HTML paragraph."""
    return f'<p class="next"><strong>Next.</strong> {escape(step)}</p>'


def _written_by() -> str:
    try:
        release = f" {version('fl-audit')}"
    except PackageNotFoundError:
        release = ""
    return f"Written by fl_audit{release} on {day_text(datetime.now(UTC).isoformat())}."


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
    plain = {"title": title, "heading": heading, "subtitle": subtitle, "footer": f"{_written_by()} {footer}".strip()}
    said = f'<p class="opening">{escape(opening, quote=False)}</p>' if opening else ""
    label = "" if warning is None else warning_html(warning)
    parts = (banner and banner_html(banner), label, said, step and next_step_html(step))
    told = {name: escape(text, quote=False) for name, text in plain.items()}
    return _SHELL.substitute(told, style=STYLESHEET, opening="\n".join(part for part in parts if part), body=body)
