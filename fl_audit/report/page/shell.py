"""The frame of every page that the software writes: one HTML file that loads nothing, whatever its body says."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from html import escape
from importlib.metadata import PackageNotFoundError, version
from string import Template

from fl_audit.report.page.stylesheet import STYLESHEET
from fl_audit.report.sections.origin import day_text
from fl_audit.report.wording import DASH

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


class Look(Enum):
    """How a verdict looks: class of the style sheet, and a sign."""

    BAD = "violated", "✗"
    GOOD = "consistent", "✓"
    OPEN = "inconclusive", "?"
    NONE = "open", DASH


@dataclass(frozen=True)
class Banner:
    """What a page says first: a verdict in a few words, a line below it, and how it looks; plain text."""

    word: str
    line: str
    look: Look


def banner_html(banner: Banner) -> str:
    """Return the verdict of a page in large letters."""
    kind, sign = banner.look.value
    return (
        f'<section class="verdict {kind}" aria-label="Verdict"><span class="sign" aria-hidden="true">{sign}</span>'
        f'<div><h2 class="word">{escape(banner.word)}</h2><p>{escape(banner.line)}</p></div></section>'
    )


def next_html(step: str) -> str:
    """Return what to do next."""
    return f'<p class="next"><strong>Next.</strong> {escape(step)}</p>'


def written_by(moment: datetime | None = None) -> str:
    """Return by which version a page was written, and on which day: today unless another moment is named."""
    try:
        release = f" {version('fl-audit')}"
    except PackageNotFoundError:
        release = ""
    return f"Written by fl_audit{release} on {day_text((moment or datetime.now(UTC)).isoformat())}."


def html_page(title: str, heading: str, subtitle: str, opening: str, body: str, footer: str) -> str:
    """Return a whole page: its policy forbids scripts and anything from elsewhere, images stand in it as data.

    Parameters
    ----------
    title
        Of the window, plain text.
    heading
        Plain text.
    subtitle
        What the page is about, in a line of plain text.
    opening
        HTML of what stands first: a banner, what to do next, a first paragraph; escaped already.
    body
        HTML of everything below, escaped already.
    footer
        Plain text.
    """
    plain = {"title": title, "heading": heading, "subtitle": subtitle, "footer": footer}
    return _SHELL.substitute(
        style=STYLESHEET,
        opening=opening,
        body=body,
        **{name: escape(text, quote=False) for name, text in plain.items()},
    )


def opening_html(banner: Banner, text: str, step: str) -> str:
    """Return how a page opens that has no first screen of its own: a verdict, a paragraph, what to do next."""
    return f'{banner_html(banner)}\n<p class="opening">{escape(text)}</p>\n{next_html(step)}'
