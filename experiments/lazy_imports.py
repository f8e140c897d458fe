"""Late imports: modules that take seconds to import are imported when a command first uses them.

Commands are declared in modules that import nothing slow, so that help, shell completion and error messages appear
without delay. A late module is an attribute of the module `lazy_imports`: `lazy_imports.resolved_audit.resolve(...)`
imports `experiments.runs.resolved_audit` and calls its function `resolve`.
"""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = (
    "fl_audit.audits.canaries.bounds",
    "fl_audit.audits.canaries.live_audit",
    "fl_audit.audits.canaries.live_page",
    "fl_audit.audits.canaries.observer_store",
    "fl_audit.audits.page.first_screen",
    "fl_audit.audits.page.report_files",
    "fl_audit.data.column_encoding",
    "fl_audit.data.table_text",
    "fl_audit.data.tables",
    "fl_audit.experiments.run_comparison.figure",
    "fl_audit.experiments.exports.trackers",
    "fl_audit.experiments.figures.epsilon_star",
    "fl_audit.experiments.figures.guarantee_curves",
    "fl_audit.experiments.figures.figure_files",
    "fl_audit.experiments.reproductions.papers",
    "fl_audit.experiments.reproductions.reproduce",
    "fl_audit.experiments.runs.cluster.ray_connection",
    "fl_audit.experiments.runs.config.settings_reference",
    "fl_audit.experiments.runs.init_error_messages",
    "fl_audit.experiments.runs.new_config",
    "fl_audit.experiments.runs.plan_warnings",
    "fl_audit.experiments.runs.resolved_audit",
    "fl_audit.experiments.runs.replay",
    "fl_audit.experiments.runs.run",
    "fl_audit.experiments.runs.planned_run_check",
    "fl_audit.experiments.runs.run_report",
    "fl_audit.experiments.runs.signed_statement",
    "fl_audit.experiments.runs.stored_run",
    "fl_audit.experiments.runs.non_private_run",
    "fl_audit.experiments.sweeps.grid",
    "fl_audit.experiments.sweeps.page",
    "fl_audit.experiments.sweeps.sweep",
    "fl_audit.released_model.star_estimate",
    "fl_audit.report.mechanism_messages",
    "fl_audit.statistics.lower_bounds",
    "fl_audit.strategies.black_box.scenarios",
    "fl_audit.audits.canaries.canary_detection_limit",
    "fl_audit.verdict.declared_tests",
    "fl_audit.verdict.noise_estimate",
)

if TYPE_CHECKING:
    from fl_audit.audits.canaries import bounds as bounds
    from fl_audit.audits.canaries import canary_detection_limit as canary_detection_limit
    from fl_audit.audits.canaries import live_audit as live_audit
    from fl_audit.audits.canaries import live_page as live_page
    from fl_audit.audits.canaries import observer_store as observer_store
    from fl_audit.audits.page import first_screen as first_screen
    from fl_audit.audits.page import report_files as report_files
    from fl_audit.data import column_encoding as column_encoding
    from fl_audit.data import table_text as table_text
    from fl_audit.data import tables as tables
    from fl_audit.experiments.exports import trackers as trackers
    from fl_audit.experiments.figures import epsilon_star as epsilon_star
    from fl_audit.experiments.figures import figure_files as figure_files
    from fl_audit.experiments.figures import guarantee_curves as guarantee_curves
    from fl_audit.experiments.reproductions import papers as papers
    from fl_audit.experiments.reproductions import reproduce as reproduce
    from fl_audit.experiments.run_comparison import figure as figure
    from fl_audit.experiments.runs import init_error_messages as init_error_messages
    from fl_audit.experiments.runs import new_config as new_config
    from fl_audit.experiments.runs import non_private_run as non_private_run
    from fl_audit.experiments.runs import plan_warnings as plan_warnings
    from fl_audit.experiments.runs import planned_run_check as planned_run_check
    from fl_audit.experiments.runs import replay as replay
    from fl_audit.experiments.runs import resolved_audit as resolved_audit
    from fl_audit.experiments.runs import run as run
    from fl_audit.experiments.runs import run_report as run_report
    from fl_audit.experiments.runs import signed_statement as signed_statement
    from fl_audit.experiments.runs import stored_run as stored_run
    from fl_audit.experiments.runs.cluster import ray_connection as ray_connection
    from fl_audit.experiments.runs.config import settings_reference as settings_reference
    from fl_audit.experiments.sweeps import grid as grid
    from fl_audit.experiments.sweeps import page as page
    from fl_audit.experiments.sweeps import sweep as sweep
    from fl_audit.released_model import star_estimate as star_estimate
    from fl_audit.report import mechanism_messages as mechanism_messages
    from fl_audit.statistics import lower_bounds as lower_bounds
    from fl_audit.strategies.black_box import scenarios as scenarios
    from fl_audit.verdict import declared_tests as declared_tests
    from fl_audit.verdict import noise_estimate as noise_estimate
else:
    __getattr__ = lazy_modules(__name__, PLACES)
