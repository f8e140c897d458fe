"""Refusals of the command line: a line that names what is wrong, status 2, and nothing is written."""

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from fl_audit.adjacency import Adjacency
from tests.builders.commands import command_runner
from tests.builders.settings import small_toml

CONFIG = small_toml(
    model={"name": "logistic"},
    privacy={"epsilon": None, "belief": 0.9, "clipping-norm": 1.0, "sensitivity": "local"},
    run={"seed": 0, "trials-per-batch": 2},
)
FILES = {
    "audit.toml": CONFIG.encode(),
    "adult/adult.data.gz": b"\x1f\x8b\x08 damaged",
    "adult/adult.test.gz": b"\x1f\x8b\x08 damaged",
    "nan.csv": b"a,y\n1,0\n,1\n3,1\n",
    "one.csv": b"a,y\n1,0\n2,0\n3,0\n",
    "nets.py": b"from torch import nn\ndef normed(feature_shape, classes):\n"
    b"    return nn.Sequential(nn.Linear(feature_shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, classes))\n",
    "in.txt": b"1\n2\n3\n",
    "empty.txt": b"\n",
    "words.txt": b"1\ntwo\n",
    "nan.txt": b"1\nnan\n",
}
OVER_3 = ("--rounds", "3", "--adjacency", "add-remove-record")
SAMPLED = ("--rounds", str(10**12), "--sampling-rate", "0.01", "--delta", "1e-5")
ADJACENCIES = "Missing option '--adjacency'.*" + ".*".join(Adjacency)
MOST_ROUNDS = "^(?!.*pld does).*pld .*up to 1,000,000,000"
"""Other accountants refuse sampled replacements whatever the rounds, and the way out that they name would not help."""


class RefusedCommand(NamedTuple):
    """A command that is refused."""

    arguments: tuple[str, ...]
    named: str  # pattern that the line must match


def run_with(*settings: str) -> tuple[str, ...]:
    """Return the command that plays the small configuration with other settings."""
    flags = (word for setting in settings for word in ("--set", setting))
    return ("run", "audit.toml", "--out", "out", "--engine", "local", *flags)


SETTINGS = [
    RefusedCommand(run_with("privacy.deltta=0.1"), "'privacy.deltta' .*unknown: .* 'delta'"),
    RefusedCommand(run_with("audits.trials=1"), "'audits' .*unknown: .* 'audit'"),
    RefusedCommand(
        run_with("privacy.epsilon=2", "privacy.belief=0.9"),
        "belief = 0.9 and epsilon = 2.0 given: .*exactly one of belief, epsilon",
    ),
    RefusedCommand(run_with("privacy.belief="), "none given: .*exactly one of belief"),
    RefusedCommand(run_with("privacy.delta=0"), "privacy.delta is 0"),
    RefusedCommand(run_with("privacy.delta=1"), "privacy.delta is 1"),
    RefusedCommand(run_with("privacy.clipping-norm=0"), "privacy.clipping-norm is 0"),
    RefusedCommand(run_with("data.records=5000"), "5000 records, .*breast-cancer has 456"),
    RefusedCommand(run_with("data.name=csv", "data.path=gone.csv", "data.label=y"), "gone.csv"),
    RefusedCommand(run_with("data.name=bresat-cancer"), "breast-cancer"),
    RefusedCommand(run_with("audit.neighbour=60"), "60"),
    RefusedCommand(
        run_with("audit.neighbour=-1"),
        "audit.neighbour is -1: .* most-dissimilar, least-dissimilar, random, crafted and crafted-opposite",
    ),
    RefusedCommand(run_with("audit.neighbour=nearest"), "audit.neighbour is 'nearest': .* most-dissimilar"),
    RefusedCommand(run_with("audit.neighbour=true"), "audit.neighbour is true: .* most-dissimilar"),
    RefusedCommand(run_with("audit.neighbour-rank=0"), "audit.neighbour-rank is 0"),
    RefusedCommand(
        run_with("audit.neighbour-rank=2", "audit.neighbour=random"),
        "neighbour-rank = 2 .*neighbour = most-dissimilar or least-dissimilar, .* random",
    ),
    RefusedCommand(run_with("audit.neighbour-rank=2", "audit.neighbour=5"), "neighbour-rank = 2 needs neighbour ="),
    RefusedCommand(
        run_with("audit.neighbour-rank=61", "privacy.adjacency=add-remove-record"), "rank is 61: .* 1 to 60"
    ),
    RefusedCommand(run_with("audit.dissimilarity=ssim"), r"shape \(30,\): .*ssim .*images"),
    RefusedCommand(run_with("data.name=texas100", "data.data-dir=."), "dataset_texas.tgz or texas100.npz not found"),
    RefusedCommand(run_with("model.name=wide_net:build"), "wide_net.* cannot be imported"),
    RefusedCommand(run_with("model.name=logistik"), "nearest: 'logistic'"),
    RefusedCommand(run_with("training.strategy=fedavg"), "training.strategy is 'fedavg'"),
    RefusedCommand(run_with("privacy.noise=loud"), "privacy.noise is 'loud'"),
    RefusedCommand(run_with("privacy.belief=0.5"), "belief"),
    RefusedCommand(run_with("data.clients=1"), "clients is 1: .* 2 "),
    RefusedCommand(run_with("trials=1"), "'?trials=1.*: .* section.key=value"),
    RefusedCommand(run_with("training.rounds=999999999"), "training.rounds is 999999999: .* 1 to 1000000"),
    RefusedCommand(run_with("privacy.belief=.5"), "belief is 0.5: .*above the prior 0.5"),
    RefusedCommand(run_with("training.learning-rate=nan"), "training.learning-rate"),
    RefusedCommand(run_with("audit.trials=true"), "audit.trials is true: .*whole numbers"),
    RefusedCommand(run_with('training.rounds="2"'), "training.rounds is '2': .*whole numbers"),
    RefusedCommand(run_with("training.rounds=" + "9" * 5000), "training.rounds=9.*no valid TOML value: "),
    RefusedCommand(run_with("privacy.clipping-norm=1e38"), r"clipping-norm is 1e\+38: .*to 1e\+20"),
    RefusedCommand(run_with("audit.neighbour-rank=23761"), "neighbour-rank is 23761: .* 1 to 23760"),
]
FILES_OF_DATA_AND_MODELS = [
    RefusedCommand(run_with("data.name=adult", "data.data-dir=."), "adult.data.gz"),
    RefusedCommand(run_with("data.name=csv", "data.path=nan.csv", "data.label=y"), "nan.csv"),
    RefusedCommand(run_with("data.name=csv", "data.path=one.csv", "data.label=y", "data.records=3"), "one class only"),
    RefusedCommand(run_with("model.name=nets:normed"), "torch.nn.GroupNorm"),
]
ARGUMENTS = [
    RefusedCommand(("run", "gone.toml"), "gone.toml .*be read"),
    RefusedCommand(("run", "audit.toml", "--engine", "cloud"), "cloud.*: .* ray and local"),
    RefusedCommand(("run", "audit.toml", "--resume"), "--resume without --out"),
    RefusedCommand(("run", "audit.toml", "--ray-address", "127.0.0.1:1"), "127.0.0.1:1.*no Ray cluster"),
    RefusedCommand(("run", "audit.toml", "--ray-address", "ray://127.0.0.1:1"), "ray://127.0.0.1:1.*Ray Client"),
    RefusedCommand(("run", "audit.toml", "--ray-address", "automatic"), "automatic.*no Ray cluster"),
    RefusedCommand(("run", "audit.toml", "--out", "audit.toml/x"), "audit.toml is a file: .*directory"),
    RefusedCommand(("replay", "gone"), "configuration.json is missing"),
    RefusedCommand(("sweep", "audit.toml", "--over", "privacy.belief"), "privacy.belief.*: .* section.key=value,value"),
    RefusedCommand(("sweep", "audit.toml", "--over", "privacy.beliefs=0.9"), "nearest is 'belief'"),
    RefusedCommand(("sweep", "audit.toml", "--utility", "loss"), "loss.*: .* accuracy, auroc"),
    RefusedCommand(("sweep", "audit.toml", "--ray-address", "127.0.0.1:1"), "127.0.0.1:1.*no Ray cluster"),
    RefusedCommand(("sweep", "audit.toml", "--out", "audit.toml"), "audit.toml is a file: .*directory"),
    RefusedCommand(("reproduce", "negoescu2023-fig2", "--data-dir", "gone"), "adult-all: data directory .*gone"),
    RefusedCommand(("report", "gone"), "configuration.json is missing"),
]
GUARANTEES_AND_SCORES = [
    RefusedCommand(("calibrate", "--delta", "0.1", *OVER_3), "exactly one of --belief"),
    RefusedCommand(("calibrate", "--belief", "0.9", "--epsilon", "1", "--delta", "0.1", *OVER_3), "exactly one of"),
    RefusedCommand(("calibrate", "--belief", "0.4", "--delta", "0.1", *OVER_3), "belief is 0.4"),
    RefusedCommand(
        ("calibrate", "--belief", "0.9", "--delta", "0.1", *OVER_3, "--accountant", "moments"), "'moments': .* rdp, pld"
    ),
    RefusedCommand(
        ("calibrate", "--belief", "0.9", "--delta", "0.1", "--rounds", "3", "--adjacency", "replace"),
        "--adjacency is 'replace': .* add-remove-record, replace-record",
    ),
    RefusedCommand(
        ("calibrate", "--epsilon", "1", "--delta", "0.1", *OVER_3, "--sensitivities", "none"),
        "--sensitivities is 'none': .* fixed and adaptive",
    ),
    RefusedCommand(("account", "--noise-multiplier", "1e-200", "--delta", "0.1", *OVER_3), "multiplier is 1e-200"),
    RefusedCommand(("account", "--noise-multiplier", "-1", "--delta", "0.1", *OVER_3), "multiplier is -1"),
    RefusedCommand(("account", "--noise-multiplier", "1", "--delta", "2", *OVER_3), "delta is 2"),
    RefusedCommand(("bound", "in.txt", "empty.txt", "--delta", "0.1"), "empty.txt is empty"),
    RefusedCommand(("bound", "in.txt", "words.txt", "--delta", "0.1"), "words.txt line 2 is 'two'"),
    RefusedCommand(("bound", "in.txt", "gone.txt", "--delta", "0.1"), "gone.txt .*be read"),
    RefusedCommand(("bound", "in.txt", "nan.txt", "--delta", "0.1"), "score 1 .*nonmembers is nan: .*numbers"),
    RefusedCommand(("bound", "in.txt", "in.txt", "--delta", "1"), "delta is 1"),
    RefusedCommand(("bound", "in.txt", "in.txt", "--delta", "0.1", "--confidence", "0.5"), "confidence is 0.5"),
    RefusedCommand(
        ("bound", "in.txt", "in.txt", "--delta", "0.1", "--method", "maximum"), "'maximum': .* clopper-pearson"
    ),
    RefusedCommand(("bound", "--one-run", "in.txt", "in.txt", "--delta", "0.1"), "coins .*not all 0 or 1"),
    RefusedCommand(
        ("bound", "--one-run", "in.txt", "in.txt", "--delta", "0.1", "--method", "gdp"), "'gdp': .* trade-off"
    ),
    RefusedCommand(
        ("bound", "in.txt", "in.txt", "--delta", "0.1", "--guesses", "2"), "--guesses and --dimension .*--one-run"
    ),
    RefusedCommand(("chekc",), "^fl-audit: "),
    RefusedCommand(("calibrate", "--epsilon", "x"), "^fl-audit: "),
    RefusedCommand(("calibrate", "--foo"), "^fl-audit: "),
    RefusedCommand(("check",), "^fl-audit: "),
    RefusedCommand(("account", "--noise-multiplier", "1", "--delta", "1e-5", "--rounds", "3"), ADJACENCIES),
    RefusedCommand(("calibrate", "--epsilon", "1", "--delta", "1e-5", "--rounds", "3"), ADJACENCIES),
    *(
        RefusedCommand((*command, *SAMPLED, "--adjacency", adjacency), MOST_ROUNDS)
        for command in (("calibrate", "--epsilon", "1"), ("account", "--noise-multiplier", "9"))
        for adjacency in ("replace-record", "add-remove-record")
    ),
]


def said_of_refusal(refused: RefusedCommand, directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Check that a command ends with status 2 and names what is wrong, and writes nothing; return what it said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setattr(sys, "path", list(sys.path))
        finished = command_runner(capsys)(*refused.arguments)
    assert finished.returncode == 2
    assert re.search(refused.named, finished.stderr)
    assert "Traceback" not in finished.stderr
    assert not (directory / "out").exists()
    return finished.stderr


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with the files that commands name."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def ids(refused: list[RefusedCommand]) -> list[str]:
    return [refused_command.named for refused_command in refused]


@pytest.mark.few_cases(12)
@pytest.mark.parametrize("refused", SETTINGS, ids=ids(SETTINGS))
def test_wrong_settings(refused: RefusedCommand, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said_of_refusal(refused, directory, capsys).count("\n") == 1


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("refused", ARGUMENTS, ids=ids(ARGUMENTS))
def test_wrong_arguments(refused: RefusedCommand, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said_of_refusal(refused, directory, capsys)


OTHERS = [*FILES_OF_DATA_AND_MODELS, *GUARANTEES_AND_SCORES]


@pytest.mark.parametrize("refused", OTHERS, ids=ids(OTHERS))
def test_wrong_files_guarantees_and_scores(
    refused: RefusedCommand, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said_of_refusal(refused, directory, capsys).count("\n") == 1
