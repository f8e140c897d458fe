"""The figures of a report, drawn and captioned."""

from dataclasses import dataclass

from fl_audit.report.contents import RunContents
from fl_audit.report.section import Caption
from fl_audit.report.sections.registry import measured
from fl_audit.report.style import to_png


@dataclass(frozen=True)
class DrawnPicture:
    """A figure as PNG bytes, with its file name without `.png` and its words."""

    name: str
    png: bytes
    caption: Caption


def draw_all(contents: RunContents) -> list[DrawnPicture]:
    """Return every figure of the report, in order, without those that the run has no numbers for."""
    return [
        DrawnPicture(picture.name, to_png(picture.draw(numbers, contents)), picture.caption(numbers, contents))
        for section, numbers in measured(contents)
        for picture in section.pictures
        if picture.applies(numbers, contents)
    ]
