"""Runs on graphs, and runs whose model has a frozen core."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.runs.config_file import load_values
from fl_audit.runs.replay import replay
from fl_audit.runs.run_directory import read_public
from fl_audit.runs.run_requirements import require_runnable
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.data.test_data_graph_records import collab, random_graphs
from tests.learning.test_learning_frozen_cores import PUBLISHED

DGCNN = "fl_audit.experiments.papers.bernau2019.graph_convolutions:dgcnn"
SMALL = {"training": {"rounds": 2}, "audit": {"trials": 3}, "privacy": {"clipping-norm": 3.0}}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Settings for 40 small graphs: those of class 1 are larger."""
    draw = np.random.default_rng(0)
    labels = np.arange(40) % 2
    sizes = [int(nodes) for nodes in draw.integers(4, 12, 40) + 8 * labels]
    directory = collab(tmp_path_factory.mktemp("graphs"), random_graphs(sizes))
    return {
        "name": "fl_audit.experiments.papers.bernau2019.collab:collab",
        "data-dir": str(directory),
        "records": 24,
        "test-records": 8,
        "population-records": 8,
    }


def weights_file(path: Path, seed: int = 0) -> Path:
    draw = torch.Generator().manual_seed(seed)
    # Even the largest activations stay near 1, so that nothing overflows.
    spreads = {name: (2 / (shape[1] * 9)) ** 0.5 if len(shape) == 4 else 0.1 for name, shape in PUBLISHED.items()}
    tensors = {name: spreads[name] * torch.randn(shape, generator=draw) for name, shape in PUBLISHED.items()}
    save_file({name: tensor.half() for name, tensor in tensors.items()}, path)
    return path


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Settings for 24 made-up faces of 32x32 of two people, in the form of Labeled Faces in the Wild."""
    directory = tmp_path_factory.mktemp("faces")
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (24, 32, 32)).astype(np.uint8)
    np.savez(directory / "lfw.npz", x=images, y=np.arange(24) % 2, people=np.array(["one", "two"]))
    return {
        "name": "fl_audit.experiments.papers.bernau2019.labeled_faces:lfw",
        "data-dir": str(directory),
        "records": 12,
        "test-records": 4,
        "population-records": 4,
    }


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights_file(tmp_path_factory.mktemp("weights") / "faces.safetensors")


@pytest.mark.long
def test_a_run_on_graphs(graphs: dict[str, object], tmp_path: Path) -> None:
    plan = small_plan(data=graphs, model={"name": DGCNN}, **SMALL)
    contents = run_locally(plan, tmp_path / "run")
    assert len(contents.trials) == 3
    assert np.isfinite(contents.trials["log_odds"]).all()
    assert contents.trials["log_odds"].nunique() == 3
    again = replay(tmp_path / "run")
    np.testing.assert_allclose(again.log_odds[:, -1], contents.trials["log_odds"], atol=1e-6)
    assert "weights" not in read_public(tmp_path / "run")[1]["model"]


@pytest.mark.parametrize(
    ("model", "expected_message"),
    [
        ({"name": "logistic"}, r"model is logistic .*graphs: .*package\.module:factory"),
        ({"name": "mnist-cnn"}, r"model is mnist-cnn .*graphs"),
        ({"name": DGCNN, "weights": "a.pt"}, r"weights is .*a\.pt .*:dgcnn: accepted"),
    ],
)
def test_models_that_do_not_fit_graphs_are_refused(
    model: dict[str, str], expected_message: str, graphs: dict[str, object]
) -> None:
    assert_refused(expected_message, lambda: require_runnable(small_plan(data=graphs, model=model, **SMALL)))


@pytest.mark.long
def test_a_run_on_a_frozen_core(faces: dict[str, object], weights: Path, tmp_path: Path) -> None:
    model = {"name": "vgg16", "weights": str(weights)}
    plan = small_plan(data=faces, model=model, **SMALL)
    contents = run_locally(plan, tmp_path / "run")
    assert np.isfinite(contents.trials["log_odds"]).all()
    federation = load_federation(plan.federation)
    assert federation.model.layout.size == 512 * 2 + 2
    assert federation.training.features.shape == (12, 512, 1, 1)
    assert federation.core is not None
    torch.testing.assert_close(
        federation.core(torch.from_numpy(federation.test_records.features)), federation.test.features
    )
    public, stored = read_public(tmp_path / "run")
    assert public.weights == plan.federation.weights
    assert stored["model"]["weights"] == str(weights)
    np.testing.assert_allclose(replay(tmp_path / "run").log_odds[:, -1], contents.trials["log_odds"], atol=1e-6)

    # The same weights somewhere else go on with the run; others do not.
    elsewhere = weights.rename(tmp_path / "moved.safetensors")
    overrides = SMALL | {"audit": {"trials": 4}}
    going_on = small_plan(data=faces, model=model | {"weights": str(elsewhere)}, **overrides)
    run_locally(going_on, tmp_path / "run", resume=True)
    assert read_public(tmp_path / "run")[0].weights == going_on.federation.weights
    other_plan = small_plan(
        data=faces, model=model | {"weights": str(weights_file(tmp_path / "other.safetensors", seed=1))}, **overrides
    )
    assert_refused(r"weights .*frozen core", run_locally, other_plan, tmp_path / "run", resume=True)
    elsewhere.rename(weights)


def test_without_the_file_it_is_said_what_is_missing(faces: dict[str, object]) -> None:
    named = r"vgg16 needs weights .*\[model\]: accepted"
    error = assert_refused(named, small_plan, data=faces, model={"name": "vgg16"}, **SMALL)
    assert "features.0.weight" in str(error)


def test_relative_paths_are_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text('[model]\nname = "vgg16"\nweights = "files/vgg16.pt"\n')
    assert load_values(tmp_path / "audit.toml")["model"]["weights"] == str(tmp_path / "files" / "vgg16.pt")


def test_federations_from_before_there_were_cores_are_read() -> None:
    public = small_plan().federation
    stored = json.loads(public.to_json())
    assert stored.pop("weights") is None
    assert Federation.from_json(json.dumps(stored)) == public
