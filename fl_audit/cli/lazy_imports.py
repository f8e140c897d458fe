"""Late imports: modules that take seconds to import are imported when a command first uses them.

Commands are declared in modules that import nothing slow, so that help, shell completion and error messages appear
without delay. A late module is an attribute of the module `lazy_imports`: `lazy_imports.resolved_audit.resolve(...)`
imports `runs.resolved_audit` and calls its function `resolve`.
"""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = (
    "fl_audit.audits.canaries.bounds",
    "fl_audit.app_audits.live.live_audit",
    "fl_audit.app_audits.live.live_page",
    "fl_audit.app_audits.live.observer_store",
    "fl_audit.audits.page.first_screen",
    "fl_audit.audits.page.report_files",
    "fl_audit.data.column_encoding",
    "fl_audit.data.table_text",
    "fl_audit.data.tables",
    "fl_audit.runs.comparison.figure",
    "fl_audit.runs.exports.trackers",
    "fl_audit.cli.figures.epsilon_star",
    "fl_audit.cli.figures.guarantee_curves",
    "fl_audit.cli.figures.figure_files",
    "fl_audit.experiments.papers.papers",
    "fl_audit.experiments.papers.reproduce",
    "fl_audit.runs.cluster.ray_connection",
    "fl_audit.runs.config.settings_reference",
    "fl_audit.runs.init_error_messages",
    "fl_audit.runs.new_config",
    "fl_audit.runs.plan_warnings",
    "fl_audit.runs.resolved_audit",
    "fl_audit.runs.replay",
    "fl_audit.runs.run",
    "fl_audit.runs.planned_run_check",
    "fl_audit.runs.run_report",
    "fl_audit.runs.signed_statement",
    "fl_audit.runs.stored_run",
    "fl_audit.runs.non_private_run",
    "fl_audit.runs.sweeps.grid",
    "fl_audit.runs.sweeps.page",
    "fl_audit.runs.sweeps.sweep",
    "fl_audit.released_model.star_estimate",
    "fl_audit.report.mechanism_messages",
    "fl_audit.statistics.lower_bounds",
    "fl_audit.app_audits.black_box.scenarios",
    "fl_audit.audits.canaries.canary_detection_limit",
    "fl_audit.verdict.declared_tests",
    "fl_audit.verdict.noise_estimate",
)

if TYPE_CHECKING:
    from fl_audit.app_audits.black_box import scenarios as scenarios
    from fl_audit.app_audits.live import live_audit as live_audit
    from fl_audit.app_audits.live import live_page as live_page
    from fl_audit.app_audits.live import observer_store as observer_store
    from fl_audit.audits.canaries import bounds as bounds
    from fl_audit.audits.canaries import canary_detection_limit as canary_detection_limit
    from fl_audit.audits.page import first_screen as first_screen
    from fl_audit.audits.page import report_files as report_files
    from fl_audit.cli.figures import epsilon_star as epsilon_star
    from fl_audit.cli.figures import figure_files as figure_files
    from fl_audit.cli.figures import guarantee_curves as guarantee_curves
    from fl_audit.data import column_encoding as column_encoding
    from fl_audit.data import table_text as table_text
    from fl_audit.data import tables as tables
    from fl_audit.experiments.papers import papers as papers
    from fl_audit.experiments.papers import reproduce as reproduce
    from fl_audit.released_model import star_estimate as star_estimate
    from fl_audit.report import mechanism_messages as mechanism_messages
    from fl_audit.runs import init_error_messages as init_error_messages
    from fl_audit.runs import new_config as new_config
    from fl_audit.runs import non_private_run as non_private_run
    from fl_audit.runs import plan_warnings as plan_warnings
    from fl_audit.runs import planned_run_check as planned_run_check
    from fl_audit.runs import replay as replay
    from fl_audit.runs import resolved_audit as resolved_audit
    from fl_audit.runs import run as run
    from fl_audit.runs import run_report as run_report
    from fl_audit.runs import signed_statement as signed_statement
    from fl_audit.runs import stored_run as stored_run
    from fl_audit.runs.cluster import ray_connection as ray_connection
    from fl_audit.runs.comparison import figure as figure
    from fl_audit.runs.config import settings_reference as settings_reference
    from fl_audit.runs.exports import trackers as trackers
    from fl_audit.runs.sweeps import grid as grid
    from fl_audit.runs.sweeps import page as page
    from fl_audit.runs.sweeps import sweep as sweep
    from fl_audit.statistics import lower_bounds as lower_bounds
    from fl_audit.verdict import declared_tests as declared_tests
    from fl_audit.verdict import noise_estimate as noise_estimate
else:
    __getattr__ = lazy_modules(__name__, PLACES)
