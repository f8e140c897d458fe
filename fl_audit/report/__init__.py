"""The report of one audit run: figures, one self-contained HTML page, a short terminal table."""

from fl_audit.report.contents import LawFacts, RunContents
from fl_audit.report.page.writing import write_report

__all__ = ["LawFacts", "RunContents", "write_report"]
