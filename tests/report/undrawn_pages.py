"""Pages of reports without their pictures, which take a while."""

from fl_audit.audits.page.drawn_pictures import DrawnPicture
from fl_audit.audits.sections import sections_with_findings
from fl_audit.report.report_elements import ReportContents


def undrawn(contents: ReportContents) -> list[DrawnPicture]:
    """Return the figures of a run with their words, and without their pictures."""
    return [
        DrawnPicture(section.name, b"\x89PNG", picture.title, picture.caption(numbers, contents))
        for section, numbers in sections_with_findings(contents)
        if (picture := section.picture) is not None and picture.applies(numbers, contents)
    ]
