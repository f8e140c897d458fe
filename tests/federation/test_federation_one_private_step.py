"""One private step a round: its law is exact, so that an insider has beliefs of clients that train with Opacus."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_audits import MakePlan

from fl_audit.experiments.runs.engines import Engine
from fl_audit.experiments.runs.run import run_audit

TRAINING: dict[str, Any] = {
    "strategy": "dp-sgd-clients", "rounds": 3, "local-steps": 1, "local-batch": 100, "learning-rate": None,
}  # fmt: skip
PRIVACY: dict[str, Any] = {"belief": None, "noise-multiplier": 1.5, "sensitivity": None, "clipping-norm": 1.0}
AUDIT: dict[str, Any] = {"epsilon-star": False, "membership": False}


def plan_of(small_plan: MakePlan, **changes: dict[str, Any]) -> Any:
    settings = {"training": TRAINING, "privacy": PRIVACY, "audit": AUDIT}
    return small_plan(**{name: settings.get(name, {}) | changes.get(name, {}) for name in {*settings, *changes}})


@pytest.mark.parametrize("batch", [100, 4])
@pytest.mark.parametrize("adversary", ["server", "client"])
def test_beliefs(small_plan: MakePlan, tmp_path: Path, adversary: str, batch: int) -> None:
    plan = plan_of(small_plan, training={"local-batch": batch}, audit={"adversary": adversary, "trials": 40})
    contents = run_audit(plan, tmp_path / "run", Engine.LOCAL, with_report=False)
    print(contents.summary["verdict"])
    import json
    print(json.dumps({k: v for k, v in contents.summary.items() if k in ("verdict","guarantee","insider","tests","noise", "verdict_tests", "missing")}, indent=1, default=str)[:6000])
    r = contents.rounds
    print(list(contents.summary))
    print((r["measured_sigma"]/r["sigma"]).describe())
    print(r[["local_sensitivity","sigma","log_odds"]].describe())
