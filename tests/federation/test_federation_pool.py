"""Tests of the pool of client processes without Ray: retries of calls, places of processes, and sharing."""

import pickle
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict, UserConfig
from ray.exceptions import ObjectStoreFullError, RayTaskError

from fl_audit.array_packing import pack, unpack
from fl_audit.clients.app import build_app
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.runs.cluster import array_transport, call_scheduling
from fl_audit.runs.cluster import pool as pool_module
from fl_audit.runs.cluster.array_transport import StoreViews, put_back, take_out
from fl_audit.runs.cluster.call_errors import CallError, LostCallsError
from fl_audit.runs.cluster.call_scheduling import CallScheduler
from fl_audit.runs.cluster.client_actor import CallReplies, CallReply, ProcessCalls, process_class
from fl_audit.runs.cluster.nodes import RayMachine
from fl_audit.runs.cluster.pool import ORDINARY, ClientPool, ClientProcess
from fl_audit.runs.cluster.process_data_and_code import CallContextPacker, UnsentCallContext, compartment_of
from fl_audit.runs.local_engine import local_grid
from tests.builders.runs import small_plan

HERE = RayMachine("1", "10.0.0.1", 2)
THERE = RayMachine("2", "10.0.0.2", 1)


class Pool(ClientPool):
    """A pool without processes, whose calls end as a test says.

    An outcome belongs to the first calls of a load: replies, an error, or "dies" or "node" for a lost process or node.
    """

    def __init__(
        self, nodes: tuple[RayMachine, ...], outcomes: Callable[[RayMachine, list[int]], Any] | None = None
    ) -> None:
        self._nodes = {node.identity: node for node in nodes}
        self._outcomes = outcomes
        self._changed, self._closed, self._users = threading.Condition(), threading.Event(), 0
        self._idle, self._processes, self._suspects = {}, [], Counter()
        self._is_shared = False
        self._asked, self._welcome, self._watching = set(self._nodes), set(self._nodes), []
        self._views, self._share = StoreViews(0), {}
        self.calls: list[tuple[RayMachine, list[int]]] = []

    def _started(self, node: RayMachine, compartment: int) -> Any:
        return None

    def call(self, process: ClientProcess, load: ProcessCalls) -> CallReplies:
        """Return the outcome for the clients of the calls."""
        clients = [message.metadata.dst_node_id for message in load.messages]
        self.calls.append((process.node, clients))
        assert self._outcomes is not None
        outcome = self._outcomes(process.node, clients)
        if outcome == "node":
            del self._nodes[process.node.identity]
        if outcome in ("node", "dies"):
            raise LostCallsError
        if isinstance(outcome, Exception):
            raise outcome
        return outcome if isinstance(outcome, CallReplies) else CallReplies([outcome] * len(clients), under_way=0)

    def wait_for_results(self, process: ClientProcess, under_way: int) -> CallReplies:
        """Return replies for the calls that are under way."""
        return CallReplies([REPLY] * under_way, under_way=0)


REPLY = CallReply("reply", "after", None)


def played(pool: Pool, clients: int = 1) -> dict[int, object]:
    """Call some clients, each of weight one, and return the outcome of each call."""
    outcomes_by_node = dict[int, object]()
    changed = threading.Condition()

    def settle(outcomes: Sequence[tuple[str, object]]) -> None:
        with changed:
            for identity, outcome in outcomes:
                assert int(identity) not in outcomes_by_node
                outcomes_by_node[int(identity)] = outcome
            changed.notify_all()

    calls = CallScheduler(pool, {2 + client: _context(client) for client in range(clients)}, settle)
    calls.add({str(2 + client): _message("none", node=2 + client) for client in range(clients)})
    with changed:
        assert changed.wait_for(lambda: len(outcomes_by_node) == clients, 20.0)
    pool.close()
    return outcomes_by_node


@pytest.fixture(autouse=True)
def _of_another_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_scheduling, "compartment_of", lambda message, context: ORDINARY)
    monkeypatch.setattr(call_scheduling, "weight_of", lambda message, context: 1)
    monkeypatch.setattr(CallContextPacker, "of", lambda self, calls, has: UnsentCallContext([], None, frozenset()))


def test_a_call_whose_process_died_is_made_again_twice() -> None:
    pool = Pool((THERE,), lambda node, clients: "dies")
    (failed,) = played(pool).values()
    assert re.fullmatch(r".*\bprocess died\b.* \(node 10\.0\.0\.2\)", str(failed))
    assert len(pool.calls) == 3
    deaths = ["dies", "dies"]
    assert played(Pool((THERE,), lambda node, clients: deaths.pop() if deaths else REPLY)) == {2: "reply"}


def test_a_lost_node_costs_no_retry_and_what_a_client_raises_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_scheduling, "RETRIES", 0)
    pool = Pool((HERE, THERE), lambda node, clients: "node" if node is HERE else REPLY)
    assert played(pool) == {2: "reply"}
    assert pool.calls == [(HERE, [2]), (THERE, [2])]
    (failed,) = played(Pool((THERE,), lambda node, clients: CallReply(None, None, "disk full"))).values()
    assert isinstance(failed, CallError)
    assert str(failed) == "disk full"


def test_calls_share_one_and_each_is_answered() -> None:
    """Each of two processes takes half of the clients."""
    barrier = threading.Barrier(2)

    def answer(node: RayMachine, clients: list[int]) -> CallReply:
        barrier.wait(10.0)
        return REPLY

    pool = Pool((HERE,), answer)
    assert played(pool, clients=20) == dict.fromkeys(range(2, 22), "reply")
    assert [len(clients) for _, clients in pool.calls] == [10, 10]
    assert sorted(client for _, clients in pool.calls for client in clients) == list(range(2, 22))


def test_a_call_that_lasts_holds_nobody_up() -> None:
    """The calls behind it are made in another process, or later, and none is made twice."""

    def slowly(node: RayMachine, clients: list[int]) -> CallReplies:
        return CallReplies([REPLY] * (len(clients) > 2), under_way=1)

    pool = Pool((THERE,), slowly)
    assert played(pool, clients=5) == dict.fromkeys(range(2, 7), "reply")
    assert [clients for _, clients in pool.calls] == [[2, 3, 4, 5, 6], [4, 5, 6], [6]]


def test_threads_that_wait_for_calls_refer_to_nothing_of_ray() -> None:
    """These threads end while Ray shuts down. One that releases a model then would end the program."""
    pool = Pool((HERE,), lambda node, clients: REPLY)
    settled = threading.Semaphore(0)
    calls = CallScheduler(
        pool, {2 + item: _context(item) for item in range(4)}, lambda done: settled.release(len(done))
    )
    models = ArrayRecord({"models": Array(np.arange(2.0**18))})
    calls.add({str(2 + item): _message("none", 2 + item, models) for item in range(4)})
    references = [weakref.ref(item) for item in calls._shared.values()]
    for _ in range(4):
        assert settled.acquire(timeout=10.0)
    calls.add({})  # those of the last round are kept until the program ends
    with pool._changed:
        assert pool._changed.wait_for(lambda: not pool._users, 10.0)
    assert [item() for item in references] == [None]
    pool.close()


def test_who_ends_a_process_that_others_share_is_found_and_named() -> None:
    """All clients that shared the process are called alone, so that the guilty one ends only its own process."""
    pool = Pool((HERE,), lambda node, clients: "dies" if 4 in clients else REPLY)
    outcomes = played(pool, clients=9)
    failed = {client: outcome for client, outcome in outcomes.items() if outcome != "reply"}
    assert list(failed) == [4]
    assert "its process died" in str(failed[4])
    of_it = [clients for _, clients in pool.calls if 4 in clients]
    assert len(of_it[0]) > 1
    assert of_it[1:] == [[4], [4]]  # three processes died, as of a call that two retries are allowed to
    assert all(len(clients) == 1 for _, clients in pool.calls if set(clients) & set(of_it[0]) and clients != of_it[0])


def test_whose_reply_cannot_be_read_is_named() -> None:
    pool = Pool((HERE,), lambda node, clients: LostCallsError("TypeError: no") if 3 in clients else REPLY)
    outcomes = played(pool, clients=6)
    assert {client: str(outcome) for client, outcome in outcomes.items() if outcome != "reply"} == {3: "TypeError: no"}


def test_a_client_is_called_where_its_shard_is() -> None:
    pool = Pool((HERE,), lambda node, clients: REPLY)
    calls = dict[str, Message]()
    shared = CallScheduler(pool, {}, lambda outcomes: None)
    line = call_scheduling._CallQueue(idle=1)
    first_process = pool.take(ORDINARY)
    second_process = pool.take(ORDINARY)
    line.calls = [call_scheduling._Call(str(node), _message("none", node=node), 1, calls) for node in range(2, 6)]
    line.idle = 2
    first = shared._part(line, first_process)
    line.idle = 1
    second = shared._part(line, second_process)
    assert [[call.node for call in call_group] for call_group in (first, second)] == [[2, 3], [4, 5]]
    line.calls = [*first, *second]
    line.idle = 2
    assert [call.node for call in shared._part(line, second_process)] == [4, 5]
    line.idle = 1
    assert [call.node for call in shared._part(line, second_process)] == [3, 2]  # nobody else is there to call them


def test_parts_are_balanced_by_the_records_of_the_clients() -> None:
    pool = Pool((HERE,), lambda node, clients: REPLY)
    shared = CallScheduler(pool, {}, lambda outcomes: None)
    weights = (60, 30, 10, 10, 10)
    calls = [
        call_scheduling._Call(str(node), _message("none", node=node), size, {}) for node, size in enumerate(weights, 2)
    ]
    line = call_scheduling._CallQueue(calls, idle=2)
    weight_groups = list[list[int]]()
    while line.calls:
        weight_groups.append([call.weight for call in shared._part(line, pool.take(ORDINARY))])
        line.idle -= 1
    assert weight_groups == [[60], [30, 10, 10, 10]]


def test_a_full_object_store_is_said_in_a_line_and_not_taken_for_a_death() -> None:
    class Full:
        class run:
            @staticmethod
            def remote(*arguments: object) -> None:
                raise ObjectStoreFullError("no room\nand many lines")

    process = ClientProcess(Full, THERE, ORDINARY)
    with pytest.raises(CallError, match=r"^Ray's object store .*run\.trials-per-batch\)$"):
        ClientPool.call(Pool((THERE,)), process, ProcessCalls([], [], [], []))
    pool = Pool((THERE,), lambda node, clients: CallError("full"))
    assert [str(outcome) for outcome in played(pool, clients=3).values()] == ["full"] * 3
    assert len(pool.calls) == 1


def test_a_process_that_has_lost_its_node_says_nothing_of_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """While its node goes down, Ray cannot send it the app. The call is made again, and no client is accused."""

    def failing(error: Exception) -> Callable[[object], object]:
        def get(reference: object) -> object:
            raise error

        return get

    process = _process(build_app())
    monkeypatch.setattr(pool_module.ray, "get", failing(OSError("Broken pipe")))
    with pytest.raises(ConnectionAbortedError) as error_info:
        process.run(pickle.dumps(([], [], [])), [], [], None, 1.0)
    monkeypatch.setattr(pool_module.ray, "wait", lambda references, timeout: (references, []))
    monkeypatch.setattr(pool_module.ray, "get", failing(RayTaskError("run", "", error_info.value)))
    with pytest.raises(LostCallsError) as lost:
        ClientPool._outcome(Pool((HERE,)), ClientProcess(None, HERE, ORDINARY), object())
    assert lost.value.words == ""


def _process(app: object, announced: Callable[[object], None] | None = None) -> Any:
    """Return a client's process that makes its calls in this process."""
    return process_class().__ray_metadata__.modified_class([], [app, announced])


def test_a_process_answers_for_each_client_and_tells_which_call_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    announced = list[int]()

    def app(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        if client == 2:
            assert goes_on.wait(10.0)
        if client == 5:
            raise RuntimeError("disk full")
        context.state["mine"] = ConfigRecord({"client": client})
        return Message(RecordDict({"a": ArrayRecord({"a": Array(np.full(2**14, client))})}), reply_to=message)

    monkeypatch.setattr(pool_module.ray, "get", lambda reference: reference)
    process = _process(app, lambda calls: announced.append(len(calls)))
    models = ArrayRecord({"models": Array(np.arange(2.0**18))})

    def run(*clients: int) -> Any:
        messages = [_message("none", node=2 + item, arrays=models) for item in clients]
        lights, holes, large = take_out(messages)
        calls = pickle.dumps((lights, holes, [_context(item) for item in clients]))
        return process.run(calls, [None], [], None, 0.3, *[array_transport.bytes_of(item) for item in large])

    run(9)
    assert announced == [1]  # nobody knows yet how long a call takes
    announced.clear()
    answers, under_way, _ = run(0, 1, 2, 3)
    assert (len(answers), under_way) == (2, 2)
    assert announced == [4]
    assert process.wait_for_results(0.1)[:2] == (
        [],
        1,
    )  # others may have the one that only waits, though it was announced
    goes_on.set()
    last, under_way, seconds = process.wait_for_results(None)
    assert seconds >= 0.4
    assert (len(last), under_way) == (1, 0)
    for client, answer in enumerate([*answers, *last]):
        light, context, failure = pool_module._answer(StoreViews(2**20), *answer)
        assert failure is None
        assert (light.content["a"]["a"].numpy() == client).all()
        assert context.state["mine"]["client"] == client
        assert light.metadata.src_node_id == 2 + client
    answers, under_way, _ = run(4, 5, 6)
    assert [failure for *_, failure in answers] == [None, "disk full"]
    assert under_way == 0
    announced.clear()
    run(*range(6, 16))
    assert announced[-1] == 2  # after 8, as many as train together at most


def test_every_call_is_answered_whenever_the_time_of_a_process_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time may end before, between or during calls. Other processes make the remaining calls."""

    def app(message: Message, context: Context) -> Message:
        time.sleep(2e-4)
        return Message(RecordDict(), reply_to=message)

    monkeypatch.setattr(pool_module.ray, "get", lambda reference: reference)
    process = _process(app)
    answered = list[int]()
    calls = [(_message("none", node=2 + number), _context(number)) for number in range(9)]

    def play() -> None:
        for turn in range(150):
            remaining_calls = list(calls)
            while remaining_calls:
                sent = pickle.dumps(
                    ([message for message, _ in remaining_calls], [], [context for _, context in remaining_calls])
                )
                answers, under_way, _ = process.run(sent, [], [], None, 1e-4 * (turn % 10))
                answer_count = len(answers)
                while under_way:
                    answers, under_way, _ = process.wait_for_results(1e-4 if under_way > 1 else None)
                    answer_count += len(answers)
                assert answer_count > 0
                remaining_calls = remaining_calls[answer_count:]
            answered.append(turn)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    thread.join(60.0)
    assert answered == list(range(150))


def test_processes_start_where_there_is_room_and_compartments_share_none() -> None:
    pool = Pool((HERE, THERE))
    ordinary = [pool.take(ORDINARY) for _ in range(3)]
    assert Counter(process.node for process in ordinary) == {HERE: 2, THERE: 1}
    assert pool._room(ORDINARY) is None
    apart = pool.take(1)
    assert apart not in ordinary
    assert pool._room(1) is None  # half of three calls at a time
    pool.give_back(apart)
    assert pool.take(1) is apart
    pool.give_back(ordinary[0])
    assert pool.take(2) is not ordinary[0]
    pool.close()
    with pytest.raises(CallError, match="being ended"):
        pool.take(ORDINARY)


def test_a_closed_pool_asks_nothing_of_ray_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to a Ray that shuts down ends the program with a segmentation fault."""
    asking = threading.Event()

    def versions_of(nodes: list[str], is_over: Callable[[], bool]) -> dict[str, str]:
        asking.set()
        while not is_over():
            time.sleep(0.01)
        return {}

    monkeypatch.setattr(pool_module, "versions_of", versions_of)
    monkeypatch.setattr(pool_module, "_SECONDS_BETWEEN_LOOKS", 0.01)
    pool = Pool((HERE,))
    monkeypatch.setattr(pool_module, "living_nodes", lambda share: {node.identity: node for node in (HERE, THERE)})
    pool._watching.append(threading.Thread(target=pool._watch_nodes, daemon=True))
    pool._watching[0].start()
    assert asking.wait(5.0)
    pool.close()
    assert len(pool._watching) == 2
    assert not any(thread.is_alive() for thread in pool._watching)


def test_the_victim_and_the_insider_have_compartments_of_their_own() -> None:
    public = small_plan(data={"clients": 5}).federation
    federation = load_federation(public)
    compartments = {client: compartment_of(_message(public.to_json()), _context(client)) for client in range(5)}
    assert [client for client, compartment in compartments.items() if compartment == 1] == [federation.victim]
    assert [client for client, compartment in compartments.items() if compartment == 2] == [federation.insider]
    assert set(compartments.values()) == {0, 1, 2}
    members = small_plan(
        privacy={"sensitivity": "global"},
        audit={"kind": "membership", "targets": 3, "epsilon-star": False, "attacks": ["loss"]},
    ).federation
    holders = {client for client in range(members.clients) if load_federation(members).targets_of(client)}
    holding_clients = {
        client for client in range(members.clients) if compartment_of(_message(members.to_json()), _context(client)) & 1
    }
    assert holding_clients == holders
    assert compartment_of(Message(RecordDict(), 2, "train"), _context(0)) == ORDINARY  # of another app


def _message(federation: str, node: int = 2, arrays: ArrayRecord | None = None) -> Message:
    local_grid(build_app(), 1, 1.0)  # Flower lets nobody make a message who is no task of a run
    config = ConfigRecord({Key.FEDERATION: federation})
    content = RecordDict({MessageRecordName.ARRAYS: arrays or ArrayRecord(), MessageRecordName.CONFIG: config})
    message = Message(content, node, "train")
    message.metadata.__dict__["_message_id"] = str(node)
    return message


def _context(client: int) -> Context:
    return Context(1, 2, UserConfig({"partition-id": client}), RecordDict(), UserConfig())


def test_large_arrays_travel_beside_messages_which_stay_as_they_are() -> None:
    """Values that several calls share are sent once and arrive as one object; others are sent with their call."""
    models, small, alone = (Array(np.arange(2.0**power)) for power in (18, 2, 14))
    common = ArrayRecord({"models": models, "norms": small})
    own_arrays = ArrayRecord({"models": common["models"], "own": alone})
    messages = [_message("{}", arrays=array_record) for array_record in (common, common, own_arrays)]
    contents = [RecordDict(dict(message.content)) for message in messages]
    messages[0].metadata.delivered_at = "now"
    lights, holes, large = take_out(messages)
    assert [array.data for array in large] == [models.data, alone.data]
    assert messages[0].content.array_records[MessageRecordName.ARRAYS]["models"].data is models.data
    assert lights[0].metadata.delivered_at == "now"
    sent = pickle.dumps((lights, holes))
    assert len(sent) < 6000
    received, empty = pickle.loads(sent)
    put_back(empty, [array_transport.bytes_of(array) for array in large])
    assert [message.content for message in received] == contents
    assert list(received[0].content) == list(contents[0])
    first, second, third = (
        message.content.array_records[MessageRecordName.ARRAYS]["models"].data for message in received
    )
    assert first is second
    assert first is third
    assert take_out([_message("{}")])[1:] == ([], [])


def test_replies_are_read_where_they_lie_while_there_is_room_for_that() -> None:
    """A view keeps its place in the object store as long as somebody holds it. Beyond the limit, replies are copied."""
    views = StoreViews(5 * 2**17)
    values = np.arange(2.0**14)

    def arrived() -> Array:
        _, ((_, storage_key),), (sent,) = take_out([_message("{}", arrays=ArrayRecord({"sum": Array(*pack(values))}))])
        hole = Array("float64", values.shape, sent.stype, b"")
        views.put_back([(hole, storage_key)], [np.frombuffer(sent.data, np.uint8)])
        assert (unpack(hole) == values).all()
        assert (hole.numpy() == values).all()
        return hole

    arrays = [arrived() for _ in range(6)]
    size = len(arrays[-1].data)
    assert [isinstance(array.data, memoryview) for array in arrays] == [True] * 4 + [False] * 2
    assert views.held == 4 * size
    arrays.pop(1)
    assert views.held == 3 * size
    assert isinstance(arrived().data, memoryview)
    arrays.clear()
    assert views.held == 0


def test_what_many_are_sent_lies_in_the_store_once(monkeypatch: pytest.MonkeyPatch) -> None:
    models = Array(np.arange(2.0**18))
    common = ArrayRecord({"models": models})
    own_arrays = ArrayRecord({"models": common["models"], "own": Array(np.arange(2.0**14))})
    messages = [_message("{}", arrays=array_record) for array_record in (common, common, own_arrays)]
    put: list[object] = []
    monkeypatch.setattr(array_transport.ray, "put", lambda values: put.append(values) or len(put))
    shared = array_transport.shared_arrays(messages)
    assert list(shared) == [id(models.data)]
    assert [shared[id(models.data)].reference() for _ in range(3)] == [1, 1, 1]
