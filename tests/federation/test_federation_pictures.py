"""Tests of reconstructed pictures in a report: who can draw them, what they show, and which settings are refused."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import ndtr, ndtri

from fl_audit.audits.reconstruction.image_attacks import DescentSettings
from fl_audit.audits.reconstruction.reconstruction_metrics import TrueAndReconstructedImages
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.gaussian import gdp_mu
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_report import rebuild_report
from fl_audit.runs.run_requirements import require_runnable
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of 240 pictures of two classes, upright and lying bright bars, each at its own place."""
    draw = np.random.default_rng(0)
    for name in ("lying", "upright"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(120):
            pixels = draw.integers(0, 60, (10, 10)).astype(np.uint8)
            bar_index = draw.integers(1, 9)
            pixels[bar_index] = 250
            Image.fromarray(pixels if name == "lying" else pixels.T).save(tmp_path / "images" / name / f"{number}.png")
    return tmp_path / "images"


def plan_of(folder: Path, **changes: dict[str, Any]) -> RunPlan:
    values: dict[str, dict[str, Any]] = {
        "data": {"name": "images", "path": str(folder), "records": 40, "test-records": 40, "population-records": 100},
        "privacy": {
            "belief": None,
            "epsilon": 5.0,
            "adjacency": "add-remove-record",
            "sensitivity": None,
            "accountant": "gdp",
        },
        "audit": {"reconstruct-samples": 12, "epsilon-star": False},
    }
    return small_plan(**changed_settings(values, changes))


@pytest.mark.long
@pytest.mark.drawn
def test_pictures_of_a_folder_are_drawn_beside_the_bound(folder: Path, tmp_path: Path) -> None:
    pictures = run_audit(plan_of(folder), tmp_path / "run", Engine.LOCAL).summary["pictures"]
    assert [picture["epsilon"] for picture in pictures] == [None, 100, 10, pytest.approx(5), 1]
    assert [picture["own"] for picture in pictures] == [False, False, False, True, False]
    sharp, _, _, claimed_picture, hidden = pictures
    assert sharp["named"] == 1
    assert sharp["psnr"] > 60
    assert sharp["ssim"] > 0.999
    assert hidden["psnr"] < claimed_picture["psnr"] + 1 < pictures[1]["psnr"] + 1 < sharp["psnr"]
    assert claimed_picture["candidates"] == 41
    assert claimed_picture["bound"] == pytest.approx(float(ndtr(gdp_mu(5, 0.01) + ndtri(1 / 41))), rel=1e-6)
    assert "could be drawn" in (tmp_path / "run" / "report.html").read_text()
    again = rebuild_report(tmp_path / "run").summary["pictures"]
    assert json.dumps(again) == json.dumps(pictures)


def test_replaced_records_are_drawn_at_half_of_mu(folder: Path, tmp_path: Path) -> None:
    plan = plan_of(folder, privacy={"adjacency": "replace-record"})
    pictures = run_locally(plan, tmp_path / "run").summary["pictures"]
    assert pictures[3]["bound"] == pytest.approx(float(ndtr(gdp_mu(5, 0.01) / 2 + ndtri(1 / 41))), rel=1e-6)
    assert pictures[2]["bound"] == pytest.approx(float(ndtr(gdp_mu(10, 0.01) / 2 + ndtri(1 / 41))), rel=1e-6)


OF_CLIENTS: dict[str, dict[str, Any]] = {
    "data": {"clients": 10},
    "model": {"name": "dense-128"},
    "training": {"strategy": "dp-fedavg", "local-epochs": 1, "local-batch": 2, "local-learning-rate": 0.05},
    "privacy": {"adjacency": "add-remove-client", "noise": "local"},
}


@pytest.mark.long
@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize(("adversary", "shares"), [("client", 9), ("server", 1)])
def test_updates_of_clients_are_drawn_by_a_server_or_another_client(
    folder: Path, tmp_path: Path, adversary: str, shares: int, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observer of one update faces one share of the noise, and an observer of the sum all shares but its own."""
    if not searched:  # a drawing as it is after two steps of a thousand
        monkeypatch.setattr(
            "fl_audit.runs.image_reconstruction.image_attacks.DescentSettings", partial(DescentSettings, 2)
        )
    noise = {"epsilon": None, "noise-multiplier": 2.0}
    changes = OF_CLIENTS | {
        "privacy": OF_CLIENTS["privacy"] | noise,
        "audit": {"reconstruct-samples": 4, "adversary": adversary},
    }
    contents = run_locally(plan_of(folder, **changes), tmp_path / "run")
    pictures = contents.summary["pictures"]
    claimed_picture = next(picture for picture in pictures if picture["own"])
    assert claimed_picture["bound"] == pytest.approx(float(ndtr(2 / 2 / np.sqrt(shares) + ndtri(4 / 41))), rel=1e-6)
    assert [picture["guesses"] for picture in pictures] == [4] * 5
    reconstruction = contents.run.find(TrueAndReconstructedImages)
    assert reconstruction is not None
    federation = load_federation(contents.plan.federation)
    first = federation.training.features[torch.from_numpy(federation.shards[0])].numpy()
    assert np.array_equal(reconstruction.true, first)
    assert not searched or pictures[0]["named"] > 0.6
    assert not searched or pictures[0]["psnr"] > 18 > 14 > pictures[1]["psnr"] > pictures[-1]["psnr"]


def test_without_a_guarantee_there_is_one_row(folder: Path, tmp_path: Path) -> None:
    changes = {
        "privacy": {"private": False, "epsilon": None, "clipping-norm": None, "accountant": None},
        "audit": {"reconstruct-samples": 12, "insider": False, "epsilon-star": False},
    }
    pictures = run_audit(plan_of(folder, **changes), tmp_path / "run", Engine.LOCAL).summary["pictures"]
    assert [(picture["epsilon"], picture["own"], picture["bound"], picture["named"]) for picture in pictures] == [
        (None, True, 1, 1)
    ]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "knew all other" in page
    assert "nothing is claimed" in page


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"name": "breast-cancer", "path": None}}, "accepted are pictures"),
        ({"audit": {"reconstruct-samples": 41}}, "reconstruct-samples = 41 of 40 records"),
        ({"privacy": {"sensitivity": "local"}}, r"accepted .*global sensitivity"),
        ({"training": {"strategy": "dp-sgd-clients"}, "privacy": {"accountant": None}}, "train privately"),
        (OF_CLIENTS | {"data": {"clients": 3}, "audit": {"reconstruct-samples": 20}}, "reconstruct-samples = 20 of 14"),
        (OF_CLIENTS | {"training": OF_CLIENTS["training"] | {"local-optimizer": "adam"}}, r"for inversion .*'sgd'"),
        (
            OF_CLIENTS | {"data": {"clients": 10, "population-records": 3}},
            "updates of 4 records, and population-records = 3",
        ),
    ],
)
def test_runs_without_pictures_are_refused(folder: Path, changes: dict[str, dict[str, Any]], message: str) -> None:
    assert_refused(message, lambda: require_runnable(plan_of(folder, **changes)))
