"""Tests of the recipients of messages: only the victim receives bits, and the insider sees only releases."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, Message, RecordDict

from fl_audit.errors import FederationError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.runs.config import parse_config
from fl_audit.runs.run import ClientAppAndStrategy
from fl_audit.strategies.received_contributions import ReceivedContribution, sum_contributions
from fl_audit.strategies.reply_checks import ReplyIdentity, read_replies
from tests.builders.clients import SentMessage, overheard_app
from tests.builders.refusals import refusal_test, refusals
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import small_settings
from tests.federation.test_federation_contributions import begun


@pytest.mark.long
@pytest.mark.parametrize("view", ["update", "model"])
@pytest.mark.parametrize("scaling", ["local", "global"])
def test_nobody_but_the_victim_is_told_a_bit(view: str, scaling: str, tmp_path: Path) -> None:
    messages: list[SentMessage] = []
    changes = {"audit": {"view": view}, "privacy": {"sensitivity": scaling}, "training": {"optimizer": "momentum"}}
    plan = small_plan(**changes)
    run_locally(plan, tmp_path / "run", parties=ClientAppAndStrategy(client_app=overheard_app(messages)))
    federation = load_federation(plan.federation)
    public = {"federation", "round", "batch", "time-limit"}
    observed = {
        "update": [{"models-0", "release"}],
        "model": [{"models-0", "models-1"}, {"models-0", "models-1", "models-2"}],
    }
    assert {message.client for message in messages if "membership" in message.config} == {federation.victim}
    for kind, client, config, arrays in messages:
        if kind == "train":
            assert set(config) == (public | {"membership"} if client == federation.victim else public)
            assert set(arrays) == {"models-0"}
        else:
            assert (kind, client, set(config)) == ("query.observe", federation.insider, public)
            assert set(arrays) in observed[view]
    assert sum(message.kind == "query.observe" for message in messages) == plan.federation.rounds * 2


def test_no_batch_is_released_from_a_round_with_a_bad_contribution() -> None:
    strategy, released, replies = begun({}, batch_trials=2)
    last = replies[-1].content.array_records[MessageRecordName.ARRAYS]
    last[Key.SUM] = Array(np.full_like(last[Key.SUM].numpy(), np.nan))
    with pytest.raises(FederationError, match="not finite"):
        strategy.aggregate_train(1, replies)
    assert released == []


def test_a_sound_round_releases_every_batch() -> None:
    strategy, released, replies = begun({}, batch_trials=2)
    strategy.aggregate_train(1, replies)
    assert len(released) == 2


Replies = list[Message]
Identities = list[ReplyIdentity]


def _replies() -> tuple[Replies, dict[int, int], Identities]:
    strategy, _, replies = begun({}, batch_trials=2)
    identities = [ReplyIdentity(client, "train", batch.name) for client in range(3) for batch in strategy.batches]
    return replies, {node: partition for partition, node in enumerate(strategy.roster.nodes)}, identities


def test_replies_are_read_in_any_order() -> None:
    replies, partitions, identities = _replies()
    assert set(read_replies(reversed(replies), identities, partitions, 1)) == set(identities)


def _one_empty(replies: Replies, identities: Identities) -> tuple[Replies, Identities]:
    replies[0].content = RecordDict()
    return replies, identities


@pytest.mark.parametrize(
    ("spoil", "expected_message"),
    [
        (lambda replies, identities: (replies[1:], identities), r"no answer .*client\(s\)"),
        (lambda replies, identities: ([*replies, replies[0]], identities), "answered twice"),
        (lambda replies, identities: (replies, identities[:-1]), "nobody asked"),
        (_one_empty, "names no batch"),
    ],
)
def test_other_replies_than_asked_for_are_refused(
    spoil: Callable[[Replies, Identities], tuple[Replies, Identities]], expected_message: str
) -> None:
    replies, partitions, identities = _replies()
    spoiled_replies, expected_identities = spoil(replies, identities)
    with pytest.raises(FederationError, match=expected_message):
        read_replies(spoiled_replies, expected_identities, partitions, 1)


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


test_sizes_that_32_bit_numbers_do_not_hold_are_refused = refusal_test(
    refusals(
        lambda section, name, size: parse_config(small_settings(**{section: {name: size}})),
        *(
            (section, name, size, rf"{section}.{name} is {re.escape(str(size))}: accepted .* from 1e-20 to 1e\+20")
            for section, name in (("training", "learning-rate"), ("privacy", "clipping-norm"))
            for size in (1e300, 1e-300)
        ),
    )
)
