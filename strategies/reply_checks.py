"""Checks of clients' replies: a round fails if an answer is missing, unexpected or malformed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray

from fl_audit.array_packing import unpack
from fl_audit.errors import FederationError
from fl_audit.message_keys import Key, MessageRecordName

_LONGEST_REASON = 400  # characters of a client's reason that are printed

Float = TypeVar("Float", bound=np.floating)


@dataclass(frozen=True)
class ReplyIdentity:
    """Key of a reply: the client that sends it, its message type, and the batch of trials that it belongs to."""

    client: int  # partition of the client
    kind: str  # message type, such as `train` or `query.observe`
    batch: str  # name of the batch


def read_replies(
    replies: Iterable[Message],
    identities: Iterable[ReplyIdentity],
    partitions: Mapping[int, int],
    server_round: int,
    written: Mapping[ReplyIdentity, int] | None = None,
) -> dict[ReplyIdentity, Message]:
    """Check that the replies are exactly the expected ones, and return them keyed by client, message type and batch.

    `written`: None skips this check.
    """
    messages: dict[ReplyIdentity, Message] = {}
    for reply in replies:
        source = reply.metadata.src_node_id
        if source not in partitions:
            raise FederationError(f"round {server_round}: a reply came from node {source}, which nobody asked")
        sender = f"round {server_round}: client {partitions[source]}"
        if reply.has_error():
            raise FederationError(f"{sender} failed: {reason_line(reply.error.reason)}")
        config = reply.content.get(
            MessageRecordName.CONFIG
        )  # faster than `config_records`, which is built at each access
        if not isinstance(config, ConfigRecord) or Key.BATCH not in config:
            raise FederationError(f"{sender} sent a reply that names no batch")
        answer = ReplyIdentity(partitions[source], reply.metadata.message_type, str(config[Key.BATCH]))
        if answer in messages:
            raise FederationError(f"{sender} answered twice about {answer.batch}")
        # A reply about another round has the right shape, so only its number tells it from one about this round.
        about, round_said = (written or {}).get(answer), config.get(Key.ROUND)
        if about is not None and round_said != about:
            round_text = "no round" if round_said is None else f"round {round_said!r}"
            raise FederationError(f"{sender} sent a reply that is of {round_text}, not of {about}")
        messages[answer] = reply
    expected = set(identities)
    if missing := sorted({answer.client for answer in expected - messages.keys()}):
        round_text = ", ".join(map(str, missing))
        raise FederationError(f"round {server_round}: no answer in time from client(s) {round_text}")
    if unasked := messages.keys() - expected:
        client = min(answer.client for answer in unasked)
        raise FederationError(f"round {server_round}: client {client} answered what nobody asked")
    return messages


def read_array(
    reply: Message,
    key: str,
    shape: tuple[int, ...],
    dtype: type[Float],
    client: int,
    server_round: int,
    finite: bool = True,
) -> NDArray[Float]:
    """Return one array of a client's reply, after checking its shape, its type and that its values are finite."""
    arrays, sender = reply.content.get(MessageRecordName.ARRAYS), f"round {server_round}: client {client} sent"
    if not isinstance(arrays, ArrayRecord) or key not in arrays:
        raise FederationError(f"{sender} no '{key}'")
    try:
        array = unpack(arrays[key])
    except Exception as error:  # a client can send any bytes
        raise FederationError(f"{sender} '{key}' as bytes that are no array") from error
    if array.shape != shape or array.dtype != dtype:
        accepted = f"accepted is {np.dtype(dtype)} of shape {shape}"
        raise FederationError(f"{sender} '{key}' as {array.dtype} of shape {array.shape}, {accepted}")
    if finite:
        require_finite(array, key, client, server_round)
    return array


def require_finite(array: NDArray[Float], key: str, client: int, server_round: int) -> None:
    """Raise `FederationError` if a value of an array that a client sent is not finite."""
    if not np.isfinite(array).all():
        bad = int(np.size(array) - np.isfinite(array).sum())
        raise FederationError(
            f"round {server_round}: client {client} sent '{key}' with {bad} of {array.size} values not finite "
            f"({_USUAL_REASON})"
        )


_USUAL_REASON = "usually learning rate, clipping norm and noise move the model too far, or features are too large"


def reason_line(reason: str | None) -> str:
    """Return the first line of an error message, at most 400 characters, without what Flower and Ray put around it.

    If there is no message, or if the process died, a fixed phrase is returned.
    """
    text = reason or "no reason given"
    if "ActorDied" in text or "ActorUnavailable" in text or "RayActorError" in text:
        return "its process died, or ended itself at the time limit"
    text = text.rpartition("Message: ")[2] if "Message: " in text else text
    text = re.sub(r"^<class '[^']*'>:<'|'>$", "", text).strip()
    line = text.splitlines()[0] if text else "no reason given"
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}... ({len(text):,} characters)"
