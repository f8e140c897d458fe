"""The pool of client processes on Ray: their placement, and detection of lost processes and nodes.

Flower's own pool keeps dead actors, so that every later call on them fails. Here a dead process is removed from the
pool, and the loss of a node affects only the unfinished calls on it. The pool chooses the node of every process, so it
always knows on which node a call runs. Clients of different compartments never share a process.
"""

import os
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fl_audit.experiments import verbosity
from fl_audit.experiments.runs.cluster.access import versions_of
from fl_audit.experiments.runs.cluster.array_transport import SharedArray, StoreViews
from fl_audit.experiments.runs.cluster.client_actor import CallReplies, CallReply, ProcessCalls, process_class

_SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_OF_A_CALL = 0.1
"""Working time after which a process answers, and begins no further one of the calls that share a call of Ray."""
_SECONDS_TO_END = 5.0
"""Seconds for which requests to Ray may go on once the pool is closed: a Ray that is shut down ends the program."""
_SECONDS_UNTIL_A_NODE_IS_MISSED = 30.0
"""Seconds that Ray may take to notice that a node is gone, once processes on it have died."""
_VIEWED_SHARE = 0.2
"""Share of a node's object store that replies may take up until the server has read them."""

ORDINARY = 0
"""The compartment of clients that hold nothing secret from others."""

_NO_ROOM = (
    "Ray's object store is full: give it more room (ray start --object-store-memory), or play fewer trials at a time "
    "(run.trials-per-batch)"
)


_ENDED = "the run is being ended"


class CallError(RuntimeError):
    """A failed client call; the text is that of the client's exception, or names the node on which its process died."""


@contextmanager
def room_is_told() -> Iterator[None]:
    """Raise a one-line `CallError` if Ray's object store, or the disk to which it spills, is full."""
    try:
        yield
    except (ObjectStoreFullError, OutOfDiskError) as error:
        raise CallError(_NO_ROOM) from error


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    identity: str  # ray's name of it
    address: str  # by which a person knows it
    slots: int  # number of simultaneous client calls


@dataclass(eq=False)
class ClientProcess:
    """A Ray actor in which clients are called."""

    handle: Any  # ray's handle of it
    node: Node
    compartment: int  # compartment of the clients that are called in it
    has: set[Hashable] = field(default_factory=set)  # call context that it has received


class LostCallsError(Exception):
    """Raised if calls have no result: their process or its node is lost, or Ray failed with an error message."""

    @property
    def words(self) -> str:
        """The error message of Ray; empty if the process or its node was lost."""
        return str(self)


class ClientPool:
    """A pool of processes that run client calls; processes are started when they are needed.

    Parameters
    ----------
    app
        The client app.
    read_ahead
        Function that a process calls to announce the next calls in its thread, or None; it is sent through Ray.
    share
        The resources that one client takes: `num_cpus` and `num_gpus`.

    Raises
    ------
    CallError
        If no node has room for a client.
    """

    def __init__(self, app: Any, share: Mapping[str, float], read_ahead: Any = None) -> None:
        self._app, self._share = [ray.put(app), ray.put(read_ahead)], dict(share)
        self._actor, self._views = process_class(), StoreViews(_viewed_bytes())
        self._changed = threading.Condition()
        self._idle: dict[int, list[ClientProcess]] = {}
        self._processes: list[ClientProcess] = []
        self._suspects = Counter[str]()
        self._closed = threading.Event()
        self._users = 0  # threads that ask Ray for something
        self._nodes = self._living()
        # Machines that are present when the run begins were asked before: see `require_alike`.
        self._asked, self._welcome = set(self._nodes), set(self._nodes)
        if not self.capacity:
            taken = " and ".join(f"{value:g} {key.removeprefix('num_')}" for key, value in share.items() if value > 0)
            raise CallError(f"no node of the cluster has room for a client, which takes {taken}")
        self._watching = [threading.Thread(target=self._watch_nodes, daemon=True)]
        self._watching[0].start()

    @property
    def capacity(self) -> int:
        """Largest number of simultaneous calls of ordinary clients (neither insiders nor holders of secret bits)."""
        return sum(node.slots for node in self._nodes.values())

    @property
    def is_closed(self) -> bool:
        """Whether the pool was closed, so that it starts no more calls."""
        return self._closed.is_set()

    def take(self, compartment: int) -> ClientProcess:
        """Return an idle process of a compartment, or start one; wait until either is possible.

        Parameters
        ----------
        compartment
            Compartment of the clients that are called in the process.

        Raises
        ------
        CallError
            Raised once the pool is closed.
        """
        with self._changed:
            while not self._closed.is_set():
                if idle := self._idle.get(compartment):
                    return idle.pop()
                if (node := self._room(compartment)) is not None:
                    process = ClientProcess(self._started(node, compartment), node, compartment)
                    self._processes.append(process)
                    return process
                self._changed.wait()
        raise CallError(_ENDED)

    def give_back(self, process: ClientProcess) -> None:
        """Return a process to the pool, unless it is lost.

        Parameters
        ----------
        process
            The process that `take` returned.
        """
        with self._changed:
            if process in self._processes:
                self._idle.setdefault(process.compartment, []).append(process)
                self._changed.notify_all()

    def call(self, process: ClientProcess, load: ProcessCalls) -> CallReplies:
        """Make calls in a process, one after the other, and return the results of those that have finished.

        The method returns after the last call, after a failed call, or when the process has worked for
        `SECONDS_OF_A_CALL`. In the last case some calls may still be in progress, for which `rest` waits; the remaining
        calls are not made.

        Raises
        ------
        CallError
            If there is no room for the calls, or the pool was closed.
        LostCallsError
            If the process or its node is lost, or the calls or their results could not be unpickled.

        Parameters
        ----------
        process
            The process that `take` returned.
        load
            The calls with their contexts.
        """
        with room_is_told():
            large = [one.reference() for one in load.large if isinstance(one, SharedArray)]
            single = [None if isinstance(one, SharedArray) else one for one in load.large]
            # By itself Ray asks Python of each object how it is to be pickled, and messages have many.
            calls = pickle.dumps((load.messages, load.holes, load.contexts), protocol=pickle.HIGHEST_PROTOCOL)
            begun = process.handle.run.remote(
                calls, single, list(load.call_context), load.own, SECONDS_OF_A_CALL, *large
            )
        return self._outcome(process, begun)

    def rest(self, process: ClientProcess, under_way: int) -> CallReplies:
        """Wait for the calls that are in progress in a process, and return their results.

        If several calls are in progress, the method waits for at most `SECONDS_OF_A_CALL`; after that only the call
        that is being made may still be in progress, and the others are not made.

        Raises the same errors as `call`.

        Parameters
        ----------
        process
            The process that works on the calls.
        under_way
            Number of calls that are in progress.
        """
        return self._outcome(process, process.handle.rest.remote(SECONDS_OF_A_CALL if under_way > 1 else None))

    def has_lost(self, process: ClientProcess, is_last_chance: bool) -> bool:
        """Remove a dead process from the pool, and return whether its node is lost as well.

        Parameters
        ----------
        process
            The process that died.
        is_last_chance
            Whether the answer decides about the end of the run; Ray is then given time to notice the loss of a node.
        """
        self._forget(process)
        return not self._is_alive(process.node, is_last_chance)

    def processes_for(self, compartment: int) -> int:
        """Return the largest number of simultaneous processes of a compartment."""
        return self.capacity if compartment == ORDINARY else max(1, self.capacity // 2)

    def close(self) -> None:
        """End all processes, and every call that is under way or waits."""
        self._closed.set()
        with self._changed:
            processes, self._processes, self._idle = self._processes, [], {}
            self._changed.notify_all()
        for process in processes:
            with suppress(Exception):  # Ray may be gone already
                ray.kill(process.handle)
        with self._changed:
            self._changed.wait_for(lambda: not self._users, _SECONDS_TO_END)
        for thread in self._watching:
            thread.join(_SECONDS_TO_END)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep `close` from returning while a thread makes a request to Ray.

        Raises
        ------
        CallError
            If the pool is closed already.
        """
        with self._changed:
            if self._closed.is_set():
                raise CallError(_ENDED)
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def _room(self, compartment: int) -> Node | None:
        """Return the node for a new process: fewest lost processes, then fewest processes; None if no node has room."""
        own = Counter(one.node.identity for one in self._processes if one.compartment == compartment)
        if compartment == ORDINARY:
            found = [node for node in self._nodes.values() if own[node.identity] < node.slots]
        else:
            # They run beside the ordinary ones: calls of insiders last longest, and start at once this way.
            found = list(self._nodes.values()) if own.total() < self.processes_for(compartment) else []
        order = {node: (self._suspects[node.identity], own[node.identity], -node.slots) for node in found}
        return min(order, key=order.__getitem__, default=None)

    def _started(self, node: Node, compartment: int) -> Any:
        placed = NodeAffinitySchedulingStrategy(node_id=node.identity, soft=False)
        share = self._share if compartment == ORDINARY else self._share | {"num_cpus": 0}
        return self._actor.options(scheduling_strategy=placed, max_restarts=0, **share).remote(
            [entry or os.getcwd() for entry in sys.path], self._app
        )

    def _outcome(self, process: ClientProcess, reference: Any) -> CallReplies:
        """Wait for the results of calls, until they arrive, their node is lost or the pool is closed."""
        try:
            while not ray.wait([reference], timeout=_SECONDS_BETWEEN_LOOKS)[0]:
                if self._closed.is_set():
                    raise CallError(_ENDED)
                if process.node.identity not in self._nodes:
                    raise LostCallsError
            made, under_way, seconds = ray.get(reference)
            return CallReplies([_answer(self._views, *one) for one in made], under_way, seconds)
        except (ObjectStoreFullError, OutOfDiskError):
            raise CallError(_NO_ROOM) from None
        except RayTaskError as error:
            # Only what Ray itself does for a client ends here, such as reading a message that nobody can read.
            if isinstance(error.cause, ConnectionAbortedError):
                raise LostCallsError from None
            raise LostCallsError(f"{type(error.cause).__name__}: {error.cause}") from None
        except RayError as error:
            verbosity.LOG.info("client calls on node %s are lost: %s", process.node.address, error)
            raise LostCallsError from None

    def _forget(self, process: ClientProcess) -> None:
        """Kill a process and remove it from the pool; its node counts one more failure."""
        with suppress(Exception):
            ray.kill(process.handle)
        with self._changed:
            if process in self._processes:
                self._processes.remove(process)
            self._suspects[process.node.identity] += 1
            self._changed.notify_all()

    def _is_alive(self, node: Node, is_last_chance: bool) -> bool:
        """Return whether the node of a dead process is alive; at the last chance, give Ray time to notice its loss."""
        if is_last_chance and len(self._nodes) > 1:
            with self._changed:
                gone = lambda: self._closed.is_set() or node.identity not in self._nodes  # noqa: E731
                self._changed.wait_for(gone, _SECONDS_UNTIL_A_NODE_IS_MISSED)
        return node.identity in self._nodes

    def _watch_nodes(self) -> None:
        """Poll Ray for nodes that have joined or are lost, until the pool is closed."""
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
        """Admit a node that has joined, if its versions of Python and Flower are compatible with this process."""
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
    """Return the number of simultaneous client calls for which the resources of a node suffice."""
    needed = {"CPU": share["num_cpus"], "GPU": share.get("num_gpus", 0.0)}
    return int(min(resources.get(name, 0.0) // amount for name, amount in needed.items() if amount > 0))


def _viewed_bytes() -> int:
    """Return how many bytes this process may view in the object store: a share of the smallest store of all nodes."""
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    stores = [row["Resources"].get("object_store_memory", 0.0) for row in rows if row["Alive"]]
    return int(_VIEWED_SHARE * min(stores, default=0.0))


def _answer(views: StoreViews, reply: bytes, large: Sequence[Any], failure: str | None) -> CallReply:
    light, holes, context = pickle.loads(reply)
    views.put_back(holes, large)
    return CallReply(light, context, failure)
