"""The figures of a report, drawn as SVG for pages and as PNG for paper."""

import re
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from fl_audit.audits.sections import sections_with_findings
from fl_audit.errors import in_a_line
from fl_audit.report.figure_style import to_png, to_svg
from fl_audit.report.report_elements import FindingFigure, ReportContents
from fl_audit.report.stylesheet import DRAWN

_FONT = re.compile(r"font: (?:(\w+) )?([\d.]+)px [^;\"]+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"")
_NOT_IN_A_PAGE = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class DrawnPicture:
    """A drawn figure of a report as PNG and as SVG, with its title and caption."""

    name: str  # name of the section that the figure belongs to
    png: bytes  # empty if the figure could not be drawn; the caption says why
    title: str
    caption: str
    svg: str = ""  # SVG element for an HTML page


def draw_all(contents: ReportContents) -> list[DrawnPicture]:
    """Return the drawn figures of all sections that have findings and a figure, in the order of the report."""
    pictures = []
    for section, numbers in sections_with_findings(contents):
        if (picture := section.picture) is None:
            continue
        try:
            if picture.applies(numbers, contents):
                pictures.append(_drawn(section.name, picture, numbers, contents))
        except Exception as error:  # one figure that cannot be drawn may not lose the report
            reason = f"It could not be drawn because of an error ({in_a_line(error)})."
            pictures.append(DrawnPicture(section.name, b"", picture.title, reason))
    return pictures


def _drawn(name: str, picture: FindingFigure[Any], numbers: Any, contents: ReportContents) -> DrawnPicture:
    figure = picture.figure(numbers, contents)
    caption = picture.caption(numbers, contents)
    png = to_png(figure)
    figure.set_layout_engine("none")  # the layout of the first is right for the second
    return DrawnPicture(name, png, picture.title, caption, _page_svg(figure, name))


def _page_svg(figure: Figure, name: str) -> str:
    """Return a figure as a compact SVG element with the CSS colours of the page; equal figures give equal text."""
    text = to_svg(figure, name)
    text = _NOT_IN_A_PAGE.sub("", text[text.index("<svg") :])
    box = re.search(r'viewBox="[^"]+"', text)
    assert box is not None, "matplotlib writes a view box"
    text = f'<svg {box[0]} role="img" aria-label="$label">' + text[text.index(">") + 1 :]
    text = _with_own_names(text, name)
    text = re.sub(r"; font-family: [^;\"]+", "", text)
    text = _FONT.sub(lambda match_: f"font-weight: {match_[1] or 400}; font-size: {match_[2]}px", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    for colour, variable in DRAWN.items():
        text = text.replace(f": {colour}", f": var(--{variable})")
    return text.strip()


def _with_own_names(text: str, name: str) -> str:
    """Return SVG text whose identifiers begin with `name`, so that several figures can stand on one page.

    Identifiers to which nothing refers are removed.
    """
    used = {first or second for first, second in _REFERENCE.findall(text)}
    text = _REFERENCE.sub(lambda match_: match_[0].replace("#", f"#{name}-"), text)
    return re.sub(r' id="([^"]+)"', lambda match_: f' id="{name}-{match_[1]}"' if match_[1] in used else "", text)
