"""The visible text of reports."""

import io
import re

from rich.console import Console

from fl_audit.audits.page.first_screen import summary_table
from fl_audit.report.report_elements import ReportContents


def console_text(contents: ReportContents, width: int = 200) -> str:
    """Return what a terminal shows of a report."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(summary_table(contents))
    return console.export_text()


def text_of(html: str) -> str:
    """Return HTML without its tags."""
    return re.sub(r"<[^>]+>", " ", html)
