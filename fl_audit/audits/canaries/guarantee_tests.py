"""Tests of the guarantee by one-run audits, in which an observer scores the releases along canaries' directions."""

from fl_audit.adjacency import Unit
from fl_audit.audits.audit import GuaranteeTests
from fl_audit.audits.canaries.canary_detection_limit import CanaryDetectionLimit, planned_canaries
from fl_audit.audits.canaries.sections_one_run import judge_canaries
from fl_audit.audits.common.federation_requirements import require_clients, require_computable_llr
from fl_audit.errors import require
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noises.registry import quoted_names
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.verdict.verdict import VerdictDetails


class CanaryGuaranteeTests(GuaranteeTests):
    """Tests of the guarantee in the audit kind `canaries`, in which secret coins decide which canaries are in."""

    def require_supported(self, federation: Federation) -> None:
        """Raise `InputError` if the canary audit does not support the federation.

        The audit needs fresh noise of a known scale in every round. It has one observer, and no insider or colluder.
        """
        mechanism = federation.mechanism
        setting = "kind = 'canaries'"
        require_clients(federation, 2)
        adjacency = f"{setting} with adjacency '{mechanism.adjacency}'"
        require(mechanism.unit is not Unit.USER, f"{adjacency}: accepted are adjacencies of records and clients")
        problem = f"private is false with {setting}, which holds noise against a guarantee"
        require(mechanism.adds_noise, f"{problem}: set private = true")
        alone = not federation.with_insider and federation.threat_model.colluders == 0
        require(alone, f"{setting} has one observer, who weighs no pair: leave out insider and colluders")
        is_supported = mechanism.noise.carries_canaries and mechanism.scaling is SensitivityKind.GLOBAL
        names = quoted_names(condition=lambda kind: kind.carries_canaries)
        accepted = f"accepted are noise = {names}, with sensitivity 'global'"
        require(is_supported, f"{setting} reads fresh noise of a known scale in every round: {accepted}")
        trains_privately = isinstance(mechanism.contribution, PrivateTraining)
        by_server = federation.threat_model.adversary is Adversary.SERVER and not trains_privately
        require(
            not by_server, f"adversary is 'server' with {setting}, which would see every canary: accepted is 'client'"
        )
        require_computable_llr(federation)

    def judge(self, run: FinishedRun) -> VerdictDetails | None:
        """Return the judgement from the canaries of all trainings pooled; None if nothing could be tested."""
        return judge_canaries(run)

    def planned_canaries(
        self, federation: LoadedFederation, guarantee: Guarantee, trials: int
    ) -> CanaryDetectionLimit | None:
        """Return which breaches the canaries of a planned run would show; None if clients train with DP-SGD."""
        return planned_canaries(federation, guarantee, trials)

    def covers(self, facts: RunPlan) -> str:
        """Return a sentence on the training and seed that a verdict covers, and on noise that canaries do not show."""
        return (
            "A verdict covers this training and this seed (the challenger's secret) only, and what canaries see: how "
            "much noise hides one of them in a round. Noise that depends on anybody's data was not looked for."
        )
