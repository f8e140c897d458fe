"""Tests of crafted records in whole runs, and of weights that are pretrained in public."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fl_audit.federation.initial_weights import InitialWeightsSource, pretraining_examples, starting_models
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.learning.gradient_norms_and_products import gradient_norms_and_products
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.replay import replay
from fl_audit.runs.run import run_audit
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan

NORM = 3.0
PRIVACY: dict[str, Any] = {"sensitivity": "global", "clipping-norm": NORM, "accountant": "gdp"}


def _shares(contents: ReportContents, largest: float) -> np.ndarray[Any, Any]:
    return contents.run.by_trial("local_sensitivity") / largest


def test_a_crafted_record_changes_the_sum_by_what_a_record_can(tmp_path: Path) -> None:
    """The most dissimilar record, by contrast, has a shorter gradient, so the insider learns less than is claimed."""
    privacy = PRIVACY | {"adjacency": "add-remove-record"}
    audit = {"neighbour": "crafted", "epsilon-star": False}
    plan = small_plan(privacy=privacy, audit=audit)
    assert plan.federation.pair.crafted is not None
    assert small_plan(privacy=privacy, audit=audit).federation == plan.federation, "the seed of the data decides"
    contents = run_audit(plan, tmp_path / "crafted", Engine.LOCAL)
    usual = run_locally(small_plan(privacy=privacy, audit={"epsilon-star": False}), tmp_path / "usual")
    crafted = _shares(contents, NORM)
    ordinary = _shares(usual, NORM)
    # Crafted at the initial weights of the first eight trials, of which six are played.
    assert crafted[:, 0].mean() > 0.9
    assert ordinary[:, 0].mean() < 0.8
    assert np.square(crafted).sum(axis=1).mean() > 1.25 * np.square(ordinary).sum(axis=1).mean()
    crafted_summary = json.loads((tmp_path / "crafted" / "summary.json").read_text())["crafted"]
    assert crafted_summary["first_round_sensitivity"] == pytest.approx(crafted[:, 0].mean())
    assert crafted_summary["mean_sensitivity"] == pytest.approx(crafted.mean())
    assert "The crafted record" in (tmp_path / "crafted" / "report.html").read_text()
    assert usual.summary["crafted"] is None
    again = replay(tmp_path / "crafted")
    np.testing.assert_allclose(again.log_odds[:, -1], contents.run.log_odds[:4], atol=1e-6)
    extended_plan = small_plan(privacy=privacy, audit=audit | {"trials": 7})
    assert len(run_locally(extended_plan, tmp_path / "crafted", resume=True).trials) == 7


@pytest.mark.long
def test_its_opposite_takes_its_place_to_most_effect(tmp_path: Path) -> None:
    plan = small_plan(privacy=PRIVACY, audit={"neighbour": "crafted-opposite", "epsilon-star": False})
    assert plan.federation.pair.replacement is None
    contents = run_locally(plan, tmp_path / "run")
    # Two classes: the gradients of the same features under both labels are opposite to each other, and the lengths of
    # both add up to sqrt(2) ||(x, 1)||, of which at most 2 NORM counts.
    assert _shares(contents, 2 * NORM)[:, 0].mean() > 0.8
    federation = load_federation(plan.federation)
    models = torch.cat([load_file(path)["models"] for path in sorted((tmp_path / "run" / "public").glob("models-*"))])
    assert federation.replacement is not None
    stand_in = federation.losses(models, federation.replacement)[:, 0]
    record_losses = federation.losses(models, federation.differing)[:, 0]
    np.testing.assert_allclose(contents.trials["record_score"], stand_in - record_losses, rtol=1e-6)


@pytest.mark.long
def test_pretrained_weights_are_the_same_everywhere_and_leave_small_gradients(tmp_path: Path) -> None:
    plan = small_plan(
        data={"population-records": 100},
        privacy=PRIVACY | {"adjacency": "add-remove-record"},
        model={"initial": "pretrained"},
        audit={"epsilon-star": False, "trials": 2},
    )
    federation = load_federation(plan.federation)
    used = np.concatenate(
        [federation.training.features.numpy(), federation.population_records.features, federation.test_records.features]
    )
    public_features = pretraining_examples(federation).features.numpy()
    assert len(public_features) == 569 - len(used)
    assert not (public_features[:, None] == used[None]).all(axis=2).any()
    random_models, trained = (starting_models(federation, kind, 0, range(3)) for kind in InitialWeightsSource)
    assert (trained == trained[0]).all()
    before, after = (
        float(
            gradient_norms_and_products(
                federation.model, models, federation.common.features, federation.common.labels
            ).norms.mean()
        )
        for models in (random_models, trained)
    )
    assert after < before / 3
    run_locally(plan, tmp_path / "run")
    stored = load_file(next((tmp_path / "run" / "public").glob("releases-*")))["initial"]
    assert (stored == trained[:2]).all()


def test_where_nothing_is_left_to_pretrain_on_it_is_refused() -> None:
    federation = load_federation(small_plan().federation)
    assert len(federation.spare) == 0
    named = r"\b0 records .*population sample"
    assert_refused(named, starting_models, federation, InitialWeightsSource.PRETRAINED, 0, [0])
