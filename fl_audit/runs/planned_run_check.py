"""Check of a run before it begins: data, guarantee, limits of detection, time, memory and disk space."""

from dataclasses import asdict, dataclass
from typing import Any

from fl_audit.array_types import finite
from fl_audit.audits.canaries.canary_detection_limit import CanaryDetectionLimit
from fl_audit.audits.registry import audit_of
from fl_audit.data.catalogue import load_source
from fl_audit.data.loaded_dataset import DataWarning, LoadedDataset
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.guarantee_line import guarantee_values
from fl_audit.runs.disk_space_estimate import DiskUsageByContent, footprint
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.pilot_run import pilot_of_signal
from fl_audit.runs.plan_warnings import plan_warnings_of
from fl_audit.runs.run_requirements import require_runnable
from fl_audit.runs.time_probe import TimeAndMemoryEstimate, probe
from fl_audit.verdict.declared_tests import DETECTION_POWER
from fl_audit.verdict.noise_estimate import NoiseDetectionLimit
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
from fl_audit.words import rounded_up

_RESERVE = 1.3
"""Factor on the number of trials that a target's contribution needs, if it is only assumed to be as long as the
clipping norm in every trial. The number from a pilot run has a reserve already.
"""


def trials_needed(
    noise: NoiseDetectionLimit | None, signal: SignalDetectionLimit | None, limit: SignalDetectionLimit | None = None
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


def planned_noise(plan: RunPlan, parameters: int | None = None) -> NoiseDetectionLimit | None:
    """Return the limit of detection for missing noise: the smallest shortage of noise that a planned run would
    detect."""
    return audit_of(plan.federation).guarantee_tests.planned_noise(plan, parameters) if plan.has_guarantee else None


def planned_of_signal(plan: RunPlan) -> SignalDetectionLimit | None:
    """Return the smallest multiple of a target's contribution that a planned run would detect.

    The result is None without a claim, without an insider, or if the mechanism has no exact likelihood ratio.
    """
    return audit_of(plan.federation).guarantee_tests.planned_signal(plan) if plan.has_guarantee else None


@dataclass(frozen=True)
class PlannedRunCheckResult:
    """The results of checking a planned run: data, limits of detection, time, memory and disk space."""

    plan: RunPlan  # the plan, with the guarantee
    federation: LoadedFederation  # the loaded data and the model
    dataset: LoadedDataset  # the source of the data
    cautions: tuple[DataWarning, ...]  # warnings about the guarantee and the data
    limits: NoiseDetectionLimit | None  # limits of detection for missing noise; None if noise is not measured
    probe: TimeAndMemoryEstimate | None  # estimate of the run's time and memory; None if it was not requested
    footprint: DiskUsageByContent  # estimate of the run's disk space
    # Number of times that the target's contribution could count without being detected, if it is as long as the
    # clipping norm; None if it is not tested.
    signal: SignalDetectionLimit | None = None
    # The same limit as measured in a pilot run, in which contributions are as long as they are; None without one.
    pilot: SignalDetectionLimit | None = None
    canaries: CanaryDetectionLimit | None = None  # limit of detection by canaries; None without, or if it is unknown

    @property
    def is_conclusive(self) -> bool:
        """Whether the run should reach a verdict about the noise and, if tested, about the target's contribution."""
        if self.canaries is not None:
            return self.canaries.conclusive
        if self.limits is None or not self.limits.conclusive:
            return False
        needed = self.trials_for_conclusive_verdict
        return needed is not None and self.plan.config.audit.trials >= needed

    @property
    def trials_for_conclusive_verdict(self) -> int | None:
        """Number of trials that a conclusive verdict needs; None if no number suffices, or if no verdict is planned."""
        return trials_needed(self.limits, self.signal, self.pilot)


def check_plan(plan: RunPlan, with_probe: bool = True, engine: Engine = Engine.LOCAL) -> PlannedRunCheckResult:
    """Check the data, model, guarantee and resources of a planned run without writing anything."""
    require_runnable(plan)
    federation = load_federation(plan.federation)
    content = footprint(plan)
    cautions = (*plan_warnings_of(plan), *([DataWarning(content.caution)] if content.caution else []))
    tried = probe(plan, engine) if with_probe else None
    signal = planned_of_signal(plan)
    trials = plan.config.audit.trials
    canaries = None
    if plan.guarantee is not None:
        canaries = audit_of(plan.federation).guarantee_tests.planned_canaries(federation, plan.guarantee, trials)
    return PlannedRunCheckResult(
        plan,
        federation,
        load_source(plan.federation.data),
        cautions,
        planned_noise(plan, federation.model.layout.size if federation.offers_noise_measurement else None),
        tried,
        content,
        signal,
        None if signal is None or tried is None else pilot_of_signal(plan, tried),
        canaries,
    )


def check_json(check_result: PlannedRunCheckResult) -> dict[str, Any]:
    """Return the results of a check as JSON values; missing and infinite values are null."""
    plan = check_result.plan
    guarantee = check_result.plan.guarantee
    return {
        "data": {
            "name": plan.federation.data.name,
            **_data_json(check_result),
            "look_at": [caution.text for caution in check_result.cautions],
        },
        "model": plan.federation.model,
        "rounds": plan.federation.rounds,
        "trials": plan.config.audit.trials,
        "trials_per_batch": plan.config.run.trials_per_batch,
        "keep_releases": plan.config.run.keep_releases,
        "writes": asdict(check_result.footprint) | {"total": check_result.footprint.total},
        "guarantee": None
        if guarantee is None
        else {
            **guarantee_values(guarantee.epsilon, guarantee.claims),
            "noise_multiplier": guarantee.noise_multiplier,
            "belief_bound": guarantee.belief_bound,
            "advantage_bound": guarantee.advantage_bound_exact,
        },
        "limits": _limits_json(check_result),
        "estimate": None if check_result.probe is None else asdict(check_result.probe),
    }


def _data_json(check_result: PlannedRunCheckResult) -> dict[str, Any]:
    """Return the sizes of the loaded data and of the model as JSON values; the configuration only limits some."""
    federation = check_result.federation
    dataset = check_result.dataset
    shards = [len(shard) for shard in federation.shards]
    return {
        "records": federation.public.records,
        "test_records": len(federation.test.labels),
        "population_records": len(federation.population.labels),
        "clients": federation.public.clients,
        "smallest_client": min(shards),
        "largest_client": max(shards),
        "classes": federation.classes,
        "features": int(dataset.pool.features[0].size),
        "description": dataset.description,
        "parameters": federation.model.layout.size,
        "columns": [str(column) for column in dataset.columns],
    }


def _limits_json(check_result: PlannedRunCheckResult) -> dict[str, Any] | None:
    """Return the limits of detection as JSON values; None if nothing would be detected."""
    limits = check_result.limits
    canaries = check_result.canaries
    if canaries is not None:
        return (
            {"judged": "canaries", "probability": DETECTION_POWER}
            | asdict(canaries)
            | {"limit_of_detection": finite(canaries.limit_of_detection)}
        )
    if limits is None:
        return None
    return {
        "judged": "log-odds" if check_result.plan.federation.mechanism.knows_llr else "scores",
        "limit_of_detection": finite(limits.limit_of_detection),
        "noise_short_along_record": limits.noise_short,
        "noise_short_in_all": limits.noise_short_in_all,
        "probability": DETECTION_POWER,
        "signal": None if check_result.signal is None else check_result.signal.to_json(),
        "signal_in_pilot": None if check_result.pilot is None else check_result.pilot.to_json(),
        "conclusive": check_result.is_conclusive,
        "trials_needed": check_result.trials_for_conclusive_verdict,
    }
