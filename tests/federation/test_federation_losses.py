"""Tests of Epsilon* from summaries of losses: it equals that of the pooled losses, and no loss leaves a client."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Array, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from torch.nn.functional import cross_entropy

import fl_audit.clients.app
from fl_audit.errors import FederationError
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.released_model.parametric_star import epsilon_star_gaussian, loss_scores, parametric_epsilon_star
from fl_audit.released_model.star_methods import PARAMETRIC_CUT
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.local_engine import run_locally
from fl_audit.runs.run import run_audit
from fl_audit.server.app import build_server_app
from fl_audit.server.trial_batch_results import BatchResult
from fl_audit.trial_batches import remaining_batches
from tests.builders.clients import app_through
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan

FEDERATED: dict[str, Any] = {"epsilon-star-losses": "federated"}


def play(plan: RunPlan, client_app: ClientApp = fl_audit.clients.app.app) -> list[BatchResult]:
    results: list[BatchResult] = []
    batches = remaining_batches(plan.config.audit.trials, plan.config.run.trials_per_batch or 1, ())
    run_locally(build_server_app(plan, batches, results.append), client_app, plan.federation.clients, 60.0)
    return results


def star(results: list[BatchResult]) -> np.ndarray:
    return np.concatenate([result.columns.releases["epsilon_star"] for result in results])


@pytest.fixture
def exact_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate models in float64, because float32 losses depend in their last bits on the shapes of arrays."""

    def losses(self: StackedModel, models: torch.Tensor, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.logits(models.double(), features.double())
        example_losses = cross_entropy(logits.flatten(0, 1), labels.repeat(len(models)), reduction="none")
        return example_losses.reshape(len(models), len(labels))

    monkeypatch.setattr(StackedModel, "losses", losses)


UNEQUAL = {"partition": "exponential", "clients": 4}


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("adjacency", ["replace-record", "add-remove-record"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"data": UNEQUAL},
        {"data": UNEQUAL, "audit": {"evaluate-every": 3}},
        {"data": {"partition": "dirichlet", "partition-parameters": {"alpha": 0.1, "min-partition-size": 1}}},
        {"training": {"rounds": 1}, "audit": {"view": "model"}},
    ],
    ids=["iid", "exponential", "some-releases", "dirichlet", "one-round"],
)
def test_federated_equals_pooled(change: dict[str, dict[str, Any]], adjacency: str, exact_losses: None) -> None:
    changes = change | {"privacy": {"adjacency": adjacency}}
    pooled = play(small_plan(**changes))
    federated = play(small_plan(**changes | {"audit": change.get("audit", {}) | FEDERATED}))
    assert star(pooled).shape[1] == len(pooled[0].evaluated)
    np.testing.assert_allclose(star(federated), star(pooled), rtol=0, atol=1e-9)
    for federated_result, pooled_result in zip(federated, pooled, strict=True):
        np.testing.assert_array_equal(
            federated_result.columns.rounds["log_odds"], pooled_result.columns.rounds["log_odds"]
        )
        np.testing.assert_array_equal(
            federated_result.columns.releases["test_accuracy"], pooled_result.columns.releases["test_accuracy"]
        )
        assert not federated_result.columns.clients


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["replace-record", "add-remove-record"])
def test_a_victim_with_one_record_that_is_not_always_there(adjacency: str, exact_losses: None) -> None:
    changes = {"data": UNEQUAL, "privacy": {"adjacency": adjacency}}
    federation = load_federation(small_plan(**changes).federation)
    alone = next(client for client, shard in enumerate(federation.shards) if len(shard) == 1)
    index = int(federation.shards[alone][0])
    pooled = play(small_plan(**changes, audit={"neighbour": index}))
    federated = play(small_plan(**changes, audit={"neighbour": index} | FEDERATED))
    assert load_federation(small_plan(**changes, audit={"neighbour": index}).federation).victim == alone
    assert set(np.concatenate([result.membership.bits for result in pooled])) == {True, False}
    np.testing.assert_allclose(star(federated), star(pooled), rtol=0, atol=1e-9)


def shard_losses(federation: LoadedFederation, result: BatchResult, client: int, row: int) -> np.ndarray:
    """Return a client's losses on the final model of one trial, computed in the shapes of its batch."""
    client_losses = [federation.losses(result.final_models, federation.shard_without_targets(client))[row]]
    if client == federation.victim:
        target_record = federation.differing if result.membership.bits[row] else federation.replacement
        client_losses.append(federation.losses(result.final_models, target_record)[row])
    return np.concatenate(client_losses)


def scores_fit(losses: np.ndarray, low: float, high: float) -> tuple[float, float]:
    scores = loss_scores(np.clip(losses, low, high), low, high)
    return float(scores.mean()), float(scores.std())


def test_final_releases_by_hand() -> None:
    plan = small_plan(audit=FEDERATED)
    federation = load_federation(plan.federation)
    delta = plan.guarantee.delta
    for result in play(plan):
        population = federation.losses(result.final_models, federation.population)
        for row in range(result.batch.count):
            shards = [shard_losses(federation, result, client, row) for client in range(plan.federation.clients)]
            everything = np.concatenate([*shards, population[row]])
            low = everything.min()
            high = everything.max()
            fit = scores_fit(population[row], low, high)
            whole = epsilon_star_gaussian(*scores_fit(np.concatenate(shards), low, high), *fit, delta, PARAMETRIC_CUT)
            assert result.columns.releases["epsilon_star"][row, -1] == pytest.approx(whole, abs=1e-9)
            assert whole == parametric_epsilon_star(np.concatenate(shards), population[row], delta)


def test_what_travels() -> None:
    """Clients answer with one number of each kind for a trial, and only the victim receives bits."""
    answers: list[tuple[str, int, set[str]]] = []
    told_bits: set[int] = set()

    def note(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        client = int(context.node_config["partition-id"])
        config = message.content.config_records[MessageRecordName.CONFIG]
        if Key.MEMBERSHIP in config:
            told_bits.add(client)
        reply = call_next(message, context)
        if message.metadata.message_type.startswith("query.loss"):
            arrays = reply.content.array_records[MessageRecordName.ARRAYS]
            assert {tuple(array.shape) for array in arrays.values()} == {(3,)}
            answers.append((message.metadata.message_type, int(str(config[Key.ROUND])), set(arrays)))
        return reply

    plan = small_plan(audit=FEDERATED)
    play(plan, app_through(note))
    assert told_bits == {load_federation(plan.federation).victim}
    expected = {("query.loss_moments", release): {"count", "mean", "squares"} for release in range(5)}
    expected |= {("query.loss_range", release): {"count", "low", "high"} for release in range(5)}
    assert {(kind, release): keys for kind, release, keys in answers} == expected
    assert len(answers) == len(expected) * plan.federation.clients * 2


SPOILED = {
    ("loss_range", "low", "nan"): r"client 1 .*'low' .*1 of 3 .*not finite",
    ("loss_range", "high", "none"): r"client 1 .*no 'high'",
    ("loss_range", "low", "shape"): r"client 1 .*'low' .*float64 .*\(2,\)",
    ("loss_range", "low", 99.0): r"client 1 .*cannot be .*range of",
    ("loss_range", "count", 2.5): r"client 1 .*cannot be .*range of",
    ("loss_moments", "mean", "none"): r"client 1 .*no 'mean'",
    ("loss_moments", "count", "type"): r"client 1 .*'count' .*float32",
    ("loss_moments", "squares", -1.0): r"client 1 .*cannot be .*moments of",
}


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("case", SPOILED, ids=str)
def test_answers_that_cannot_be_are_refused(case: tuple[str, str, str | float]) -> None:
    query, key, fault = case
    # The last release is asked about in exchanges of its own.
    release = 4 if isinstance(fault, float) else 1

    def spoil(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        config = message.content.config_records[MessageRecordName.CONFIG]
        due = message.metadata.message_type == f"query.{query}" and config[Key.ROUND] == release
        if due and context.node_config["partition-id"] == 1:
            arrays = reply.content.array_records[MessageRecordName.ARRAYS]
            values = arrays[key].numpy().copy()
            if fault == "none":
                del arrays[key]
                return reply
            if fault in ("shape", "type"):
                values = values[:2] if fault == "shape" else values.astype(np.float32)
            else:
                values[1] = np.nan if fault == "nan" else fault
            arrays[key] = Array(values)
        return reply

    plan = small_plan(audit=FEDERATED)
    with pytest.raises(FederationError) as caught:
        play(plan, app_through(spoil))
    assert re.search(SPOILED[case], str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_federated_run_is_stored_reported_and_resumed(tmp_path: Path) -> None:
    plan = small_plan(audit=FEDERATED)
    whole = run_audit(plan, tmp_path / "run", Engine.LOCAL)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "losses stayed with their owners" in unescape(page)
    # The second batch is lost, as after an interruption.
    lost = tmp_path / "run" / "challenger" / "batches" / "batch-00001"
    lost.rename(tmp_path / "lost")
    resumed = run_audit(plan, tmp_path / "run", Engine.LOCAL, resume=True)
    pd.testing.assert_frame_equal(resumed.releases, whole.releases)
    assert_refused("another configuration", run_audit, small_plan(), tmp_path / "run", Engine.LOCAL, resume=True)
