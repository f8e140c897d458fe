"""The report of one audit run: figures, one self-contained HTML page, a short terminal table."""

from fl_audit.report.contents import RunContents
from fl_audit.report.finished_run import FinishedRun, RunFacts, RunTables
from fl_audit.report.page.writing import write_report
from fl_audit.report.sections.registry import report_contents

__all__ = ["FinishedRun", "RunContents", "RunFacts", "RunTables", "report_contents", "write_report"]
