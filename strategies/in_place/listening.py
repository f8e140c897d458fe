"""What is heard of a game: the releases, what differs, what others sent, and every number beside them."""

from dataclasses import dataclass, field

import numpy as np
from flwr.app import Message

from fl_audit.laboratory.seen import Seen
from fl_audit.laboratory.sketch import Sketch
from strategies.in_place.contributions import Arrays, Floats, arrays_of, base_of, crafted, flat, with_names
from strategies.in_place.notes import Answer, Note, Replies, read_note, taken_answer
from strategies.laboratory.subject import Observer

ERROR = "a client replied with an error: "
"""Begins the name of a number that counts replies which are errors."""
_WEIGHT = "num-examples"
"""The metric by which Flower's strategies weigh replies unless they are told another one."""


@dataclass(frozen=True)
class Part:
    """What is fixed in a game.

    Parameters
    ----------
    note
        What the target's client is told.
    target, watcher
        Their nodes.
    model
        The initial model, by the names of its tensors.
    rounds
        How many rounds a game has.
    observer
        Who looks.
    is_crafted
        Whether the target's contribution is crafted, if it is there: what is looked at must not follow from the coin.
    reference
        Along what to look where the difference is not known, shape (parameters,): for claims about records, what the
        target's client has once learned.
    """

    note: Note
    target: int
    watcher: int | None
    model: Arrays
    rounds: int
    observer: Observer
    is_crafted: bool = False
    reference: Floats | None = None


@dataclass
class _Round:
    """What was heard in a round; vectors have the shape (parameters,).

    Parameters
    ----------
    sent
        The model that clients were sent.
    asked
        Nodes that were asked to train.
    difference
        What the target's client has learned.
    reply
        What arrived from the target's client, less what it was sent.
    others
        What arrived from others: weights and updates.
    """

    sent: Floats
    asked: set[int] = field(default_factory=set)
    difference: Floats | None = None
    reply: Floats | None = None
    others: list[tuple[float, Floats]] = field(default_factory=list)


class RollCall:
    """Ears of the app's own training: they learn who is who, and leave everything else alone."""

    def __init__(self, model: Arrays, replies: Replies) -> None:
        self._names, self._replies = set(model), replies
        self.partitions: dict[int, int | None] = {}
        self.updates: dict[int, Floats] = {}
        self.asks_for_records: set[int] = set()
        self._sent: dict[int, Arrays] = {}

    def sends(self, message: Message) -> None:
        """Tell a client that this is the app's own training."""
        received = {name: arrays_of(record) for name, record in message.content.array_records.items()}
        sent = with_names(received, self._names, "")
        if sent is not None:
            self._sent[message.metadata.dst_node_id] = sent
        message.metadata.group_id = Note(0, group=message.metadata.group_id).written()

    def receives(self, reply: Message) -> None:
        """Learn which partition answers, and what its first update is."""
        read_note(reply)
        answer = taken_answer(reply)
        if answer is None:
            return
        node = reply.metadata.src_node_id
        self.partitions[node] = answer.partition
        if answer.has_record:
            self.asks_for_records.add(node)
        records = {name: arrays_of(record) for name, record in reply.content.array_records.items()}
        own = with_names(records, self._names, "")
        if own is not None and node in self._sent and node not in self.updates:
            self.updates[node] = flat(own) - flat(base_of(own, self._sent[node], self._replies))


class GameEars:
    """Ears of one game.

    Parameters
    ----------
    part
        What is fixed in the game.
    sketch
        Of the model's parameters, in the order of their names.
    """

    def __init__(self, part: Part, sketch: Sketch) -> None:
        self._part, self._sketch = part, sketch
        self._rounds: list[_Round] = []
        self._numbers: dict[str, list[float]] = {}
        self.errors: list[str] = []

    def sends(self, message: Message) -> None:
        """Write the game's note on a message, and note what it releases."""
        node, note = message.metadata.dst_node_id, self._part.note
        if message.metadata.message_type.startswith("train"):
            self._asked(node, message)
        deed = note.deed if node == self._part.target else None
        told = Note(note.game, message.metadata.group_id, deed, note.replies, note.numbers, note.length)
        message.metadata.group_id = told.written()

    def receives(self, reply: Message) -> None:
        """Note a reply, and give it the form that it has without us."""
        read_note(reply)
        if reply.has_error():
            self.errors.append(" ".join((reply.error.reason or "no reason").split()))
            return
        answer = taken_answer(reply)
        if reply.metadata.message_type.startswith("train") and self._rounds:
            self._answered(reply, answer)

    def _asked(self, node: int, message: Message) -> None:
        received = {name: arrays_of(record) for name, record in message.content.array_records.items()}
        model = with_names(received, set(self._part.model), "")
        if model is None:
            return
        # A node that is asked again is in the next round: strategies need not number their rounds.
        if not self._rounds or node in self._rounds[-1].asked:
            self._rounds.append(_Round(flat(model)))
        self._rounds[-1].asked.add(node)
        if node == self._part.watcher and self._part.observer is Observer.CLIENT:
            for record in message.content.config_records.values():
                self._note("config", record)

    def _answered(self, reply: Message, answer: Answer | None) -> None:
        heard, node = self._rounds[-1], reply.metadata.src_node_id
        records = {name: arrays_of(record) for name, record in reply.content.array_records.items()}
        arrays = with_names(records, set(self._part.model), "")
        is_target = node == self._part.target
        if is_target and answer is not None:
            heard.difference = answer.update
        if arrays is None:
            return
        base = heard.sent if self._part.note.replies is Replies.MODELS else np.zeros_like(heard.sent)
        values = flat(arrays)
        if values.shape != base.shape:
            return
        if not is_target:
            heard.others.append((_weight(reply), values - base))
            return
        heard.reply = values - base
        if self._part.observer is Observer.SERVER:
            for record in reply.content.metric_records.values():
                self._note("reply", record)

    def _note(self, what: str, numbers: object) -> None:
        assert hasattr(numbers, "items")
        for name, value in numbers.items():
            if isinstance(value, (int, float)) and name != "server-round":
                self._numbers.setdefault(f"{what}: {name}", []).append(float(value))

    def seen(self, released: Arrays | None, metrics: dict[str, list[float]], refusal: str | None) -> Seen:
        """Return what was seen of the game.

        Parameters
        ----------
        released
            The model at the end; None if there is none.
        metrics
            Numbers that the strategy released, by name.
        refusal
            What was raised.
        """
        rounds, size = self._part.rounds, sum(value.size for value in self._part.model.values())
        heard = self._rounds[:rounds]
        sent = np.full((rounds + 1, size), np.nan)
        for place, one in enumerate(heard):
            sent[place] = one.sent
        if released is not None and set(released) == set(self._part.model) and len(heard) == rounds:
            sent[rounds] = flat(released)
        values, steps = sent[1:], sent[1:] - sent[:-1]
        if self._part.observer is Observer.SERVER:
            steps = _stacked([one.reply for one in heard], rounds, size, np.nan)
            values = steps + sent[:-1]
        difference = np.stack([self._difference(one) for one in [*heard, *[None] * (rounds - len(heard))]])
        others = _stacked([_mean(one.others) for one in heard], rounds, size, 0.0)
        lengths = {"length of what was released": [float(np.linalg.norm(step)) for step in steps]}
        reduced = self._sketch.of_vectors
        return Seen(
            steps=reduced(steps, difference),
            released=values[:, self._sketch.shown],
            direction=self._sketch.of_difference(difference),
            others=reduced(others, difference),
            own=np.zeros((rounds, reduced(others, difference).shape[1])),
            numbers=_summarised(self._numbers | metrics | lengths, self.errors, refusal),
            refusal=refusal,
        )

    def _difference(self, heard: _Round | None) -> Floats:
        """Return what the contributions under D and D' differ by, as far as the observer knows it."""
        part, size = self._part, sum(value.size for value in self._part.model.values())
        if part.is_crafted:
            shapes = {
                name: value.shape for name, value in part.model.items() if np.issubdtype(value.dtype, np.floating)
            }
            steps = crafted(shapes, part.note.length)
            return flat({name: steps.get(name, np.zeros(value.shape)) for name, value in part.model.items()})
        if part.reference is not None:
            return part.reference
        known = None if heard is None else heard.difference
        return known if known is not None and known.shape == (size,) else np.zeros(size)


def released_arrays(result: object) -> Arrays | None:
    """Return the model of a strategy's result; None if nothing was released."""
    arrays = getattr(result, "arrays", None)
    return arrays_of(arrays) if arrays else None


def shapes_of(model: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's tensors, in the order in which they are flattened."""
    return {name: model[name].shape for name in sorted(model)}


def _weight(reply: Message) -> float:
    """Return the weight of a reply in a mean, as far as one can tell."""
    for record in reply.content.metric_records.values():
        value = record.get(_WEIGHT)
        if isinstance(value, (int, float)) and value >= 0:
            return float(value)
    return 1.0


def _mean(weighted: list[tuple[float, Floats]]) -> Floats | None:
    total = sum(weight for weight, _ in weighted)
    return sum((weight / total * update for weight, update in weighted), np.zeros(())) if total > 0 else None


def _stacked(vectors: list[Floats | None], rounds: int, size: int, missing: float) -> Floats:
    found = np.full((rounds, size), missing)
    for place, vector in enumerate(vectors):
        if vector is not None:
            found[place] = vector
    return found


def _summarised(numbers: dict[str, list[float]], errors: list[str], refusal: str | None) -> dict[str, float]:
    """Return numbers that were noted round by round: the only one, or the last and the mean."""
    found = dict[str, float]()
    for name, values in numbers.items():
        if len(values) == 1:
            found[name] = values[0]
        else:
            found |= {f"{name}, last": values[-1], f"{name}, mean": float(np.mean(values))}
    for said in errors:
        found[ERROR + said] = found.get(ERROR + said, 0.0) + 1.0
    if refusal is not None:
        found["the strategy refused to go on"] = 1.0
    return found
