"""The pool of client processes on Ray, which places processes on machines and notices lost processes and machines.

Flower's own pool keeps dead actors, so that every later call on them fails. Here a dead process is removed from the
pool, and the loss of a machine affects only the unfinished calls on it. Clients are divided into compartments by the
secrets that they may know. Clients of different compartments never share a process, so an insider cannot find another
client's secrets there.
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
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fl_audit.runs import verbosity
from fl_audit.runs.cluster.array_transport import SharedArray, StoreViews
from fl_audit.runs.cluster.call_errors import CallError, LostCallsError, call_error_if_full
from fl_audit.runs.cluster.client_actor import CallReplies, CallReply, ProcessCalls, process_class
from fl_audit.runs.cluster.nodes import RayMachine, differing_versions, living_nodes, versions_of, viewed_bytes

_SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_OF_A_CALL = 0.1
"""Working time after which a process answers, and begins no further one of the calls that share a call of Ray."""
_SECONDS_TO_END = 5.0
"""Seconds for which requests to Ray may go on once the pool is closed: a Ray that is shut down ends the program."""
_SECONDS_UNTIL_A_NODE_IS_MISSED = 30.0
"""Seconds that Ray may take to notice that a node is gone, once processes on it have died."""
_SECONDS_FOR_CORES = 30.0
"""Seconds for which a process may wait for cores that other programs on the cluster have taken."""

ORDINARY = 0
"""The compartment of clients that hold nothing secret from others."""
_ENDED = "the run is being ended"


@dataclass(eq=False)
class ClientProcess:
    """A Ray actor that runs client calls on a machine."""

    handle: Any  # Ray's handle of the actor
    node: RayMachine  # machine on which the process runs
    compartment: int  # compartment of the clients that may be called in the process
    has: set[Hashable] = field(default_factory=set)  # keys of the call context that the process has received
    start: Any = None  # Ray's reference that is ready once the process has started; None if that is not awaited


class ClientPool:
    """A pool of processes that run client calls; a process is started when it is needed.

    Every client belongs to a compartment, which is a number. Only clients of the same compartment may share a process.

    Parameters
    ----------
    app
        The app with which every client answers messages.
    share
        The resources of one client: `num_cpus` and `num_gpus`, as numbers of cores and graphics cards.
    announce_calls
        Function that a process calls with the client calls that it will make next, or None.
    is_shared
        Whether other programs may have taken the cores of the cluster.

    Raises
    ------
    CallError
        If no machine has room for a client.
    """

    def __init__(
        self, app: Any, share: Mapping[str, float], announce_calls: Any = None, is_shared: bool = False
    ) -> None:
        self._app, self._share = [ray.put(app), ray.put(announce_calls)], dict(share)
        self._is_shared = is_shared
        self._crowded = set[str]()  # addresses of the machines whose cores others have taken
        self._actor, self._views = process_class(), StoreViews(viewed_bytes())
        self._changed = threading.Condition()
        self._idle: dict[int, list[ClientProcess]] = {}
        self._processes: list[ClientProcess] = []
        self._suspects = Counter[str]()
        self._closed = threading.Event()
        self._users = 0  # threads that ask Ray for something
        self._nodes = living_nodes(self._share)
        # Machines that are present when the run begins were asked before: see `require_alike`.
        self._asked, self._welcome = set(self._nodes), set(self._nodes)
        if not self.capacity:
            resources = " and ".join(
                f"{value:g} {key.removeprefix('num_')}" for key, value in share.items() if value > 0
            )
            raise CallError(f"no node of the cluster has room for a client, which takes {resources}")
        self._watching = [threading.Thread(target=self._watch_nodes, daemon=True)]
        self._watching[0].start()

    @property
    def capacity(self) -> int:
        """Largest number of simultaneous calls of ordinary clients, which neither attack nor know secret bits."""
        return sum(node.slots for node in self._nodes.values())

    @property
    def is_closed(self) -> bool:
        """Whether the pool was closed, and starts no more calls."""
        return self._closed.is_set()

    def take(self, compartment: int) -> ClientProcess:
        """Return a process for client calls: an idle one, or a new one as soon as there is room for it.

        `compartment`: Only clients of the same compartment share a process.
        """
        with self._changed:
            while not self._closed.is_set():
                if idle := self._idle.get(compartment):
                    return idle.pop()
                if (node := self._room(compartment)) is not None:
                    process = ClientProcess(self._started(node, compartment), node, compartment)
                    if self._is_shared and compartment == ORDINARY:
                        process.start = process.handle.has_started.remote()
                    self._processes.append(process)
                    return process
                self._changed.wait()
        raise CallError(_ENDED)

    def give_back(self, process: ClientProcess) -> None:
        """Mark a process as idle after its use, so that `take` may return it again; ignore a lost process."""
        with self._changed:
            if process in self._processes:
                self._idle.setdefault(process.compartment, []).append(process)
                self._changed.notify_all()

    def call(self, process: ClientProcess, load: ProcessCalls) -> CallReplies:
        """Make client calls in a process, one after the other, and return the results of the finished calls.

        The method returns after the last call, after a failed call, or after `SECONDS_OF_A_CALL` (0.1 seconds). In the
        last case, some calls may still be in progress; `wait_for_results` waits for them. The remaining calls are not
        made.
        """
        self._wait_for_start(process)
        with call_error_if_full():
            large = [array.reference() for array in load.large if isinstance(array, SharedArray)]
            single = [None if isinstance(array, SharedArray) else array for array in load.large]
            # By itself Ray asks Python of each object how it is to be pickled, and messages have many.
            calls = pickle.dumps((load.messages, load.holes, load.contexts), protocol=pickle.HIGHEST_PROTOCOL)
            begun = process.handle.run.remote(
                calls, single, list(load.call_context), load.own, SECONDS_OF_A_CALL, *large
            )
        return self._outcome(process, begun)

    def _wait_for_start(self, process: ClientProcess) -> None:
        """Wait until a process has started; if others have taken its cores for too long, let it share them."""
        if process.start is None:
            return
        started, _ = ray.wait([process.start], timeout=_SECONDS_FOR_CORES)
        process.start = None
        if not started:
            ray.kill(process.handle)
            process.handle = self._started(process.node, process.compartment, takes_cores=False)
            with self._changed:
                is_new = process.node.address not in self._crowded
                self._crowded.add(process.node.address)
            if is_new:
                verbosity.tell(f"node {process.node.address}: other programs have taken its cores, which are shared")

    def wait_for_results(self, process: ClientProcess, under_way: int) -> CallReplies:
        """Wait for a process that makes client calls, and return the results of those that are done.

        A single call is awaited to its end. With several calls, the process begins no further call after
        `SECONDS_OF_A_CALL` (0.1 seconds). The calls that it has not begun are not made, and one that it has begun
        continues.
        """
        return self._outcome(
            process, process.handle.wait_for_results.remote(SECONDS_OF_A_CALL if under_way > 1 else None)
        )

    def has_lost(self, process: ClientProcess, is_last_chance: bool) -> bool:
        """Remove a dead process from the pool, and return whether its machine is lost as well.

        `is_last_chance`: Ray then has up to 30 seconds to notice the loss of the machine.
        """
        self._forget(process)
        return not self._is_alive(process.node, is_last_chance)

    def processes_for(self, compartment: int) -> int:
        """Return the largest number of processes that may run at the same time for a compartment."""
        return self.capacity if compartment == ORDINARY else max(1, self.capacity // 2)

    def close(self) -> None:
        """End all client processes, and all client calls that wait or are in progress."""
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
        """Make `close` wait for the end of a `with` block that makes requests to Ray, but for at most 5 seconds."""
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

    def _room(self, compartment: int) -> RayMachine | None:
        """Return the machine for a new process of a compartment, or None if no machine has room.

        The machine with the fewest dead processes is preferred, and among equals the one with the fewest processes of
        the compartment.
        """
        counter = Counter(process.node.identity for process in self._processes if process.compartment == compartment)
        if compartment == ORDINARY:
            nodes = [node for node in self._nodes.values() if counter[node.identity] < node.slots]
        else:
            # They get processes beside the ordinary ones: the calls of insiders last longest, and so start at once.
            nodes = list(self._nodes.values()) if counter.total() < self.processes_for(compartment) else []
        order = {node: (self._suspects[node.identity], counter[node.identity], -node.slots) for node in nodes}
        return min(order, key=order.__getitem__, default=None)

    def _started(self, machine: RayMachine, compartment: int, takes_cores: bool = True) -> Any:
        placed = NodeAffinitySchedulingStrategy(node_id=machine.identity, soft=False)
        share = self._share if compartment == ORDINARY and takes_cores else self._share | {"num_cpus": 0}
        return self._actor.options(scheduling_strategy=placed, max_restarts=0, **share).remote(
            [entry or os.getcwd() for entry in sys.path], self._app
        )

    def _outcome(self, process: ClientProcess, reference: Any) -> CallReplies:
        """Wait for the results of calls in a process; raise `LostCallsError` if its machine is lost meanwhile."""
        try:
            with call_error_if_full():
                while not ray.wait([reference], timeout=_SECONDS_BETWEEN_LOOKS)[0]:
                    if self._closed.is_set():
                        raise CallError(_ENDED)
                    if process.node.identity not in self._nodes:
                        raise LostCallsError
                outcomes, under_way, seconds = ray.get(reference)
                return CallReplies([_answer(self._views, *outcome) for outcome in outcomes], under_way, seconds)
        except RayTaskError as error:
            # Only errors of Ray itself arrive here, for example if a message cannot be unpickled.
            if isinstance(error.cause, ConnectionAbortedError):
                raise LostCallsError from None
            raise LostCallsError(f"{type(error.cause).__name__}: {error.cause}") from None
        except RayError as error:
            verbosity.LOG.info("client calls on node %s are lost: %s", process.node.address, error)
            raise LostCallsError from None

    def _forget(self, process: ClientProcess) -> None:
        """Kill a process, remove it from the pool, and count one more dead process for its machine."""
        with suppress(Exception):
            ray.kill(process.handle)
        with self._changed:
            if process in self._processes:
                self._processes.remove(process)
            self._suspects[process.node.identity] += 1
            self._changed.notify_all()

    def _is_alive(self, machine: RayMachine, is_last_chance: bool) -> bool:
        """Return whether a machine is still in the cluster.

        With `is_last_chance`, Ray first gets up to 30 seconds to notice that the machine is gone.
        """
        if is_last_chance and len(self._nodes) > 1:
            with self._changed:
                gone = lambda: self._closed.is_set() or machine.identity not in self._nodes  # noqa: E731
                self._changed.wait_for(gone, _SECONDS_UNTIL_A_NODE_IS_MISSED)
        return machine.identity in self._nodes

    def _watch_nodes(self) -> None:
        """Ask Ray every second which machines have joined or are lost; the body of a thread."""
        while not self._closed.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                machines = living_nodes(self._share)
            except Exception:  # the head may be away for a while
                continue
            for node in machines.values():
                if node.identity not in self._asked:
                    self._asked.add(node.identity)
                    self._watching.append(threading.Thread(target=self._admit_machine, args=(node,), daemon=True))
                    self._watching[-1].start()
            machines = {identity: node for identity, node in machines.items() if identity in self._welcome}
            with self._changed:
                lost = [node for identity, node in self._nodes.items() if identity not in machines]
                if machines.keys() != self._nodes.keys():
                    self._nodes = machines
                    self._drop_from(lost)
                    self._changed.notify_all()

    def _admit_machine(self, machine: RayMachine) -> None:
        """Let the pool use a machine that has joined, if its versions of Python and packages match."""
        for versions in versions_of([machine.identity], self._closed.is_set).values():
            difference = differing_versions(versions)
            unused = f" and is not used: it has {difference}" if difference else ""
            verbosity.tell(f"node {machine.address} has joined{unused}")
            if not difference:
                self._welcome.add(machine.identity)

    def _drop_from(self, lost: list[RayMachine]) -> None:
        for node in lost:
            on_it = [process for process in self._processes if process.node.identity == node.identity]
            idle = [process for waiting in self._idle.values() for process in waiting]
            busy = sum(process not in idle for process in on_it)
            self._processes = [process for process in self._processes if process not in on_it]
            self._idle = {
                key: [process for process in waiting if process not in on_it] for key, waiting in self._idle.items()
            }
            verbosity.tell(
                f"node {node.address} is lost: {busy} unfinished call(s) on it are made again on other nodes"
            )


def _answer(views: StoreViews, reply: bytes, large: Sequence[Any], failure: str | None) -> CallReply:
    light, holes, context = pickle.loads(reply)
    views.put_back(holes, large)
    return CallReply(light, context, failure)
