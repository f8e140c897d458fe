"""Tests of the local engine: replies of clients that are called in threads at the same time."""

import gc
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fl_audit.runs.local_engine import local_grid


@pytest.fixture
def _many_thread_switches_and_collections() -> Iterator[None]:
    interval = sys.getswitchinterval()
    thresholds = gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(20)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


class _SlowlyCollected:
    """An object in a reference cycle whose end runs Python code, in which the interpreter may change threads."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.mark.usefixtures("_many_thread_switches_and_collections")
def test_clients_in_threads_can_read_arrays_at_the_same_time() -> None:
    # With Python 3.11.0 to 3.11.7, reading an array failed now and then, and the client's reply was missing.
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        total = 0.0
        for _ in range(1500):
            _SlowlyCollected()
            total += float(message.content.array_records["arrays"]["w"].numpy().sum())
        return Message(RecordDict({"arrays": ArrayRecord({"w": Array(np.array([total]))})}), reply_to=message)

    grid = local_grid(app, clients=8, time_limit=60.0, actors=2)
    content = RecordDict({"arrays": ArrayRecord({"w": Array(np.ones(3, np.float32))})})
    replies = grid.send_and_receive([grid.create_message(content, "train", node, "1") for node in grid.get_node_ids()])
    grid.close()
    errors = [reply.error.reason for reply in replies if reply.has_error()]
    assert not errors
    assert [float(reply.content.array_records["arrays"]["w"].numpy()[0]) for reply in replies] == [4500.0] * 8
