"""Checked replies: a release is made from exactly the contributions its law names, or not at all."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fl_audit.packing import unpack
from fl_audit.protocol import Key, Record
from fl_audit.worlds import WorldBatch
from strategies.errors import FederationError

_LONGEST_REASON = 400
"""Characters of a client's reason that are printed."""


@dataclass(frozen=True)
class Answer:
    """What one client answered about one batch."""

    client: int  # partition of the client
    kind: str  # message type, such as `train` or `query.observe`
    batch: str  # name of the batch


def read_replies(
    replies: Iterable[Message],
    asked: Iterable[Answer],
    partitions: Mapping[int, int],
    server_round: int,
    written: Mapping[Answer, int] | None = None,
) -> dict[Answer, Message]:
    """Return the replies by who gave them, all of them and no others.

    Parameters
    ----------
    replies
        Replies in any order.
    asked
        The answers that must be there.
    partitions
        Partition of each node that was asked.
    server_round
        Round that is named in errors.
    written
        The round that each question was about; None does not look at the rounds that replies name.

    Raises
    ------
    FederationError
        If a client failed, an answer is missing, doubled, not asked for or about another round, or nobody knows who
        gave it.
    """
    found: dict[Answer, Message] = {}
    for reply in replies:
        if (client := partitions.get(reply.metadata.src_node_id, -1)) < 0:
            source = reply.metadata.src_node_id
            raise FederationError(f"round {server_round}: a reply came from node {source}, which nobody asked")
        if reply.has_error():
            raise FederationError(f"round {server_round}: client {client} failed: {reason_line(reply.error.reason)}")
        answer = Answer(client, reply.metadata.message_type, _named_batch(reply, client, server_round))
        if answer in found:
            raise FederationError(f"round {server_round}: client {client} answered twice about {answer.batch}")
        if written is not None and answer in written:
            _require_round(reply, client, written[answer], server_round)
        found[answer] = reply
    expected = set(asked)
    missing = sorted({answer.client for answer in expected - found.keys()})
    if missing:
        named = ", ".join(str(client) for client in missing)
        raise FederationError(f"round {server_round}: no answer in time from client(s) {named}")
    if unasked := found.keys() - expected:
        client = min(answer.client for answer in unasked)
        raise FederationError(f"round {server_round}: client {client} answered what nobody asked")
    return found


def read_array(
    reply: Message,
    key: str,
    shape: tuple[int, ...],
    dtype: type[np.floating],
    client: int,
    server_round: int,
    finite: bool = True,
) -> NDArray[np.floating]:
    """Return one array of a reply, checked; NaN and infinity are values like others where `finite` is false.

    Parameters
    ----------
    reply
        The message.
    key
        Name of the array in it.
    shape
        Shape that it must have.
    dtype
        Type that its numbers must have.
    finite
        Whether all of them must be finite.
    client
        Whose reply it is, for the message if the array is refused.
    server_round
        The round that the reply is about, for the same message.

    Raises
    ------
    FederationError
        If the array is missing, has another shape or type, or holds a value that is not finite.
    """
    arrays = reply.content.array_records.get(Record.ARRAYS)
    if arrays is None or key not in arrays:
        raise FederationError(f"round {server_round}: client {client} sent no '{key}'")
    try:
        array = unpack(arrays[key])
    except Exception as error:  # a client can send any bytes
        raise FederationError(
            f"round {server_round}: client {client} sent '{key}' as bytes that are no array"
        ) from error
    if array.shape != shape or array.dtype != dtype:
        raise FederationError(
            f"round {server_round}: client {client} sent '{key}' as {array.dtype} of shape {array.shape}, "
            f"accepted is {np.dtype(dtype)} of shape {shape}"
        )
    if finite and not np.isfinite(array).all():
        bad = int(np.size(array) - np.isfinite(array).sum())
        raise FederationError(
            f"round {server_round}: client {client} sent '{key}' with {bad} of {array.size} values not finite"
        )
    return array


def _named_batch(reply: Message, client: int, server_round: int) -> str:
    """Return the batch that a reply is about, refused if it names none."""
    config = reply.content.config_records.get(Record.CONFIG)
    if config is None or Key.BATCH not in config:
        raise FederationError(f"round {server_round}: client {client} sent a reply that names no batch")
    return str(config[Key.BATCH])


def _require_round(reply: Message, client: int, asked: int, server_round: int) -> None:
    """Refuse the content of another round, which has the right shape and would be taken for that of this one."""
    said = reply.content.config_records[Record.CONFIG].get(Key.ROUND)
    if said != asked:
        wrong = f"sent a reply that is of {'no round' if said is None else f'round {said!r}'}, not of {asked}"
        raise FederationError(f"round {server_round}: client {client} {wrong}")


def batch_shape(batch: WorldBatch, parameters: int) -> tuple[int, int]:
    """Return the shape of stacked models of a batch.

    Parameters
    ----------
    batch
        The worlds.
    parameters
        Number of scalars of a model.
    """
    return (batch.count, parameters)


def reason_line(reason: str | None) -> str:
    """Return the first line that tells what happened, without the wrappings that Flower and Ray put around it."""
    text = reason or "no reason given"
    if "ActorDied" in text or "ActorUnavailable" in text or "RayActorError" in text:
        return "its process died, or ended itself at the time limit"
    text = text.rpartition("Message: ")[2] if "Message: " in text else text
    text = re.sub(r"^<class '[^']*'>:<'|'>$", "", text).strip()
    line = text.splitlines()[0] if text else "no reason given"
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}... ({len(text):,} characters)"
