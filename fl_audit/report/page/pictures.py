"""The figures of a report, drawn and captioned."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from fl_audit.report.finding import RunContents
from fl_audit.report.page.svg import to_svg
from fl_audit.report.sections.registry import measured
from fl_audit.report.style import to_png


@dataclass(frozen=True)
class DrawnPicture:
    """A figure as PNG bytes, with the name of its section and its words, and as an SVG element for a page."""

    name: str
    png: bytes
    title: str
    caption: str
    svg: str = ""

    @property
    def alternative(self) -> str:
        """What can stand for the picture."""
        return f"{self.title}. {self.caption}"


def draw_all(contents: RunContents) -> list[DrawnPicture]:
    """Return every figure of the report, in order, without those that the run has no numbers for."""
    return [
        _drawn(section.name, picture.figure(numbers, contents), picture.title, picture.caption(numbers, contents))
        for section, numbers in measured(contents)
        if (picture := section.picture) is not None and picture.applies(numbers, contents)
    ]


def _drawn(name: str, figure: Figure, title: str, caption: str) -> DrawnPicture:
    png = to_png(figure)
    figure.set_layout_engine("none")  # what was laid out for the first is right for the second
    return DrawnPicture(name, png, title, caption, to_svg(figure, name))
