"""The command line: what it says to wrong input, and that nothing is written then."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiments.cli import main

CONFIG = """
[data]
name = "breast-cancer"
records = 60
clients = 3
[model]
name = "logistic"
[training]
rounds = 3
learning-rate = 1.0
[privacy]
belief = 0.9
delta = 0.01
clipping-norm = 1.0
sensitivity = "local"
[audit]
worlds = 4
[run]
worlds-per-batch = 2
"""


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    returncode: int
    stdout: str
    stderr: str


FlAudit = Callable[..., Ran]


@pytest.fixture
def fl_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> FlAudit:
    """Return a function that runs a command in a temporary directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["fl-audit", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, printed.out, printed.err)

    return run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "audit.toml"
    path.write_text(CONFIG)
    return path


def test_run_replay_report(fl_audit: FlAudit, config: Path, tmp_path: Path) -> None:
    ran = fl_audit("run", str(config), "--out", "out", "--engine", "local")
    assert ran.returncode == 0, ran.stderr
    assert "report: out/report.html" in ran.stdout
    replayed = fl_audit("replay", "out", "--json")
    assert json.loads(replayed.stdout)["worlds"] == [0, 1, 2, 3]
    (tmp_path / "out" / "report.html").unlink()
    assert fl_audit("report", "out").returncode == 0
    assert (tmp_path / "out" / "report.html").exists()
    again = fl_audit("run", str(config), "--out", "out", "--engine", "local")
    assert again.returncode == 2
    assert "--resume" in again.stderr
    assert "Traceback" not in again.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["privacy.deltta=0.1"], "'privacy.deltta' is unknown: nearest is 'delta'"),
        (["audits.worlds=1"], "'audits' is unknown: nearest is 'audit'"),
        (["privacy.epsilon=2"], "belief = 0.9 and epsilon = 2.0 given: accepted is exactly one of belief, epsilon"),
        (["privacy.belief="], "none given: accepted is exactly one of belief"),
        (["privacy.delta=0"], "privacy.delta is 0"),
        (["privacy.delta=1"], "privacy.delta is 1"),
        (["privacy.clipping-norm=0"], "privacy.clipping-norm is 0"),
        (["data.records=5000"], "5000 records are asked for: breast-cancer has 456 available"),
        (["data.name=csv", "data.path=gone.csv", "data.label=y"], "gone.csv"),
        (["data.name=bresat-cancer"], "breast-cancer"),
        (["audit.neighbour=60"], "60"),
        (["audit.neighbour=-1"], "neighbour"),
        (["model.name=wide_net:build"], "cannot be imported"),
        (["model.name=logistik"], "nearest: 'logistic'"),
        (["training.strategy=fedavg"], "training.strategy is 'fedavg'"),
        (["privacy.noise=local"], "privacy.noise is 'local'"),
        (["privacy.belief=0.5"], "belief"),
        (["data.clients=1"], "data.clients is 1"),
        (["worlds=1"], "accepted is section.key=value"),
        (["training.learning-rate=nan"], "training.learning-rate"),
    ],
)
def test_wrong_settings_get_one_line(
    settings: list[str], said: str, fl_audit: FlAudit, config: Path, tmp_path: Path
) -> None:
    flags = [word for setting in settings for word in ("--set", setting)]
    ran = fl_audit("run", str(config), "--out", "out", "--engine", "local", *flags)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_wrong_files_get_one_line(fl_audit: FlAudit, config: Path, tmp_path: Path) -> None:
    (tmp_path / "adult").mkdir()
    for name in ("adult.data.gz", "adult.test.gz"):
        (tmp_path / "adult" / name).write_bytes(b"\x1f\x8b\x08 damaged")
    (tmp_path / "nan.csv").write_text("a,y\n1,0\n,1\n3,1\n")
    (tmp_path / "one.csv").write_text("a,y\n1,0\n2,0\n3,0\n")
    (tmp_path / "nets.py").write_text(
        "from torch import nn\ndef normed(feature_shape, classes):\n"
        "    return nn.Sequential(nn.Linear(feature_shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, classes))\n"
    )
    cases = {
        ("data.name=adult", f"data.data-dir={tmp_path}"): "adult.data.gz",
        ("data.name=csv", "data.path=nan.csv", "data.label=y"): "nan.csv",
        ("data.name=csv", "data.path=one.csv", "data.label=y", "data.records=3"): "one class only",
        ("model.name=nets:normed",): "torch.nn.GroupNorm",
    }
    for settings, said in cases.items():
        flags = [word for setting in settings for word in ("--set", setting)]
        ran = fl_audit("run", str(config), "--out", "out", "--engine", "local", *flags)
        assert ran.returncode == 2, ran.stderr
        assert said in ran.stderr
        assert ran.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "gone.toml"), "gone.toml cannot be read"),
        (("run", "audit.toml", "--engine", "cloud"), "accepted are ray and local"),
        (("run", "audit.toml", "--resume"), "--resume without --out"),
        (("run", "audit.toml", "--ray-address", "127.0.0.1:1"), "no Ray cluster answers there"),
        (("replay", "gone"), "configuration.json is missing"),
        (("report", "gone"), "configuration.json is missing"),
    ],
)
def test_wrong_arguments_get_one_line(arguments: tuple[str, ...], said: str, fl_audit: FlAudit, config: Path) -> None:
    ran = fl_audit(*arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_data_sets_are_listed(fl_audit: FlAudit) -> None:
    listed = fl_audit("datasets")
    assert listed.returncode == 0
    assert "digits" in listed.stdout
    assert "adult" in listed.stdout


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.cli", "run", "gone.toml"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1
