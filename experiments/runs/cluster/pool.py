"""Client processes on Ray: which of them a call goes to, and what becomes of a call whose process or node is lost.

Flower's own pool keeps an actor that has died, and fails every later call on it. Here a dead process leaves the pool,
its call is made again, and a node that is lost costs its unfinished calls and nothing else. Processes are placed by
this pool, so it always knows which node a call runs on. Clients of different compartments never share a process.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray
from flwr.app import Context, Message
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fl_audit.experiments import verbosity
from fl_audit.experiments.runs.cluster.access import versions_of
from fl_audit.experiments.runs.cluster.array_transport import SentArrays, large_arrays_of, put_back, take_out

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_TO_END = 5.0
"""How long a look at the nodes may go on once the pool is closed: a Ray that is shut down under it ends the program."""
_SECONDS_UNTIL_A_NODE_IS_MISSED = 30.0
"""How long Ray may take to notice that a node is gone, once processes on it have died."""

ORDINARY = 0
"""The compartment of clients who hold nothing that others must not see."""

_NO_ROOM = (
    "Ray's object store is full: give it more room (ray start --object-store-memory), or play fewer trials at a time "
    "(run.trials-per-batch)"
)


class CallError(RuntimeError):
    """A client call that failed: what the client raised, or where its process died."""


@contextmanager
def room_is_told() -> Iterator[None]:
    """Raise a `CallError` of one line where Ray's object store, or the disk to which it spills, is full."""
    try:
        yield
    except (ObjectStoreFullError, OutOfDiskError) as error:
        raise CallError(_NO_ROOM) from error


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    identity: str  # ray's name of it
    address: str  # by which a person knows it
    slots: int  # how many client calls it has room for


@dataclass(eq=False)
class _Process:
    handle: Any
    node: Node
    compartment: int


class _LostError(Exception):
    """The process of a call, or its node, is gone."""


class ClientPool:
    """Processes that run client calls, started where and when they are needed.

    Parameters
    ----------
    app, share
        The client app, as Ray can send it, and how much of a node one client takes: `num_cpus` and `num_gpus`.
    retries
        How often a call is made again whose process has died, on a node that has not.

    Raises
    ------
    CallError
        If no node has room for a client.
    """

    def __init__(self, app: Any, share: Mapping[str, float], retries: int) -> None:
        self._app, self._share, self._retries = [ray.put(app)], dict(share), retries
        self._actor = _client_process()
        self._sent = SentArrays()
        self._changed = threading.Condition()
        self._idle: dict[int, list[_Process]] = {}
        self._processes: list[_Process] = []
        self._suspects = Counter[str]()
        self._closed = threading.Event()
        self._nodes = self._living()
        # Those that are there when the run begins were asked before: see `require_alike`.
        self._asked, self._welcome = set(self._nodes), set(self._nodes)
        if not self.capacity:
            taken = " and ".join(f"{value:g} {key.removeprefix('num_')}" for key, value in share.items() if value > 0)
            raise CallError(f"no node of the cluster has room for a client, which takes {taken}")
        self._watching = [threading.Thread(target=self._watch_nodes, daemon=True)]
        self._watching[0].start()

    @property
    def capacity(self) -> int:
        """How many ordinary calls run at the same time."""
        return sum(node.slots for node in self._nodes.values())

    def call(
        self, compartment: int, message: Message, context: Context, call_context: Sequence[Any] = ()
    ) -> tuple[Message, Context]:
        """Run a client call on a process of a compartment, and return the reply and the changed context.

        Parameters
        ----------
        compartment, message, context
            Whom the client may share a process with, what the client is sent, and the client's state.
        call_context
            References to functions that bring the files and modules that its node needs; each is called once in a
            process, before it serves its first call.

        Raises
        ------
        CallError
            If the client raised, its process died once too often, or the pool was closed.
        """
        deaths, (light, large) = 0, take_out(message)
        while True:
            process = self._take(compartment)
            try:
                with room_is_told():
                    stored = [self._sent.reference(data) for data in large.values()]
                    begun = process.handle.run.remote(light, context, list(call_context), list(large), *stored)
                reply, after, failure = self._outcome(process, begun)
            except CallError:
                self._give_back(process)
                raise
            except _LostError:
                self._forget(process)
                if self._is_alive(process.node, deaths >= self._retries):
                    deaths += 1
                if deaths > self._retries:
                    died = "its process died, or ended itself at the time limit"
                    raise CallError(f"{died} (node {process.node.address})") from None
                continue
            self._give_back(process)
            if failure is not None:
                raise CallError(failure)
            return reply, after

    def close(self) -> None:
        """End all processes, and every call that is under way or waits."""
        self._closed.set()
        with self._changed:
            processes, self._processes, self._idle = self._processes, [], {}
            self._changed.notify_all()
        for process in processes:
            with suppress(Exception):  # Ray may be gone already
                ray.kill(process.handle)
        for thread in self._watching:
            thread.join(_SECONDS_TO_END)

    def _take(self, compartment: int) -> _Process:
        """Wait for a process that is idle, or for room to start one."""
        with self._changed:
            while not self._closed.is_set():
                if idle := self._idle.get(compartment):
                    return idle.pop()
                if (node := self._room(compartment)) is not None:
                    process = _Process(self._started(node, compartment), node, compartment)
                    self._processes.append(process)
                    return process
                self._changed.wait()
        raise CallError("the run is being ended")

    def _room(self, compartment: int) -> Node | None:
        """Return a node that has room for one more process, the emptiest of those on which least has gone wrong."""
        own = Counter(one.node.identity for one in self._processes if one.compartment == compartment)
        if compartment == ORDINARY:
            found = [node for node in self._nodes.values() if own[node.identity] < node.slots]
        else:
            # They run beside the ordinary ones: calls of insiders last longest, and start at once this way.
            found = list(self._nodes.values()) if own.total() < max(1, self.capacity // 2) else []
        order = {node: (self._suspects[node.identity], own[node.identity], -node.slots) for node in found}
        return min(order, key=order.__getitem__, default=None)

    def _started(self, node: Node, compartment: int) -> Any:
        placed = NodeAffinitySchedulingStrategy(node_id=node.identity, soft=False)
        share = self._share if compartment == ORDINARY else self._share | {"num_cpus": 0}
        return self._actor.options(scheduling_strategy=placed, max_restarts=0, **share).remote(
            [entry or os.getcwd() for entry in sys.path], self._app
        )

    def _outcome(self, process: _Process, reference: Any) -> Any:
        """Wait for a call; a node that is not there any more is not waited for."""
        try:
            while not ray.wait([reference], timeout=_SECONDS_BETWEEN_LOOKS)[0]:
                if self._closed.is_set():
                    raise CallError("the run is being ended")
                if process.node.identity not in self._nodes:
                    raise _LostError
            (reply, large), after, failure = ray.get(reference)
            return put_back(reply, large), after, failure
        except (ObjectStoreFullError, OutOfDiskError):
            return None, None, _NO_ROOM
        except RayTaskError as error:
            # Only what Ray itself does for a client ends here, such as reading a message that nobody can read.
            if isinstance(error.cause, ConnectionAbortedError):
                raise _LostError from None
            return None, None, f"{type(error.cause).__name__}: {error.cause}"
        except RayError as error:
            verbosity.LOG.info("a client call on node %s is lost: %s", process.node.address, error)
            raise _LostError from None

    def _give_back(self, process: _Process) -> None:
        with self._changed:
            if process in self._processes:
                self._idle.setdefault(process.compartment, []).append(process)
                self._changed.notify_all()

    def _forget(self, process: _Process) -> None:
        """Take a process out of the pool, so that nothing is sent to it again."""
        with suppress(Exception):
            ray.kill(process.handle)
        with self._changed:
            if process in self._processes:
                self._processes.remove(process)
            self._suspects[process.node.identity] += 1
            self._changed.notify_all()

    def _is_alive(self, node: Node, is_last_chance: bool) -> bool:
        """Return whether a node is there on which a process has died; if much hangs on it, Ray is given time."""
        if is_last_chance and len(self._nodes) > 1:
            with self._changed:
                gone = lambda: self._closed.is_set() or node.identity not in self._nodes  # noqa: E731
                self._changed.wait_for(gone, _SECONDS_UNTIL_A_NODE_IS_MISSED)
        return node.identity in self._nodes

    def _watch_nodes(self) -> None:
        """Note which nodes have joined or are lost, until the pool is closed."""
        while not self._closed.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                found = self._living()
            except Exception:  # the head may be away for a while
                continue
            for node in found.values():
                if node.identity not in self._asked:
                    self._asked.add(node.identity)
                    self._watching.append(threading.Thread(target=self._meet, args=(node,), daemon=True))
                    self._watching[-1].start()
            found = {identity: node for identity, node in found.items() if identity in self._welcome}
            with self._changed:
                lost = [node for identity, node in self._nodes.items() if identity not in found]
                if found.keys() != self._nodes.keys():
                    self._nodes = found
                    self._drop_from(lost)
                    self._changed.notify_all()

    def _meet(self, node: Node) -> None:
        """Use a node that has joined from now on, if it has the Python and the Flower of this process."""
        for found in versions_of([node.identity], self._closed.is_set).values():
            unused = "" if found.is_ours else f" and is not used: it has {found}"
            verbosity.tell(f"node {node.address} has joined{unused}")
            if found.is_ours:
                self._welcome.add(node.identity)

    def _drop_from(self, lost: list[Node]) -> None:
        for node in lost:
            on_it = [one for one in self._processes if one.node.identity == node.identity]
            idle = [one for waiting in self._idle.values() for one in waiting]
            busy = sum(one not in idle for one in on_it)
            self._processes = [one for one in self._processes if one not in on_it]
            self._idle = {key: [one for one in waiting if one not in on_it] for key, waiting in self._idle.items()}
            verbosity.tell(
                f"node {node.address} is lost: {busy} unfinished call(s) on it are made again on other nodes"
            )

    def _living(self) -> dict[str, Node]:
        rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        alive = [(row["NodeID"], row["NodeManagerAddress"], row["Resources"]) for row in rows if row["Alive"]]
        found = [Node(identity, address, _slots(resources, self._share)) for identity, address, resources in alive]
        return {node.identity: node for node in found if node.slots > 0}


def _slots(resources: Mapping[str, float], share: Mapping[str, float]) -> int:
    """Return for how many clients the resources of a node suffice."""
    needed = {"CPU": share["num_cpus"], "GPU": share.get("num_gpus", 0.0)}
    return int(min(resources.get(name, 0.0) // amount for name, amount in needed.items() if amount > 0))


def _client_process() -> Any:
    """Return the class of a client's process; it is local, so that Ray sends it whole: see `Portable`."""
    take_out, put_back = large_arrays_of()

    class ClientProcess:
        def __init__(self, paths: list[str], app: list[Any]) -> None:
            self._paths, self._app, self._given = paths, app[0], set[Any]()
            self._call: Any = None

        def run(self, message: Any, context: Any, call_context: list[Any], places: list[Any], *large: Any) -> Any:
            try:
                sys.path.extend(path for path in self._paths if path not in sys.path)
                for reference in call_context:
                    if reference not in self._given:
                        self._received(reference)()
                        self._given.add(reference)
                if self._call is None:
                    self._call = self._received(self._app)
                put_back(message, dict(zip(places, large, strict=True)))
                return take_out(self._call(message=message, context=context)), context, None
            except ConnectionAbortedError:
                raise
            except SystemExit as ended:
                return (None, {}), None, f"it ended itself with status {ended.code}"
            except Exception as error:
                return (None, {}), None, str(error) or type(error).__name__

        def _received(self, reference: Any) -> Any:
            try:
                return ray.get(reference)
            except OSError as error:  # the process has lost its node, and ends with it
                raise ConnectionAbortedError(str(error)) from error

    return ray.remote(ClientProcess)
