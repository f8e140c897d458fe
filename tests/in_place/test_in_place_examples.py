"""The commonest shapes of Flower app run watched without a changed result, and what is found of them is true."""

import difflib
import importlib
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.runs.engines import Engine, RayOptions, run_on_ray
from experiments.runs.local_engine import run_locally

SHAPES = ("quickstart_pytorch", "opacus_clients", "scikit_learn", "custom_metrics", "server_evaluation")
EXAMPLES = Path(__file__).parents[2] / "experiments" / "examples"


def results(
    name: str, directory: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine, clients: int, **audit: Any
) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
    """Run an example in a directory, with the same seeds as ever; return its final model and its metrics."""
    directory.mkdir()
    monkeypatch.chdir(directory)
    module = importlib.import_module(f"experiments.examples.{name}")
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
    """A run that is watched, with a few games, ends with the model and metrics of one that is not, on either engine."""
    monkeypatch.setenv("EXAMPLE_SEED", "3")
    alone, metrics = results(name, tmp_path / "alone", monkeypatch, Engine.LOCAL, clients)
    watched, watched_metrics = results(
        f"{name}_watched", tmp_path / "watched", monkeypatch, engine, clients, games=42, games_per_run=2, seed=1
    )
    assert list(watched) == list(alone)
    assert all(np.array_equal(watched[key], alone[key]) for key in alone)
    assert watched_metrics == metrics
    assert any(metrics)
    assert len(list((tmp_path / "watched" / "fl-audit-games" / "games").glob("*.npz"))) == 2


@pytest.mark.parametrize("name", SHAPES)
def test_watching_takes_at_most_five_lines(name: str) -> None:
    alone, watched = [(EXAMPLES / f"{name}{end}.py").read_text().splitlines() for end in ("", "_watched")]
    changes = [line for line in difflib.ndiff(alone, watched) if line.startswith("+ ")]
    assert 3 <= len(changes) <= 5


@pytest.mark.parametrize("name", SHAPES)
def test_watched_training_is_the_same_to_the_last_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_unchanged(name, tmp_path, monkeypatch, Engine.LOCAL, clients=3)


@pytest.mark.ray
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["quickstart_pytorch", "opacus_clients"])
def test_so_it_is_on_flowers_own_runtime(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two clients: replies arrive in any order there, and the mean of three depends on it in its last bits."""
    assert "RAY_ADDRESS" not in os.environ
    assert_unchanged(name, tmp_path, monkeypatch, Engine.RAY, clients=2)
