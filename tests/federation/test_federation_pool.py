"""The pool of client processes, without a Ray: how often a call is made, where processes start, who shares one."""

import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict, UserConfig
from ray.exceptions import ObjectStoreFullError, RayTaskError
from small_audits import MakePlan

from fl_audit.clients.app import build_app
from fl_audit.experiments.runs.cluster import array_transport
from fl_audit.experiments.runs.cluster import pool as pool_module
from fl_audit.experiments.runs.cluster.array_transport import SentArrays, put_back, take_out
from fl_audit.experiments.runs.cluster.call_context import compartment_of
from fl_audit.experiments.runs.cluster.pool import (
    ORDINARY,
    CallError,
    ClientPool,
    Node,
    _client_process,
    _LostError,
    _Process,
)
from fl_audit.experiments.runs.local_engine import LocalGrid
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.protocol import Key, Record

HERE, THERE = Node("1", "10.0.0.1", 2), Node("2", "10.0.0.2", 1)


class Pool(ClientPool):
    """A pool whose processes are none, and whose calls end as a test says."""

    def __init__(self, retries: int, nodes: tuple[Node, ...], outcomes: dict[Node, list[object]]) -> None:
        self._retries, self._nodes, self._outcomes = retries, {node.identity: node for node in nodes}, outcomes
        self._changed, self._closed = threading.Condition(), threading.Event()
        self._idle, self._processes, self._suspects = {}, [], Counter()
        self._asked, self._welcome, self._watching = set(self._nodes), set(self._nodes), []
        self._sent = SentArrays()
        self.calls: list[Node] = []

    def _started(self, node: Node, compartment: int) -> Any:
        class Handle:
            class run:
                remote = staticmethod(lambda *arguments: None)

        return Handle

    def _outcome(self, process: _Process, reference: object) -> Any:
        self.calls.append(process.node)
        outcome = self._outcomes[process.node].pop(0)
        if outcome == "node":
            del self._nodes[process.node.identity]
        if outcome in ("node", "dies"):
            raise _LostError
        return outcome


def played(pool: Pool) -> object:
    return pool.call(ORDINARY, _message("{}"), _context(0))


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_call_is_made_again_as_often_as_the_configuration_says(retries: int) -> None:
    pool = Pool(retries, (THERE,), {THERE: ["dies"] * 9})
    with pytest.raises(CallError, match=r"its process died, or ended itself at the time limit \(node 10.0.0.2\)"):
        played(pool)
    assert len(pool.calls) == retries + 1
    assert played(Pool(1, (THERE,), {THERE: ["dies", ("reply", "after", None)]})) == ("reply", "after")


def test_a_lost_node_costs_no_retry_and_what_a_client_raises_is_said() -> None:
    pool = Pool(0, (HERE, THERE), {HERE: ["node"], THERE: [("reply", "after", None)]})
    assert played(pool) == ("reply", "after")
    assert pool.calls == [HERE, THERE]
    with pytest.raises(CallError, match="the disk is full"):
        played(Pool(3, (THERE,), {THERE: [(None, None, "the disk is full")]}))


def test_a_full_object_store_is_said_in_a_line_and_not_taken_for_a_death() -> None:
    class Full(Pool):
        def _started(self, node: Node, compartment: int) -> Any:
            class Handle:
                class run:
                    @staticmethod
                    def remote(*arguments: object) -> None:
                        raise ObjectStoreFullError("no room\nand many lines")

            return Handle

    pool = Full(3, (THERE,), {})
    with pytest.raises(CallError, match=r"^Ray's object store is full: give it more room .*run.trials-per-batch\)$"):
        played(pool)
    assert pool.calls == []
    assert sum(map(len, pool._idle.values())) == 1


def test_a_process_that_has_lost_its_node_says_nothing_of_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its node goes down, Ray cannot hand it the app any more: the call is made again, and no client is accused."""

    def failing(error: Exception) -> Callable[[object], object]:
        def get(reference: object) -> object:
            raise error

        return get

    process = _client_process().__ray_metadata__.modified_class([], ["app"])
    monkeypatch.setattr(pool_module.ray, "get", failing(OSError("Broken pipe")))
    with pytest.raises(ConnectionAbortedError) as told:
        process.run(None, None, [], [])
    monkeypatch.setattr(pool_module.ray, "wait", lambda references, timeout: (references, []))
    monkeypatch.setattr(pool_module.ray, "get", failing(RayTaskError("run", "", told.value)))
    with pytest.raises(_LostError):
        ClientPool._outcome(Pool(0, (HERE,), {}), _Process(None, HERE, ORDINARY), object())


def test_processes_start_where_there_is_room_and_compartments_share_none() -> None:
    pool = Pool(0, (HERE, THERE), {})
    ordinary = [pool._take(ORDINARY) for _ in range(3)]
    assert Counter(one.node for one in ordinary) == {HERE: 2, THERE: 1}
    assert pool._room(ORDINARY) is None
    apart = pool._take(1)
    assert apart not in ordinary
    assert pool._room(1) is None  # half of three calls at a time
    pool._give_back(apart)
    assert pool._take(1) is apart
    pool._give_back(ordinary[0])
    assert pool._take(2) is not ordinary[0]
    pool.close()
    with pytest.raises(CallError, match="being ended"):
        pool._take(ORDINARY)


def test_a_closed_pool_asks_nothing_of_ray_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray that is shut down while a thread asks it for something ends the program with a segmentation fault."""
    asking = threading.Event()

    def versions_of(nodes: list[str], is_over: Callable[[], bool]) -> dict[str, str]:
        asking.set()
        while not is_over():
            time.sleep(0.01)
        return {}

    monkeypatch.setattr(pool_module, "versions_of", versions_of)
    monkeypatch.setattr(pool_module, "_SECONDS_BETWEEN_LOOKS", 0.01)
    pool = Pool(0, (HERE,), {})
    monkeypatch.setattr(pool, "_living", lambda: {node.identity: node for node in (HERE, THERE)})
    pool._watching.append(threading.Thread(target=pool._watch_nodes, daemon=True))
    pool._watching[0].start()
    assert asking.wait(5.0)
    pool.close()
    assert len(pool._watching) == 2
    assert not any(thread.is_alive() for thread in pool._watching)


def test_the_victim_and_the_insider_have_compartments_of_their_own(small_plan: MakePlan) -> None:
    public = small_plan(data={"clients": 5}).public
    federation = load_federation(public)
    found = {client: compartment_of(_message(public.to_json()), _context(client)) for client in range(5)}
    assert [client for client, one in found.items() if one == 1] == [federation.victim]
    assert [client for client, one in found.items() if one == 2] == list(federation.insiders)
    assert set(found.values()) == {0, 1, 2}
    members = small_plan(
        privacy={"sensitivity": "global"},
        audit={"kind": "membership", "targets": 3, "epsilon-star": False, "attacks": ["loss"]},
    ).public
    holders = {client for client in range(members.clients) if load_federation(members).targets_of(client)}
    told = {
        client for client in range(members.clients) if compartment_of(_message(members.to_json()), _context(client)) & 1
    }
    assert told == holders
    assert compartment_of(Message(RecordDict(), 2, "train"), _context(0)) == ORDINARY  # of another app


def _message(federation: str, **arrays: Array) -> Message:
    LocalGrid(build_app(), 1, 1.0)  # Flower lets nobody make a message who is no task of a run
    content = RecordDict(
        {Record.ARRAYS: ArrayRecord(arrays), Record.CONFIG: ConfigRecord({Key.FEDERATION: federation})}
    )
    return Message(content, 2, "train")


def _context(client: int) -> Context:
    return Context(1, 2, UserConfig({"partition-id": client}), RecordDict(), UserConfig())


def test_large_arrays_travel_beside_a_message_which_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    models, small = Array(np.arange(2.0**18)), Array(np.arange(3.0))
    message = _message("{}", models=models, norms=small)
    content = RecordDict(dict(message.content))
    message.metadata.delivered_at = "now"
    light, large = take_out(message)
    assert message.content.array_records[Record.ARRAYS]["models"].data is models.data
    assert message.metadata.delivered_at == "now"
    assert len(pickle.dumps(light)) < 3000
    assert list(large) == [(Record.ARRAYS, "models")]
    received = put_back(pickle.loads(pickle.dumps(light)), large)
    assert received.content == content
    assert list(received.content) == list(content)
    assert list(received.content.array_records[Record.ARRAYS]) == ["models", "norms"]

    put: list[object] = []
    monkeypatch.setattr(array_transport.ray, "put", lambda values: put.append(values) or len(put))
    sent = SentArrays()
    assert [sent.reference(take_out(message)[1][Record.ARRAYS, "models"]) for _ in range(3)] == [1, 1, 1]
    others = [_message("{}", models=Array(np.zeros(2**18))) for _ in range(2)]
    assert [sent.reference(*take_out(other)[1].values()) for other in others] == [2, 3]
    assert sent.reference(take_out(message)[1][Record.ARRAYS, "models"]) == 4  # two are kept
