"""Tests of runs on randomised records: training records are compared with sums and distributions computed by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from scipy import stats
from scipy.special import softmax

import fl_audit.clients.request
from fl_audit.data.randomizers import RandomisedBits
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.local_dpsgd import ClientRandomness
from fl_audit.federation.locally_randomised_records import LocallyRandomisedRecords, _TensorCache, randomised_shard
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.message_keys import Key
from fl_audit.privacy.identifiability_bounds import truth_probability
from fl_audit.randomness import Purpose, generator
from fl_audit.runs.run import ClientAppAndStrategy
from fl_audit.strategies.secret_draws import SeededChallenger
from tests.builders.clients import SentMessage, overheard_app
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings

SEED = 11
TRIALS = 6
RATE = 0.5
LOCAL_RATE = 0.2

NOT_PRIVATE: dict[str, Any] = {"private": False, "belief": None, "clipping-norm": None, "sensitivity": None}
ALONE: dict[str, Any] = {"trials": TRIALS, "epsilon-star": False, "membership": False}
MEMBERS: dict[str, Any] = {"kind": "membership", "trials": 24, "attacks": ["loss"], "epsilon-star": False}

Told = dict[tuple[int, int], list[NDArray[np.uint8]]]


def bits(epsilon: float = 1.0) -> dict[str, Any]:
    return {"local-randomizer": "randomised-response", "record-epsilon": epsilon}


def carts_plan(**changes: dict[str, Any]) -> RunPlan:
    """Return the plan of a run of one round without clipping and noise, on a few shopping carts."""
    base: dict[str, dict[str, Any]] = {
        "data": {
            "name": "fl_audit.experiments.papers.bernau2019.skewed:skewed_purchases",
            "loader-parameters": {"classes": 10, "generated-records": 400},
            "test-records": 50,
            "records": 60,
            "clients": 3,
        },
        "training": {"rounds": 1, "learning-rate": RATE},
        "privacy": NOT_PRIVATE | bits(),
        "audit": ALONE,
        "run": {"trials-per-batch": TRIALS, "seed": SEED},
    }
    return small_plan(**changed_settings(base, changes))


@pytest.fixture
def training_records(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Return the records on which clients of a run trained, by client and trial, once for every round."""
    records_by_trial: Told = {}

    def note(federation: LoadedFederation, client: int, draws: ClientRandomness) -> LocallyRandomisedRecords:
        local_records = randomised_shard(federation, client, draws)
        for row, trial in enumerate(draws.trials):
            records_by_trial.setdefault((client, trial), []).append(local_records.shard.features[row].numpy().copy())
        return local_records

    monkeypatch.setattr(fl_audit.clients.request, "randomised_shard", note)
    return records_by_trial


def drawn_by_hand(
    federation: LoadedFederation, client: int, trial: int
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return a client's bits after its own draws, followed by those of the replacement if it has one."""
    records = federation.training.features.numpy()[federation.shards[client]]
    stand_in = (
        federation.replacement.features.numpy()
        if federation.replacement is not None and client == federation.victim
        else None
    )
    client_records = records if stand_in is None else np.concatenate([records, stand_in])
    assert isinstance(federation.public.local_randomizer, RandomisedBits)
    seed = SeededChallenger(SEED).noise_seed(client)
    draws = generator(seed, Purpose.LOCAL_RANDOMIZER, trial=trial, client=client).random(client_records.size)
    lies = draws.reshape(client_records.shape) >= truth_probability(federation.public.local_randomizer.epsilon)
    changed = np.where(lies, 1 - client_records, client_records).astype(np.float64)
    return changed[: len(records)], None if stand_in is None else changed[len(records) :]


def gradient(
    model: NDArray[np.float64], features: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the summed gradient of logistic regression in closed form, in the layout of its parameters."""
    weights = model[:6000].reshape(10, 600)
    bias = model[6000:]
    errors = softmax(features @ weights.T + bias, axis=1) - np.eye(10)[labels]
    return np.concatenate([(errors.T @ features).ravel(), errors.sum(axis=0)])


def initial_weights(federation: LoadedFederation, trials: range) -> torch.Tensor:
    return initial_models(ModelSpec("logistic", federation.model.feature_shape, federation.classes), 0, trials)


def final_models(directory: Path) -> torch.Tensor:
    return torch.cat([load_file(path)["models"] for path in sorted(directory.glob("public/models-*.safetensors"))])


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("epsilon", "published"), [(0.1, 0.525), (0.5, 0.622), (1.0, 0.731), (2.0, 0.881), (3.0, 0.953)]
)
def test_clients_train_on_bits_that_are_kept_as_often_as_published(
    epsilon: float, published: float, training_records: Told, tmp_path: Path
) -> None:
    plan = carts_plan(training={"rounds": 2}, privacy=NOT_PRIVATE | bits(epsilon))
    run_locally(plan, tmp_path / "run")
    federation = load_federation(plan.federation)
    kept_bits = 0
    total_bits = 0
    assert set(training_records) == {(client, trial) for client in range(3) for trial in range(TRIALS)}
    for (client, _), rounds in training_records.items():
        true = federation.training.features.numpy()[federation.shards[client]]
        kept_bits = kept_bits + int(np.count_nonzero(rounds[0] == true))
        total_bits = total_bits + true.size
        # Once, before training: the second round sees the same.
        assert len(rounds) == 2
        assert np.array_equal(rounds[0], rounds[1])
    assert total_bits == 60 * 600 * TRIALS
    assert stats.binomtest(kept_bits, total_bits, truth_probability(epsilon)).pvalue > 1e-6
    assert kept_bits / total_bits == pytest.approx(published, abs=0.006)


def test_every_trial_and_client_has_draws_of_its_own(training_records: Told, tmp_path: Path) -> None:
    plan = carts_plan(privacy=NOT_PRIVATE | bits(0.0))
    run_locally(plan, tmp_path / "run")
    coins = [rounds[0].ravel()[:10_000] for rounds in training_records.values()]
    agreeing = [
        np.count_nonzero(trial_coins == other_coins)
        for row, trial_coins in enumerate(coins)
        for other_coins in coins[:row]
    ]
    # Independent fair coins; 153 pairs, so that one in 10,000 runs of other seeds would fail.
    assert min(stats.binomtest(int(count), 10_000).pvalue for count in agreeing) > 1e-4 / len(agreeing)


def test_a_trial_has_the_same_records_in_any_batch(training_records: Told, tmp_path: Path) -> None:
    run_locally(carts_plan(), tmp_path / "whole")
    together = dict(training_records)
    training_records.clear()
    load_federation.cache_clear()
    run_locally(carts_plan(run={"trials-per-batch": 4}), tmp_path / "cut")
    assert set(training_records) == set(together)
    assert all(np.array_equal(training_records[key][0], together[key][0]) for key in training_records)
    assert torch.allclose(final_models(tmp_path / "whole"), final_models(tmp_path / "cut"), rtol=1e-4, atol=1e-6)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("sampling", [{}, {"expected-batch": 15}], ids=["everybody", "samples"])
@pytest.mark.parametrize("adjacency", ["replace-record", "add-remove-record"])
def test_a_round_is_the_sum_over_randomised_records(adjacency: str, sampling: dict[str, int], tmp_path: Path) -> None:
    plan = carts_plan(training=sampling, privacy={"adjacency": adjacency})
    run_locally(plan, tmp_path / "run")
    federation = load_federation(plan.federation)
    challenger = SeededChallenger(SEED)
    start = initial_weights(federation, range(TRIALS)).double().numpy()
    is_in = challenger.membership(range(TRIALS)).bits
    labels = federation.training.labels.numpy()
    assert 0 < is_in.sum() < TRIALS
    for trial, final_model in enumerate(final_models(tmp_path / "run").double().numpy()):
        total = np.zeros_like(final_model)
        for client, shard in enumerate(federation.shards):
            own_features, stand_in = drawn_by_hand(federation, client, trial)
            own_labels = labels[shard].copy()
            takes = np.ones(len(shard), dtype=bool)
            if sampling:
                takes = challenger.participation([trial], 1, client, len(shard), 0.25)[0]
            target_mask = shard == federation.target
            if target_mask.any() and not is_in[trial]:
                if stand_in is None:
                    takes &= ~target_mask
                else:
                    assert federation.replacement is not None
                    own_features[target_mask], own_labels[target_mask] = stand_in, federation.replacement.labels.numpy()
            total += gradient(start[trial], own_features[takes], own_labels[takes])
        moved = start[trial] - RATE * total / (15 if sampling else 60)
        assert np.allclose(final_model, moved, rtol=1e-4, atol=1e-6)


def test_a_round_of_members_is_the_sum_over_their_randomised_records(tmp_path: Path) -> None:
    plan = carts_plan(audit=MEMBERS | {"targets": 20}, run={"trials-per-batch": 24})
    run_locally(plan, tmp_path / "run")
    federation = load_federation(plan.federation)
    challenger = SeededChallenger(SEED, 20)
    start = initial_weights(federation, range(24)).double().numpy()
    labels = federation.training.labels.numpy()
    is_in = np.ones((24, 60), dtype=bool)
    is_in[:, federation.targets] = challenger.membership(range(24)).is_in
    for trial, final_model in enumerate(final_models(tmp_path / "run").double().numpy()):
        total = np.zeros_like(final_model)
        for client, shard in enumerate(federation.shards):
            member_mask = is_in[trial, shard]
            total += gradient(
                start[trial], drawn_by_hand(federation, client, trial)[0][member_mask], labels[shard][member_mask]
            )
        assert np.allclose(final_model, start[trial] - RATE * total / 60, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("audit", "participation"),
    [(ALONE, {}), (ALONE, {"sampling-rate": 0.5}), (MEMBERS | {"targets": 3}, {})],
    ids=["one target", "sampled clients", "members"],
)
def test_local_training_is_on_randomised_records(
    audit: dict[str, Any], participation: dict[str, float], tmp_path: Path
) -> None:
    # One step on all records of the shard: the update is the local rate times the mean gradient.
    local = {"strategy": "dp-fedavg", "local-steps": 1, "local-batch": 100, "local-learning-rate": LOCAL_RATE}
    trials = audit["trials"]
    plan = carts_plan(training=local | participation, audit=audit, run={"trials-per-batch": trials})
    run_locally(plan, tmp_path / "run")
    federation = load_federation(plan.federation)
    challenger = SeededChallenger(SEED, plan.federation.targets)
    start = initial_weights(federation, range(trials)).double().numpy()
    labels = federation.training.labels.numpy()
    is_in = np.ones((trials, 3), dtype=bool)
    is_in[:, federation.targets] = challenger.membership(range(trials)).is_in
    if participation:
        is_in &= challenger.client_participation(range(trials), 1, 3, 0.5)
    for trial, final_model in enumerate(final_models(tmp_path / "run").double().numpy()):
        total = np.zeros_like(final_model)
        for client in np.flatnonzero(is_in[trial]):
            own_features = drawn_by_hand(federation, int(client), trial)[0]
            shard = federation.shards[client]
            total += LOCAL_RATE * gradient(start[trial], own_features, labels[shard]) / len(shard)
        expected = start[trial] - RATE * total / (1.5 if participation else 3)
        assert np.allclose(final_model, expected, rtol=1e-4, atol=1e-6)


def test_what_is_asked_about_is_not_randomised(tmp_path: Path) -> None:
    plan = carts_plan(privacy=NOT_PRIVATE | bits(0.5), audit=MEMBERS | {"targets": 20})
    contents = run_locally(plan, tmp_path / "run")
    federation = load_federation(plan.federation)
    models = final_models(tmp_path / "run")
    targets = federation.training.take(federation.targets)
    right = federation.model.logits(models, federation.test.features).argmax(dim=2) == federation.test.labels
    assert np.allclose(contents.trials["test_accuracy"], right.double().mean(dim=1))
    assert contents.run.tables.targets is not None
    answered = contents.run.tables.targets["log_probability"].to_numpy().reshape(24, 20)
    assert np.allclose(answered, -federation.losses(models, targets), rtol=1e-3, atol=1e-4)


def test_a_seed_is_told_to_its_own_client_alone(tmp_path: Path) -> None:
    messages: list[SentMessage] = []
    plan = carts_plan(run={"trials-per-batch": 4})
    run_locally(plan, tmp_path / "run", parties=ClientAppAndStrategy(client_app=overheard_app(messages)))
    seeds = {client: SeededChallenger(SEED).noise_seed(client) for client in range(3)}
    assert len(set(seeds.values())) == 3
    assert {(message.client, int(message.config[Key.NOISE_SEED])) for message in messages} == set(seeds.items())
    assert sorted({tuple(message.config[Key.TRIALS]) for message in messages}) == [(0, 1, 2, 3), (4, 5)]
    stored = (tmp_path / "run" / "public" / "configuration.json").read_text()
    assert not any(str(seed) in stored for seed in seeds.values())


def test_what_does_not_fit_in_memory_is_drawn_again(
    training_records: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = _TensorCache(20_000)  # one shard of 20 records takes 12,000 bytes
    monkeypatch.setattr("fl_audit.federation.locally_randomised_records._HELD", small)
    plan = carts_plan(training={"rounds": 3})
    run_locally(plan, tmp_path / "run")
    assert 0 < small.bytes <= 20_000
    assert all(
        np.array_equal(round_records, rounds[0]) for rounds in training_records.values() for round_records in rounds
    )


def test_tensors_that_were_not_asked_for_longest_go_first() -> None:
    tensor_cache = _TensorCache(100)
    for number in range(3):
        tensor_cache.hold((number,), torch.zeros(30, dtype=torch.uint8))
    assert tensor_cache.find((0,)) is not None
    tensor_cache.hold((3,), torch.zeros(30, dtype=torch.uint8))
    assert [tensor_cache.find((number,)) is not None for number in range(4)] == [True, False, True, True]
    tensor_cache.hold((4,), torch.zeros(101, dtype=torch.uint8))
    assert tensor_cache.find((4,)) is None
    assert tensor_cache.bytes == 90
