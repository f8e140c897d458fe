"""Tests of clients that misbehave: one line names client and round, nothing is released, and the run can be resumed.

The server does not trust the form, round, finiteness or length of a reply. Most kinds are tested on the local engine.
Those that end a process, or that depend on the transport of bytes, are tested on Ray too.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fl_audit.clients.app import build_app
from fl_audit.errors import FederationError
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import ClientAppAndStrategy, run_audit
from tests.builders.runs import run_locally, small_plan

CLIENT, ROUND = 2, 3
Spoil = Callable[[Message, list[Message]], None]
"""Changes a reply; the earlier replies of the client are there too."""


def app_with(spoil: Spoil) -> ClientApp:
    """Return an app of which one client misbehaves in one round of every batch."""
    earlier: list[Message] = []

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if context.node_config["partition-id"] == CLIENT:
            if message.content.config_records[MessageRecordName.CONFIG][Key.ROUND] == ROUND:
                spoil(reply, earlier)
            earlier.append(reply)
        return reply

    return build_app(mods=[mod])


def values(change: Callable[[np.ndarray], np.ndarray]) -> Spoil:
    def spoil(reply: Message, earlier: list[Message]) -> None:
        arrays = reply.content.array_records[MessageRecordName.ARRAYS]
        arrays[Key.SUM] = Array(change(arrays[Key.SUM].numpy().copy()))

    return spoil


def raising(error: BaseException) -> Spoil:
    def spoil(reply: Message, earlier: list[Message]) -> None:
        raise error

    return spoil


def raw(data: bytes, dtype: str = "float32") -> Spoil:
    def spoil(reply: Message, earlier: list[Message]) -> None:
        arrays = reply.content.array_records[MessageRecordName.ARRAYS]
        arrays[Key.SUM] = Array(dtype=dtype, shape=arrays[Key.SUM].shape, stype="numpy.ndarray", data=data)

    return spoil


def config(**changes: int | str | None) -> Spoil:
    def spoil(reply: Message, earlier: list[Message]) -> None:
        kept = dict(reply.content.config_records[MessageRecordName.CONFIG]) | changes
        named = {key: value for key, value in kept.items() if value is not None}
        reply.content[MessageRecordName.CONFIG] = ConfigRecord(named)  # type: ignore[arg-type]

    return spoil


def content_of_before(reply: Message, earlier: list[Message]) -> None:
    for name in (MessageRecordName.ARRAYS, MessageRecordName.CONFIG):
        reply.content[name] = earlier[-1].content[name]


def from_nowhere(reply: Message, earlier: list[Message]) -> None:
    reply.metadata.__dict__["_src_node_id"] = 4711


def without(name: str) -> Spoil:
    def spoil(reply: Message, earlier: list[Message]) -> None:
        del reply.content[name]

    return spoil


# The client holds 20 of 60 records, so that an honest sum has a length of 20 C at most, and a little for rounding.
TABLE: dict[str, tuple[Spoil, str]] = {
    "no array": (raw(b"these bytes are no array"), r"'sum' .*no array"),
    "no bytes": (raw(b""), r"'sum' .*no array"),
    "a pickle": (raw(b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), "no array"),
    "unknown source": (from_nowhere, r"node 4711, .*nobody asked"),
    "3e38 everywhere": (values(lambda sums: np.full_like(sums, 3e38)), "'sum' of length "),
    "1e30 once": (values(lambda sums: sums + np.float32(1e30) * np.eye(*sums.shape, dtype=np.float32)), "of length 1e"),
    "a little too long": (
        values(lambda sums: 20.1 * sums / np.linalg.norm(sums, axis=1, keepdims=True)),
        r"'sum' of length 20\.1, .* 20\.02 at most",
    ),
    "too long in one trial": (
        values(lambda sums: sums * np.array([[1.0], [1e4], [1.0]], dtype=np.float32)),
        r" 20\.02 at most",
    ),
    "the round before": (content_of_before, "of round 2, not of 3"),
    "a round to come": (config(round=4), "of round 4, not of 3"),
    "a round in words": (config(round="three"), "of round 'three', not of 3"),
    "no round": (config(round=None), r"of no round, .* 3\b"),
    "no batch": (config(batch=None), "names no batch"),
    "another batch": (config(batch="batch-00077"), r"no answer .*client\(s\) 2"),
    "no settings": (without(MessageRecordName.CONFIG), "names no batch"),
    "no arrays": (without(MessageRecordName.ARRAYS), "sent no 'sum'"),
    "NaN": (values(lambda sums: sums * np.nan), r"'sum' with 186 of 186 .*not finite"),
    "one shape": (values(lambda sums: sums[0]), r"shape \(62,\), .*float32 .*\(3, 62\)"),
    "no trials": (values(lambda sums: sums[:0]), r"shape \(0, 62\), .*float32 .*\(3, 62\)"),
    "whole numbers": (values(lambda sums: sums.astype(np.int32)), "'sum' as int32"),
    "text": (values(lambda sums: sums.astype("<U8")), "sent 'sum'"),
    "exits": (raising(SystemExit(7)), r"failed: .*itself .*status 7"),
    "raises nothing": (raising(RuntimeError()), "failed: "),
    "raises lines": (raising(RuntimeError("first line\nsecond line")), "failed: first line"),
    "raises 5 MB": (raising(RuntimeError("x" * 5_000_000)), r"\.\.\. \(5,000,000 characters\)"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", TABLE)
def test_a_client_that_misbehaves_gets_one_line(kind: str, tmp_path: Path) -> None:
    spoil, said = TABLE[kind]
    stop(kind, spoil, said, Engine.LOCAL, tmp_path)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.parametrize(
    "kind", ["exits", *(pytest.param(one, marks=pytest.mark.campaign) for one in ("raises 5 MB", "no array"))]
)
def test_on_ray_too(kind: str, tmp_path: Path) -> None:
    spoil, said = TABLE[kind]
    stop(kind, spoil, said, Engine.RAY, tmp_path)


def stop(kind: str, spoil: Spoil, said: str, engine: Engine, directory: Path) -> None:
    plan = small_plan(audit={"trials": 3, "epsilon-star": False}, run={"actors": 1})
    with pytest.raises(FederationError) as caught:
        run_audit(
            plan, directory / "run", engine, parties=ClientAppAndStrategy(client_app=app_with(spoil)), with_report=False
        )
    message = str(caught.value)
    assert re.search(said, message)
    assert message.startswith(f"round {ROUND}: ")
    assert kind == "unknown source" or f"client {CLIENT} " in message or f"client(s) {CLIENT}" in message
    assert "\n" not in message
    assert len(message) < 600
    assert not (directory / "run" / "summary.json").exists()
    resumed = run_locally(plan, directory / "run", resume=True)
    undisturbed = run_locally(plan, directory / "undisturbed")
    pd.testing.assert_frame_equal(resumed.rounds, undisturbed.rounds, check_exact=True)


BITS = {
    "a bit of 2": (lambda bits: np.full_like(bits, 2.0), r".*'within' .*\b0 and 1\b"),
    "half a bit of a client who is there": (lambda bits: np.full_like(bits, 0.5), r".*'within' .*\b0 and 1\b"),
}


@pytest.mark.parametrize("kind", BITS)
def test_a_bit_that_is_none_is_refused(kind: str, tmp_path: Path) -> None:
    change, said = BITS[kind]

    def spoil(reply: Message, earlier: list[Message]) -> None:
        arrays = reply.content.array_records[MessageRecordName.ARRAYS]
        arrays[Key.WITHIN] = Array(change(arrays[Key.WITHIN].numpy().copy()))

    with pytest.raises(FederationError, match=f"round {ROUND}: client {CLIENT} {said}"):
        run_locally(
            _of_clients(clipping="adaptive"), tmp_path / "run", parties=ClientAppAndStrategy(client_app=app_with(spoil))
        )


@pytest.mark.parametrize("clipping", ["fixed", "adaptive"])
def test_an_update_longer_than_the_norm_is_refused(clipping: str, tmp_path: Path) -> None:
    """For local training the bound is C, and with adaptive clipping the norm of the round."""
    long = values(lambda sums: 1e3 * sums / np.linalg.norm(sums, axis=1, keepdims=True))
    with pytest.raises(FederationError, match=rf"client {CLIENT} .*'sum' of length 1000, "):
        run_locally(
            _of_clients(clipping=clipping), tmp_path / "run", parties=ClientAppAndStrategy(client_app=app_with(long))
        )


def _of_clients(**privacy: str) -> object:
    settings = {"adjacency": "add-remove-client", "sensitivity": "global", **privacy}
    training = {"strategy": "dp-fedavg", "local-epochs": 1, "local-batch": 10, "local-learning-rate": 0.1}
    return small_plan(
        data={"clients": 6}, training=training, privacy=settings, audit={"trials": 3, "epsilon-star": False}
    )
