"""The figures of a report, drawn and captioned: as PNG, and as drawings whose colours follow the reader's screen."""

import re
from dataclasses import dataclass

from matplotlib.figure import Figure

from fl_audit.report.finding import RunContents
from fl_audit.report.page.stylesheet import DRAWN
from fl_audit.report.sections.registry import measured
from fl_audit.report.style import to_png, to_svg

_FONT = re.compile(r"font: (?:(\w+) )?([\d.]+)px [^;\"]+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"")
_NOT_IN_A_PAGE = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class DrawnPicture:
    """A figure as PNG bytes, with the name of its section and its words, and as an SVG element for a page."""

    name: str
    png: bytes
    title: str
    caption: str
    svg: str = ""


def draw_all(contents: RunContents) -> list[DrawnPicture]:
    """Return every figure of the report, in order, without those that the run has no numbers for."""
    drawn = []
    for section, numbers in measured(contents):
        if (picture := section.picture) is not None and picture.applies(numbers, contents):
            figure, caption = picture.figure(numbers, contents), picture.caption(numbers, contents)
            png = to_png(figure)
            figure.set_layout_engine("none")  # what was laid out for the first is right for the second
            drawn.append(DrawnPicture(section.name, png, picture.title, caption, _page_svg(figure, section.name)))
    return drawn


def _page_svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element, short, themed, with names of its own; the same figure gives the same text."""
    text = to_svg(figure, name)
    text = _NOT_IN_A_PAGE.sub("", text[text.index("<svg") :])
    box = re.search(r'viewBox="[^"]+"', text)
    assert box is not None, "matplotlib writes a view box"
    text = f'<svg {box[0]} role="img" aria-label="$label">' + text[text.index(">") + 1 :]
    text = _with_own_names(text, name)
    text = re.sub(r"; font-family: [^;\"]+", "", text)
    text = _FONT.sub(lambda found: f"font-weight: {found[1] or 400}; font-size: {found[2]}px", text)
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
