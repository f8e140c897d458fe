"""The judgement by the log-odds of the first target."""

from functools import partial

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.audit import GuaranteeTests
from fl_audit.audits.common.federation_requirements import require_clients, require_computable_llr, require_targets
from fl_audit.audits.common.planned_detection_limits import limit_of_signal
from fl_audit.audits.common.targets_guarantee_tests import planned_noise_along_targets
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.verdict.judging import judge_scores
from fl_audit.verdict.stored_measurements import noise_along
from fl_audit.verdict.verdict import VerdictDetails


def _require_supported(public: Federation) -> None:
    """Refuse what targets cannot be played with."""
    require_clients(public, 2)
    require_targets(public, "first-target")
    require_computable_llr(public)


def _judge(run: FinishedRun) -> VerdictDetails | None:
    """Return what the scores say, and the noise along the target."""
    log_odds, is_in = first_target(run)
    noise = noise_along(run, np.zeros(run.trials, dtype=np.int64))
    guarantee = run.plan.stated_guarantee
    confidence = run.plan.confidence
    return judge_scores(log_odds[is_in], log_odds[~is_in], guarantee, confidence, noise)


FIRST_TARGET_TESTS = GuaranteeTests(
    require_supported=_require_supported,
    judge=_judge,
    covers=lambda plan: "A verdict covers the first target only.",
    planned_noise=planned_noise_along_targets,
    planned_signal=partial(limit_of_signal, is_always_in=False),
)
"""Tests of the guarantee by this audit."""


def first_target(run: FinishedRun) -> tuple[Floats, Flags]:
    """Return the log-odds of the first target, and whether it was in, trial by trial."""
    table = run.tables.targets
    assert table is not None, "an audit of targets has a table of them"
    rows = table[table["target"] == table["target"].min()].sort_values("trial")
    return rows["log_odds"].to_numpy(dtype=np.float64), rows["is_in"].to_numpy(dtype=np.bool_)
