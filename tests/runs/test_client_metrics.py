"""Metrics by client are those of scikit-learn on each client's records, and are marked as not private."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from torch import nn

from fl_audit.federation.loaded_federation import load_federation
from fl_audit.runs.comparison.rows import rows
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.exports.trackers import series_of
from fl_audit.runs.run import run_audit
from fl_audit.runs.stored_run import read_run
from fl_audit.server.release_findings import worst_client
from tests.builders.runs import run_locally, small_plan

ONE_CLASS = {
    "clients": 4,
    "partition": "pathological",
    "partition-parameters": {"num-classes-per-partition": 1},
    "records": 80,
}


def test_each_client_has_the_metrics_of_its_own_records(tmp_path: Path) -> None:
    chosen = ["auroc", "accuracy"]
    plan = small_plan(audit={"trials": 1}, training={"metrics": chosen, "client-metrics": True})
    contents = run_audit(plan, tmp_path / "run", Engine.LOCAL)
    run = read_run(tmp_path / "run")
    module = nn.Sequential(nn.Flatten(), nn.Linear(30, 2))
    module.load_state_dict(run.model())
    federation = load_federation(plan.federation)
    with torch.no_grad():
        logits = module(federation.training.features).double()
    margin = (logits[:, 1] - logits[:, 0]).numpy()
    labels = federation.training.labels.numpy()
    by_client = [reference.roc_auc_score(labels[shard], margin[shard]) for shard in federation.shards]
    table = contents.summary["client_metrics"]
    assert [client["metrics"]["auroc"] for client in table["clients"]] == pytest.approx(by_client)
    assert table["pooled"]["auroc"] == pytest.approx(reference.roc_auc_score(labels, margin))
    assert table["pooled"]["accuracy"] == pytest.approx(np.mean((margin > 0) == labels))
    assert (table["worst"], table["best"]) == (int(np.argmin(by_client)), int(np.argmax(by_client)))
    assert table["standard_deviation"] == pytest.approx(np.std(by_client, ddof=1))
    assert table["is_private"] is False
    assert [client["records"] for client in table["clients"]] == [len(shard) for shard in federation.shards]
    assert contents.trials["train_worst_client"][0] == pytest.approx(min(by_client))
    assert len(run.history["train_auroc"].dropna()) == 5, "every evaluated release has them"
    assert "guarantee does not cover" in run.report.read_text()
    assert {"train/auroc", "train/worst_client"} <= {series.name for series in series_of(run)}
    assert "train" not in run.plot("train_auroc", "test_auroc").axes[1].get_title()


def test_clients_of_one_class_are_named_where_the_auroc_is_not_defined(tmp_path: Path) -> None:
    training = {"metrics": ["auroc"], "client-metrics": True}
    for name in ("first", "second"):
        plan = small_plan(data=ONE_CLASS, audit={"trials": 1}, training=training, run={"seed": len(name)})
        contents = run_audit(plan, tmp_path / name, Engine.LOCAL)
    labels = load_federation(plan.federation).training.labels.numpy()
    federation = load_federation(plan.federation)
    alone = [number for number, shard in enumerate(federation.shards) if len(set(labels[shard])) == 1]
    assert alone
    assert contents.summary["client_metrics"]["of_one_class"] == alone
    text = read_run(tmp_path / "second").report.read_text()
    assert "records of one class only, for which the AUROC is not defined" in " ".join(text.split())
    defined = len(alone) < len(federation.shards)
    finding_names = [name for row in rows([tmp_path / "first", tmp_path / "second"]) for name in row.findings]
    assert ("Training AUROC, worst client" in finding_names) == defined
    assert "Training AUROC" in finding_names, "compare shows it"


def test_nothing_is_computed_unless_it_is_asked_for(tmp_path: Path) -> None:
    contents = run_locally(small_plan(audit={"trials": 1}), tmp_path / "run")
    assert contents.summary["client_metrics"] is None
    assert not [column for column in contents.releases if column.startswith("train_")]


def test_the_worst_client_is_the_one_with_the_smallest_score_or_the_largest_error() -> None:
    values = np.array([[0.5, np.nan, 0.9], [np.nan, np.nan, np.nan]])
    largest = worst_client(values, "rmse")
    smallest = worst_client(values, "auroc")
    assert (largest[0], smallest[0]) == (0.9, 0.5)
    assert math.isnan(largest[1])
    assert math.isnan(smallest[1])
