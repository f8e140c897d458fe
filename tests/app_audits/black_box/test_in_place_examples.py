"""The commonest shapes of Flower app run watched without a changed result, and what is found of them is true."""

import difflib
import importlib
import json
import os
import random
import re
import subprocess
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.local_engine import run_locally
from fl_audit.runs.ray_engine import run_on_ray

SHAPES = ("quickstart_pytorch", "opacus_clients", "scikit_learn", "custom_metrics", "server_evaluation")
EXAMPLES = Path(__file__).parents[3] / "experiments" / "examples"
CLAIMS = {
    "scikit_learn": 'StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5)',
    "server_evaluation": 'StatedClaim("add-remove-client", noise_multiplier=1.0)',
    "custom_metrics": 'StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5, rounds=2)',
}
"""Of the examples that are watched by the usual lines alone."""


def watched_source(name: str, directory: Path) -> str:
    """Return an example with the lines that watch it: those of its patch, or the usual ones."""
    source = (EXAMPLES / f"{name}.py").read_text()
    if name not in CLAIMS:
        (directory / f"{name}.py").write_text(source)
        subprocess.run(["git", "apply", str(EXAMPLES / f"{name}.patch")], cwd=directory, check=True)
        return (directory / f"{name}.py").read_text()
    audit = f"audit = Audit({CLAIMS[name]}, trials=220)\nclient_app = ClientApp(mods=[audit.insider()])\n"
    source = source.replace(
        "client_app = ClientApp()\n", f"from fl_audit.app_audits.black_box import Audit, StatedClaim\n\n{audit}"
    )
    return re.sub(r"( strategy = )(.*)\n", r"\1audit.watch(\2)\n", source)


def example(name: str, is_watched: bool, directory: Path) -> ModuleType:
    """Return the module of an example, imported anew where it is made here."""
    if not is_watched:
        return importlib.import_module(f"fl_audit.experiments.examples.{name}")
    path = directory / f"{name}_watched.py"
    path.write_text(watched_source(name, directory))
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(
    name: str, directory: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine, clients: int, **audit: Any
) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
    """Run an example in a directory, with the same seeds as ever; return its final model and its metrics."""
    directory.mkdir()
    monkeypatch.chdir(directory)
    module = example(name, bool(audit), directory)
    if audit:
        monkeypatch.setattr(module, "audit", replace(module.audit, **audit))
    for seeded in (random.seed, np.random.seed, torch.manual_seed):
        seeded(7)
    if engine is Engine.LOCAL:
        run_locally(module.server_app, module.client_app, clients, 60.0)
    else:
        run_on_ray(module.server_app, module.client_app, clients, RayOptions(actors=1))
    with np.load("final_model.npz") as file:
        return dict(file), json.loads(Path("metrics.json").read_text())


def assert_unchanged(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine, clients: int) -> None:
    """A run that is watched, with a few trials, ends with the model and metrics of one that is not, on either
    engine.
    """
    monkeypatch.setenv("EXAMPLE_SEED", "3")
    alone, metrics = results(name, tmp_path / "alone", monkeypatch, Engine.LOCAL, clients)
    watched, watched_metrics = results(
        name, tmp_path / "watched", monkeypatch, engine, clients, trials=42, trials_per_run=2, seed=1
    )
    assert list(watched) == list(alone)
    assert all(np.array_equal(watched[key], alone[key]) for key in alone)
    assert watched_metrics == metrics
    assert any(metrics)
    assert len(list((tmp_path / "watched" / "fl-audit-trials").glob("*/trials/*.npz"))) == 2


@pytest.mark.parametrize("name", SHAPES)
def test_watching_takes_at_most_five_lines(name: str, tmp_path: Path) -> None:
    alone = (EXAMPLES / f"{name}.py").read_text().splitlines()
    watched = watched_source(name, tmp_path).splitlines()
    changes = [line for line in difflib.ndiff(alone, watched) if line.startswith("+ ") and line.strip("+ ")]
    assert 3 <= len(changes) <= 5


@pytest.mark.long
@pytest.mark.parametrize("name", SHAPES)
def test_watched_training_is_the_same_to_the_last_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_unchanged(name, tmp_path, monkeypatch, Engine.LOCAL, clients=3)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["opacus_clients", pytest.param("quickstart_pytorch", marks=pytest.mark.campaign)])
def test_so_it_is_on_flowers_own_runtime(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two clients: replies arrive in any order there, and the mean of three depends on it in its last bits."""
    assert "RAY_ADDRESS" not in os.environ
    assert_unchanged(name, tmp_path, monkeypatch, Engine.RAY, clients=2)
