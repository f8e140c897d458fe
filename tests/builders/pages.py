"""The visible text of reports, and their figures without pictures."""

import io
import re
from html.parser import HTMLParser

from rich.console import Console

from fl_audit.audits.page.drawn_pictures import DrawnPicture
from fl_audit.audits.page.first_screen import summary_table
from fl_audit.audits.page.report_page import paragraphs
from fl_audit.audits.sections import sections_with_findings
from fl_audit.report.report_elements import ReportContents


class ParsedPage(HTMLParser):
    """The tags of a page, which are balanced, with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br", "hr", "link", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values_of(self, *names: str, tags: tuple[str, ...] = ()) -> list[str]:
        """Return the values of attributes, of all tags or of some."""
        found = [(tag, attributes.get(name)) for tag, attributes in self.tags for name in names]
        return [value for tag, value in found if value is not None and (not tags or tag in tags)]


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
