"""The local engine, which runs Flower's ServerApp and ClientApp in this process, with client calls in threads."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fl_audit.runs.verbosity import settle_flower
from fl_audit.strategies.simulated_grid import RUN_ID, SERVER_NODE, NodeContexts, Outcome, Settle, SimulatedGrid

_AHEAD = 8  # most messages that a thread takes at a time where they are read ahead: the stacked models stay in cache

AnnounceCalls = Callable[[Sequence[tuple[Message, Context]]], None]


@dataclass(eq=False)
class _Call:
    """A message to a client, and its id."""

    identity: str
    message: Message

    @property
    def node(self) -> int:
        return self.message.metadata.dst_node_id


@dataclass(eq=False)
class _ThreadCalls:
    """The calls that a thread has taken, in order; the first is in progress."""

    calls: list[_Call]
    deadline: float  # latest time for the reply to the first call, by the monotonic clock
    is_given_up: bool = False  # whether another thread has taken the place of this one


class ThreadExecutor:
    """Calls clients in threads of this process; a client answers one message at a time.

    A call that exceeds its time limit counts as failed. Another thread then takes the place of its thread, which ends
    after the call.

    Parameters
    ----------
    client_app
        The app with which every client answers messages.
    contexts
        The Flower context of each node.
    settle
        Function that receives the outcomes of calls.
    time_limit
        Longest time of one client call, in seconds.
    threads
        Number of simultaneous client calls, at least 1.
    announce_calls
        Function that a thread calls with the messages that it has taken, before their first client call; or None.
    """

    def __init__(
        self,
        client_app: ClientApp,
        contexts: NodeContexts,
        settle: Settle,
        time_limit: float,
        threads: int,
        announce_calls: AnnounceCalls | None,
    ) -> None:
        self._client_app = client_app
        self._contexts = contexts
        self._settle = settle
        self._time_limit = time_limit
        self._threads = threads
        self._announce_calls = announce_calls
        self._changed = threading.Condition()
        self._waiting: dict[str, _Call] = {}
        self._at_work: list[_ThreadCalls] = []
        self._share = 1
        self._is_closed = False
        for _ in range(threads):
            self._start_thread()

    def add(self, messages: Mapping[str, Message]) -> None:
        """Schedule the calls of clients for messages, given by id."""
        with self._changed:
            self._waiting |= {identity: _Call(identity, message) for identity, message in messages.items()}
            # A share of the messages for each thread, so that none is left with many while others have nothing to do.
            if self._announce_calls is not None:
                self._share = max(1, min(_AHEAD, ceil(len(self._waiting) / self._threads)))
            self._changed.notify_all()

    def look(self) -> None:
        """Report calls that have exceeded their time limit as failed."""
        now = time.monotonic()
        late = list[_Call]()
        with self._changed:
            for calls in [calls for calls in self._at_work if calls.deadline < now]:
                late.append(calls.calls[0])
                calls.is_given_up = True
                self._at_work.remove(calls)
                self._waiting = {call.identity: call for call in calls.calls[1:]} | self._waiting
                self._start_thread()
            self._changed.notify_all()
        self._settle([(call.identity, self._timeout()) for call in late])

    def close(self) -> None:
        """Begin no further call, and end all threads; a busy thread ends after its current client call."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _start_thread(self) -> None:
        # It does not keep the process alive if a call never ends.
        threading.Thread(target=self._serve, daemon=True).start()

    def _timeout(self) -> TimeoutError:
        return TimeoutError(f"no answer within its time limit of {self._time_limit:g} s")

    def _serve(self) -> None:
        """Make the waiting calls until the executor is closed, or this thread is given up."""
        while (calls := self._next_calls()) is not None:
            announced = list(calls.calls)
            while calls.calls:
                call = calls.calls[0]
                outcome = self._outcome(call, announced)
                announced = []
                with self._changed:
                    if calls.is_given_up:
                        return
                    if time.monotonic() > calls.deadline:
                        outcome = self._timeout()
                    calls.calls.pop(0)
                    calls.deadline = time.monotonic() + self._time_limit
                    if self._is_closed:
                        calls.calls.clear()
                    if not calls.calls:
                        self._at_work.remove(calls)
                    self._changed.notify_all()
                self._settle([(call.identity, outcome)])

    def _next_calls(self) -> _ThreadCalls | None:
        """Wait for messages to clients that are not busy, and take some, one for each client; None if closed."""
        with self._changed:
            while not self._is_closed:
                busy = {call.node for calls in self._at_work for call in calls.calls}
                calls = list[_Call]()
                for call in self._waiting.values():
                    if call.node not in busy:
                        calls.append(call)
                        busy.add(call.node)
                        if len(calls) == self._share:
                            break
                if calls:
                    for call in calls:
                        del self._waiting[call.identity]
                    # The first may work out the replies to all that are announced.
                    limit = self._time_limit * (len(calls) if self._announce_calls else 1)
                    self._at_work.append(thread_calls := _ThreadCalls(calls, time.monotonic() + limit))
                    return thread_calls
                self._changed.wait()
        return None

    def _outcome(self, call: _Call, announced: Sequence[_Call]) -> Outcome:
        """Call a client, and return its reply or its exception; announce calls before, if there are any."""
        try:
            if self._announce_calls is not None and announced:
                self._announce_calls([(call.message, self._contexts[call.node]) for call in announced])
            return self._client_app(message=call.message, context=self._contexts[call.node])
        except SystemExit as ended:
            return RuntimeError(f"it ended itself with status {ended.code}")
        except TimeoutError as error:
            return RuntimeError(str(error))
        except Exception as error:  # any exception of a client becomes an error reply, as under Flower's runtime
            return error


def local_grid(
    client_app: ClientApp,
    clients: int,
    time_limit: float,
    actors: int = 1,
    announce_calls: AnnounceCalls | None = None,
    run_config: UserConfig | None = None,
) -> SimulatedGrid:
    """Return a grid whose clients are called in threads of this process; its parameters are those of `run_locally`."""
    return SimulatedGrid(
        clients,
        lambda contexts, settle: ThreadExecutor(client_app, contexts, settle, time_limit, actors, announce_calls),
        run_config,
    )


def run_on(grid: SimulatedGrid, server_app: ServerApp) -> Counter[str]:
    """Run a ServerApp on a grid, close the grid, and return the number of failed client calls by their errors."""
    settle_flower()
    context = Context(
        run_id=RUN_ID,
        node_id=SERVER_NODE,
        node_config=UserConfig(),
        state=RecordDict(),
        run_config=grid.contexts.run_config,
    )
    try:
        server_app(grid=grid, context=context)
    finally:
        grid.close()
    return grid.failed_calls


def run_locally(
    server_app: ServerApp,
    client_app: ClientApp,
    clients: int,
    time_limit: float,
    actors: int = 1,
    announce_calls: AnnounceCalls | None = None,
    run_config: UserConfig | None = None,
) -> Counter[str]:
    """Run a Flower app in this process, with client calls in threads; return the failed calls by their errors.

    Raises `FederationError` if the server app raises it.

    `announce_calls`: The thread calls it before its first client call. None for no function.

    `run_config`: Run configuration in the contexts of the server and of the clients. None for an empty one.
    """
    return run_on(local_grid(client_app, clients, time_limit, actors, announce_calls, run_config), server_app)
