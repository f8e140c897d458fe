"""One game against a subject: its strategy asks, its clients answer, and an observer notes what it sees."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.app.message import Array
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fl_audit.adjacency import Relation, Unit
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.seen import Floats, Seen
from fl_audit.packing import pack, unpack
from strategies.laboratory.kinds import RECORDS_OF_OTHERS, Form, Kind, Part, Schedule
from strategies.laboratory.replies import Arrays, Template, flat, message_of, template, update_of
from strategies.laboratory.subject import Local, Mod, Observer, Subject, clipped_sum

Answer = Callable[[Message, Context], Message]

_RUN_ID, _SERVER, _FIRST_NODE = 1, 1, 2
TARGET, WATCHER = 0, 1
"""Positions of the client whose contribution differs, and of the one that looks."""


class LaboratoryGrid(Grid):
    """A grid that knows its nodes and carries no messages: the laboratory carries them itself."""

    def __init__(self, clients: int) -> None:
        # Flower lets nobody make a message who is no task of a run.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, _RUN_ID, _SERVER
        self._nodes = list(range(_FIRST_NODE, _FIRST_NODE + clients))

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """There is no run record."""
        raise NotImplementedError("games have no run record")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: in games messages travel through `configure_train` and `aggregate_train` alone."""
        raise NotImplementedError("a strategy that sends messages by itself cannot be played in the laboratory")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse, as `push_messages`."""
        raise NotImplementedError("a strategy that sends messages by itself cannot be played in the laboratory")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Refuse, as `push_messages`."""
        raise NotImplementedError("a strategy that sends messages by itself cannot be played in the laboratory")


class Game:
    """One game.

    Parameters
    ----------
    subject
        What is on trial.
    claim
        What it claims.
    kind
        The kind of game.
    present
        Whether D is played.
    random
        For clients whose local work is random.
    """

    def __init__(
        self, subject: Subject, claim: StatedClaim, kind: Kind, present: bool, random: np.random.Generator
    ) -> None:
        self._subject, self._claim, self._kind, self._random = subject, claim, kind, random
        self._model: Template = template(kind.model)
        self._part: Part | None = kind.present if present else kind.absent
        self._numbers: dict[str, list[float]] = {}
        shape = (claim.rounds, self._model.size)
        self._steps, self._released = np.full(shape, np.nan), np.full(shape, np.nan)
        self._own = np.zeros(shape)
        self._contexts = [_context(client, subject.clients) for client in range(subject.clients)]

    def play(self) -> Seen:
        """Play to the end, or until the mechanism refuses to go on."""
        refusal = None
        try:
            self._rounds()
        except Exception as error:  # whatever a foreign strategy raises is a finding, never the end of the audit
            refusal = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
        return Seen(
            steps=self._steps,
            released=self._released,
            direction=np.stack([self._difference(round) for round in range(1, self._claim.rounds + 1)]),
            others=np.zeros_like(self._steps),
            own=self._own,
            numbers=_summarised(self._numbers, refusal),
            refusal=refusal,
        )

    def _rounds(self) -> None:
        strategy = self._subject.strategy()
        grid = LaboratoryGrid(self._subject.clients)
        arrays: Arrays = {name: value.copy() for name, value in self._model.arrays.items()}
        for round in range(1, self._claim.rounds + 1):
            record = ArrayRecord({name: Array(*pack(value)) for name, value in arrays.items()})
            messages = list(strategy.configure_train(round, record, ConfigRecord(), grid))
            replies = [reply for message in messages if (reply := self._reply(message, round)) is not None]
            released, metrics = strategy.aggregate_train(round, replies)
            arrays = self._noted(round, arrays, released, metrics)

    def _noted(self, round: int, sent: Arrays, released: ArrayRecord | None, metrics: MetricRecord | None) -> Arrays:
        """Note what is released in a round; return the model of the next one."""
        if self._subject.observer is Observer.SERVER:
            return sent if released is None else _arrays(released)
        self._note("metrics", metrics or {})
        if released is None:
            self._note("form", {"nothing was released": 1.0})
            return sent
        arrays = _arrays(released)
        values = flat(arrays, self._model)
        self._released[round - 1] = values
        self._steps[round - 1] = values - flat(sent, self._model)
        beside = {name: array.ravel() for name, array in arrays.items() if name not in self._model.arrays}
        self._note("array", {f"{name}[{n}]": float(x) for name, one in beside.items() for n, x in enumerate(one)})
        forms = "; ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
        self._note("form", {forms: 1.0, "bytes": float(sum(array.nbytes for array in arrays.values()))})
        return arrays

    def _note(self, what: str, numbers: Mapping[str, object]) -> None:
        """Note numbers, and how many entries a list has with their mean."""
        for name, value in numbers.items():
            if isinstance(value, (bool, int, float)):
                self._numbers.setdefault(f"{what}: {name}", []).append(float(value))
            elif isinstance(value, (str, bytes)):
                self._numbers.setdefault(f"{what}: length of {name}", []).append(float(len(value)))
            elif isinstance(value, list) and value and isinstance(value[0], (bool, int, float)):
                self._numbers.setdefault(f"{what}: mean of {name}", []).append(float(np.mean(value)))
                self._numbers.setdefault(f"{what}: length of {name}", []).append(float(len(value)))

    def _reply(self, message: Message, round: int) -> Message | None:
        """Return what a client answers, after its modifiers."""
        client = message.metadata.dst_node_id - _FIRST_NODE
        key, record = next(iter(message.content.array_records.items()))
        received = _arrays(record)
        if client == WATCHER and self._subject.observer is Observer.CLIENT:
            for name, config in message.content.config_records.items():
                self._note(name, {key: value for key, value in config.items() if key != "server-round"})
        part = self._part if client == TARGET else self._kind.others
        assert part is not None
        update, numbers = self._contribution(client, part, round)

        def train(inner: Message, _context: Context) -> Message:
            answer = message_of(received, update, self._model, part.form, numbers, key, inner)
            if answer is None:
                raise _NoReply
            return answer

        try:
            reply = _modified(self._subject.mods, train)(message, self._contexts[client])
        except _NoReply:
            return None
        self._look_at(client, reply, received, update, round)
        return reply

    def _look_at(self, client: int, reply: Message, received: Arrays, update: Floats, round: int) -> None:
        """Note a reply that the observer sees: the target's, if it is the server; else what became of its own."""
        if reply.has_error():
            return
        is_server = self._subject.observer is Observer.SERVER
        if not (client == TARGET if is_server else client == WATCHER and self._subject.mods):
            return
        arrays = _arrays(next(iter(reply.content.array_records.values())))
        values = flat(arrays, self._model)
        step = values - flat(received, self._model)
        if not is_server:
            self._own[round - 1] = np.nan_to_num(step - update)
            return
        self._released[round - 1], self._steps[round - 1] = values, step
        for record in reply.content.metric_records.values():
            self._note("reply", record)

    def _contribution(self, client: int, part: Part, round: int) -> tuple[Floats, dict[str, float]]:
        """Return what a client adds to the model, and the numbers that it names."""
        if self._claim.neighbours.unit is Unit.CLIENT:
            update = self._vector(part, round, is_target=client == TARGET)
            return update, {"num-examples": part.examples, "loss": part.loss}
        rest = [self._vector(self._kind.others, round, is_target=False) / RECORDS_OF_OTHERS] * RECORDS_OF_OTHERS
        own = [self._vector(part, round, is_target=True)] if client == TARGET and self._has_record(part) else []
        local: Local = self._subject.local or clipped_sum(self._subject.norm)
        reply = local(np.stack([*own, *rest]), round, self._random)
        return reply.update, {"num-examples": reply.examples, **reply.metrics}

    def _has_record(self, part: Part) -> bool:
        """Return whether the differing record is there: it is, but under D' where it is added or removed."""
        return part is self._kind.present or self._claim.neighbours.relation is Relation.REPLACE

    def _vector(self, part: Part, round: int, is_target: bool) -> Floats:
        # Others contribute the same in every round, whatever the target does.
        schedule = self._kind.schedule if is_target else Schedule.STEADY
        return update_of(part, self._model, self._subject.norm, round, schedule)

    def _difference(self, round: int) -> Floats:
        """Return the direction in which D and D' differ, as the observer knows it."""
        present = self._vector(self._kind.present, round, is_target=True)
        absent = np.zeros_like(present)
        if self._kind.absent.form is Form.PLAIN:
            absent = self._vector(self._kind.absent, round, is_target=True)
        difference = present - absent
        if not np.any(difference):
            # Where the updates are equal, what they do to the others' share is what can be seen.
            return self._vector(self._kind.others, round, is_target=False)
        return difference


class _NoReply(Exception):
    """A client that does not answer."""


def _modified(mods: tuple[Mod, ...], train: Answer) -> Answer:
    """Return training inside its modifiers, the first of which is the outermost."""
    for mod in reversed(mods):
        train = partial(mod, call_next=train)
    return train


def _arrays(record: ArrayRecord) -> Arrays:
    return {name: unpack(array) for name, array in record.items()}


def _context(client: int, clients: int) -> Context:
    return Context(
        run_id=_RUN_ID,
        node_id=client + _FIRST_NODE,
        node_config=UserConfig({"partition-id": client, "num-partitions": clients}),
        state=RecordDict(),
        run_config=UserConfig(),
    )


def _summarised(numbers: Mapping[str, list[float]], refusal: str | None) -> dict[str, float]:
    """Return numbers noted round by round: the only one, or the first, the last and the mean."""
    found = dict[str, float]()
    for name, values in numbers.items():
        if len(values) == 1:
            found[name] = values[0]
        else:
            found |= {f"{name}, first": values[0], f"{name}, last": values[-1], f"{name}, mean": float(np.mean(values))}
    if refusal is not None:
        found["the mechanism refused to go on"] = 1.0
    return found
