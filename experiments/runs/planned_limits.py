"""Limits of detection of a planned run (the smallest breaches that it would find), and the trials that it needs."""

from math import ceil, floor, log10

from fl_audit.audits.audit import ClaimedRun
from fl_audit.audits.registry import audit_of
from fl_audit.experiments.runs.audit_plan import AuditPlan
from fl_audit.verdict.noise_estimate import PlannedDetectionLimits
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit

# Contributions whose lengths differ from trial to trial take more trials than those as long as the clipping norm.
_SPARE = 1.3


def trials_that_tell(plan: AuditPlan) -> int | None:
    """Return the number of trials that a conclusive verdict needs, rounded up to two significant digits.

    The verdict says whether noise is missing, and whether a target's contribution counts more than once.

    Parameters
    ----------
    plan
        The audit plan: completed configuration, guarantee and federation of the run.

    Returns
    -------
    int or None
        None if no verdict is planned, or if no number of trials makes the verdict conclusive.
    """
    noise, signal = planned_noise(plan), planned_of_signal(plan)
    needed = [one.trials_needed for one in (noise, signal) if one is not None]
    known = [number for number in needed if number is not None]
    if not known or len(known) < len(needed):
        return None
    exact = _SPARE * max(known)
    step = 10 ** max(0, floor(log10(exact)) - 1)
    return step * ceil(exact / step)


def planned_noise(plan: AuditPlan, parameters: int | None = None) -> PlannedDetectionLimits | None:
    """Return the limit of detection for missing noise in a planned run.

    It states the smallest shortage of noise that the run would detect.

    Parameters
    ----------
    plan
        The audit plan: completed configuration, guarantee and federation of the run.
    parameters
        Number of parameters of the model; None if the noise in all coordinates cannot be measured.

    Returns
    -------
    PlannedDetectionLimits or None
        None without a claim, or if the kind of audit does not measure noise.
    """
    planned = _planned(plan)
    return None if planned is None else audit_of(plan.public).judging.planned_noise(planned, parameters)


def planned_of_signal(plan: AuditPlan) -> SignalDetectionLimit | None:
    """Return the limit of detection for a target whose contribution counts several times in a planned run.

    It states the smallest multiple of the contribution that the run would detect.

    Parameters
    ----------
    plan
        The audit plan: completed configuration, guarantee and federation of the run.

    Returns
    -------
    SignalDetectionLimit or None
        None without a claim, without an insider, or if the mechanism has no exact likelihood ratio.
    """
    planned = _planned(plan)
    return None if planned is None else audit_of(plan.public).judging.planned_signal(planned)


def _planned(plan: AuditPlan) -> ClaimedRun | None:
    return None if plan.guarantee is None else ClaimedRun(plan.public, plan.guarantee, plan.config.audit.trials)
