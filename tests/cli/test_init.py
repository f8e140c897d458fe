"""The configuration that `fl-audit init` writes can be checked and run as it is."""

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from fl_audit.cli import configuration_commands as command
from fl_audit.cli.main import app
from fl_audit.errors import InputError
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.config_file import load_config
from tests.builders.commands import printed_by


@pytest.fixture(autouse=True)
def _patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = {"age": [7, 3, 9] * 20, "ward": ["east", "west"] * 30, "outcome": ["ill", "well", "well", "ill"] * 15}
    pd.DataFrame(rows).to_csv("patients.csv", index=False)


FLAGS = ("--data", "patients.csv", "--label", "outcome", "--clients", "3", "--rounds", "4", "--epsilon", "2")


def test_what_it_writes_passes_check_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    output = printed_by("init", "mine/audit.toml", *FLAGS)
    assert re.search("^next: fl-audit check mine/audit.toml$", output, re.MULTILINE)
    written = tomllib.loads(Path("mine/audit.toml").read_text())
    assert written["data"]["path"] == "../patients.csv"
    assert written["privacy"]["epsilon"] == 2.0
    monkeypatch.chdir("/")
    output = printed_by("check", str(tmp_path / "mine" / "audit.toml"), "--no-probe")
    assert "│ Clients │ 3, partition iid" in " ".join(output.split())


def test_every_key_has_its_explanation_above_it_and_those_left_out_are_known() -> None:
    CliRunner().invoke(app, ["init", *FLAGS])
    described = {setting.key: setting.explanation for setting in settings()}
    lines = Path("audit.toml").read_text().split("\n")
    section = ""
    keys = 0
    for number, line in enumerate(lines):
        section = line.strip("[]") if line.startswith("[") else section
        key, equals, value = line.removeprefix("# ").partition(" = ")
        if equals and " " not in key:
            keys += 1
            above = lines[number - 1] if not lines[number - 1].startswith("# One of") else lines[number - 2]
            assert above == f"# {described[f'{section}.{key}']}"
            tomllib.loads(f"{key} = {value}")
    assert keys > 20


@pytest.mark.long
def test_the_owner_column_makes_natural_clients() -> None:
    rows = {"x": [1, 2, 3, 5] * 20, "who": ["a", "b", "c", "d", "e"] * 16, "y": [0, 1] * 40}
    pd.DataFrame(rows).to_csv("owned.csv", index=False)
    flags = ("--data", "owned.csv", "--label", "y", "--owner", "who", "--noise-multiplier", "3", "--delta", "0.01")
    printed_by("init", *flags)
    config = load_config(Path("audit.toml"))
    assert (config.data.partition, config.data.clients, config.privacy.delta) == ("natural", None, 0.01)


def test_a_person_at_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "can_ask_user", lambda: True)
    command_result = CliRunner().invoke(app, ["init"], input="patients.csv\noutcome\n5\n7\nadvantage\n0.3\n")
    assert command_result.exit_code == 0, command_result.output
    assert "age, ward, outcome" in command_result.stderr
    config = load_config(Path("audit.toml"))
    assert (config.data.clients, config.training.rounds, config.privacy.advantage) == (5, 7, 0.3)


@pytest.mark.long
def test_a_refusal_names_options_and_they_fix_it() -> None:
    rows = {"age": [7, 3, None] * 20, "id": [f"P{row}" for row in range(60)], "outcome": ["ill", "well"] * 30}
    pd.DataFrame(rows).to_csv("gaps.csv", index=False)
    flags = ["init", "--data", "gaps.csv", "--label", "outcome", "--epsilon", "2", "--clients", "3"]
    refused = CliRunner().invoke(app, flags).exception
    assert re.search("column age, row 3: .*records .* --missing '', .*column .* --drop age", str(refused))
    flags += ["--missing", ""]
    refused = CliRunner().invoke(app, flags).exception
    assert re.search("another text .*every record.* --drop id$", str(refused))
    assert CliRunner().invoke(app, [*flags, "--drop", "id"]).exit_code == 0
    data = tomllib.loads(Path("audit.toml").read_text())["data"]
    assert (data["missing"], data["drop"]) == ([], ["id"])
    listed = CliRunner().invoke(app, [*flags, "--missing", "[]", "--force"]).exception
    assert re.search(r"--missing '\[\]' .*list: .*a word", str(listed))


@pytest.mark.parametrize(
    ("flags", "expected_message"),
    [
        (FLAGS[2:], "--data is missing, .*nobody"),
        (FLAGS[:2] + FLAGS[4:], "--label is missing: .* patients.csv: age, ward, outcome"),
        (FLAGS[:-2], "no target given: .*exactly one of --belief"),
        ((*FLAGS, "--belief", "0.9"), "--belief and --epsilon given"),
        ((*FLAGS[:4], "--clients", "0", *FLAGS[6:]), "data.clients is 0"),
        ((*FLAGS[:2], "--label", "sex", *FLAGS[4:]), "no label column 'sex'"),
        (("--data", "gone.csv", *FLAGS[2:]), r"--data 'gone.csv': .*no such file; .*\(CSV"),
    ],
)
def test_what_is_lacking_is_said_and_nothing_is_written(flags: tuple[str, ...], expected_message: str) -> None:
    ran = CliRunner().invoke(app, ["init", *flags])
    assert isinstance(ran.exception, InputError)
    assert re.search(expected_message, str(ran.exception))
    assert not Path("audit.toml").exists()


def test_a_file_that_is_there_is_written_over_only_if_told_so() -> None:
    Path("audit.toml").write_text("mine")
    refused = CliRunner().invoke(app, ["init", *FLAGS])
    assert "--force" in str(refused.exception)
    assert Path("audit.toml").read_text() == "mine"
    assert CliRunner().invoke(app, ["init", *FLAGS, "--force"]).exit_code == 0
    assert Path("audit.toml").read_text() != "mine"


def test_the_number_of_trials_is_said_to_find_what_it_finds() -> None:
    """No number of them tells whether a claim is kept: a breach of 1.5 times is found, in one record's case."""
    output = printed_by("init", *FLAGS, "--force")
    [line] = [output_line for output_line in output.splitlines() if output_line.startswith("trials: ")]
    assert re.search(r"record [^,;.]*\bcounts 1\.5 times", line)
