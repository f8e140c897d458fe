"""Compute which breaches of a guarantee a planned run would detect, if insiders have the exact log-likelihood ratio."""

from fl_audit.federation.federation import Federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.verdict.noise_estimate import NOTHING_PLANNED, NoiseDetectionLimit, planned_limits
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit, planned_signal
from fl_audit.verdict.stored_measurements import claimed_length


def limits_of_noise(plan: RunPlan, parameters: int | None) -> NoiseDetectionLimit | None:
    """Return how much too small the noise must be for a planned run to detect it; None if the run has no insider."""
    public = plan.federation
    if not public.with_insider:
        return None
    if not public.mechanism.has_measurable_noise:
        return NOTHING_PLANNED
    # The share of the rounds in which D and D' may differ, as far as an insider knows.
    share = _share_of_turns(public) if public.is_secretly_sampled else _share_of_rounds(public)
    trials = plan.config.audit.trials
    noise = public.mechanism.noise
    return planned_limits(plan.stated_guarantee, trials, public.rounds * share, parameters, noise)


def limit_of_signal(plan: RunPlan, is_always_in: bool) -> SignalDetectionLimit | None:
    """Return the limit of detection of a planned run for a target with more influence than the claim assumes.

    The limit is a factor: the target's effect on the released sums, divided by the effect that the claim assumes. The
    result is None if the run has no insider, or if its mechanism has no exact log-likelihood ratio.
    """
    public = plan.federation
    mechanism = plan.federation.mechanism
    if not public.with_insider or not mechanism.has_measurable_noise:
        return None
    # If noise is scaled to the difference, the difference may be as long as two contributions.
    length = claimed_length(public)
    if length is None:
        length = mechanism.noise.residual_shift / (2 * mechanism.round_multiplier(public.threat_model))
    rounds = public.rounds * _share_of_rounds(public)
    return planned_signal(plan.config.audit.trials, rounds, length, 1.0 if is_always_in else 0.5)


def _share_of_rounds(federation: Federation) -> float:
    """Return the mean share of the rounds in which a unit is sampled."""
    return federation.mechanism.sampling_rate * _share_of_turns(federation)


def _share_of_turns(federation: Federation) -> float:
    """Return the largest fraction of the rounds in which a unit may participate, before any sampling."""
    return federation.mechanism.participation.participations(federation.rounds) / federation.rounds
