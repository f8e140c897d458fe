"""The visible text of reports, and their figures without pictures."""

import io
import re

from rich.console import Console

from fl_audit.audits.page.drawn_pictures import DrawnPicture
from fl_audit.audits.page.first_screen import summary_table
from fl_audit.audits.page.report_page import paragraphs
from fl_audit.audits.sections import sections_with_findings
from fl_audit.report.report_elements import ReportContents


def console_text(contents: ReportContents, width: int = 200) -> str:
    """Return what a terminal shows of a report."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(summary_table(contents))
    return console.export_text()


def text_of(html: str) -> str:
    """Return HTML without its tags."""
    return re.sub(r"<[^>]+>", " ", html)


def opening_of(contents: ReportContents) -> str:
    """Return what a page says in words."""
    return " ".join(paragraphs(contents))


def undrawn(contents: ReportContents) -> list[DrawnPicture]:
    """Return the figures of a run with their words, and without their pictures, which take a while."""
    return [
        DrawnPicture(section.name, b"\x89PNG", picture.title, picture.caption(numbers, contents))
        for section, numbers in sections_with_findings(contents)
        if (picture := section.picture) is not None and picture.applies(numbers, contents)
    ]
