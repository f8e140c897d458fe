"""`fl-audit compare`: what it reads, shows and refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES
from fl_audit.runs.comparison.rows import ACCURACY, ADVANTAGE, ATTACK, SHOWN, STAR, rows
from fl_audit.statistics.claim_comparisons import Reading
from fl_audit.verdict.audit_result import AuditedKind, AuditResult
from fl_audit.verdict.verdict import Verdict
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused


def _entry(name: str, value: float, **fields: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("low", "high", "confidence", "claimed", "reading"))
    return {"name": name, "value": value, "is_share": False, "is_least": False} | empty | fields


ADVANTAGE_FOUND = _entry(
    ADVANTAGE, 0.45, low=0.3, high=0.6, confidence=0.95, claimed=0.4, reading=str(Reading.NO_CONTRADICTION)
)


def _stored(directory: Path, *attacks: dict[str, Any], **changes: Any) -> Path:
    directory.mkdir(parents=True)
    guarantee = {"belief_bound": 0.9, "epsilon": 2.0, "delta": 0.001, "noise_multiplier": 3.5}
    findings = [ADVANTAGE_FOUND, _entry(SHOWN, 1.5), _entry(STAR, 0.7), _entry(ACCURACY, 0.81, is_share=True)]
    summary = {"schema": 1, "verdict": "consistent", "guarantee": guarantee, "findings": [*findings, *attacks]}
    summary["epsilon_star"] = {"mean": 0.7, "cut": 1e-6}
    (directory / "summary.json").write_text(json.dumps(summary | changes))
    return directory


def _compare(*arguments: object, columns: int = 200) -> str:
    return printed_by("compare", *arguments, env={"COLUMNS": str(columns)})


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two finished runs, one of them without a guarantee."""
    nothing = {"epsilon": None, "delta": None, "noise_multiplier": None}
    proved = [_entry(f"{ATTACK}{name} (nats)", value) for name, value in (("LiRA", 0.9), ("RMIA", 0.4))]
    return _stored(tmp_path / "private"), _stored(
        tmp_path / "plain", verdict="no guarantee", guarantee=nothing, findings=[_entry(ACCURACY, 0.7), *proved]
    )


BOUNDS: dict[AuditedKind, dict[str, Any]] = {
    AuditedKind.STRATEGY: {"lower_bound": 1.25, "findings": [{"scenario": "removed"}]},
    AuditedKind.APP: {"model": {"lower_bound": 1.25}, "beside": None},
    AuditedKind.TRAINING: {},
    AuditedKind.FEDERATION: {"epsilon_lower": 1.25},
    AuditedKind.MODEL: {"epsilon_at_least": 1.25, "model": {"name": "m.safetensors"}},
}
"""How each kind of audit stores a lower bound on epsilon of 1.25; that of a training has none."""


@pytest.mark.parametrize("kind", list(BOUNDS))
def test_every_kind_of_audit_is_compared_with_a_run(kind: AuditedKind, tmp_path: Path) -> None:
    guarantee = dict.fromkeys(GUARANTEE_NAMES) | {"epsilon": 3.5, "delta": 1e-5, "adjacency": "add-remove-client"}
    result = AuditResult(kind, "mine", Verdict.INCONCLUSIVE, "Open.", guarantee=guarantee, numbers=BOUNDS[kind])
    directory = tmp_path / "audited"
    directory.mkdir()
    (directory / "summary.json").write_text(json.dumps(result.to_json()))
    run = _stored(tmp_path / "run")
    audit_row = json.loads(_compare(directory, run, "--json"))["runs"][0]
    assert (audit_row["verdict"], audit_row["epsilon"], audit_row["kind"]) == ("inconclusive", 3.5, kind)
    assert audit_row["shown"] == (1.25 if BOUNDS[kind] else None)
    text = _compare(directory, run)
    assert "audited: inconclusive" in text
    assert "None" not in text


def test_kinds_of_audits_are_complete() -> None:
    assert {*BOUNDS, AuditedKind.RUN} == {*AuditedKind}


def test_every_number_comes_from_the_findings_of_the_report(two: tuple[Path, Path]) -> None:
    private, plain = json.loads(_compare(*two, "--json"))["runs"]
    assert private.pop("findings")[ADVANTAGE] == ADVANTAGE_FOUND
    assert private == {
        "run": "private",
        "verdict": "consistent",
        "belief": 0.9,
        "epsilon": 2.0,
        "delta": 0.001,
        "noise_multiplier": 3.5,
        "adjacency": None,
        "guarantee": None,
        "shown": 1.5,
        "advantage": 0.45,
        "advantage_bound": 0.4,
        "accuracy": 0.81,
        "epsilon_star": 0.7,
        "attack": None,
        "epsilon_star_cut": 1e-6,
        "headline": None,
        "is_training": False,
        "kind": "run",
    }
    assert (plain["attack"], plain["accuracy"]) == (0.9, 0.7)
    assert {plain[key] for key in ("belief", "epsilon", "noise_multiplier", "shown", "advantage", "epsilon_star")} == {
        None
    }


def test_the_table_says_what_is_not_as_claimed(two: tuple[Path, Path], tmp_path: Path) -> None:
    table_text = _compare(*two, "--plot", tmp_path / "runs.png")
    assert "0.45~" in table_text
    assert f"~ {Reading.NO_CONTRADICTION}" in table_text
    assert "plain: no guarantee" in table_text
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")


def test_a_number_lies_on_the_side_of_the_claim_on_which_it_is_shown(tmp_path: Path) -> None:
    reading = str(Reading.NO_CONTRADICTION)
    limits = {"low": 0.9979, "high": 1.0011, "confidence": 0.95, "claimed": 1.0, "reading": reading, "is_least": True}
    shares = {"low": 0.0, "high": 0.0092, "confidence": 0.95, "claimed": 0.0002, "reading": reading, "is_share": True}
    first_run, two = (
        _stored(tmp_path / f"{noise}", _entry("Noise", noise, **limits), _entry("Surer", share, **shares))
        for noise, share in ((0.9996, 0.0002496), (1.0004, 0.0001))
    )
    noise, surer = (line for line in _compare(first_run, two).splitlines() if line.startswith(("Noise", "Surer")))
    assert [cell for cell in noise.split() if "~" in cell] == ["0.9996~", "1.0004~"]
    assert [cell for cell in surer.split() if "~" in cell] == ["0.025%~", "0.01%~"]


@pytest.mark.parametrize("runs", [2, 5, 13])
def test_many_runs_fit_80_columns_each_with_its_numbers(tmp_path: Path, runs: int) -> None:
    directories = [_stored(tmp_path / f"a-run-with-a-long-name-{index}") for index in range(runs)]
    lines = _compare(*directories, columns=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count("0.45~") for line in lines) == runs
    heads = [line.split()[1:] for line in lines if line.startswith("run ")]
    assert [number for head in heads for number in head] == [str(index + 1) for index in range(runs)]
    assert max(map(len, heads)) <= 5


def test_guarantees_that_cannot_be_held_against_each_other_are_said_to_be_so(tmp_path: Path) -> None:
    """A belief of .9 at delta .01 has epsilon 1.53, at .001 1.69: the larger number is the stronger guarantee."""
    guarantee = {"belief_bound": 0.9, "epsilon": 1.53, "delta": 0.01, "noise_multiplier": 2.4}
    other_guarantee = guarantee | {"epsilon": 1.69, "delta": 0.001, "adjacency": "add-remove-record"}
    first_run, same, two = (
        _stored(
            tmp_path / name, guarantee=run_guarantee | {"adjacency": run_guarantee.get("adjacency", "replace-record")}
        )
        for name, run_guarantee in (("one", guarantee), ("same", guarantee), ("two", other_guarantee))
    )
    assert json.loads(_compare(first_run, same, "--json"))["differences"] == []
    deltas, neighbours = json.loads(_compare(first_run, two, "--json"))["differences"]
    assert "(0.001, 0.01)" in deltas
    assert "add-remove-record, replace-record" in neighbours
    table_text = _compare(first_run, two)
    assert "The deltas differ (0.001, 0.01)" in table_text
    assert "The neighbours differ" in table_text
    assert "differ" not in _compare(first_run, same)


def test_values_of_epsilon_star_at_different_cuts_are_said_to_be_so(tmp_path: Path) -> None:
    """Counted losses leave out more error rates than normals do: the numbers are of two kinds."""
    first_run, two = (_stored(tmp_path / f"{cut:g}", epsilon_star={"mean": 1.0, "cut": cut}) for cut in (1e-6, 1e-3))
    assert re.search(r"cuts of Epsilon\* differ \(1e-06, 0\.001\)", _compare(first_run, two))
    assert len(json.loads(_compare(first_run, two, "--json"))["differences"]) == 1


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    first = _stored(tmp_path / "a" / "run")
    second = _stored(tmp_path / "b" / "run")
    assert [row.run for row in rows([first, second])] == [str(first), str(second)]


def test_bad_input_is_one_line(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_refused("at least two", rows, [two[0]])
    assert_refused("named twice", rows, [two[0], two[0]])
    assert_refused("no finished run", rows, [two[0], tmp_path / "empty"])
    (tmp_path / "empty" / "summary.json").write_text("[]")
    assert_refused("no summary of", rows, [two[0], tmp_path / "empty"])
    assert_refused("ends in", printed_by, "compare", *two, "--plot", "x.jpg")
