"""Recorder of the messages between server and clients; a transcript holds the recorded results of one trial."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import pairwise

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fl_audit.app_audits.black_box.metric_lookups import plain_numbers
from fl_audit.app_audits.black_box.trial_messages import (
    Arrays,
    ClientAnswer,
    Observer,
    TargetAction,
    TrialTag,
    UpdateFormat,
    arrays_of,
    flat,
    read_tag,
    records_of,
    taken_answer,
    with_names,
)
from fl_audit.app_audits.claim_audit.transcript import (
    FORM,
    REFUSED,
    RELEASED_LENGTH,
    UNCHANGED_SHARE,
    LinearSketch,
    Transcript,
)
from fl_audit.array_types import Floats
from fl_audit.errors import in_a_line
from fl_audit.strategies.flower_grids import RecordedGrid

ERROR = "a client replied with an error: "  # prefix of the names of numbers that count error replies, by error message
FAILED = "the target's client gave no answer"
"""Name of the number that marks a trial in which the target's client gave no valid reply.

An audit inside an app's code changes the input of this client. An error that the change causes is no leak, so no guess
in such a trial counts as right.
"""
_WEIGHT = "num-examples"  # name of the metric by which Flower's strategies weight replies by default


@dataclass
class _RecordedRound:
    """Recorded data of one round of a trial; each vector has the shape (parameters,)."""

    sent: Arrays  # the model that clients received
    asked: set[int] = field(default_factory=set)  # node IDs of clients that were asked to train
    answered: set[int] = field(default_factory=set)  # node IDs of clients that replied without an error
    difference: Floats | None = None  # the update that the target's client learned, before the audit replaced it
    reply: Floats | None = None  # the update in the reply of the target's client
    own: Floats | None = None  # the update in the observing client's reply minus its contribution before mods
    has_arrived: bool = False  # whether a reply of the target's client with arrays arrived
    # Weight and update of the reply of each other client.
    others: list[tuple[float, Floats]] = field(default_factory=list)


@dataclass
class TrialRecorder:
    """Recorder of all messages of one trial, from which the trial's transcript is made."""

    model: Arrays  # tensors of the initial model, keyed by name
    rounds: int  # number of rounds of a trial
    target: int  # node ID of the target's client, whose contribution differs between D and D'
    watcher: int | None  # node ID of the client that observes; None if there is none
    observer: Observer  # the adversary: a client or the server
    # Function of the round, from 0, and of the learned update of the target's client, None if unknown. Returns the
    # client's contribution under D minus that under D', shape (parameters,), as far as the observer knows it. It must
    # not depend on whether the trial is under D or D'.
    difference: Callable[[int, Floats | None], Floats]
    sketch: LinearSketch | None = None  # sketch of the model's parameters, sorted by name; None stores all parameters
    tag: TrialTag | None = None  # tag on messages to clients; None for no tag
    # Crafted actions of other clients, keyed by node ID, in trials in which clients repeat earlier replies. A client
    # without an entry repeats its reply unchanged.
    pulls: Mapping[int, TargetAction] = field(default_factory=dict)
    knows_others: bool = False  # whether the mean contribution of all clients except the target's is recorded
    # Function that returns the observing client's last contribution before its mods, shape (parameters,). None if the
    # noise that these mods add is not recorded.
    own: Callable[[], Floats] | None = None
    # Function from the strategy's result to the metrics that the claim covers: for each name, its values over rounds.
    released_numbers: Callable[[Result], Mapping[str, list[float]]] = lambda _: {}
    errors: list[str] = field(init=False, default_factory=list)  # error messages of clients
    outside: set[str] = field(init=False, default_factory=set)  # paths outside of the working copy that were written
    # Digest of the reply in the first round, keyed by the client's node ID; only of clients that repeat replies.
    arrived: dict[int, str] = field(init=False, default_factory=dict)
    _rounds: list[_RecordedRound] = field(init=False, default_factory=list)
    # Recorded numbers, by name.
    _numbers: defaultdict[str, list[float]] = field(init=False, default_factory=lambda: defaultdict(list))

    def record_sent(self, message: Message) -> None:
        """Record the model in a message to a client as a release, and tag the message with its trial."""
        node = message.metadata.dst_node_id
        if message.metadata.message_type.startswith("train"):
            self._record_request(node, message)
        if self.tag is not None:
            action = self.tag.action if node == self.target else None  # only the target's client may know it
            group = message.metadata.group_id
            number = max(0, len(self._rounds) - 1)
            tag = replace(self.tag, group=group, action=action, round=number, pull=self.pulls.get(node))
            message.metadata.group_id = tag.written()

    def record_received(self, reply: Message) -> None:
        """Record a client's reply, and remove the audit's own data from it."""
        read_tag(reply)
        if reply.has_error():
            self.errors.append(" ".join((reply.error.reason or "no reason").split()))
            return
        answer = taken_answer(reply)
        self.outside |= set(answer.outside if answer else ())
        if reply.metadata.message_type.startswith("train") and self._rounds:
            self._record_reply(reply, answer)

    def _record_request(self, node: int, message: Message) -> None:
        # A second message to the same node begins the next round, because strategies need not number their rounds.
        if not self._rounds or node in self._rounds[-1].asked:
            received = records_of(message)
            model = with_names(received, set(self.model)) or next(iter(received.values()), None)
            if model is None:
                return
            self._rounds.append(_RecordedRound(model))
        self._rounds[-1].asked.add(node)
        if node == self.watcher and self.observer is Observer.CLIENT:
            for name, record in message.content.config_records.items():
                self._note(name, record)

    def _record_reply(self, reply: Message, answer: ClientAnswer | None) -> None:
        recorded_round = self._rounds[-1]
        node = reply.metadata.src_node_id
        recorded_round.answered.add(node)
        if node == self.target:
            recorded_round.has_arrived = bool(reply.content.array_records)
            recorded_round.difference = None if answer is None else answer.update
        elif self.tag is not None and self.tag.is_still and len(self._rounds) == 1:
            self.arrived[node] = _digest(reply)
        is_own = node == self.watcher and self.own is not None
        is_seen = node == self.target and self.observer is Observer.SERVER
        if not (is_own or is_seen or self.knows_others):
            return
        arrays = with_names(records_of(reply), set(self.model))
        if arrays is None:
            return
        is_model = self.tag is None or self.tag.replies is UpdateFormat.MODELS
        update = flat(arrays, self.model) - (flat(recorded_round.sent, self.model) if is_model else 0.0)
        if node == self.target:
            recorded_round.reply = update
        elif np.all(np.isfinite(update)):
            recorded_round.others.append((_weight(reply), update))
        if is_own and self.own is not None:
            recorded_round.own = np.nan_to_num(update - self.own())
        if is_seen:
            for record in reply.content.metric_records.values():
                self._note("reply", record)

    def _note(self, quantity: str, numbers: Mapping[str, object]) -> None:
        """Record each given value as plain numbers (see `plain_numbers`), under names that begin with `quantity`."""
        for name, value in numbers.items():
            for label, number in () if name == "server-round" else plain_numbers(name, value):
                self._numbers[f"{quantity}: {label}"].append(number)

    def transcript(self, result: Result | None, refusal: str | None) -> Transcript:
        """Return the trial's transcript. If the strategy raised, `result` is None and `refusal` is the reason."""
        is_of_server = self.observer is Observer.SERVER
        size = sum(value.size for value in self.model.values())
        recorded_rounds = self._rounds[: self.rounds]
        models = [recorded_round.sent for recorded_round in recorded_rounds]
        if result is not None and len(recorded_rounds) == self.rounds and result.arrays:
            models.append(arrays_of(result.arrays))
        for released in () if is_of_server else models[1:]:
            self._note_form(released)
        if result is not None:
            for name, numbers in self.released_numbers(result).items():
                self._numbers[name] += numbers
        sent = _stacked([flat(model, self.model) for model in models], self.rounds + 1, size, np.nan)
        values = sent[1:]
        steps = sent[1:] - sent[:-1]
        if is_of_server:
            steps = _stacked([recorded_round.reply for recorded_round in recorded_rounds], self.rounds, size, np.nan)
            values = steps + sent[:-1]
        learned = [recorded_round.difference for recorded_round in recorded_rounds]
        learned += [None] * (self.rounds - len(recorded_rounds))
        difference = np.stack([self.difference(index, update) for index, update in enumerate(learned)])
        other_means = _stacked(
            [_mean(recorded_round.others) for recorded_round in recorded_rounds], self.rounds, size, 0.0
        )
        own_updates = _stacked([recorded_round.own for recorded_round in recorded_rounds], self.rounds, size, 0.0)
        # A reply that does not change the model contributes nothing.
        contributed = any(
            recorded_round.has_arrived and np.any(difference[index])
            for index, recorded_round in enumerate(recorded_rounds)
        )
        arrived = (recorded_round.has_arrived for recorded_round in recorded_rounds)
        has_release = any(arrived if is_of_server else (not _is_same(*pair) for pair in pairwise(models)))
        if self.sketch is not None:
            self._note_lengths(steps)
        transcript = Transcript(
            steps=steps,
            released=values,
            direction=difference,
            others=other_means,
            own=own_updates,
            contributed=contributed,
            has_release=has_release,
            numbers=self._summary(recorded_rounds, refusal),
            refusal=refusal,
        )
        return transcript if self.sketch is None else _sketched(transcript, self.sketch)

    def _summary(self, recorded_rounds: Sequence[_RecordedRound], refusal: str | None) -> dict[str, float]:
        """Return all recorded numbers by name, with a mark if the target's client owes a reply."""
        numbers = _summarised(self._numbers, self.errors, refusal)
        is_owed = any(
            self.target in recorded_round.asked - recorded_round.answered for recorded_round in recorded_rounds
        )
        return numbers | {FAILED: 1.0} if self.tag is not None and is_owed else numbers

    def _note_lengths(self, steps: Floats) -> None:
        """Record two numbers of each step that a sketch does not contain: its norm, and its share of zeros."""
        for finite_values in (step[np.isfinite(step)] for step in steps):
            self._numbers[RELEASED_LENGTH].append(float(np.linalg.norm(finite_values)))
            share = float(np.mean(finite_values == 0)) if finite_values.size else 1.0
            self._numbers[UNCHANGED_SHARE].append(share)

    def _note_form(self, released: Arrays) -> None:
        """Record names, types, shapes and total bytes of a released model's tensors.

        Of tensors that the initial model lacks, the values are recorded as well.
        """
        beside = {name: array.ravel() for name, array in released.items() if name not in self.model}
        self._note("array", {f"{name}[{n}]": float(x) for name, array in beside.items() for n, x in enumerate(array)})
        forms = "; ".join(f"{name} {array.dtype} {array.shape}" for name, array in sorted(released.items()))
        self._note(FORM, {forms: 1.0, "bytes": float(sum(array.nbytes for array in released.values()))})


def errors_in(transcript: Transcript) -> list[str]:
    """Return the distinct error messages of clients in a transcript."""
    return [name.removeprefix(ERROR) for name in transcript.numbers if name.startswith(ERROR)]


def evidence_names(transcripts: Sequence[Transcript]) -> tuple[str, ...]:
    """Return the sorted names of all numbers in transcripts that may serve as evidence for D or D'.

    Numbers that count errors or missing replies of clients are left out.
    """
    names = {name for transcript in transcripts for name in transcript.numbers}
    return tuple(sorted(name for name in names if name != FAILED and not name.startswith(ERROR)))


def recorded_trial(start: Callable[[Grid], Result], grid: Grid, recorder: TrialRecorder) -> Transcript:
    """Run a strategy while a recorder reads its messages, and return the transcript of the trial.

    If the strategy raises an exception, the trial does not fail: the exception is recorded as a refusal.
    """
    result = None
    refusal = None
    try:
        result = start(RecordedGrid(grid, recorder))
    # An exception of a strategy is a result of the trial, and must not end the audit.
    except (Exception, SystemExit) as error:
        refusal = in_a_line(error)
    return recorder.transcript(result, refusal)


def _sketched(transcript: Transcript, sketch: LinearSketch) -> Transcript:
    """Return a transcript with sketches in place of vectors over all parameters."""
    difference = transcript.direction
    return replace(
        transcript,
        steps=sketch.of_vectors(transcript.steps, difference),
        released=transcript.released[:, sketch.shown],
        direction=sketch.of_difference(difference),
        others=sketch.of_vectors(transcript.others, difference),
        own=sketch.of_vectors(transcript.own, difference),
    )


def _is_same(before: Arrays, after: Arrays) -> bool:
    """Return True if two models have the same tensor names and values; NaN equals NaN."""
    same = (np.array_equal(before[name], array, equal_nan=array.dtype.kind == "f") for name, array in after.items())
    return set(before) == set(after) and all(same)


def _weight(reply: Message) -> float:
    """Return a reply's example count, its weight in a mean; 1 without a valid count."""
    weights = (record.get(_WEIGHT) for record in reply.content.metric_records.values())
    return next((float(value) for value in weights if isinstance(value, (int, float)) and value >= 0), 1.0)


def _digest(reply: Message) -> str:
    digest_state = sha256()
    for name, record in sorted(reply.content.array_records.items()):
        for key, array in record.items():
            digest_state.update(f"{name} {key} {array.dtype} {array.shape}".encode() + array.data)
    return digest_state.hexdigest()


def _mean(weighted: list[tuple[float, Floats]]) -> Floats | None:
    total = sum(weight for weight, _ in weighted)
    return sum((weight / total * update for weight, update in weighted), np.zeros(())) if total > 0 else None


def _stacked(vectors: list[Floats | None] | list[Floats], rounds: int, size: int, missing: float) -> Floats:
    rows = np.full((rounds, size), missing)
    for index, vector in enumerate(vectors):
        if vector is not None:
            rows[index] = vector
    return rows


def _summarised(numbers: Mapping[str, list[float]], errors: list[str], refusal: str | None) -> dict[str, float]:
    """Summarise numbers by name: a single value as it is, several by their first, last and mean.

    The result also contains the count of each error message of clients, and a mark if the strategy refused.
    """
    summary = dict[str, float]()
    for name, values in numbers.items():
        if len(values) == 1:
            summary[name] = values[0]
        elif values:
            summary |= {
                f"{name}, first": values[0],
                f"{name}, last": values[-1],
                f"{name}, mean": float(np.mean(values)),
            }
    for error in errors:
        summary[ERROR + error] = summary.get(ERROR + error, 0.0) + 1.0
    if refusal is not None:
        summary[REFUSED] = 1.0
    return summary
