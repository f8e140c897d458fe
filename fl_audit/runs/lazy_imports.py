"""Lazy imports of modules that a run needs only after its last round, made while the clients work."""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = ("fl_audit.audits.page.report_files", "fl_audit.runs.attacks", "fl_audit.runs.run_report_contents")

if TYPE_CHECKING:
    from fl_audit.audits.page import report_files as report_files
    from fl_audit.runs import attacks as attacks
    from fl_audit.runs import run_report_contents as run_report_contents
else:
    __getattr__ = lazy_modules(__name__, PLACES)
