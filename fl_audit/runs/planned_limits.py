"""Limits of detection of a planned run (the smallest breaches that it would find), and the trials that it needs."""

from fl_audit.audits.registry import audit_of
from fl_audit.federation.run_plan import RunPlan
from fl_audit.verdict.noise_estimate import PlannedDetectionLimits
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
from fl_audit.words import rounded_up

_RESERVE = 1.3
"""Factor on the number of trials that a target's contribution needs, if it is only assumed to be as long as the
clipping norm in every trial. The number from a pilot run has a reserve already.
"""


def trials_needed(
    noise: PlannedDetectionLimits | None, signal: SignalDetectionLimit | None, limit: SignalDetectionLimit | None = None
) -> int | None:
    """Return the number of trials that should make a verdict conclusive; None if no number does, or nothing is tested.

    This is the larger of the numbers that the two limits need. The number for the target's contribution is first
    increased by a reserve and rounded up to two significant digits.
    """
    needed = [] if noise is None else [noise.trials_needed]
    if limit is not None:
        needed.append(limit.trials_with_reserve)
    elif signal is not None:
        needed.append(None if signal.trials_needed is None else rounded_up(_RESERVE * signal.trials_needed))
    numbers = [number for number in needed if number is not None]
    return max(numbers) if numbers and len(numbers) == len(needed) else None


def planned_noise(plan: RunPlan, parameters: int | None = None) -> PlannedDetectionLimits | None:
    """Return the limit of detection for missing noise: the smallest shortage of noise that a planned run would
    detect."""
    return audit_of(plan.federation).guarantee_tests.planned_noise(plan, parameters) if plan.has_guarantee else None


def planned_of_signal(plan: RunPlan) -> SignalDetectionLimit | None:
    """Return the smallest multiple of a target's contribution that a planned run would detect.

    The result is None without a claim, without an insider, or if the mechanism has no exact likelihood ratio.
    """
    return audit_of(plan.federation).guarantee_tests.planned_signal(plan) if plan.has_guarantee else None
