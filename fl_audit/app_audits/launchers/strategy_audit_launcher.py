"""Audit of a strategy for `fl-audit strategy`: a subprocess makes the strategy and carries out trials.

The calling process reports the results. The subprocess calls the function of `isolated_strategy_audit`.
"""

import math
from pathlib import Path
from typing import Any

from fl_audit.app_audits.launchers.isolated_process import run_command_isolated
from fl_audit.app_audits.trial_options import StrategyOptions
from fl_audit.errors import InputError

_AUDIT = "fl_audit.app_audits.launchers.isolated_strategy_audit:audit_users_strategy"
_START = 60.0  # seconds beyond the time for the trials in which a process may start and end, at most


def audit_in_subprocess(options: StrategyOptions, out: Path | None = None) -> dict[str, Any]:
    """Audit a strategy in a subprocess, and return the result as JSON values, with the path of a page as `report`."""
    seconds = math.inf if options.seconds is None else 2 * options.seconds + _START
    answer_values, ended, _ = run_command_isolated(_AUDIT, options, out, seconds, is_quiet=False)
    if answer_values is None:
        raise InputError(
            f"the process that plays trials against {options.factory} {ended}, before any trial was judged: "
            "accepted is "
            "a strategy that raises an exception where it cannot go on, and whose trials end"
        )
    if ended:
        page = "" if out is None else ", and no page was written"
        early = f"the process that plays trials {ended}: this is what it had judged until then{page}"
        answer_values["stopped_early"] = early
        answer_values["lines"].append(["Stopped early", f"{early}."])
    return answer_values
