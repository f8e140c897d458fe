"""What a run stores: models that torch loads alone, batches of trials, and tables from which the guarantee follows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score
from torch import nn

from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs import stored_models
from fl_audit.runs.progress import progress_bar
from fl_audit.runs.run_report_contents import summarise
from fl_audit.runs.stored_models import MODEL
from fl_audit.runs.stored_run import read_run
from fl_audit.runs.trial_batch_store import write_table
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan

OWN = """
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.backbone = nn.Linear(features, 8).requires_grad_(False)
        self.first = nn.Linear(8, 8, bias=False)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.head = nn.Linear(8, 2)
        self.register_buffer("scale", torch.rand(8))

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(self.backbone(x) * self.scale)))))

def tied(feature_shape):
    return Tied(feature_shape[0])
"""


def metrics_of(module: nn.Module, plan: RunPlan) -> dict[str, float]:
    """Return accuracy, mean cross-entropy and area under the ROC curve of a module of torch on the test records."""
    records = load_federation(plan.federation).test_records
    with torch.no_grad():
        logits = module.eval()(torch.from_numpy(records.features))
    return {
        "accuracy": float(np.mean(logits.argmax(dim=1).numpy() == records.labels)),
        "loss": float(nn.functional.cross_entropy(logits, torch.from_numpy(records.labels))),
        "auroc": float(roc_auc_score(records.labels, logits[:, 1].double() - logits[:, 0].double())),
    }


def test_a_fresh_module_has_the_accuracy_of_each_trial(tmp_path: Path) -> None:
    chosen = ["loss", "average-precision", "auroc"]
    plan = small_plan(audit={"trials": 4}, training={"metrics": chosen}, run={"checkpoint-every": 2})
    contents = run_locally(plan, tmp_path / "run")
    run = read_run(tmp_path / "run")
    module = nn.Sequential(nn.Flatten(), nn.Linear(30, 2))
    for trial, expected in enumerate(contents.trials["test_accuracy"]):
        module.load_state_dict(run.model(trial))
        assert metrics_of(module, plan)["accuracy"] == pytest.approx(expected)
        assert metrics_of(module, plan)["loss"] == pytest.approx(contents.trials["test_loss"][trial])
    module.load_state_dict(load_file(tmp_path / "run" / MODEL))
    assert metrics_of(module, plan)["accuracy"] == pytest.approx(contents.trials["test_accuracy"][0])
    releases = contents.releases.set_index(["trial", "round"])
    for number in (2, 4):
        module.load_state_dict(run.model(round=number))
        assert metrics_of(module, plan)["loss"] == pytest.approx(releases["test_loss"][0, number])
        assert metrics_of(module, plan)["auroc"] == pytest.approx(releases["test_auroc"][0, number])
    by_round = run.history.set_index("round")["test_average_precision"]
    assert by_round[2] == pytest.approx(releases["test_average_precision"].loc[:, 2].mean())
    for wrong in ({"trial": 4}, {"round": 3}, {"trial": 1, "round": 2}):
        assert_refused("accepted", run.model, **wrong)


def test_shared_and_frozen_parameters_and_buffers_are_stored_under_all_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tied_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    plan = small_plan(
        model={"name": "tied_models:tied"},
        training={"rounds": 1},
        data={"records": 20, "test-records": 20},
        privacy={"sensitivity": None},
        audit={"trials": 2, "epsilon-star": False, "membership": False, "insider": False},
    )
    # Those of both trials are one number too many.
    monkeypatch.setattr(stored_models, "MOST_KEPT_SCALARS", 2 * load_federation(plan.federation).model.layout.size - 1)
    contents = run_locally(plan, tmp_path / "run")
    from tied_models import tied  # type: ignore[import-not-found]

    run = read_run(tmp_path / "run")
    module = tied((30,))
    assert set(run.model()) == set(module.state_dict())
    module.load_state_dict(run.model())
    assert metrics_of(module, plan)["accuracy"] == pytest.approx(contents.trials["test_accuracy"][0])
    assert_refused("trial 0 alone", run.model, trial=1)


def test_a_run_of_one_trial_tells_its_metrics_round_by_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = small_plan(audit={"trials": 1}, training={"rounds": 3})
    assert set(plan.metrics) == {"accuracy", "auroc", "average-precision", "loss"}
    contents = run_locally(plan, tmp_path / "run", progress=progress_bar)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("round ")]
    assert [int(line.split()[1]) for line in lines] == [0, 1, 2, 3]
    for line, value in zip(lines, contents.releases["test_auroc"], strict=True):
        assert f"AUROC {value:.3g}" in line
    utility = contents.summary["utility"]
    assert utility["metrics"][utility["headline"]] == contents.trials["test_accuracy"][0]
    audit_plan = small_plan(audit={"trials": 2}, training={"rounds": 3})
    assert audit_plan.metrics == ("accuracy",), "an audit computes no more than it shows"
    grown = run_locally(audit_plan, tmp_path / "run", resume=True)
    assert grown.releases["test_loss"].notna().all()


@pytest.mark.long
def test_a_round_under_the_floor_makes_sensitivities_adaptive(tmp_path: Path) -> None:
    plan = small_plan(privacy={"accountant": "gdp", "sensitivity": "local"})
    contents = run_locally(plan, tmp_path / "run")
    claimed = contents.summary["guarantee"]
    assert claimed["belief_bound"] == claimed["belief_bound_fixed"]
    rounds = contents.rounds.assign(
        local_sensitivity=contents.rounds["local_sensitivity"].where(lambda s: s.index > 0, 0)
    )
    floored = summarise(plan, replace(contents.run.tables, rounds=rounds), contents.summary["timing"])
    assert floored.summary["guarantee"]["belief_bound"] > claimed["belief_bound"]
    assert floored.summary["guarantee"]["belief_bound_fixed"] == claimed["belief_bound_fixed"]


def test_tables_come_back_to_the_bit_whatever_they_hold(tmp_path: Path) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1 / 3])
    frame = pd.DataFrame(
        {
            "trial": np.arange(6),
            "won": odd > 0,
            "sigma": odd,
            "at 0": odd.astype(np.float32),
            "name": ["a", None, "c", "a", "", "é"],
        }
    )
    for table in (frame, frame.iloc[:0]):
        write_table(table, tmp_path / "table.parquet")
        read = pd.read_parquet(tmp_path / "table.parquet")
        pd.testing.assert_frame_equal(read, table, check_exact=True)
        assert np.array_equal(np.signbit(read["sigma"]), np.signbit(table["sigma"]))


def test_measured_noise_takes_less_than_nine_tenths_of_its_bytes(tmp_path: Path) -> None:
    """The 23 random bits of a fraction cannot be packed, the exponents can: .875 (.93 with numbers kept together)."""
    noise = np.random.default_rng(5).normal(size=(20_000, 20)).astype(np.float32)
    write_table(pd.DataFrame(noise).rename(columns=str), tmp_path / "noise.parquet")
    assert (tmp_path / "noise.parquet").stat().st_size < 0.9 * noise.nbytes
