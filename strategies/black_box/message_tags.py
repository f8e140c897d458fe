"""Data of the audit in Flower messages, where neither the app nor its mods read it.

The content of a message is unchanged. A tag for the client is in the message's group ID, which Flower transmits without
using it, and is removed before the app sees the message. The client's answer to the audit is in a separate
`ConfigRecord`, which the audited strategy removes before the app's strategy sees the reply. Flower's mods only use
arrays and metrics.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
from flwr.app import ConfigRecord, Message

from fl_audit.array_types import Floats

_PREFIX = "fl-audit:"
ANSWER = "fl-audit"  # name of the record in a reply that the insider adds


class Observer(StrEnum):
    """The observer: another client, who sees the releases, or the server, who sees every reply."""

    CLIENT = "client"
    SERVER = "server"


class TargetAction(StrEnum):
    """The action of the target's client in a trial."""

    OWN = "own"  # its learned update
    OWN_OPPOSITE = "own, opposite"  # the opposite of its update
    CRAFTED = "crafted"  # an update along a public direction, far longer than any mechanism may let pass
    CRAFTED_OPPOSITE = "crafted, opposite"
    OWN_WHOLE = "own, with crafted whole numbers"  # its learned update, with crafted integer and boolean tensors
    OWN_WHOLE_OPPOSITE = "own, with crafted whole numbers, opposite"
    # The received model with a minimal change of one value, because some mechanisms fail on an update of zero.
    ALMOST_NOTHING = "almost nothing"
    NOTHING = "nothing"  # the received model, which is an update of zero
    WITHOUT_RECORD = "without its record"  # its learned update without its differing record
    OTHER_RECORD = "with another record"  # its learned update with another record instead


class UpdateFormat(StrEnum):
    """The meaning of the arrays in a reply: the client's model, or its difference from the received model."""

    MODELS = "models"
    UPDATES = "updates"


class AbsentTargetMetrics(StrEnum):
    """The treatment of the metrics that the target's client reports in trials in which it contributes nothing."""

    KEPT = "kept"  # unchanged, with the example count: the claim is about models alone
    WITHHELD = "withheld"  # 0, with the example count: the claim is about everything that leaves the client


@dataclass(frozen=True)
class TrialTag:
    """The tag of the audit on a message to a client: the trial, and how the client has to reply in it."""

    trial: int  # number of the trial; 0 is the app's own training
    group: str = ""  # the group ID that the message has without the audit
    action: TargetAction | None = None  # action of the target's client; None for all other clients
    replies: UpdateFormat = UpdateFormat.MODELS  # meaning of the arrays in replies
    numbers: AbsentTargetMetrics = AbsentTargetMetrics.KEPT  # treatment of metrics if nothing is contributed
    length: float = 0.0  # L2 norm of crafted updates
    is_still: bool = False  # whether all clients but the target's repeat their reply of the first trial in each round
    pull: TargetAction | None = None  # crafted action of such a client; None for its earlier reply
    round: int = 0  # the round, from 0, of a message to train
    is_about_records: bool = False  # whether the claim is about records, so that the target's client changes a record

    def written(self) -> str:
        """Return the tag as a string for the group ID."""
        return _PREFIX + json.dumps(asdict(self))


def read_note(message: Message) -> TrialTag | None:
    """Return the tag on a message, None if there is none, and restore the message's original group ID."""
    written = message.metadata.group_id
    if not written.startswith(_PREFIX):
        return None
    try:
        entries = json.loads(written.removeprefix(_PREFIX))
        actions = {name: None if entries[name] is None else TargetAction(entries[name]) for name in ("action", "pull")}
        kinds = actions | {
            "replies": UpdateFormat(entries["replies"]),
            "numbers": AbsentTargetMetrics(entries["numbers"]),
        }
        note = TrialTag(**(entries | kinds))
    except (ValueError, KeyError, TypeError):  # a tag of another version is ignored, so that the app goes on
        return None
    message.metadata.group_id = note.group
    return note


@dataclass(frozen=True)
class ClientAnswer:
    """The answer of a client to the audit: its partition, its update, its number of records, and its code's digest."""

    partition: int | None  # its partition ID; None if the app has none
    # The learned update of the target's client, before it is replaced, shape (parameters,); None for other clients.
    update: Floats | None = None
    records: int | None = None  # number of its records; None if the client app did not call `held`
    code: str = ""  # the fingerprint of the client's code
    outside: tuple[str, ...] = ()  # paths outside of the working copy to which it wrote
    fault: str = ""  # reason why the object that the app passed to `held` is no data set; empty if it is one

    def record(self) -> ConfigRecord:
        """Return the answer as a `ConfigRecord` for a reply."""
        update = None if self.update is None else self.update.astype(np.float32).tobytes()
        told = {"partition": self.partition, "records": self.records, "code": self.code, "update": update,
                "fault": self.fault}  # fmt: skip
        said = {name: value for name, value in told.items() if value is not None}
        return ConfigRecord({**said, "outside": list(self.outside)})


def taken_answer(reply: Message) -> ClientAnswer | None:
    """Remove the client's answer to the audit from a reply, and return it; None if there is none."""
    if reply.has_error() or ANSWER not in reply.content:
        return None
    record = reply.content[ANSWER]
    assert isinstance(record, ConfigRecord)
    del reply.content[ANSWER]
    told, written = record.get("update"), record.get("outside")
    numbers = {name: value for name in ("partition", "records") if isinstance(value := record.get(name), int)}
    update = np.frombuffer(told, np.float32).astype(np.float64) if isinstance(told, bytes) else None
    outside = tuple(map(str, written)) if isinstance(written, list) else ()
    code, fault = (str(record.get(name, "")) for name in ("code", "fault"))
    partition, records = numbers.get("partition"), numbers.get("records")
    return ClientAnswer(partition, update, records, code, outside, fault)
