"""Tests of several client calls at a time in one process: same trials, one call for each client, limits kept."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fl_audit.device import Device
from fl_audit.errors import FederationError
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.runs.cluster import ray_options
from fl_audit.runs.local_engine import AnnounceCalls, local_grid
from fl_audit.runs.ray_engine import local_calls
from fl_audit.runs.run import ClientAppAndStrategy
from fl_audit.strategies.simulated_grid import Settle, SimulatedGrid
from tests.builders.runs import run_locally, small_plan
from tests.federation.faults import faulty_app
from tests.federation.test_federation_engines import assert_same
from tests.few_examples import examples


def test_as_many_calls_run_at_the_same_time_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the default. On a graphics card, calls would wait for each other."""
    monkeypatch.setattr(ray_options, "usable_cores", lambda: 8)
    run = small_plan().config.run
    usual_settings = {"actors": 0, "threads": 1, "device": Device.CPU}
    cases = [({}, 8), ({"threads": 3}, 2), ({"threads": 9}, 1), ({"actors": 3}, 3), ({"device": Device.CUDA}, 1)]
    assert [local_calls(run.model_copy(update=usual_settings | changes)) for changes, _ in cases] == [
        calls for _, calls in cases
    ]


@pytest.mark.long
@pytest.mark.parametrize("actors", [2, 3])
def test_clients_at_the_same_time_change_no_bit(actors: int, tmp_path: Path) -> None:
    single_run = run_locally(small_plan(), tmp_path / "one")
    several = run_locally(small_plan(run={"actors": actors}), tmp_path / "several")
    assert_same(single_run, several)


def _grid(
    answer: Callable[[int], None], actors: int, time_limit: float = 20.0, announce_calls: AnnounceCalls | None = None
) -> SimulatedGrid:
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        answer(int(context.node_config["partition-id"]))
        return Message(RecordDict(), reply_to=message)

    return local_grid(app, 4, time_limit, actors, announce_calls=announce_calls)


def _messages(grid: SimulatedGrid, partitions: list[int]) -> list[Message]:
    return [grid.create_message(RecordDict(), "query", partition + 2, "") for partition in partitions]


def test_as_many_calls_run_at_the_same_time_as_there_are_actors() -> None:
    meeting = threading.Barrier(3)
    grid = _grid(lambda partition: meeting.wait(10.0) and None, actors=3)
    replies = grid.send_and_receive(_messages(grid, [0, 1, 2]))
    assert [reply.has_error() for reply in replies] == [False] * 3


@settings(max_examples=examples(25))
@given(partitions=st.lists(st.integers(0, 3), max_size=12), actors=st.integers(1, 4))
def test_a_client_has_one_message_at_a_time_and_every_message_is_answered(partitions: list[int], actors: int) -> None:
    at_work: list[int] = []
    met: list[int] = []

    def answer(partition: int) -> None:
        met.extend(busy_partition for busy_partition in at_work if busy_partition == partition)
        at_work.append(partition)
        met.extend([-1] if len(at_work) > actors else [])
        time.sleep(0.001)
        at_work.remove(partition)

    grid = _grid(answer, actors)
    replies = grid.send_and_receive(_messages(grid, partitions))
    assert met == []
    # Replies come in the order of the messages, whatever order the calls ended in.
    assert [reply.metadata.src_node_id - 2 for reply in replies] == partitions


def test_a_call_that_hangs_is_given_up_while_others_work() -> None:
    released = threading.Event()
    grid = _grid(lambda partition: released.wait(30.0) and None if partition == 1 else None, actors=2, time_limit=0.5)
    began = time.monotonic()
    replies = grid.send_and_receive(_messages(grid, [0, 1, 2, 3]))
    released.set()
    assert time.monotonic() - began < 10.0
    failed = [reply for reply in replies if reply.has_error()]
    assert [reply.metadata.src_node_id - 2 for reply in failed] == [1]
    assert failed[0].error.reason.endswith(" limit of 0.5 s")


def test_a_late_answer_is_no_answer_to_the_next_message() -> None:
    released = threading.Event()
    grid = _grid(lambda partition: released.wait(30.0) and None if partition == 0 else None, actors=2, time_limit=0.3)
    (given_up,) = grid.send_and_receive(_messages(grid, [0]))
    assert given_up.has_error()
    released.set()
    (reply,) = grid.send_and_receive(_messages(grid, [3]))
    assert (reply.has_error(), reply.metadata.src_node_id - 2) == (False, 3)


def test_a_call_that_ends_as_it_is_given_up_ends_once() -> None:
    """The later of two outcomes finds the call settled, on all executors: no reply is counted twice."""
    for is_answered in (True, False):
        settles: list[Settle] = []
        grid = SimulatedGrid(4, lambda contexts, settle: settles.append(settle) or _NoCalls())  # noqa: B023
        (message,) = _messages(grid, [0])
        (identity,) = grid.push_messages([message])
        outcomes = [Message(RecordDict(), reply_to=message), TimeoutError("late")]
        for outcome in outcomes if is_answered else reversed(outcomes):
            settles[0]([(identity, outcome)])
        (reply,) = grid.pull_messages([identity])
        assert reply.has_content() == is_answered
        assert reply.metadata.reply_to_message_id == identity
        assert grid.pull_messages(message_ids=[identity]) == grid.pull_messages(reply_to_message_ids=[identity]) == []


class _NoCalls:
    def add(self, messages: object) -> None: ...

    def look(self) -> None: ...

    def close(self) -> None: ...


def test_a_thread_that_hangs_is_replaced() -> None:
    """A single thread would otherwise leave the other clients without a call."""
    released = threading.Event()
    grid = _grid(lambda partition: released.wait(30.0) and None if partition == 0 else None, actors=1, time_limit=0.3)
    replies = grid.send_and_receive(_messages(grid, [0, 1, 2]))
    released.set()
    assert [reply.has_error() for reply in replies] == [True, False, False]


@pytest.mark.parametrize(
    ("kind", "expected_message"),
    [("raises", "failed: disk full$"), ("nan", "sent 'sum' with 1 of"), ("hangs", r"failed: .*limit of 1 s\b")],
)
def test_faults_are_told_alike(kind: str, expected_message: str, tmp_path: Path) -> None:
    messages = []
    for actors in (1, 2):
        plan = small_plan(run={"client-time-limit": 1.0, "actors": actors})
        with pytest.raises(FederationError, match=rf"^round 2: client 2 {expected_message}") as caught:
            run_locally(plan, tmp_path / str(actors), parties=ClientAppAndStrategy(client_app=faulty_app(kind)))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("gradient_method", ["fast", "generic"])
def test_one_stacked_model_serves_several_threads(gradient_method: str) -> None:
    model = StackedModel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), (6,))
    model.fast = gradient_method == "fast"
    source = torch.Generator().manual_seed(1)
    # Each thread has another number of trials and examples, so that axes which leak from one to another show.
    work = [
        (
            torch.randn(2 + index, model.layout.size, generator=source),
            torch.randn(5 + index, 6, generator=source),
            torch.randint(3, (5 + index,), generator=source),
        )
        for index in range(4)
    ]
    alone = [model.clipped_sum(*arguments, 1.0) for arguments in work]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(40):
            together = list(threads.map(lambda arguments: model.clipped_sum(*arguments, 1.0), work))
            for computed_sum, expected in zip(together, alone, strict=True):
                assert torch.equal(computed_sum, expected)


def test_what_fails_while_it_is_read_ahead_fails_the_call_and_keeps_nobody_waiting() -> None:
    def announce_calls(calls: object) -> None:
        raise ValueError("no such record")

    grid = _grid(lambda partition: None, actors=2, announce_calls=announce_calls)
    began = time.monotonic()
    failed = [reply for reply in grid.send_and_receive(_messages(grid, [0, 1, 2, 3])) if reply.has_error()]
    assert time.monotonic() - began < 10.0
    assert failed
    assert all("no such record" in reply.error.reason for reply in failed)
