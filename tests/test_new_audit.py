"""A new kind of audit is one folder and one line in the registry; when both are gone, nothing is left of it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fl_audit.audits.registry import AUDITS
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planned_run_check import check_plan
from fl_audit.runs.run import run_audit
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan
from tests.toy_audit.audit import FirstTargetAudit

_NAME = "first-target"


def _plan(**audit: object) -> RunPlan:
    played = {"kind": _NAME, "trials": 30, "targets": 5, "epsilon-star": False} | audit
    privacy = {"belief": None, "sensitivity": None, "noise-multiplier": 0.2, "adjacency": "add-remove-record"}
    return small_plan(audit=played, privacy=privacy, run={"trials-per-batch": 15})


def test_a_new_kind_of_audit_is_configured_checked_played_judged_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AUDITS, _NAME, FirstTargetAudit())
    plan = _plan()
    assert plan.config.audit.insider
    assert (plan.federation.audit, plan.federation.targets) == (_NAME, 5)
    checked = check_plan(plan, with_probe=False)
    assert checked.limits is not None
    assert checked.limits.noise_short_in_all is None
    contents = run_audit(plan, tmp_path / "run", Engine.LOCAL)
    table = contents.run.tables.targets
    assert table is not None
    first = table[table["target"] == table["target"].min()]
    right = float(np.mean((first["log_odds"] > 0) == first["is_in"]))
    assert right > 0.8, "with a fifth of the noise the insider hardly ever errs"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["first_target"]["right"] == pytest.approx(right, abs=1e-3)
    assert summary["verdict"] in ("consistent", "inconclusive")
    assert "first target only" in summary["scope"]
    assert re.search("Right guesses [^<]*first target", (tmp_path / "run" / "report.html").read_text())


def test_a_new_kind_refuses_what_it_is_not_played_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AUDITS, _NAME, FirstTargetAudit())
    assert_refused(r"candidates.* kind = reconstruction, .*first-target", _plan, candidates=3)
    assert_refused(
        r"with kind = 'first-target'.*add-remove-record",
        small_plan,
        audit={"kind": _NAME, "targets": 5},
        privacy={"adjacency": "replace-record", "sensitivity": None},
    )
