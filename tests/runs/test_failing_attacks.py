"""An attack that raises an error after the training loses neither the run nor another attack, and leaves it open."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fl_audit.audits.membership.attacks.registry import ATTACKS
from fl_audit.run_files import read_json
from fl_audit.runs import attacks, run_report
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from fl_audit.verdict import findings_verdict
from fl_audit.verdict.verdict import Verdict
from tests.builders.runs import small_plan
from tests.builders.tables import write_people

pytestmark = pytest.mark.section_errors
REASON = "the attack has no number"


def played(directory: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    plan = small_plan(**changes)
    run_audit(plan, directory / "run", Engine.LOCAL)
    assert REASON in (directory / "run" / "report.html").read_text()
    summary: dict[str, Any] = read_json(directory / "run" / "summary.json")
    return summary


def pictures_in(folder: Path) -> Path:
    """Write 120 pictures of two classes, and return their folder."""
    draw = np.random.default_rng(0)
    for name in ("dark", "light"):
        (folder / name).mkdir(parents=True)
        for number in range(60):
            pixels = draw.integers(0, 120, (8, 8)).astype(np.uint8) + 100 * (name == "light")
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


def consistent_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests alone find nothing and be conclusive, whatever a small run says."""
    monkeypatch.setattr(findings_verdict.VerdictDetails, "verdict", Verdict.CONSISTENT)


@pytest.mark.parametrize("failing", ["loss", "attribute"])
def test_the_other_attacks_are_written_without_one_that_fails(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ArithmeticError(REASON)

    guesses_values = ATTACKS[failing].guesses_values
    monkeypatch.setattr(attacks, "_guesses", fail)
    monkeypatch.setitem(ATTACKS, failing, replace(ATTACKS[failing], scores=fail))
    consistent_otherwise(monkeypatch)
    working_attack = "loss" if guesses_values else "rmia"
    audit = {
        "kind": "membership",
        "trials": 24,
        "targets": 10,
        "attacks": [failing, working_attack],
        "epsilon-star": False,
    }
    attribute_settings = {"attribute": "smokes"} if guesses_values else {}
    path = tmp_path / "people.csv"
    write_people(path, visits=4, classes=2)
    data = {"name": "csv", "path": str(path), "label": "ill", "records": 40, "clients": 2, "population-records": 100}
    privacy = {"adjacency": "add-remove-record", "sensitivity": None}
    summary = played(tmp_path, data=data, audit=audit | attribute_settings, privacy=privacy)
    assert summary["verdict"] == "inconclusive"
    assert [failure["reason"] for failure in summary["not_computed"]] == [f"ArithmeticError: {REASON}"]
    assert failing in summary["not_computed"][0]["part"]
    assert working_attack in summary["attacks"]["by_name"]


def test_a_search_for_images_that_fails_leaves_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*of: Any) -> Any:
        raise ArithmeticError(REASON)

    monkeypatch.setattr(run_report, "reconstruct_images", search)
    consistent_otherwise(monkeypatch)
    summary = played(
        tmp_path,
        data={
            "name": "images",
            "path": str(pictures_in(tmp_path / "images")),
            "records": 40,
            "test-records": 20,
            "population-records": 30,
        },
        privacy={
            "belief": None,
            "epsilon": 5.0,
            "adjacency": "add-remove-record",
            "sensitivity": None,
            "accountant": "gdp",
        },
        audit={"reconstruct-samples": 4, "epsilon-star": False},
    )
    assert summary["verdict"] == "inconclusive"
    assert [failure["part"] for failure in summary["not_computed"]] == ["The search for training images"]
    assert summary["pictures"] is None
    assert summary["findings"]
