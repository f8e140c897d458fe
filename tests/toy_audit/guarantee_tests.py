"""The judgement by the log-odds of the first target."""

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.audit import GuaranteeTests
from fl_audit.audits.common.federation_requirements import require_clients, require_computable_llr, require_targets
from fl_audit.audits.common.planned_detection_limits import limit_of_signal, limits_of_noise
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.verdict.judging import judge_scores
from fl_audit.verdict.noise_estimate import NoiseDetectionLimit
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
from fl_audit.verdict.stored_measurements import noise_along
from fl_audit.verdict.verdict import VerdictDetails


class FirstTargetGuaranteeTests(GuaranteeTests):
    """Tests of the guarantee by this audit."""

    def require_supported(self, public: Federation) -> None:
        """Refuse what targets cannot be played with."""
        require_clients(public, 2)
        require_targets(public, "first-target")
        require_computable_llr(public)

    def planned_noise(self, plan: RunPlan, parameters: int | None) -> NoiseDetectionLimit | None:
        """Return what insiders find of the noise, along their targets alone."""
        return limits_of_noise(plan, None)

    def planned_signal(self, plan: RunPlan) -> SignalDetectionLimit | None:
        """Return how often the target could count."""
        return limit_of_signal(plan, is_always_in=False)

    def judge(self, run: FinishedRun) -> VerdictDetails | None:
        """Return what the scores say, and the noise along the target."""
        log_odds, is_in = first_target(run)
        noise = noise_along(run, np.zeros(run.trials, dtype=np.int64))
        guarantee, confidence = run.plan.stated_guarantee, run.plan.confidence
        return judge_scores(log_odds[is_in], log_odds[~is_in], guarantee, confidence, noise)

    def covers(self, plan: RunPlan) -> str:
        """Say of which target a verdict is."""
        return "A verdict covers the first target only."


def first_target(run: FinishedRun) -> tuple[Floats, Flags]:
    """Return the log-odds of the first target, and whether it was in, trial by trial."""
    table = run.tables.targets
    assert table is not None, "an audit of targets has a table of them"
    rows = table[table["target"] == table["target"].min()].sort_values("trial")
    return rows["log_odds"].to_numpy(dtype=np.float64), rows["is_in"].to_numpy(dtype=np.bool_)
