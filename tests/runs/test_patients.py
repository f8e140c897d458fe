"""A table of patients with several rows: all commands and the report say what a claim about records does not cover."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fl_audit.adjacency import Unit
from fl_audit.audits.common.sections_guarantee import person_text
from fl_audit.audits.page.first_screen import first_screen
from fl_audit.cli.main import app
from fl_audit.errors import InputError
from fl_audit.federation.federation_records import split_of
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.plan_warnings import data_warnings_of, most_records
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_report import rebuild_report
from tests.builders.commands import printed_by
from tests.builders.pages import console_text
from tests.builders.runs import run_locally

ROWS, PATIENTS = 300, 80
FLAGS = shlex.split("--data hospital.csv --label readmitted --belief 0.9 --set audit.trials=4 --rounds 2")


@pytest.fixture(autouse=True)
def _hospital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    person = draw.permutation(np.concatenate([np.arange(PATIENTS), draw.integers(0, PATIENTS, ROWS - PATIENTS)]))
    columns = {
        "patient_id": draw.choice(10**17 + np.arange(1000), PATIENTS, replace=False)[person],
        "sex": np.where(draw.integers(0, 2, PATIENTS)[person] == 1, "f", "m"),
        "age": draw.integers(18, 95, ROWS),
        "los": draw.geometric(0.2, ROWS),
        "readmitted": draw.choice(["yes", "no"], ROWS),
    }
    pd.DataFrame(columns).to_csv("hospital.csv", index=False)


def said_by(*words: str) -> str:
    return " ".join(printed_by(*words).replace("│", " ").split())


def test_init_check_and_run_name_the_column_and_the_remedy_of_each_can_be_typed() -> None:
    largest_count = int(pd.read_csv("hospital.csv")["patient_id"].value_counts().max())
    pattern = (
        rf"patient_id: {PATIENTS} values in {ROWS} rows, up to {largest_count} each: [^:;]*records [^:;]*not protect"
    )
    first = said_by("init", *FLAGS)
    assert re.search(pattern, first)
    assert re.search(pattern, said_by("check", "audit.toml", "--no-probe"))
    advice = first.partition("a feature; ")[2].partition(" protects all")[0]
    assert advice == "--user patient_id --adjacency replace-user"
    output = said_by("init", *FLAGS, *shlex.split(advice), "--force")
    assert "look at" not in output
    config = load_config(Path("audit.toml"))
    assert config.privacy.adjacency.unit is Unit.USER
    public = plan_run(config).federation
    assert public.users < public.records
    # The column alone says it too, and the guarantee is made for as many as there are users.
    assert "users: " in said_by("init", *FLAGS, "--user", "patient_id", "--force")
    assert load_config(Path("audit.toml")).privacy == config.privacy
    assert config.privacy.delta == pytest.approx(0.1 / public.users, rel=0.5)


def test_the_settings_that_check_and_run_name_fix_it_too() -> None:
    said_by("init", *FLAGS)
    (caution,) = data_warnings_of(plan_run(load_config(Path("audit.toml"))))
    changed = [f"{remedy.section}.{remedy.key}={remedy.value}" for remedy in caution.remedies]
    text = "".join(
        line + "\n" for line in Path("audit.toml").read_text().splitlines() if not line.startswith("clients")
    )
    Path("audit.toml").write_text(text)
    assert data_warnings_of(plan_run(load_config(Path("audit.toml"), changed))) == ()


def test_with_users_named_a_claim_about_records_says_what_it_does_not_cover() -> None:
    output = said_by("init", *FLAGS, "--user", "patient_id", "--adjacency", "add-remove-record")
    plan = plan_run(load_config(Path("audit.toml")))
    persons = np.unique(split_of(plan.federation).inside.user, return_counts=True)[1]
    assert re.search(
        rf"not one person: {len(persons)} users [^:;]* 150 records [^:;]*, up to {persons.max()}\b", output
    )
    assert most_records(plan) == persons.max()
    advice = output.partition(" a user; ")[2].partition(" does ")[0]
    assert advice == "--adjacency add-remove-user"
    again = said_by("init", *FLAGS, "--user", "patient_id", *shlex.split(advice), "--force")
    assert "look at" not in again
    assert most_records(plan_run(load_config(Path("audit.toml")))) == 1


def test_users_that_are_named_are_not_asked_for_again_and_rows_that_repeat_are_theirs() -> None:
    table = pd.read_csv("hospital.csv")
    draw = np.random.default_rng(2)
    # Short numbers in no order: nothing but the sex that follows from them says that they are those of persons.
    short = pd.Series(draw.choice(np.arange(100, 1000), PATIENTS, replace=False), np.unique(table["patient_id"]))
    table = table.assign(chiffre=table["patient_id"].map(short)).drop(columns=["patient_id"])
    pd.concat([table, table.head(2)]).to_csv("hospital.csv", index=False)
    unnamed = said_by("init", *FLAGS)
    assert re.search("chiffre: 80 [^:;]* 302 rows", unnamed)
    assert "2 of 302 records repeat" in unnamed
    for adjacency in ("replace-user", "replace-record"):
        output = said_by("init", *FLAGS, "--user", "chiffre", "--adjacency", adjacency, "--force")
        assert output.count("look at") == (adjacency == "replace-record")
        assert ("not one person" in output) == (adjacency == "replace-record")


@pytest.mark.parametrize("rows", [900, 2400])
def test_how_many_users_train_is_said_with_its_reason(rows: int) -> None:
    pd.read_csv("hospital.csv").sample(rows, replace=True, random_state=0).to_csv("hospital.csv", index=False)
    output = said_by("init", *FLAGS, "--user", "patient_id", "--drop", "sex")
    records = plan_run(load_config(Path("audit.toml"))).federation.records
    assert records > min(1000, rows // 2) - 2 * rows // PATIENTS
    assert ("half of them" in output) == (records > 0.45 * rows)
    assert ("records in [data]" in output) == (records < 0.45 * rows)


def test_where_few_users_have_all_the_records_that_train_reading_fewer_of_each_lets_more_train() -> None:
    table = pd.read_csv("hospital.csv").sample(4800, replace=True, random_state=0)
    table.assign(patient_id=np.arange(4800) % 60 + 10**6).to_csv("hospital.csv", index=False)
    output = said_by("init", *FLAGS, "--user", "patient_id")
    before = plan_run(load_config(Path("audit.toml"))).federation.users
    advice = output.partition("; with ")[2].partition(", the first")[0]
    assert advice == "--set data.records-per-user=10"
    again = said_by("init", *FLAGS, "--user", "patient_id", *shlex.split(advice), "--force")
    assert "records-per-user" not in again
    public = plan_run(load_config(Path("audit.toml"))).federation
    assert public.users > 2 * before
    assert public.records == 10 * public.users


def test_clients_that_train_by_themselves_are_told_the_strategy_that_clips_users() -> None:
    output = said_by("init", *FLAGS, "--user", "patient_id", "--set", "training.strategy=dp-fedavg")
    advice = output.partition(" a user; ")[2].partition(" does ")[0]
    assert advice == "--set training.strategy=dp-fedsgd --adjacency replace-user"
    assert "look at" not in said_by("init", *FLAGS, "--user", "patient_id", *shlex.split(advice), "--force")


def test_patients_of_several_hospitals_are_refused_with_the_option_that_fixes_it() -> None:
    table = pd.read_csv("hospital.csv")
    table.assign(hospital=np.arange(ROWS) % 3).to_csv("hospital.csv", index=False)
    flags = ("init", *FLAGS, "--user", "patient_id", "--owner", "hospital")
    refused = CliRunner().invoke(app, list(flags))
    assert isinstance(refused.exception, InputError)
    assert re.search(
        r"^\d+ of \d+ users .*several clients.*--set data.user-across-clients=first\b", str(refused.exception)
    )
    assert "users: " in said_by(*flags, "--set", "data.user-across-clients=first")
    public = plan_run(load_config(Path("audit.toml"))).federation
    federation = load_federation(public)
    assert public.clients == 3
    assert sum(len(federation.units_of(client)) for client in range(3)) == public.users


def test_visits_of_users_are_no_persons_of_their_own() -> None:
    table = pd.read_csv("hospital.csv")
    half = table.groupby("patient_id").cumcount() // 2
    table.assign(visit_id=table["patient_id"].rank(method="dense").astype(int) * 10 + half).to_csv(
        "hospital.csv", index=False
    )
    output = said_by("init", *FLAGS, "--user", "patient_id")
    assert re.search("visit_id: [^:]*an identifier, [^:]*a feature; --drop visit_id ", output)


def test_with_an_owner_one_record_is_still_not_one_person() -> None:
    output = said_by("init", *FLAGS, "--owner", "patient_id")
    plan = plan_run(load_config(Path("audit.toml")))
    largest_count = max(len(shard) for shard in load_federation(plan.federation).shards)
    owners = plan.federation.clients
    assert re.search(rf"not one person: {owners} owners [^:;]* 150 records [^:;]*, up to {largest_count}\b", output)
    advice = output.partition(" an owner; ")[2].partition(" does ")[0]
    assert "look at" not in said_by("init", *FLAGS, "--owner", "patient_id", *shlex.split(advice), "--force")


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("flags", "adjacency", "strategy"),
    [
        ((), "replace-record", "dp-fedsgd"),
        (("--adjacency", "add-remove-record"), "add-remove-record", "dp-fedsgd"),
        (("--adjacency", "add-remove-client"), "add-remove-client", "dp-fedavg"),
        (("--set", "training.strategy=dp-fedavg"), "replace-client", "dp-fedavg"),
        pytest.param(
            ("--set", "training.strategy=dp-sgd-clients"), "add-remove-record", "dp-sgd-clients", marks=pytest.mark.long
        ),
    ],
)
def test_adjacency_and_strategy_are_options_and_one_follows_from_the_other(
    flags: tuple[str, ...], adjacency: str, strategy: str
) -> None:
    said_by("init", *FLAGS, *flags)
    config = load_config(Path("audit.toml"))
    assert (config.privacy.adjacency, config.training.strategy) == (adjacency, strategy)


@pytest.mark.long
def test_report_console_and_summary_say_it_with_the_number() -> None:
    for flags in ((), ("--owner", "patient_id")):
        said_by("init", *FLAGS, *flags, "--force")
        plan = plan_run(load_config(Path("audit.toml"), ["run.seed=1"]))
        (caution,) = data_warnings_of(plan)
        directory = Path(f"run{len(flags)}")
        contents = run_locally(plan, directory)
        assert caution.text in contents.summary["look_at"]
        assert caution.text in json.loads((directory / "summary.json").read_text())["look_at"]
        assert caution.text[:60] in console_text(contents, width=400)
        assert caution.text.partition(":")[2][:40] in first_screen(contents)
        assert f"here up to {contents.run.most_records}, is protected less" in person_text(contents)
    rebuild_report(directory)
    assert "not one person" in (directory / "report.html").read_text()
    assert " users at " not in (directory / "report.html").read_text(), "the units of this run are records"


@pytest.mark.long
def test_the_report_of_users_begins_with_how_many_there_are() -> None:
    said_by("init", *FLAGS, "--user", "patient_id", "--force")
    plan = plan_run(load_config(Path("audit.toml"), ["run.seed=1", "audit.trials=4"]))
    contents = run_audit(plan, Path("of-users"), Engine.LOCAL)
    expected_text = f"{contents.plan.federation.records} records of {contents.plan.federation.users} users at "
    assert expected_text in Path("of-users", "report.html").read_text()


def test_rates_of_few_records_are_told() -> None:
    table = pd.read_csv("hospital.csv").drop(columns="patient_id")
    table[:40].to_csv("hospital.csv", index=False)
    output = said_by("init", *FLAGS, "--clients", "2")
    assert re.search("accuracy [^:;]* 8 test records [^:;]* 35 percentage points", output)
    assert "20 training records" in output
    table.to_csv("longer.csv", index=False)
    said_by("init", "longer.toml", "--data", "longer.csv", *FLAGS[2:])
    last_caution = data_warnings_of(plan_run(load_config(Path("longer.toml"), ["data.test-records=9"])))[-1]
    assert re.match("accuracy .* 9 test records alone", last_caution.text)
    fixed = [f"{entry.section}.{entry.key}={entry.value}" for entry in last_caution.remedies]
    assert all(
        "alone" not in entry.text for entry in data_warnings_of(plan_run(load_config(Path("longer.toml"), fixed)))
    )
