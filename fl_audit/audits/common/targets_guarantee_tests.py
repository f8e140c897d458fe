"""Tests of the guarantee by audits with many targets."""

from fl_audit.audits.common.federation_requirements import (
    require_candidates,
    require_clients,
    require_computable_llr,
    require_targets,
)
from fl_audit.audits.common.planned_detection_limits import limits_of_noise
from fl_audit.errors import require
from fl_audit.federation.federation import Federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.noises.registry import quoted_names
from fl_audit.verdict.noise_estimate import NoiseDetectionLimit


def require_supported_targets(federation: Federation, kind: str) -> None:
    """Raise `InputError` if an audit with many targets cannot run on a federation, e.g. if it has too few clients.

    `kind`: Name of the audit kind, for error messages.
    """
    require_clients(federation, 2 if federation.with_insider else 1)
    require_targets(federation, kind)
    require_candidates(federation)
    require_computable_llr(federation)
    noise = federation.mechanism.noise
    weighs = noise.weighs_targets or not federation.with_insider
    accepted = quoted_names(condition=lambda noise_kind: noise_kind.weighs_targets)
    problem = f"kind = '{kind}' with noise = '{noise.name}', whose insiders weigh many targets"
    require(weighs, f"{problem}: accepted are noise = {accepted}, kind = 'identifiability' and insider = false")


def planned_noise_along_targets(plan: RunPlan, parameters: int | None) -> NoiseDetectionLimit | None:
    """Return how much too small the noise along the targets must be for a planned run to detect it.

    None if the run has no insider. `parameters` has no effect, since noise is measured along the targets alone.
    """
    return limits_of_noise(plan, None)
