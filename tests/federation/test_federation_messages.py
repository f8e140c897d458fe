"""Tests of the recipients of messages: only the victim receives bits, and the insider sees only releases."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

import fl_audit.clients.app
from fl_audit.errors import FederationError, InputError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.observed_rounds import ServerRound
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.runs.config import parse_config
from fl_audit.runs.local_engine import local_grid
from fl_audit.runs.run import ClientAppAndStrategy
from fl_audit.server.reply_timeout_grid import ReplyTimeoutGrid, discover_clients
from fl_audit.strategies.received_contributions import ReceivedContribution, sum_contributions
from fl_audit.strategies.reply_checks import ReplyIdentity, read_replies
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.strategies.simulated_grid import SimulatedGrid
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch, remaining_batches
from tests.builders.clients import app_through
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import small_settings

Transcript = list[tuple[str, int, set[str], set[str]]]


def recording_app(transcript: Transcript) -> ClientApp:
    """Return an app that notes type, client, configuration keys and array keys of every message."""

    def note(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        content = message.content
        config = {str(key) for key in content.config_records[MessageRecordName.CONFIG]}
        arrays = {str(key) for record in content.array_records.values() for key in record}
        transcript.append((message.metadata.message_type, int(context.node_config["partition-id"]), config, arrays))
        return call_next(message, context)

    return app_through(note)


@pytest.mark.long
@pytest.mark.parametrize("view", ["update", "model"])
@pytest.mark.parametrize("scaling", ["local", "global"])
def test_nobody_but_the_victim_is_told_a_bit(view: str, scaling: str, tmp_path: Path) -> None:
    transcript: Transcript = []
    changes = {"audit": {"view": view}, "privacy": {"sensitivity": scaling}, "training": {"optimizer": "momentum"}}
    plan = small_plan(**changes)
    run_locally(plan, tmp_path / "run", parties=ClientAppAndStrategy(client_app=recording_app(transcript)))
    federation = load_federation(plan.federation)
    public = {"federation", "round", "batch", "time-limit"}
    observed = {
        "update": [{"models-0", "release"}],
        "model": [{"models-0", "models-1"}, {"models-0", "models-1", "models-2"}],
    }
    assert {client for _, client, config, _ in transcript if "membership" in config} == {federation.victim}
    for kind, client, config, arrays in transcript:
        if kind == "train":
            assert config == (public | {"membership"} if client == federation.victim else public)
            assert arrays == {"models-0"}
        else:
            assert (kind, client, config) == ("query.observe", federation.insider, public)
            assert arrays in observed[view]
    assert sum(kind == "query.observe" for kind, *_ in transcript) == plan.federation.rounds * 2


class _Released:
    """Callback that notes every release."""

    def __init__(self) -> None:
        self.batches: list[str] = []

    def __call__(self, batch: TrialBatch, server_round: ServerRound) -> None:
        self.batches.append(batch.name)


def _strategy(released: _Released) -> tuple[TrialBatchStrategy, SimulatedGrid, ArrayRecord]:
    plan = small_plan()
    federation = load_federation(plan.federation)
    grid = local_grid(fl_audit.clients.app.build_app(), plan.federation.clients, 60.0)
    batches = remaining_batches(4, 2, ())
    size = federation.model.layout.size
    strategy = TrialBatchStrategy(
        plan.federation,
        discover_clients(ReplyTimeoutGrid(grid, 60.0), federation),
        SeededChallenger(0),
        batches,
        size,
        60.0,
        released,
    )
    arrays = ArrayRecord({batch.name: Array(np.zeros((2, size), dtype=np.float32)) for batch in batches})
    return strategy, grid, arrays


def test_no_batch_is_released_from_a_round_with_a_bad_contribution() -> None:
    released = _Released()
    strategy, grid, arrays = _strategy(released)
    replies = grid.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), grid))
    last = replies[-1].content.array_records[MessageRecordName.ARRAYS]
    last[Key.SUM] = Array(np.full_like(last[Key.SUM].numpy(), np.nan))
    with pytest.raises(FederationError, match="not finite"):
        strategy.aggregate_train(1, replies)
    assert released.batches == []


def test_a_sound_round_releases_every_batch() -> None:
    released = _Released()
    strategy, grid, arrays = _strategy(released)
    strategy.aggregate_train(1, grid.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), grid)))
    assert released.batches == ["batch-00000", "batch-00001"]


def _replies() -> tuple[list[Message], dict[int, int], list[ReplyIdentity]]:
    strategy, grid, arrays = _strategy(_Released())
    replies = list(grid.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), grid)))
    identities = [ReplyIdentity(client, "train", batch.name) for client in range(3) for batch in strategy.batches]
    return replies, {node: partition for partition, node in enumerate(strategy.roster.nodes)}, identities


def test_replies_are_read_in_any_order() -> None:
    replies, partitions, identities = _replies()
    assert set(read_replies(reversed(replies), identities, partitions, 1)) == set(identities)


def _one_missing(replies: Sequence[Message]) -> Iterable[Message]:
    return replies[1:]


def _one_twice(replies: Sequence[Message]) -> Iterable[Message]:
    return [*replies, replies[0]]


def _one_empty(replies: Sequence[Message]) -> Iterable[Message]:
    replies[0].content = RecordDict()
    return replies


@pytest.mark.parametrize(
    ("spoil", "expected_message"),
    [(_one_missing, r"no answer .*client\(s\)"), (_one_twice, "answered twice"), (_one_empty, "names no batch")],
)
def test_other_replies_than_asked_for_are_refused(spoil, expected_message: str) -> None:  # type: ignore[no-untyped-def]
    replies, partitions, identities = _replies()
    with pytest.raises(FederationError, match=expected_message):
        read_replies(spoil(replies), identities, partitions, 1)


def test_an_answer_nobody_asked_for_is_refused() -> None:
    replies, partitions, identities = _replies()
    with pytest.raises(FederationError, match="nobody asked"):
        read_replies(replies, identities[:-1], partitions, 1)


def test_a_reply_without_arrays_is_refused() -> None:
    strategy, grid, arrays = _strategy(_Released())
    replies = grid.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), grid))
    del replies[0].content[MessageRecordName.ARRAYS]
    with pytest.raises(FederationError, match="sent no 'sum'"):
        strategy.aggregate_train(1, replies)


def _of_arrays(arrays: np.ndarray) -> list[ReceivedContribution]:
    return [ReceivedContribution(client, None, array) for client, array in enumerate(arrays)]


def test_sums_are_added_in_the_order_of_clients() -> None:
    arrays = np.random.default_rng(0).standard_normal((4, 3, 90_000), dtype=np.float32) * np.float32(1e3)
    total = sum_contributions(_of_arrays(arrays), (3, 90_000), 1)
    assert torch.equal(total, torch.from_numpy(((arrays[0] + arrays[1]) + arrays[2]) + arrays[3]))


@pytest.mark.parametrize(
    ("values", "expected_message"),
    [
        ((1.0, np.inf, -np.inf), r"round 1: client 1 .*'sum' .*\b1 of 6 .*not finite"),
        ((np.nan, 1.0, np.nan), r"round 1: client 0 .*'sum' .*\b1 of 6 .*not finite"),
        ((3e38, 3e38, 0.0), r"round 1: .*sum of 'sum' .*3 clients .*not finite"),
    ],
)
def test_no_value_that_is_not_finite_hides_in_a_sum(values: tuple[float, ...], expected_message: str) -> None:
    arrays = np.zeros((3, 2, 3), dtype=np.float32)
    arrays[:, 1, 2] = values
    with pytest.raises(FederationError) as caught:
        sum_contributions(_of_arrays(arrays), (2, 3), 1)
    assert re.match(expected_message, str(caught.value))


@pytest.mark.parametrize("change", [{"training": {"learning-rate": 1e15}}, {"privacy": {"clipping-norm": 1e15}}])
def test_numbers_that_overflow_stop_the_run_with_the_settings_that_move_them(
    change: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    plan = small_plan(model={"name": "dense-3x100"}, **change)
    with pytest.raises(FederationError, match=r"^round [12]: .*not finite .*learning rate, clipping norm and noise"):
        run_locally(plan, tmp_path / "run")


@pytest.mark.parametrize("size", [1e300, 1e-300])
@pytest.mark.parametrize("key", ["training.learning-rate", "privacy.clipping-norm"])
def test_sizes_that_32_bit_numbers_do_not_hold_are_refused(key: str, size: float) -> None:
    section, _, name = key.partition(".")
    with pytest.raises(
        InputError, match=rf"{key} is {re.escape(str(size))}: accepted are finite numbers from 1e-20 to 1e\+20"
    ):
        parse_config(small_settings(**{section: {name: size}}))
