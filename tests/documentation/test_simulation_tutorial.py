"""The trainings of the tutorial on simulation give the same model on both engines."""

import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from fl_audit.runs.stored_run import Run, read_run
from tests.documentation.pages import BLOCKS

PAGE = BLOCKS["docs/tutorials/simulation.md"]


def settings_of_runs() -> dict[str, list[str]]:
    """Return the settings that the page gives on the command line, by the name of the run's directory."""
    settings_by_run = dict[str, list[str]]()
    for command in [shlex.split(command) for block in PAGE for command in block.commands]:
        if command[:2] == ["fl-audit", "run"]:
            words = [command[index + 1] for index, word in enumerate(command) if word == "--set"]
            settings_by_run[command[command.index("--out") + 1].rpartition("/")[2]] = words
    return settings_by_run


def played(name: str, engine: Engine) -> Run:
    """Return one of the page's runs, of two rounds, in the working directory."""
    plan = plan_run(load_config(Path("ward.toml"), [*settings_of_runs()[name], "training.rounds=2"]))
    run_audit(plan, Path(f"{name}-{engine}"), engine, with_report=False)
    return read_run(f"{name}-{engine}")


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the files of the page, in which the test works; its modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block in PAGE:
        if block.file is not None:
            Path(block.file).write_text(block.body)
    runpy.run_path("make_ward.py")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.usefixtures("ward")
def test_six_percent_are_positive_and_the_auroc_leads() -> None:
    plan = plan_run(load_config(Path("ward.toml")))
    assert plan.metrics[0] == "auroc"
    table = np.genfromtxt("ward.csv", delimiter=",", names=True, dtype=None, encoding=None)
    assert 0.05 < table["back"].mean() < 0.07
    assert plan.federation.clients == 40
    assert plan.is_ordinary_training


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ward")
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "dp-fedavg", "dp-sgd"])
def test_both_engines_train_the_same_model(name: str) -> None:
    local, on_ray = (played(name, engine) for engine in (Engine.LOCAL, Engine.RAY))
    for parameter, value in local.model().items():
        assert np.array_equal(value.numpy(), on_ray.model()[parameter].numpy()), parameter
    assert local.history.equals(on_ray.history)
