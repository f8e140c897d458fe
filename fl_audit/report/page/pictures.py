"""The figures of a report, drawn and captioned."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from fl_audit.report.contents import RunContents
from fl_audit.report.page.svg import to_svg
from fl_audit.report.section import Caption
from fl_audit.report.sections.registry import measured
from fl_audit.report.style import to_png


@dataclass(frozen=True)
class DrawnPicture:
    """A figure as PNG bytes, with its file name without `.png` and its words, and as an SVG element for a page."""

    name: str
    png: bytes
    caption: Caption
    svg: str = ""


def draw_all(contents: RunContents) -> list[DrawnPicture]:
    """Return every figure of the report, in order, without those that the run has no numbers for."""
    return [
        _drawn(picture.name, picture.draw(numbers, contents), picture.caption(numbers, contents))
        for section, numbers in measured(contents)
        for picture in section.pictures
        if picture.applies(numbers, contents)
    ]


def _drawn(name: str, figure: Figure, caption: Caption) -> DrawnPicture:
    png = to_png(figure)
    figure.set_layout_engine("none")  # what was laid out for the first is right for the second
    return DrawnPicture(name, png, caption, to_svg(figure, name))
