"""Clients that fail, and clients that send what they should not: each ends a run in one line."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import numpy as np
import pandas as pd
import psutil
import pytest
from flwr.app import Array, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fl_audit import trial_batches
from fl_audit.clients.app import build_app
from fl_audit.errors import FederationError
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.runs.cluster import call_scheduling
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import ClientAppAndStrategy, run_audit
from tests.builders.runs import run_locally, small_plan
from tests.federation.faults import faulty_app

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
        record_values = dict(reply.content.config_records[MessageRecordName.CONFIG]) | changes
        config_values = {key: value for key, value in record_values.items() if value is not None}
        reply.content[MessageRecordName.CONFIG] = ConfigRecord(config_values)  # type: ignore[arg-type]

    return spoil


def content_of_before(reply: Message, earlier: list[Message]) -> None:
    for name in (MessageRecordName.ARRAYS, MessageRecordName.CONFIG):
        reply.content[name] = earlier[-1].content[name]


def without(name: str) -> Spoil:
    def spoil(reply: Message, earlier: list[Message]) -> None:
        del reply.content[name]

    return spoil


# The client holds 20 of 60 records, so that an honest sum has a length of 20 C at most, and a little for rounding.
TABLE: dict[str, tuple[Spoil, str]] = {
    "no array": (raw(b"these bytes are no array"), r"'sum' .*no array"),
    "no bytes": (raw(b""), r"'sum' .*no array"),
    "a pickle": (raw(b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), "no array"),
    "unknown source": (
        lambda reply, _: reply.metadata.__dict__.update(_src_node_id=4711),
        r"node 4711, .*nobody asked",
    ),
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
    "infinity": (
        values(lambda sums: np.where(sums == sums.max(), np.float32(np.inf), sums)),
        "'sum' with 1 of 186 .*not finite",
    ),
    "one shape": (values(lambda sums: sums[0]), r"shape \(62,\), .*float32 .*\(3, 62\)"),
    "no trials": (values(lambda sums: sums[:0]), r"shape \(0, 62\), .*float32 .*\(3, 62\)"),
    "whole numbers": (values(lambda sums: sums.astype(np.int32)), "'sum' as int32"),
    "text": (values(lambda sums: sums.astype("<U8")), "sent 'sum'"),
    "exits": (raising(SystemExit(7)), r"failed: .*itself .*status 7"),
    "raises nothing": (raising(RuntimeError()), "failed: "),
    "raises lines": (raising(RuntimeError("first line\nsecond line")), "failed: first line"),
    "raises 5 MB": (raising(RuntimeError("x" * 5_000_000)), r"\.\.\. \(5,000,000 characters\)"),
}


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("kind", TABLE)
def test_a_client_that_misbehaves_gets_one_line(kind: str, tmp_path: Path) -> None:
    spoil, expected_message = TABLE[kind]
    stop(kind, spoil, expected_message, Engine.LOCAL, tmp_path)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.parametrize(
    "kind",
    ["exits", *(pytest.param(kind_name, marks=pytest.mark.campaign) for kind_name in ("raises 5 MB", "no array"))],
)
def test_on_ray_too(kind: str, tmp_path: Path) -> None:
    spoil, expected_message = TABLE[kind]
    stop(kind, spoil, expected_message, Engine.RAY, tmp_path)


def stop(kind: str, spoil: Spoil, expected_message: str, engine: Engine, directory: Path) -> None:
    plan = small_plan(audit={"trials": 3, "epsilon-star": False}, run={"actors": 1})
    with pytest.raises(FederationError) as caught:
        run_audit(
            plan, directory / "run", engine, parties=ClientAppAndStrategy(client_app=app_with(spoil)), with_report=False
        )
    message = str(caught.value)
    assert re.search(expected_message, message)
    assert message.startswith(f"round {ROUND}: ")
    assert kind == "unknown source" or f"client {CLIENT} " in message or f"client(s) {CLIENT}" in message
    assert "\n" not in message
    assert len(message) < 600
    assert _stored_batches(directory / "run") == []
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
    change, expected_message = BITS[kind]

    def spoil(reply: Message, earlier: list[Message]) -> None:
        arrays = reply.content.array_records[MessageRecordName.ARRAYS]
        arrays[Key.WITHIN] = Array(change(arrays[Key.WITHIN].numpy().copy()))

    with pytest.raises(FederationError, match=f"round {ROUND}: client {CLIENT} {expected_message}"):
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


def _stored_batches(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "challenger").glob("batches/batch-*"))


@pytest.mark.long
def test_resume_repeats_only_unfinished_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    plan = small_plan(run={"trials-per-batch": 2})
    undisturbed = run_locally(plan, tmp_path / "undisturbed")
    mark = tmp_path / "failed"
    interrupted = tmp_path / "interrupted"
    calls: list[int] = []

    class CountingMark:
        """File for `faulty_app` that lets the first batch pass, and then fails once."""

        def exists(self) -> bool:
            calls.append(1)
            return True

        def stat(self) -> SimpleNamespace:
            return SimpleNamespace(st_size=int(len(calls) == 1 or mark.exists()))

        def open(self, mode: str) -> IO[str]:
            return mark.open(mode)

    with pytest.raises(FederationError):
        run_locally(plan, interrupted, parties=ClientAppAndStrategy(client_app=faulty_app("raises", CountingMark())))  # type: ignore[arg-type]
    assert _stored_batches(interrupted) == ["batch-00000"]
    first = interrupted / "challenger" / "batches" / "batch-00000" / "trials.parquet"
    written = first.stat().st_mtime_ns
    resumed = run_locally(plan, interrupted, resume=True)
    assert first.stat().st_mtime_ns == written
    pd.testing.assert_frame_equal(resumed.trials, undisturbed.trials)
    pd.testing.assert_frame_equal(resumed.rounds, undisturbed.rounds)
    assert resumed.summary["insider"] == undisturbed.summary["insider"]


def _running_ray_processes() -> list[str]:
    running = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    return [" ".join(p.cmdline()) for p in running if "ray" in " ".join(p.cmdline())]


SECONDS_TO_STOP = 20.0


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.parametrize(
    ("kind", "expected_message", "time_limit", "noticed_after"),
    [
        # The call is made again on a new process, which must have started before the server gives up.
        ("dies", r"client 2 failed: .*process died.* \(node ", 60.0, 0.0),
        # A process that hangs ends itself at the time limit; one that is frozen cannot even do that.
        pytest.param("hangs and freezes", r"no answer .*client\(s\) 1, 2", 4.0, 9.0, marks=pytest.mark.campaign),
    ],
)
def test_on_ray_a_fault_that_stays_ends_run_and_processes(
    kind: str,
    expected_message: str,
    time_limit: float,
    noticed_after: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_scheduling, "RETRIES", 1)
    settings = {"client-time-limit": time_limit, "trials-per-batch": 6, "actors": 2}
    plan = small_plan(run=settings)
    mark = tmp_path / "failed"
    with pytest.raises(FederationError) as caught:
        run_audit(
            plan,
            tmp_path / "run",
            Engine.RAY,
            parties=ClientAppAndStrategy(client_app=faulty_app(kind, mark, always=True)),
            with_report=False,
        )
    assert time.time() - mark.stat().st_mtime < noticed_after + SECONDS_TO_STOP
    assert re.search(expected_message, str(caught.value))
    assert "\n" not in str(caught.value)
    # A busy machine may not have started the new process of a client that hangs before the server gives up.
    assert mark.stat().st_size in {"dies": (2,), "hangs and freezes": (2, 3)}[kind]
    assert _stored_batches(tmp_path / "run") == []
    assert _running_ray_processes() == []
    undisturbed = run_locally(plan, tmp_path / "undisturbed")
    resumed = run_locally(plan, tmp_path / "run", resume=True)
    pd.testing.assert_frame_equal(resumed.trials, undisturbed.trials)


@pytest.mark.long
@pytest.mark.ray
def test_on_ray_a_call_whose_process_died_is_made_again_and_one_that_raises_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    # Two processes are started within one call, and a busy machine takes its time for each.
    settings = {"actors": 1, "client-time-limit": 200.0}
    plan = small_plan(run=settings)
    mark = tmp_path / "died"
    faulty = ClientAppAndStrategy(client_app=faulty_app("dies, later raises", mark, always=True))
    with pytest.raises(FederationError) as caught:
        run_audit(plan, tmp_path / "run", Engine.RAY, parties=faulty, with_report=False)
    assert time.time() - mark.stat().st_mtime < SECONDS_TO_STOP
    assert "client 2 failed: disk full" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert _running_ray_processes() == []
    # Of the first batch it died twice in a row, which two retries allow, and answered; of the second it raised.
    assert mark.stat().st_size == 4
    assert _stored_batches(tmp_path / "run") == ["batch-00000"]
    undisturbed = run_locally(plan, tmp_path / "undisturbed")
    first = tmp_path / "run" / "challenger" / "batches" / "batch-00000" / "trials.parquet"
    written = first.stat().st_mtime_ns
    resumed = run_locally(plan, tmp_path / "run", resume=True)
    assert first.stat().st_mtime_ns == written
    for label in ("trials", "rounds", "releases"):
        pd.testing.assert_frame_equal(getattr(resumed, label), getattr(undisturbed, label), check_exact=True)
