"""The frame of every page that the software writes: one HTML file that loads nothing, whatever its body says."""

from html import escape
from string import Template

from fl_audit.report.page.stylesheet import STYLESHEET

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
        First paragraph, plain text; empty where the body has an opening of its own.
    body
        HTML of everything below, escaped already.
    footer
        Plain text.
    """
    plain = {"title": title, "heading": heading, "subtitle": subtitle, "footer": footer}
    first = f'<p class="opening">{escape(opening, quote=False)}</p>' if opening else ""
    return _SHELL.substitute(
        style=STYLESHEET, opening=first, body=body, **{name: escape(text, quote=False) for name, text in plain.items()}
    )
