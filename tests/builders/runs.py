"""Plans and runs of small audits."""

from pathlib import Path
from typing import Any

from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from tests.builders.settings import small_settings


def small_plan(**changes: dict[str, Any]) -> RunPlan:
    """Return the plan of the small configuration; sections may be changed as of `small_settings`."""
    return plan_run(parse_config(small_settings(**changes)))


def run_locally(plan: RunPlan, directory: Path, **options: Any) -> ReportContents:
    """Play a run in threads and write no page; options are those of `run_audit`."""
    return run_audit(plan, directory, Engine.LOCAL, with_report=False, **options)
