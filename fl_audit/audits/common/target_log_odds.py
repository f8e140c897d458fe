"""Insiders' log-odds of all targets of a finished run."""

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.target_membership import MembershipScheme


def log_odds_of_targets(run: FinishedRun, is_exactly_one: bool) -> tuple[Floats, Flags] | None:
    """Return the insiders' log-odds of each target and its membership, both of shape (trials, targets).

    None if the run has no insiders, or if `is_exactly_one` is not the rule by which the run drew its targets.

    `is_exactly_one`: False for runs in which an independent coin decides for each target.
    """
    table = run.tables.targets
    scheme = run.plan.federation.membership_scheme
    if table is None or "log_odds" not in table or (scheme is MembershipScheme.EXACTLY_ONE) != is_exactly_one:
        return None
    shape = (run.trials, -1)
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(shape)
    return table["log_odds"].to_numpy(dtype=np.float64).reshape(shape), is_in
