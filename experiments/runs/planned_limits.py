"""Limits of detection of a planned run (the smallest breaches that it would find), and the trials that it needs."""

from math import ceil, floor, log10

from fl_audit.audits.audit import PlannedAuditRun
from fl_audit.audits.registry import audit_of
from fl_audit.experiments.runs.resolved_audit import ResolvedAudit
from fl_audit.verdict.noise_estimate import PlannedDetectionLimits
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit

# Contributions whose lengths differ from trial to trial take more trials than those as long as the clipping norm.
_SPARE = 1.3


def trials_for_conclusive_verdict(plan: ResolvedAudit) -> int | None:
    """Return the number of trials that a conclusive verdict needs, rounded up to two significant digits.

    The verdict on the planned run says whether noise is missing, and whether a target's contribution counts more than
    once. The result is None if no verdict is planned, or if no number of trials makes it conclusive.
    """
    needed = trials_needed(planned_noise(plan), planned_of_signal(plan))
    if needed is None:
        return None
    exact = _SPARE * needed
    step = 10 ** max(0, floor(log10(exact)) - 1)
    return step * ceil(exact / step)


def trials_needed(noise: PlannedDetectionLimits | None, signal: SignalDetectionLimit | None) -> int | None:
    """Return the number of trials that both limits of detection need; None if no number suffices, or both are missing.

    Parameters
    ----------
    noise
        Limit of detection for missing noise; None if noise is not tested.
    signal
        Limit of detection for a target's contribution that counts several times; None if it is not tested.
    """
    needed = [one.trials_needed for one in (noise, signal) if one is not None]
    known = [number for number in needed if number is not None]
    return max(known) if known and len(known) == len(needed) else None


def planned_noise(plan: ResolvedAudit, parameters: int | None = None) -> PlannedDetectionLimits | None:
    """Return the limit of detection for missing noise: the smallest shortage of noise that a planned run would detect.

    Parameters
    ----------
    plan
        The audit plan of the run.
    parameters
        Number of parameters of the model; None if the noise in all coordinates cannot be measured.

    Returns
    -------
    PlannedDetectionLimits or None
        None without a claim, or if the kind of audit does not measure noise.
    """
    planned = _planned(plan)
    return None if planned is None else audit_of(plan.public).guarantee_tests.planned_noise(planned, parameters)


def planned_of_signal(plan: ResolvedAudit) -> SignalDetectionLimit | None:
    """Return the smallest multiple of a target's contribution that a planned run would detect.

    The result is None without a claim, without an insider, or if the mechanism has no exact likelihood ratio.
    """
    planned = _planned(plan)
    return None if planned is None else audit_of(plan.public).guarantee_tests.planned_signal(planned)


def _planned(plan: ResolvedAudit) -> PlannedAuditRun | None:
    return None if plan.guarantee is None else PlannedAuditRun(plan.public, plan.guarantee, plan.config.audit.trials)
