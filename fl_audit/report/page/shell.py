"""The frame of every page that the software writes: one HTML file that loads nothing, whatever its body says."""

from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from string import Template

from fl_audit.report.banner import Banner
from fl_audit.report.page.stylesheet import STYLESHEET
from fl_audit.report.sections.origin import day_text

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
    """Return the verdict of a page in large letters."""
    kind, sign, _ = banner.look.value
    return (
        f'<section class="verdict {kind}" aria-label="Verdict"><span class="sign" aria-hidden="true">{sign}</span>'
        f'<div><h2 class="word">{escape(banner.word)}</h2><p>{escape(banner.line)}</p></div></section>'
    )


def next_html(step: str) -> str:
    """Return what to do next."""
    return f'<p class="next"><strong>Next.</strong> {escape(step)}</p>'


def written_by() -> str:
    """Return by which version a page was written, and on which day."""
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
) -> str:
    """Return a whole page: its policy forbids scripts and anything from elsewhere, images stand in it as data.

    Its footer says by which version it was written, and when.

    Parameters
    ----------
    title
        Title of the window, plain text.
    heading
        Plain text.
    subtitle
        What the page is about, in a line of plain text.
    opening
        First paragraph, plain text; empty where the body has an opening of its own.
    body
        HTML of everything below, escaped already.
    footer
        What follows there, plain text.
    banner
        The verdict above the first paragraph; None where the body has its own.
    step
        What to do next, plain text, below the first paragraph; empty for nothing.
    """
    plain = {"title": title, "heading": heading, "subtitle": subtitle, "footer": f"{written_by()} {footer}".strip()}
    first = (
        "" if banner is None else banner_html(banner),
        f'<p class="opening">{escape(opening, quote=False)}</p>' if opening else "",
        next_html(step) if step else "",
    )
    return _SHELL.substitute(
        style=STYLESHEET,
        opening="\n".join(part for part in first if part),
        body=body,
        **{name: escape(text, quote=False) for name, text in plain.items()},
    )
