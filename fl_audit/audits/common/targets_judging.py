"""Plan audits with many targets, and read the insiders' log-odds of all targets from a finished run."""

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.audit import AuditJudging, PlannedAuditRun
from fl_audit.audits.common.federation_requirements import (
    require_candidates,
    require_clients,
    require_targets,
    require_weighable,
)
from fl_audit.audits.common.planned_detection_limits import limit_of_signal, limits_of_noise
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.target_membership import MembershipScheme
from fl_audit.verdict.noise_estimate import PlannedDetectionLimits
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit


class TargetsJudging(AuditJudging):
    """Base class for planning and judging audits with many targets.

    The noise of such an audit is measured only along the contributions of the targets.
    """

    kind: str
    """Name of the audit kind, for error messages."""
    is_always_in: bool
    """Whether the target that is judged is in every trial; otherwise it is in half of the trials."""

    def require_playable(self, public: Federation) -> None:
        """Raise `InputError` if this audit cannot run on a federation, e.g. if it has too few clients."""
        require_clients(public, 2 if public.with_insider else 1)
        require_targets(public, self.kind)
        require_candidates(public)
        require_weighable(public)

    def planned_noise(self, planned: PlannedAuditRun, parameters: int | None) -> PlannedDetectionLimits | None:
        """Return how large a lack of noise along the targets a planned run would detect; None without an insider.

        `parameters` has no effect.
        """
        return limits_of_noise(planned, None)

    def planned_signal(self, planned: PlannedAuditRun) -> SignalDetectionLimit | None:
        """Return the smallest excess of a target's influence that a planned run would detect, as a factor.

        The factor is the target's effect on the released sums, divided by the effect that the claim assumes. The result
        is None without an insider, or if the mechanism has no exact log-likelihood ratio.
        """
        return limit_of_signal(planned, self.is_always_in)


def log_odds_of_targets(run: FinishedRun, is_exactly_one: bool) -> tuple[Floats, Flags] | None:
    """Return the insiders' log-odds of each target and its membership, both of shape (trials, targets).

    None if the run has no insiders, or if `is_exactly_one` is not the rule by which the run drew its targets.

    Parameters
    ----------
    run
        A finished run.
    is_exactly_one
        True for runs with exactly one target in each trial, as in the reconstruction audit. False for runs in which an
        independent coin decides for each target.
    """
    table, scheme = run.tables.targets, run.facts.federation.membership_scheme
    if table is None or "log_odds" not in table or (scheme is MembershipScheme.EXACTLY_ONE) != is_exactly_one:
        return None
    shape = (run.trials, -1)
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(shape)
    return table["log_odds"].to_numpy(dtype=np.float64).reshape(shape), is_in
