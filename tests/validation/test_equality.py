"""The equality command notices a changed number and a missing one."""

import json
from pathlib import Path

import pytest

from fl_audit.strategies.secret_draws import SeededChallenger
from tests.validation.equality import differences, record


def _recorded(file: Path) -> dict[str, dict[str, str]]:
    record(file, only="identifiability", with_ray=False)
    return dict(json.loads(file.read_text()))


@pytest.mark.long
def test_equal_runs_are_equal_and_one_changed_draw_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _recorded(tmp_path / "first.json")
    assert len(first["identifiability"]) > 100
    assert differences(first, _recorded(tmp_path / "second.json")) == []
    honest = SeededChallenger.standard_normals
    monkeypatch.setattr(SeededChallenger, "standard_normals", lambda *args: honest(*args) * (1 + 1e-6))
    assert differences(first, _recorded(tmp_path / "changed.json"))


def test_missing_digests_are_listed() -> None:
    assert len(differences({"case": {"a": "1", "b": "2"}}, {"case": {"c": "1", "d": "2"}})) == 4
    assert differences({"case": {}, "gone": {"a": "1"}}, {"case": {}}) == ["gone: a is missing and was 1"]
