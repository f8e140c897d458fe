"""What a planned run would be able to tell, and how many trials tell whether a claim is kept."""

from math import ceil, floor, log10
from typing import assert_never

from fl_audit.adjacency import Relation
from fl_audit.experiments.runs.plan import AuditPlan
from fl_audit.federation.federation import Federation
from fl_audit.mechanisms.contribution import Everybody, FixedCohort, PoissonSampling
from fl_audit.verdict.noise_estimate import NOTHING_PLANNED, PlannedLimits, planned_limits
from fl_audit.verdict.of_run import claimed_length
from fl_audit.verdict.signal_limit import SignalLimit, planned_signal

_SPARE = 1.1  # contributions may be a little shorter than the clipping norm, which takes more trials


def trials_that_tell(plan: AuditPlan) -> int | None:
    """Return how many trials are conclusive about the noise and the signal, rounded up to two digits.

    It is None where nothing is planned to be judged, or no number of trials would tell.
    """
    noise, signal = planned_noise(plan), planned_of_signal(plan)
    needed = [one.trials_needed for one in (noise, signal) if one is not None]
    known = [number for number in needed if number is not None]
    if not known or len(known) < len(needed):
        return None
    exact = _SPARE * max(known)
    step = 10 ** max(0, floor(log10(exact)) - 1)
    return step * ceil(exact / step)


def planned_noise(plan: AuditPlan, parameters: int | None = None) -> PlannedLimits | None:
    """Return which missing noise a run would find; None where no insider plays or nothing is claimed.

    Parameters
    ----------
    plan, parameters
        The run, and how many parameters its model has, where the noise is measured on all of them.
    """
    public, guarantee, mechanism = plan.public, plan.guarantee, plan.public.mechanism
    if guarantee is None or not public.with_insider:
        return None
    if not mechanism.has_exact_llr:
        return NOTHING_PLANNED
    # The share of the rounds in which D and D' differ, to an insider's knowledge.
    share = 1.0 if public.is_secretly_sampled else _share_of_rounds(public)
    return planned_limits(guarantee, plan.config.audit.trials, public.rounds * share, parameters)


def _share_of_rounds(public: Federation) -> float:
    """Return in which share of the rounds a unit takes part, on average."""
    match public.mechanism.participation:
        case FixedCohort() as cohorts:
            return cohorts.participations(public.rounds) / public.rounds
        case Everybody() | PoissonSampling():
            return public.mechanism.sampling_rate
        case _:
            assert_never(public.mechanism.participation)


def planned_of_signal(plan: AuditPlan) -> SignalLimit | None:
    """Return how often a target could count unseen that is in half of the trials, or in all where it is replaced.

    It is None where no insider plays, nothing is claimed, or what it contributes cannot be weighed exactly.
    """
    public, mechanism = plan.public, plan.public.mechanism
    if plan.guarantee is None or not public.with_insider or not mechanism.has_exact_llr:
        return None
    # Under noise that is scaled to the difference, that may be as long as two contributions.
    length = claimed_length(public) or 1 / (2 * mechanism.round_multiplier(public.threat_model))
    is_always_in = public.exactly_one or (
        mechanism.adjacency.relation is Relation.REPLACE and not public.plays_membership
    )
    rounds = public.rounds * _share_of_rounds(public)
    return planned_signal(plan.config.audit.trials, rounds, length, 1.0 if is_always_in else 0.5)
