"""Tests of rounds on a sample of the records: who is drawn, who is told, what is released, and runs of every kind."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import binomtest, norm
from torch import Tensor, nn

from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.message_keys import Key, pack_participation, unpack_participation
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.replay import replay
from fl_audit.runs.run import ClientAppAndStrategy, run_audit
from fl_audit.runs.run_report import rebuild_report
from fl_audit.strategies.secret_draws import SeededChallenger
from tests.builders.clients import SentMessage, overheard_app
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings
from tests.learning.gradient_truth import clip_and_sum, example_gradients

WITHOUT_GUARANTEE = {"private": False, **dict.fromkeys(("belief", "epsilon", "clipping-norm", "sensitivity"))}


def _plan(**changes: dict[str, Any]) -> RunPlan:
    """Return the plan of the sampled setting with changes; a change to None removes a setting."""
    settings: dict[str, dict[str, Any]] = {
        "training": {"epochs": 2, "rounds": None, "expected-batch": 15, "learning-rate": 0.5, "optimizer": "momentum"},
        "privacy": {
            "belief": None,
            "epsilon": 4.0,
            "delta": 0.01,
            "clipping-norm": 1.0,
            "accountant": "rdp",
            "sensitivity": "global",
            "adjacency": "add-remove-record",
        },
        "audit": {"trials": 6, "insider": False},
    }
    return small_plan(**changed_settings(settings, changes))


# Draws. False alarms: 1e-4 a test, at a fixed seed.


def test_records_take_part_at_the_rate_and_independently() -> None:
    draws = np.stack(
        [SeededChallenger(3).participation(range(50), server_round, 1, 80, 0.3) for server_round in (1, 2, 3)]
    )
    assert draws.dtype == np.bool_
    assert binomtest(int(draws.sum()), draws.size, 0.3).pvalue > 1e-4
    centred = draws - 0.3
    limit = float(norm.isf(1e-4 / 2)) * 0.3 * 0.7
    other_client = SeededChallenger(3).participation(range(50), 1, 2, 80, 0.3) - 0.3
    pairs = {
        "rounds": centred[:-1] * centred[1:],
        "trials": centred[:, :-1] * centred[:, 1:],
        "records": centred[:, :, :-1] * centred[:, :, 1:],
        "clients": centred[0] * other_client,
    }
    for name, products in pairs.items():
        assert abs(products.mean()) < limit / np.sqrt(products.size), name
    sizes = draws.sum(2).ravel()
    assert np.var(sizes) == pytest.approx(80 * 0.3 * 0.7, rel=0.45)  # 3.9 standard errors of a variance of 150 sizes


def test_who_takes_part_depends_on_no_batch() -> None:
    together = SeededChallenger(3).participation(range(20), 5, 0, 33, 0.5)
    apart = [SeededChallenger(3).participation(trials, 5, 0, 33, 0.5) for trials in ((7,), (0, 7, 19))]
    assert np.array_equal(apart[0][0], together[7])
    assert np.array_equal(apart[1], together[[0, 7, 19]])
    assert not np.array_equal(together, SeededChallenger(4).participation(range(20), 5, 0, 33, 0.5))


@pytest.mark.parametrize("records", [0, 1, 8, 21])
def test_packed_participation_is_read_as_it_was(records: int) -> None:
    participation = np.random.default_rng(records).random((5, records)) < 0.5
    assert np.array_equal(unpack_participation(pack_participation(participation), 5, records), participation)


# One round by hand.


def _released_by_hand(plan: RunPlan, federation: LoadedFederation, trials: range) -> Tensor:
    """Return the models after one round, from float64 gradients of single records."""
    seed = plan.config.run.seed
    mechanism = plan.federation.mechanism
    challenger = SeededChallenger(plan.config.run.seed)
    spec = ModelSpec(plan.federation.model, federation.model.feature_shape, federation.classes)
    initial = initial_models(spec, seed, trials)
    module: nn.Module = build_model(spec)
    norm = mechanism.clipping_norm
    bits = challenger.membership(trials).bits
    total = torch.zeros(initial.shape, dtype=torch.float64)
    for client, shard in enumerate(federation.shards):
        participation = challenger.participation(trials, 1, client, len(shard), mechanism.sampling_rate)
        for row in range(len(trials)):
            for position in np.flatnonzero(participation[row]):
                example = federation.training.take(shard[position : position + 1])
                if shard[position] == plan.federation.pair.index and not bits[row]:
                    if federation.replacement is None:
                        continue
                    example = federation.replacement
                gradients = example_gradients(module, initial[row : row + 1], example.features, example.labels)
                total[row] += clip_and_sum(gradients, norm)[0]
    noise = mechanism.noise_multiplier * mechanism.global_sensitivity if mechanism.adds_noise else 0.0
    total += noise * challenger.standard_normals(trials, 1, initial.shape[1]).double()
    expected = float(plan.config.training.sampling_rate or 1) * plan.config.data.records
    return initial.double() - plan.config.training.learning_rate * total / expected


@pytest.mark.long
@pytest.mark.parametrize("rate", [0.15, 0.7])
@pytest.mark.parametrize(
    "privacy",
    [
        {},
        {"adjacency": "replace-record", "accountant": "pld", "belief": 0.9, "epsilon": None},
        WITHOUT_GUARANTEE | {"accountant": None},
    ],
    ids=["add-remove", "replace", "without-guarantee"],
)
def test_a_round_releases_what_its_sample_makes(privacy: dict[str, Any], rate: float, tmp_path: Path) -> None:
    training = {"rounds": 1, "epochs": None, "sampling-rate": rate, "expected-batch": None, "optimizer": "sgd"}
    plan = _plan(training=training, privacy=privacy, data={"records": 40}, audit={"trials": 8})
    run_locally(plan, tmp_path / "run")
    files = sorted((tmp_path / "run" / "public").glob("models-*"))
    models = torch.cat([load_file(path)["models"] for path in files])
    federation = load_federation(plan.federation)
    expected = _released_by_hand(plan, federation, range(8))
    assert float((models.double() - expected).abs().max()) < 1e-5
    participation = SeededChallenger(0).participation(
        range(8), 1, federation.victim, len(federation.shards[federation.victim]), rate
    )
    decisive = participation[:, federation.differs(federation.victim)]
    assert decisive.any()  # the differing record took part in some trial
    assert not decisive.all()


def test_each_client_is_told_of_its_own_records_alone(tmp_path: Path) -> None:
    plan = _plan(training={"epochs": 0.5})
    messages: list[SentMessage] = []
    run_locally(plan, tmp_path / "run", parties=ClientAppAndStrategy(client_app=overheard_app(messages)))
    rate = plan.federation.mechanism.sampling_rate
    shards = load_federation(plan.federation).shards
    for client, shard in enumerate(shards):
        draws = [
            pack_participation(SeededChallenger(0).participation(trials, server_round, client, len(shard), rate))
            for trials in (range(3), range(3, 6))
            for server_round in range(1, plan.federation.rounds + 1)
        ]
        assert {message.config[Key.PARTICIPATION] for message in messages if message.client == client} == set(draws)


# Whole runs.


@pytest.mark.long
def test_a_sampled_run_with_momentum_resumes_to_the_same_end(tmp_path: Path) -> None:
    plan = _plan()
    assert (plan.federation.rounds, plan.federation.mechanism.sampling_rate, plan.federation.mechanism.denominator) == (
        8,
        0.25,
        15.0,
    )
    before = run_audit(plan, tmp_path / "run", Engine.LOCAL)
    shutil.rmtree(tmp_path / "run" / "challenger" / "batches" / "batch-00001")
    (tmp_path / "run" / "summary.json").unlink()
    after = run_audit(plan, tmp_path / "run", Engine.LOCAL, resume=True)
    for name in ("trials", "rounds", "releases"):
        pd.testing.assert_frame_equal(getattr(before, name), getattr(after, name))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["verdict"], summary["insider"], summary["empirical_epsilon"]) == ("not audited", None, None)
    assert summary["guarantee"]["epsilon"] == pytest.approx(4.0)
    assert summary["guarantee"]["sampling_rate"] == 0.25
    assert summary["epsilon_star"]["delta"] == 0.01
    assert after.trials[["log_odds", "belief", "won"]].isna().all(axis=None)
    assert after.rounds["sigma"].nunique() == 1
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Claimed, not confirmed" in page
    assert "the insider achieved" not in page
    assert re.search(r"Gaussian noise [^<]*\badd-remove-record, [^<]* rate 0\.25", page)
    assert not list((tmp_path / "run" / "public").glob("releases-*"))
    figures = {path.stem for path in (tmp_path / "run" / "figures").iterdir()}
    assert figures == {"other-guarantees", "accuracy", "epsilon-star"}
    assert_refused("without the insider", replay, tmp_path / "run")


@pytest.mark.long
def test_the_insider_changes_nothing_in_the_models(tmp_path: Path) -> None:
    privacy = {"sensitivity": "global"}
    runs = [
        run_locally(small_plan(privacy=privacy, audit={"insider": has_insider}), tmp_path / str(has_insider))
        for has_insider in (True, False)
    ]
    columns = ["trial", "bit", "test_accuracy", "epsilon_star", "membership_advantage"]
    pd.testing.assert_frame_equal(runs[0].trials[columns], runs[1].trials[columns])
    assert [run.summary["verdict"] for run in runs] == ["inconclusive", "not audited"]


@pytest.mark.long
def test_without_a_guarantee_models_are_better_and_nothing_is_claimed(tmp_path: Path) -> None:
    private = _plan(privacy={"epsilon": None, "noise-multiplier": 50.0})
    baseline = _plan(privacy=WITHOUT_GUARANTEE | {"accountant": None})
    noisy, free = (run_audit(plan, tmp_path / name, Engine.LOCAL) for plan, name in ((private, "a"), (baseline, "b")))
    assert free.summary["utility"]["test_accuracy"] > noisy.summary["utility"]["test_accuracy"] + 0.1
    claimed = {key: value for key, value in free.summary["guarantee"].items() if value is not None}
    assert claimed == {"rounds": 8, "sampling_rate": 0.25}
    assert free.summary["verdict"] == "no guarantee"
    membership = free.summary["membership"]
    assert membership["bound"] is membership["yeom_bound"] is membership["record"]["bound"] is None
    assert (free.rounds["sigma"] == 0).all()
    rebuild_report(tmp_path / "b")
    page = (tmp_path / "b" / "report.html").read_text()
    assert "nothing was claimed" in page
    assert "no clipping" in page
    assert "What was claimed" not in page
    assert (tmp_path / "b" / "public" / "configuration.json").read_text().count("clipping-norm") == 0
