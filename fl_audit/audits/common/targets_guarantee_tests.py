"""Tests of the guarantee by audits with many targets."""

from fl_audit.audits.audit import GuaranteeTests
from fl_audit.audits.common.federation_requirements import (
    require_candidates,
    require_clients,
    require_computable_llr,
    require_targets,
)
from fl_audit.audits.common.planned_detection_limits import limit_of_signal, limits_of_noise
from fl_audit.errors import require
from fl_audit.federation.federation import Federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.noises.registry import quoted_names
from fl_audit.verdict.noise_estimate import NoiseDetectionLimit
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit


class TargetsGuaranteeTests(GuaranteeTests):
    """Base class for audits with many targets: how they test whether a run keeps its guarantee.

    The noise is measured only along the contributions of the targets.
    """

    kind: str
    """Name of the audit kind, for error messages."""
    is_always_in: bool
    """Whether the target that is judged is in every trial; otherwise it is in half of the trials."""

    def require_supported(self, federation: Federation) -> None:
        """Raise `InputError` if this audit cannot run on a federation, e.g. if it has too few clients."""
        require_clients(federation, 2 if federation.with_insider else 1)
        require_targets(federation, self.kind)
        require_candidates(federation)
        require_computable_llr(federation)
        noise = federation.mechanism.noise
        weighs = noise.weighs_targets or not federation.with_insider
        accepted = quoted_names(condition=lambda kind: kind.weighs_targets)
        problem = f"kind = '{self.kind}' with noise = '{noise.name}', whose insiders weigh many targets"
        require(weighs, f"{problem}: accepted are noise = {accepted}, kind = 'identifiability' and insider = false")

    def planned_noise(self, plan: RunPlan, parameters: int | None) -> NoiseDetectionLimit | None:
        """Return how much too small the noise along the targets must be for a planned run to detect it.

        None if the run has no insider. `parameters` has no effect.
        """
        return limits_of_noise(plan, None)

    def planned_signal(self, plan: RunPlan) -> SignalDetectionLimit | None:
        """Return how many times a sum must contain a target's contribution so that a planned run would detect it.

        The claim allows one time. The result is None without an insider, or if the mechanism has no exact
        log-likelihood ratio.
        """
        return limit_of_signal(plan, self.is_always_in)
