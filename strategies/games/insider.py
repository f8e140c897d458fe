"""The audit inside the client app: a modifier that plays the target, and keeps the games of a client apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fl_audit.arrays import Floats
from strategies.games.arrays import Arrays, arrays_of, base_of, contribution, flat, record_of, shapes_of, with_names
from strategies.games.files import apart, own_copy
from strategies.games.fingerprint import client_fingerprint
from strategies.games.notes import ANSWER, ClientAnswer, Deed, Note, Numbers, read_note
from strategies.games.records import shard_of

_OURS, _GAME = "fl-audit.", "fl-audit.game"
_OWN, _BEFORE, _STILL = "fl-audit.own.", "fl-audit.before.", "fl-audit.still."
"""Names in the state of a client: the number of its game, its state of the app's own training, the one before, and what
it replied in a round of the games in which others are held still."""
_WITHOUT = (Deed.ALMOST_NOTHING, Deed.NOTHING)


def insider(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the client app does, or as the game wants it: the modifier of the client app.

    Without a watched strategy at the other end it does nothing.

    Parameters
    ----------
    message
        What the client is sent.
    context
        The client's context; its state is kept for every game by itself.
    call_next
        The app, or the modifiers nearer to it.
    """
    note = read_note(message)
    with _kept_apart(context, 0 if note is None else note.game, is_noted=note is not None) as kept:
        if note is None:
            return call_next(message, context)
        is_target = note.deed is not None and message.metadata.message_type.startswith("train")
        received = _arrays(message) if is_target or note.pull else {}
        is_still = note.is_still and note.deed is None and message.metadata.message_type.startswith("train")
        with shard_of(note.deed if is_target else None) as shard, _in_a_copy(note.game) as outside:
            held = _held_still(kept, note.round) if is_still else None
            reply = call_next(message, context) if held is None else Message(held, reply_to=message)
        if is_still and held is None and not reply.has_error():
            kept |= {f"{_STILL}{note.round}.{name}": deepcopy(record) for name, record in reply.content.items()}
    if reply.has_error():
        return reply
    update = _played(reply, received, note) if is_target else None
    if is_still and note.pull is not None:
        _played(reply, received, replace(note, deed=note.pull))
    with _spared(note.game):
        partition = context.node_config.get("partition-id")
        code = "" if note.game else client_fingerprint(call_next, context.run_config)
        number = partition if isinstance(partition, int) else None
        answer = ClientAnswer(number, update, shard.records, code, tuple(outside))
        reply.content[ANSWER] = answer.record()
    return reply


def _held_still(kept: dict[str, Any], round: int) -> RecordDict | None:
    """Return what a client replied to train in a round of an earlier game; None if there was none."""
    start = f"{_STILL}{round}."
    found = {key.removeprefix(start): deepcopy(record) for key, record in kept.items() if key.startswith(start)}
    return RecordDict(found) if found else None


@contextmanager
def _in_a_copy(game: int) -> Iterator[list[str]]:
    """Have a client write to a copy of its working directory in games; give where else it writes."""
    if not game:
        yield []
        return
    copy = own_copy()
    # Files are looked through after games of the server: here Python's own word is enough.
    with apart(copy, thoroughly=False):
        yield copy.outside


@contextmanager
def _spared(game: int) -> Iterator[None]:
    """Let nothing that goes wrong in the audit reach the app's own training; in games it is an error like others."""
    try:
        yield
    except Exception:
        if game:
            raise


def _arrays(message: Message) -> dict[str, Arrays]:
    return {name: arrays_of(record) for name, record in message.content.array_records.items()}


def _played(reply: Message, received: dict[str, Arrays], note: Note) -> Floats | None:
    """Change a reply as a game wants it; return the update that the client has made."""
    assert note.deed is not None
    update = None
    for name, own in _arrays(reply).items():
        sent = with_names(received, set(own), name)
        base = base_of(own, sent, note.replies)
        if update is None and shapes_of(own) == shapes_of(base):
            update = flat(own) - flat(base)
        if note.deed is not Deed.OWN:
            reply.content[name] = record_of(contribution(note.deed, own, base, note.length))
    if note.numbers is Numbers.WITHHELD and note.deed in _WITHOUT:
        for numbers in reply.content.metric_records.values():
            _withhold(numbers)
    return update


def _withhold(record: MetricRecord) -> None:
    """Set every number of a record to 0."""
    for key, value in record.items():
        record[key] = [0 * one for one in value] if isinstance(value, list) else 0 * value


@contextmanager
def _kept_apart(context: Context, game: int, is_noted: bool) -> Iterator[dict[str, Any]]:
    """Give a client the state that it has in a game: what happened in other games never happened.

    What is given is kept beside it, from game to game.
    """
    ours = {key: context.state.pop(key) for key in list(context.state) if key.startswith(_OURS)}
    if not game:  # what was held still belongs to games of another training
        ours = {key: record for key, record in ours.items() if not key.startswith(_STILL)}
    if not ours and not is_noted:
        yield ours
        return
    with _spared(game):
        _enter(context.state, ours, game)
    try:
        yield ours
    finally:
        context.state.update(ours)


def _enter(state: RecordDict, ours: dict[str, Any], game: int) -> None:
    """Exchange a state for that of a game, if it is another one than before; `ours` is what is kept for later."""
    if not ours:
        ours |= {_BEFORE + key: deepcopy(record) for key, record in state.items()}
        ours[_GAME] = ConfigRecord({"game": 0})
    before = int(ours[_GAME]["game"])
    if before == game:
        return
    if before == 0:
        ours |= {_OWN + key: record for key, record in state.items()}
    state.clear()
    kept = _BEFORE if game else _OWN
    state.update({key.removeprefix(kept): deepcopy(record) for key, record in ours.items() if key.startswith(kept)})
    if game == 0:
        for key in [key for key in ours if key.startswith(_OWN)]:
            del ours[key]
    ours[_GAME] = ConfigRecord({"game": game})
