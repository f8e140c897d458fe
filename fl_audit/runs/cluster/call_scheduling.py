"""Scheduling of client calls on processes: the distribution of waiting calls, and repetition of lost calls.

One Ray call makes several client calls. An idle process takes its share of the waiting calls, measured by the clients'
numbers of records, and prefers clients whose records it has already received. Calls that a process has not begun in
time return to the queue, so that other processes can make them. Every call has its own reply and failure. If a process
dies, each of its calls is repeated alone. This shows which call kills processes, and spares the other calls.
"""

import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Context, Message

from fl_audit.runs import verbosity
from fl_audit.runs.cluster.array_transport import SharedArray, bytes_of, shared_arrays, take_out
from fl_audit.runs.cluster.call_errors import CallError, LostCallsError
from fl_audit.runs.cluster.client_actor import CallReplies, CallReply, ProcessCalls
from fl_audit.runs.cluster.pool import SECONDS_OF_A_CALL, ClientPool, ClientProcess
from fl_audit.runs.cluster.process_data_and_code import CallContextPacker, compartment_of, weight_of
from fl_audit.strategies.simulated_grid import Outcome, Settle

RETRIES = 2
"""Number of times that a call is repeated, on a new process, if its process dies, but not its machine."""
_SECONDS_BETWEEN_LOOKS = 1.0
"""Seconds for which a thread waits for calls before it checks whether the pool is closed."""
_SECONDS_OF_A_PART = 1.5 * SECONDS_OF_A_CALL
"""Expected duration of the calls that a process is given; calls that it does not reach were sent in vain."""
_FIRST_PART = 16
"""Number of calls that a process is given at first, when their duration is not known."""
_DIED = "its process died, or ended itself at the time limit"


@dataclass(eq=False)
class _Call:
    """A scheduled message to a client whose reply has not yet arrived."""

    identity: str  # id of the message
    message: Message
    weight: int  # estimated work: the client's number of records, at least 1
    shared: Mapping[int, SharedArray]  # large arrays in several scheduled messages, by the `id` of their bytes
    deaths: int = 0  # number of processes that died before they had finished this call
    is_alone: bool = False  # whether the call must be the only one of its Ray call

    @property
    def node(self) -> int:
        return self.message.metadata.dst_node_id


@dataclass(eq=False)
class _CallQueue:
    """The client calls that wait for a process; all clients of a queue may share a process."""

    calls: list[_Call] = field(default_factory=list)
    threads: int = 0
    idle: int = 0  # number of these threads that wait for calls
    # Duration of a call in seconds, divided by its weight, by the type of message.
    paces: dict[str, float] = field(default_factory=dict)

    def seconds_of(self, call: _Call) -> float:
        """Return the expected duration of a call in seconds, estimated from earlier calls of the same type."""
        pace = self.paces.get(call.message.metadata.message_type)
        return _SECONDS_OF_A_PART / _FIRST_PART if pace is None else pace * call.weight

    def note(self, calls: Sequence[_Call], replies: CallReplies) -> None:
        """Record how many seconds the finished calls took for each record of their clients.

        Later estimates of the duration of calls of the same type use this number.
        """
        made = calls[: max(1, len(replies.made))]
        self.paces[made[0].message.metadata.message_type] = replies.seconds / sum(call.weight for call in made)


class CallScheduler:
    """Distributes client calls among the processes of a pool, and repeats calls whose process has died.

    Parameters
    ----------
    pool
        The pool whose processes make the calls.
    contexts
        The Flower context of each node, by node id. Each call replaces the context of its node.
    settle
        Function that receives finished calls as pairs of message id and outcome, which is a reply or a failure. It is
        called in a thread of the scheduler and should return quickly.
    """

    def __init__(self, pool: ClientPool, contexts: dict[int, Context], settle: Settle) -> None:
        self._pool = pool
        self._contexts = contexts
        self._settle = settle
        self._call_context = CallContextPacker()
        self._changed = threading.Condition()
        self._lines: dict[int, _CallQueue] = {}
        self._homes: dict[int, ClientProcess] = {}
        self._shared: Mapping[int, SharedArray] = {}

    def add(self, messages: Mapping[str, Message]) -> None:
        """Schedule messages, given by id and each addressed to a node id; `settle` later receives their outcomes."""
        # They are kept here, lest the last thread that has them lets them go while Ray is being shut down.
        self._shared, lines = shared_arrays(list(messages.values())), dict[int, list[_Call]]()
        for identity, message in messages.items():
            context = self._contexts[message.metadata.dst_node_id]
            call = _Call(identity, message, weight_of(message, context), self._shared)
            lines.setdefault(compartment_of(message, context), []).append(call)
        with self._changed:
            for compartment, calls in lines.items():
                line = self._lines.setdefault(compartment, _CallQueue())
                # The largest first: what is left at the end is small, and clients of one size can train together.
                line.calls = sorted([*line.calls, *calls], key=lambda call: -call.weight)
            self._changed.notify_all()
        self.use_all_nodes()

    def look(self) -> None:
        """Start further threads if machines have joined the cluster meanwhile."""
        self.use_all_nodes()

    def close(self) -> None:
        """End all client processes, and all calls that wait or are in progress."""
        self._pool.close()

    def use_all_nodes(self) -> None:
        """Start further threads, each of which makes client calls in one process at a time.

        A compartment is a group of clients that may share processes. Each compartment gets as many threads as it has
        calls, but not more than the pool can run processes for it. Machines that have joined the cluster meanwhile
        count as well.
        """
        with self._changed:
            for compartment, line in self._lines.items():
                wanted_processes = min(
                    len(line.calls) + line.threads - line.idle, self._pool.processes_for(compartment)
                )
                for _ in range(wanted_processes - line.threads):
                    line.threads, line.idle = line.threads + 1, line.idle + 1
                    threading.Thread(target=self._serve, args=(compartment, line), daemon=True).start()

    def _serve(self, compartment: int, queue: _CallQueue) -> None:
        """Make the waiting calls of a compartment, the clients that may share processes, until the pool is closed."""
        while True:
            with self._changed:
                while not self._changed.wait_for(lambda: queue.calls, _SECONDS_BETWEEN_LOOKS):
                    if self._pool.is_closed:
                        return
            try:
                # A waiting thread holds no reference to an object of Ray. If it released one while Ray is being shut
                # down, the program would end.
                with self._pool.in_use():
                    self._make_part(compartment, queue)
            except Exception as error:
                self._end(queue, error)
                return

    def _make_part(self, compartment: int, queue: _CallQueue) -> None:
        """Execute some of the waiting client calls in an idle process, and put lost calls back into the queue."""
        process = self._pool.take(compartment)
        with self._changed:
            calls = self._part(queue, process)
            queue.idle -= bool(calls)
        remaining_calls, words = self._run_calls(queue, process, calls) if calls else ([], None)
        if words is None or not self._requeue_lost(queue, process, remaining_calls, words):
            self._pool.give_back(process)
        with self._changed:
            queue.idle += bool(calls)

    def _end(self, queue: _CallQueue, error: Exception) -> None:
        """Report an error as the outcome of all waiting calls of a queue, because the error ends the queue's thread."""
        with self._changed:
            calls, queue.calls = queue.calls, []
            queue.threads, queue.idle = queue.threads - 1, queue.idle - 1
        self._settle([(call.identity, _failure(error)) for call in calls])

    def _part(self, queue: _CallQueue, process: ClientProcess) -> list[_Call]:
        """Take the next calls for a process out of a queue, and return them.

        It takes at least one call, and about as much work as there is for each idle process.
        """
        if not queue.calls:
            return []
        share = sum(call.weight for call in queue.calls) / max(1, queue.idle)
        calls = list[_Call]()
        weight = 0
        seconds = 0.0
        for call in self._in_order(queue, process):
            expected = queue.seconds_of(call)
            is_full = weight + call.weight / 2 > share or seconds + expected > _SECONDS_OF_A_PART
            if calls and (is_full or call.is_alone or calls[0].is_alone):
                break
            calls.append(call)
            weight = weight + call.weight
            seconds = seconds + expected
        gone = set(calls)
        queue.calls = [call for call in queue.calls if call not in gone]
        self._homes |= {call.node: process for call in calls}
        return calls

    def _in_order(self, queue: _CallQueue, process: ClientProcess) -> Iterator[_Call]:
        """Yield the waiting calls in the order in which a process takes them.

        First come calls of clients whose last call was made by this process, and of clients without an earlier call.
        Calls of other processes' clients follow, from the end of the queue.
        """
        for call in queue.calls:
            if self._homes.get(call.node, process) is process:
                yield call
        for call in reversed(queue.calls):
            if self._homes.get(call.node, process) is not process:
                yield call

    def _run_calls(
        self, queue: _CallQueue, process: ClientProcess, calls: list[_Call]
    ) -> tuple[list[_Call], str | None]:
        """Run calls in a process and report their outcomes; return the calls without a result, and an error message.

        The message is that of Ray, or empty if the process died. It is None if no call was lost.
        """
        remaining_calls = calls
        try:
            load, has = self._load(remaining_calls, process)
            answers = self._pool.call(process, load)
            process.has |= has
            queue.note(remaining_calls, answers)
            remaining_calls = self._report_outcomes(remaining_calls, answers.made)
            while answers.under_way:
                # They alone keep the process busy: those behind them are for everybody.
                calls_behind = remaining_calls[answers.under_way :]
                remaining_calls = remaining_calls[: answers.under_way]
                self._put_back(queue, calls_behind)
                answers = self._pool.wait_for_results(process, answers.under_way)
                remaining_calls = self._report_outcomes(remaining_calls, answers.made)
            self._put_back(queue, remaining_calls)
        except LostCallsError as error:
            return remaining_calls, error.words
        except Exception as error:
            self._settle([(call.identity, _failure(error)) for call in remaining_calls])
        return [], None

    def _load(self, calls: Sequence[_Call], process: ClientProcess) -> tuple[ProcessCalls, frozenset[Hashable]]:
        """Return calls packed for a process, and the keys of the data and code that are packed with them."""
        contexts = [self._contexts[call.node] for call in calls]
        packed = self._call_context.of(
            [(call.message, context) for call, context in zip(calls, contexts, strict=True)], process.has
        )
        lights, holes, arrays = take_out([call.message for call in calls])
        shared = calls[0].shared if len({id(call.shared) for call in calls}) == 1 else _joined(calls)
        large = [shared.get(id(array.data)) or bytes_of(array) for array in arrays]
        return ProcessCalls(lights, holes, contexts, large, packed.references, packed.own), packed.keys

    def _report_outcomes(self, calls: list[_Call], replies: Sequence[CallReply]) -> list[_Call]:
        """Report the outcomes of the calls that were made, and return the calls that are left.

        `replies` holds the outcomes in the order of `calls`, and may be shorter.
        """
        outcomes = list[tuple[str, Outcome]]()
        for call, answer in zip(calls, replies, strict=False):
            if answer.failure is None:
                self._contexts[call.node] = answer.context
                outcomes.append((call.identity, answer.reply))
            else:
                verbosity.LOG.info("a client call on node %d failed: %s", call.node, answer.failure)
                outcomes.append((call.identity, CallError(answer.failure)))
        self._settle(outcomes)
        return calls[len(replies) :]

    def _put_back(self, queue: _CallQueue, calls: Sequence[_Call]) -> None:
        with self._changed:
            queue.calls[:0] = calls
            self._changed.notify_all()

    def _requeue_lost(self, queue: _CallQueue, process: ClientProcess, calls: list[_Call], words: str) -> bool:
        """Put calls without a result back into the queue, and return whether their process died.

        `words` is the message with which Ray failed; it is "" if the process died. A call that was made alone is
        reported as failed if Ray failed, or if too many processes died in it. Several calls are repeated one by one.
        """
        is_alone = len(calls) == 1
        is_lost = not words
        if is_lost:
            if self._pool.has_lost(process, is_last_chance=is_alone and calls[0].deaths >= RETRIES):
                self._put_back(queue, calls)
                return True
            for call in calls:
                call.deaths += 1
            words = f"{_DIED} (node {process.node.address})"
        # A message that could not be read is attributed to its call only where that call was made alone.
        if is_alone and (calls[0].deaths > RETRIES or not is_lost):
            self._settle([(calls[0].identity, CallError(words))])
            return is_lost
        for call in calls:
            call.is_alone = True
        self._put_back(queue, calls)
        return is_lost


def _failure(error: Exception) -> CallError:
    return error if isinstance(error, CallError) else CallError(str(error) or type(error).__name__)


def _joined(calls: Sequence[_Call]) -> dict[int, SharedArray]:
    return {identity: array for call in calls for identity, array in call.shared.items()}
