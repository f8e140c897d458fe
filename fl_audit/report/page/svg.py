"""Figures as drawings inside a page: their words are text, and their colours follow the reader's screen."""

import io
import re

import matplotlib
from matplotlib.figure import Figure

from fl_audit.report.page.palette import DRAWN

_LONG_NUMBER = re.compile(r"(\.\d\d)\d+")  # hundredths of a point are finer than any screen
_FONT = re.compile(r"font: (?:(\w+) )?([\d.]+)px [^;\"]+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"")
_NOT_IN_A_PAGE = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element; the same figure gives the same text.

    Parameters
    ----------
    figure
        The figure.
    name
        Of the figure, different from those of others on the page: what refers to something inside it begins with that.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return inline_svg(buffer.getvalue(), name)


def inline_svg(text: str, name: str) -> str:
    """Return what matplotlib wrote as an element for a page: short, themed, with names of its own.

    Parameters
    ----------
    text
        A whole SVG file.
    name
        Of the figure, unique on the page.
    """
    text = _NOT_IN_A_PAGE.sub("", text[text.index("<svg") :])
    box = re.search(r'viewBox="[^"]+"', text)
    assert box is not None, "matplotlib writes a view box"
    text = f'<svg {box[0]} role="img" aria-label="$label">' + text[text.index(">") + 1 :]
    text = _with_own_names(text, name)
    text = re.sub(r"; font-family: [^;\"]+", "", text)
    text = _FONT.sub(lambda found: f"font-weight: {found[1] or 400}; font-size: {found[2]}px", text)
    # In tags alone: words keep their numbers.
    text = re.sub(r"<[^>]*>", lambda tag: _LONG_NUMBER.sub(r"\1", tag[0]), text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    for colour, variable in DRAWN.items():
        text = text.replace(f": {colour}", f": var(--{variable})")
    return text.strip()


def _with_own_names(text: str, name: str) -> str:
    """Keep the names that something refers to, made different from those of other figures; drop all others."""
    used = {first or second for first, second in _REFERENCE.findall(text)}
    text = _REFERENCE.sub(lambda found: found[0].replace("#", f"#{name}-"), text)

    def renamed(found: re.Match[str]) -> str:
        return f' id="{name}-{found[1]}"' if found[1] in used else ""

    return re.sub(r' id="([^"]+)"', renamed, text)
