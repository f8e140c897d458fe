"""The commands, and what they print."""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from fl_audit.adjacency import Adjacency
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.cli.main import app
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.dissimilarity import Dissimilarity
from fl_audit.data.neighbours import ranked_neighbours
from fl_audit.data.record_selection import select_records
from fl_audit.privacy.accounting_enums import Accountant
from fl_audit.privacy.identifiability_bounds import rho_alpha
from fl_audit.runs.config_file import load_config
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run_directory import public_part
from tests.builders.commands import RunCommand, command_runner, printed_by
from tests.builders.settings import small_toml

CONFIG = small_toml(
    model={"name": "logistic"},
    privacy={"epsilon": None, "belief": 0.9, "clipping-norm": 1.0, "sensitivity": "local"},
    run={"seed": 0, "trials-per-batch": 2},
)

OVER_3, OVER_30 = (("--rounds", rounds, "--adjacency", "add-remove-record") for rounds in ("3", "30"))


@pytest.fixture
def fl_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Return a function that runs a command in a temporary directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    return command_runner(capsys)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "audit.toml"
    path.write_text(CONFIG)
    return path


def test_run_replay_report(fl_audit: RunCommand, config: Path, tmp_path: Path) -> None:
    ran = fl_audit("run", str(config), "--out", "out", "--engine", "local")
    assert ran.returncode == 0, ran.stderr
    assert "report: out/report.html" in ran.stdout
    replayed = fl_audit("replay", "out", "--json")
    assert json.loads(replayed.stdout)["trials"] == [0, 1, 2, 3]
    assert json.loads(replayed.stdout)["agrees"]
    trials = pd.read_parquet(tmp_path / "out" / "trials.parquet")
    trials.assign(log_odds=trials["log_odds"] + 0.001).to_parquet(tmp_path / "out" / "trials.parquet")
    changed = fl_audit("replay", "out")
    assert changed.returncode == 4
    differ = re.search(r"not agree .*log-odds .*up to ([0-9.e-]+)", changed.stdout)
    assert differ
    assert float(differ[1]) == pytest.approx(0.001, rel=0.01)
    trials.to_parquet(tmp_path / "out" / "trials.parquet")
    (tmp_path / "out" / "report.html").unlink()
    assert fl_audit("report", "out").returncode == 0
    assert (tmp_path / "out" / "report.html").exists()
    again = fl_audit("run", str(config), "--out", "out", "--engine", "local")
    assert again.returncode == 2
    assert "--resume" in again.stderr
    assert "Traceback" not in again.stderr


def test_a_violation_ends_with_its_own_status_where_that_is_asked_for(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Contents(NamedTuple):
        summary: dict[str, str]

    monkeypatch.setattr("fl_audit.runs.run.run_audit", lambda *_, **__: Contents({"verdict": "violated"}))
    monkeypatch.setattr("fl_audit.audits.page.first_screen.summary_table", lambda _: "")
    arguments = ["run", str(config), "--out", str(tmp_path / "out"), "--engine", "local"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert CliRunner().invoke(app, [*arguments, "--fail-on-violation"]).exit_code == 4
    finished = ["report", str(tmp_path / "finished")]
    monkeypatch.setattr("fl_audit.cli.single_run_commands.require_run", lambda _: None)
    monkeypatch.setattr("fl_audit.runs.run_report.rebuild_report", lambda *_, **__: Contents({"verdict": "violated"}))
    assert CliRunner().invoke(app, finished).exit_code == 0
    assert CliRunner().invoke(app, [*finished, "--fail-on-violation"]).exit_code == 4
    monkeypatch.setattr("fl_audit.runs.run.run_audit", lambda *_, **__: Contents({"verdict": "consistent"}))
    assert CliRunner().invoke(app, [*arguments, "--fail-on-violation"]).exit_code == 0


def test_the_version_is_printed(fl_audit: RunCommand) -> None:
    assert fl_audit("--version").stdout.startswith("fl-audit 0.")


def test_data_sets_are_listed(fl_audit: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "purchase100.npz").touch()
    listed = fl_audit("datasets", "--data-dir", str(tmp_path))
    assert listed.returncode == 0
    rows = [[cell.strip() for cell in line.split("│")] for line in listed.stdout.split("\n")]
    here = {(row[1], row[3]) for row in rows if len(row) == 5}
    assert {
        ("digits", "built in"),
        ("adult", "needs files"),
        ("purchase100", "found"),
        ("table", "needs files"),
    } <= here


def test_the_chosen_neighbour_is_public(config: Path) -> None:
    plan = plan_run(load_config(config, ["audit.neighbour=least-dissimilar", "audit.neighbour-rank=3"]))
    split = select_records(load_source(DataSpec("breast-cancer")), 60, 1000, seed=0)
    relation = Adjacency.REPLACE_RECORD
    ranked = ranked_neighbours(relation, split.inside, split.outside, Dissimilarity.EUCLIDEAN, 3, farthest=False)
    assert public_part(plan)["federation"]["pair"] == dataclasses.asdict(ranked[2])
    assert public_part(plan)["configuration"]["audit"]["neighbour-rank"] == 3


def test_defaults_leave_configurations_as_older_runs_stored_them(config: Path) -> None:
    assert "neighbour-rank" not in load_config(config).as_dict()["audit"]


def test_calibrate_and_account_invert_each_other(fl_audit: RunCommand) -> None:
    command_result = fl_audit(
        "calibrate", "--epsilon", "2", "--delta", "0.001", *OVER_30, "--accountant", "gdp", "--json"
    )
    guarantee = json.loads(command_result.stdout)
    assert set(guarantee) == GUARANTEE_KEYS
    assert guarantee["epsilon"] == pytest.approx(2, rel=1e-6)
    noise = str(guarantee["noise_multiplier"])
    again = fl_audit(
        "account", "--noise-multiplier", noise, "--delta", "0.001", *OVER_30, "--accountant", "gdp", "--json"
    )
    assert json.loads(again.stdout) == guarantee


GUARANTEE_KEYS = {
    "warning",
    "reconstruction",
    "candidates",
    "epsilon",
    "delta",
    "noise_multiplier",
    "noise_over_clipping_norm",
    "sensitivity",
    "rounds",
    "sampling_rate",
    "accountant",
    "advantage",
    "rho_alpha",
    "belief",
    "belief_fixed",
    "gdp_mu",
    "gdp_regret",
    "adjacency",
    "unit",
    "sensitivities",
}


def test_the_command_that_was_meant_is_named_once(fl_audit: RunCommand) -> None:
    error_output = fl_audit("acount").stderr
    assert error_output.count("'account'") == 1


def test_what_breaks_no_guarantee_is_left_out_or_something_is_claimed(fl_audit: RunCommand, config: Path) -> None:
    """Both remedies work."""
    nothing = config.read_text().replace("[privacy]", "[privacy]\nprivate = false").replace("belief = 0.9\n", "")
    nothing = nothing.replace('sensitivity = "local"\n', "")
    config.write_text(nothing)
    error_output = fl_audit("check", str(config), "--no-probe").stderr
    assert re.search("clipping-norm = 1.0 .*private = false.*leave .*out, .*private = true", error_output)
    config.write_text(nothing.replace("clipping-norm = 1.0\n", ""))
    assert fl_audit("check", str(config), "--no-probe", "--set", "audit.insider=false").returncode == 0
    claimed = nothing.replace("private = false", "private = true\nbelief = 0.9")
    config.write_text(claimed)
    assert fl_audit("check", str(config), "--no-probe").returncode == 0


def test_a_multiplier_is_read_and_told_over_the_clipping_norm(fl_audit: RunCommand) -> None:
    flags = ("--delta", "1e-5", "--rounds", "100", "--sampling-rate", "0.01", "--adjacency", "replace-record")
    copied = ("account", "--noise-multiplier", "1", "--noise-over", "clipping-norm", *flags, "--accountant", "pld")
    guarantee = json.loads(fl_audit(*copied, "--json").stdout)
    assert guarantee["epsilon"] == pytest.approx(0.895, abs=5e-4)
    assert (guarantee["noise_multiplier"], guarantee["noise_over_clipping_norm"]) == (0.5, 1.0)
    assert guarantee["sensitivity"].startswith("2 x clipping norm, ")
    output = fl_audit(*copied).stdout
    assert f"the sensitivity, {guarantee['sensitivity']}." in output
    assert output.partition(", it is ")[2].startswith("1.\n")


def test_the_score_of_the_paper_stands_beside_its_accountant_alone(fl_audit: RunCommand) -> None:
    """Exactly 2 Phi(sqrt(10) / 5 / 2) - 1; the score of the exact epsilon, .202, is no bound of it."""
    flags = ("--noise-multiplier", "5", "--rounds", "10", "--delta", "1e-4", "--adjacency", "replace-record")
    guarantees = {
        name: json.loads(fl_audit("account", *flags, "--accountant", name, "--json").stdout) for name in Accountant
    }
    assert [guarantee["advantage"] for guarantee in guarantees.values()] == pytest.approx([0.2482] * 4, abs=5e-5)
    assert {name for name, guarantee in guarantees.items() if guarantee["rho_alpha"] is not None} == {"rdp-classic"}
    assert rho_alpha(guarantees["gdp"]["epsilon"], 1e-4) == pytest.approx(0.202, abs=5e-4)
    assert "rho_alpha is 0.2627" in fl_audit("account", *flags, "--accountant", "rdp-classic").stdout
    assert "rho_alpha" not in fl_audit("account", *flags).stdout


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("adjacency", "epsilon"), [("add-remove-record", 0.718), ("replace-client", 0.344)])
def test_the_adjacency_reaches_every_output(
    adjacency: str, epsilon: float, fl_audit: RunCommand, tmp_path: Path
) -> None:
    flags = ("--delta", "1e-5", "--rounds", "100", "--sampling-rate", "0.01", "--adjacency", adjacency)
    command_result = fl_audit("account", "--noise-multiplier", "1", *flags, "--accountant", "pld", "--json")
    guarantee = json.loads(command_result.stdout)
    assert guarantee["epsilon"] == pytest.approx(epsilon, abs=5e-4)
    assert guarantee["adjacency"] == adjacency
    plain = ("--noise-multiplier", "1", "--delta", "1e-5", "--rounds", "2", "--adjacency", adjacency)
    plot_result = fl_audit("account", *plain, "--accountant", "gdp", "--plot", "guarantee.svg")
    assert f"neighbours: {adjacency}" in plot_result.stdout
    assert f"neighbours: {adjacency}" in (tmp_path / "guarantee.svg").read_text()
    noise = fl_audit("calibrate", "--epsilon", str(guarantee["epsilon"]), *flags, "--accountant", "pld", "--json")
    assert json.loads(noise.stdout)["noise_multiplier"] == pytest.approx(1, rel=1e-3)


def test_help_says_what_every_argument_and_option_is_for() -> None:
    """Also where click and typer take the help of arguments away from each other."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name in commands:
        context = click.Context(commands[name], info_name=name)
        text = commands[name].get_help(context)
        for parameter in commands[name].params:
            label, help_text = parameter.get_help_record(context)
            assert re.search(rf"^  {re.escape(label)}\s+[^\s\[]", text, re.MULTILINE), (name, label, help_text)


@pytest.mark.parametrize(("sensitivities", "noise"), [("fixed", 8.506), ("adaptive", 9.097)])
def test_who_chooses_the_sensitivities_decides_the_noise_of_a_belief(
    sensitivities: str, noise: float, fl_audit: RunCommand
) -> None:
    flags = ("--belief", "0.9", "--delta", "0.001", *OVER_30, "--accountant", "gdp", "--json")
    guarantee = json.loads(fl_audit("calibrate", *flags, "--sensitivities", sensitivities).stdout)
    assert guarantee["noise_multiplier"] == pytest.approx(noise, abs=5e-4)
    assert (guarantee["belief"] == guarantee["belief_fixed"]) == (sensitivities == "fixed")


@pytest.mark.long
def test_a_guarantee_that_sampling_alone_keeps_is_explained(fl_audit: RunCommand) -> None:
    flags = ("--delta", "0.001", "--rounds", "5", "--sampling-rate", "0.004", "--accountant", "pld")
    flags += ("--adjacency", "add-remove-record")
    command_result = fl_audit("calibrate", "--advantage", "0.8", *flags)
    assert command_result.returncode == 0, command_result.stderr
    assert re.search("holds with any noise, .* 5 rounds", command_result.stdout)
    guarantee = json.loads(fl_audit("calibrate", "--advantage", "0.8", *flags, "--json").stdout)
    assert guarantee["noise_multiplier"] == 0.01
    assert re.search(r"0\.01\b.*smallest|smallest .*0\.01\b", guarantee["remark"])


def test_next_to_no_noise_is_accounted_honestly(fl_audit: RunCommand) -> None:
    for rate in ("1", "0.01"):
        flags = ("--noise-multiplier", "1e-9", "--delta", "0.001", *OVER_3, "--sampling-rate", rate)
        command_result = fl_audit("account", *flags, "--json")
        assert command_result.returncode == 0, command_result.stderr
        assert json.loads(command_result.stdout)["epsilon"] > 1e16


@pytest.mark.long
def test_calibrate_shows_every_accountant_and_what_it_saves(fl_audit: RunCommand, tmp_path: Path) -> None:
    flags = ("--belief", "0.9", "--delta", "0.001", *OVER_30, "--plot", "guarantee.png")
    command_result = fl_audit("calibrate", *flags)
    assert command_result.returncode == 0, command_result.stderr
    for name in ("rdp-classic", "rdp", "pld", "gdp", "9.95", "9.09", "noise"):
        assert name in command_result.stdout
    assert (tmp_path / "guarantee.png").stat().st_size > 10_000


def test_bound_from_text_and_npy(fl_audit: RunCommand, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    members = draw.normal(1, 1, 400)
    non_members = draw.normal(0, 1, 400)
    np.savetxt(tmp_path / "in.txt", members)
    np.save(tmp_path / "out.npy", non_members)
    answer = json.loads(
        fl_audit("bound", "in.txt", "out.npy", "--delta", "1e-5", "--method", "gaussian-shift", "--json").stdout
    )
    assert {"epsilon", "method", "confidence", "limit_of_detection"} <= set(answer)
    assert 3.0 < answer["epsilon"] < 4.38
    table = fl_audit("bound", "in.txt", "out.npy", "--delta", "1e-5").stdout
    for method in ("clopper-pearson", "order-statistic", "gdp", "gaussian-shift"):
        assert method in table


def test_bound_of_one_run_names_what_it_asks_for(fl_audit: RunCommand, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    coins = draw.random(1000) < 0.5
    np.savetxt(tmp_path / "scores.txt", coins + draw.normal(size=1000))
    np.save(tmp_path / "coins.npy", coins.astype(np.int64))
    arguments = ("bound", "--one-run", "scores.txt", "coins.npy", "--delta", "1e-5")
    default = json.loads(fl_audit(*arguments, "--json").stdout)
    keys = {"epsilon", "method", "confidence", "limit_of_detection", "mu", "assumption"}
    assert keys <= set(default)
    assert default["method"] == "trade-off", "what leaks together must not break the default"
    shift = json.loads(fl_audit(*arguments, "--method", "shift", "--json").stdout)
    assert default["epsilon"] < 3.0 < shift["epsilon"] < 4.38
    assert shift["assumption"] == OneRunMethod.SHIFT.assumption != default["assumption"]
    steinke_bound = json.loads(fl_audit(*arguments, "--method", "steinke", "--guesses", "100", "--json").stdout)
    assert (steinke_bound["guessed"], steinke_bound["mu"]) == (100, None)
    table = fl_audit(*arguments).stdout
    assert "trade-off" in table
    assert "steinke" in table
    assert "shift" not in table


@pytest.mark.parametrize("unit", ["record", "user", "client"])
def test_the_title_of_a_calibration_names_the_unit_of_the_adjacency(unit: str) -> None:
    words = ["calibrate", "--reconstruction", "0.1", "--rounds", "5", "--delta", "1e-5"]
    command_result = CliRunner().invoke(app, [*words, "--adjacency", f"add-remove-{unit}"], env={"COLUMNS": "200"})
    assert f"the right one of 1,000 {unit}s" in " ".join(command_result.output.split())


def account(*arguments: str) -> str:
    words = ["account", "--delta", "1e-5", "--adjacency", "add-remove-record", "--noise-multiplier", "4", *arguments]
    return printed_by(*words)


@pytest.mark.parametrize("extra_flags", [(), ("--sampling-rate", "0.1"), ("--accountant", "rdp")])
def test_each_round_is_accounted_as_a_training_of_its_length(extra_flags: tuple[str, ...]) -> None:
    whole = json.loads(account("--rounds", "7", "--per-round", "--json", *extra_flags))
    assert list(whole["epsilon_by_round"]) == [str(number) for number in range(1, 8)]
    alone = json.loads(account("--rounds", "3", "--json", *extra_flags))
    assert whole["epsilon_by_round"]["3"] == alone["epsilon"]
    assert whole["epsilon_by_round"]["7"] == whole["epsilon"]


def test_long_trainings_with_loss_distributions_show_fifty_rounds() -> None:
    answer = json.loads(account("--rounds", "101", "--sampling-rate", "0.01", "--per-round", "--json"))
    assert len(answer["epsilon_by_round"]) <= 51
    last = account("--rounds", "3", "--sampling-rate", "0.1", "--per-round").splitlines()[-2]
    alone = json.loads(account("--rounds", "3", "--sampling-rate", "0.1", "--json"))
    assert f"{alone['epsilon']:.6g}" in last
