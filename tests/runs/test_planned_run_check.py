"""A run is looked at before it is played: what is said of it holds when it is, and nothing is written."""

import json
import re
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import psutil
import pytest

from fl_audit.federation.loaded_federation import load_federation
from fl_audit.report.guarantee_warnings import delta_warning
from fl_audit.runs import time_probe
from fl_audit.runs.config import parse_config
from fl_audit.runs.disk_space_estimate import GIGABYTE, footprint
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planned_run_check import check_json, check_plan
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_directory_checks import require_new_run_path
from fl_audit.runs.time_probe import probe
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import small_settings, small_toml

CONFIG = small_toml(data={"name": "csv", "path": "patients.csv", "label": "outcome"}, privacy={"accountant": "gdp"})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    table = pd.DataFrame({"age": range(100), "ward": ["east", "west"] * 50, "outcome": [0, 0, 1, 0, 1] * 20})
    table.to_csv(tmp_path / "patients.csv", index=False)
    path = tmp_path / "audit.toml"
    path.write_text(CONFIG)
    return path


def test_it_says_what_there_is_and_writes_nothing(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    output = printed_by("check", str(config), "--json")
    answer = json.loads(output)
    assert sorted(tmp_path.rglob("*")) == before
    assert answer["data"]["records"] == 60
    assert answer["data"]["smallest_client"] == answer["data"]["largest_client"] == 20
    assert answer["data"]["classes"] == 2
    assert answer["data"]["features"] == 3
    assert [column.split(":")[0] for column in answer["data"]["columns"]] == ["outcome", "age", "ward"]
    assert answer["guarantee"]["epsilon"] == pytest.approx(2.0)
    assert answer["limits"]["trials_needed"] >= 1
    assert answer["estimate"]["seconds"] > 0
    assert answer["estimate"]["trials"] == 4
    assert answer["estimate"]["command_seconds"] > answer["estimate"]["seconds"]
    assert answer["keep_releases"] == 4
    assert answer["writes"]["total"] < 10**6


def test_memory_and_processes_on_ray_are_told() -> None:
    """Of this process, and of each that Ray starts for clients: ordinary ones, the victim and the insider."""
    plan = small_plan(data={"clients": 5}, run={"actors": 3})
    local_probe, on_ray = (probe(plan, engine) for engine in (Engine.LOCAL, Engine.RAY))
    assert (local_probe.processes, on_ray.processes) == (1, 1 + 3 + 2)
    assert 200 * 2**20 < local_probe.memory < on_ray.memory - 5 * 200 * 2**20
    alone = small_plan(
        data={"clients": 5}, run={"actors": 3}, privacy={"sensitivity": "global"}, audit={"insider": False}
    )
    assert probe(alone, Engine.RAY).processes == 1 + 3 + 1


def test_a_few_trials_show_how_long_many_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of long rounds is estimated from rounds of a few trials."""
    plan = small_plan(audit={"trials": 24}, run={"trials-per-batch": 24})
    every = probe(plan)
    monkeypatch.setattr(time_probe, "ENOUGH_SECONDS", 0.0)
    short_probe = probe(plan)
    assert (every.trials, short_probe.trials) == (24, 2)
    assert short_probe.seconds == pytest.approx(
        plan.config.audit.trials / 2 * (short_probe.start_seconds + short_probe.round_seconds * 2), 0.5
    )
    size = load_federation(plan.federation).model.layout.size
    assert short_probe.memory < every.memory + 24 * time_probe._ROWS_HELD * 4 * size + 50 * 2**20


def test_a_person_reads_the_same(config: Path) -> None:
    output = printed_by("check", str(config), "--no-probe")
    assert max(map(len, output.splitlines())) <= 80
    for word in ("60 records", "age: number", "noise multiplier", "4 trials find noise", "1.5 times"):
        assert word in output
    assert "Takes" not in output
    assert "│ Takes │ about" in " ".join(printed_by("check", str(config)).split())


@pytest.mark.parametrize(
    ("privacy", "units"),
    [
        ({"belief": None, "epsilon": 500.0, "delta": 0.001}, None),
        ({"delta": 0.5}, "60 records"),
        ({"delta": 0.001}, None),
    ],
)
def test_what_a_guarantee_cannot_assure_is_told_before_the_run(privacy: dict[str, Any], units: str | None) -> None:
    """A large delta and an epsilon that excludes nothing are known from the plan, so `check` names them."""
    plan = small_plan(privacy=privacy)
    assert plan.guarantee is not None
    caution_texts = [caution.text for caution in check_plan(plan, with_probe=False).cautions]
    assert any("may become sure" in text for text in caution_texts) is ("epsilon" in privacy)
    assert any("Delta" in text for text in caution_texts) is (units is not None)
    assert delta_warning(plan.guarantee, plan.federation.units) in (*caution_texts, None)
    assert all(f"large for {units}" in text for text in caution_texts if "Delta" in text)


def test_one_client_trains_where_nobody_attacks(tmp_path: Path) -> None:
    named = r"2 and more .* insider = false .* 1 is"
    assert_refused(named, lambda: check_plan(small_plan(data={"clients": 1}), with_probe=False))
    alone = {"data": {"clients": 1}, "audit": {"insider": False}, "privacy": {"sensitivity": "global"}}
    contents = run_locally(small_plan(**alone), tmp_path / "run")
    assert contents.summary["verdict"] == "not audited"


def test_a_run_is_offered_to_be_resumed_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").write_text("")
    (tmp_path / "run" / "public").mkdir(parents=True)
    (tmp_path / "run" / "public" / "configuration.json").write_text("{}")
    for name, expected_message in (("file", "is a file"), ("full", "holds no run"), ("run", "exists: .* --resume")):
        error = assert_refused(expected_message, require_new_run_path, tmp_path / name, resume=False)
        assert ("--resume" in str(error)) is (name == "run")
    require_new_run_path(tmp_path / "new" / "one", resume=False)
    assert_refused("is a file", require_new_run_path, tmp_path / "file" / "one", resume=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "run"], "nothing is left behind"


def test_gigabytes_are_told_before_they_are_written_and_refused_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = {"model": {"name": "dense-512-128"}, "training": {"rounds": 1000}, "audit": {"trials": 20_000}}
    plan = small_plan(**wide, run={"keep-releases": None})
    parameters = load_federation(plan.federation).model.layout.size
    assert plan.config.run.keep_releases == 2**28 // (1000 * parameters) == 3
    run_footprint = footprint(plan)
    assert run_footprint.releases <= 2**30 + 3 * 4 * parameters
    # The final models of all trials would take more than a gigabyte, so that one trial's is kept beside the model file.
    assert 20_000 * 4 * parameters > 2**30
    assert run_footprint.models == 2 * 4 * parameters
    caution_text = check_plan(plan, with_probe=False).cautions[-1].text
    assert re.match(rf"the run writes .*{run_footprint.total / GIGABYTE:,.1f} GB", caution_text)
    with_less_memory = replace(run_footprint, tables=10**15).caution
    assert re.search("GB of memory .*more than this machine", with_less_memory)
    monkeypatch.setattr(psutil, "disk_usage", lambda path: SimpleNamespace(free=5 * 10**9))
    assert_refused(r"fewer trials or rounds.* 5\.0 GB .*free", run_audit, plan, tmp_path / "run", Engine.LOCAL)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_run_leaves_as_many_bytes_as_were_foretold(tmp_path: Path) -> None:
    plan = small_plan(audit={"trials": 100}, training={"rounds": 20}, run={"trials-per-batch": 50})
    run_locally(plan, tmp_path / "run")
    written = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert written / 2 < footprint(plan).total < 2 * written


def test_what_it_could_find_is_what_the_report_says_afterwards(tmp_path: Path) -> None:
    plan = small_plan(privacy={"sensitivity": None}, audit={"epsilon-star": False, "trials": 3})
    planned = check_plan(plan, with_probe=False)
    assert planned.limits is not None
    summary = run_locally(plan, tmp_path / "run").summary
    detection_limit = summary["empirical_epsilon"]["limit_of_detection"]
    assert planned.limits.limit_of_detection == pytest.approx(detection_limit, rel=1e-9)
    assert planned.is_conclusive == (summary["verdict"] == "consistent")
    # The plan takes the record's contributions for as long as the clipping norm, which is the most that they are.
    assert planned.signal is not None
    assert planned.signal.times <= 1.01 * summary["signal"]["limit_of_detection"]


@pytest.mark.parametrize(
    ("kind", "audit_settings"),
    [("membership", {"targets": 4, "attacks": ["loss"]}), ("reconstruction", {"candidates": 4})],
)
def test_with_many_targets_it_says_which_noise_is_found(kind: str, audit_settings: dict[str, Any]) -> None:
    privacy = {"sensitivity": None, "belief": None, "noise-multiplier": 1.0}
    audit = {"kind": kind, "trials": 40, "epsilon-star": False} | audit_settings
    limits = check_plan(small_plan(privacy=privacy, audit=audit), with_probe=False).limits
    assert limits is not None
    assert (limits.conclusive, limits.noise_short_in_all) == (True, None)
    assert limits.trials_needed is not None
    assert limits.trials_needed <= 40


def test_without_an_exact_distribution_it_says_that_nobody_knows_what_scores_find() -> None:
    settings = small_settings(
        training={"strategy": "dp-sgd-clients", "rounds": 1},
        privacy={"sensitivity": None, "belief": None, "noise-multiplier": 1.0, "accountant": "rdp"},
    )
    plan_check = check_plan(plan_run(parse_config(settings)), with_probe=False)
    limits = plan_check.limits
    assert limits is not None
    assert check_json(plan_check)["limits"]["judged"] == "scores"
    assert limits.noise_short is None
    assert (limits.conclusive, limits.trials_needed, limits.limit_of_detection) == (False, None, inf)
