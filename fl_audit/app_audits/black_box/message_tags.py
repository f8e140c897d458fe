"""The audit's own data in Flower messages, placed where neither the app nor its mods read them.

To a client, a tag travels in the message's group ID, which Flower transmits without using it; the tag is removed before
the app sees the message. From a client, the answer to the audit travels in a `ConfigRecord` of its own, which is
removed before the app's strategy sees the reply. Flower's mods only use arrays and metrics.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
from flwr.app import ConfigRecord, Message

from fl_audit.array_types import Floats

_PREFIX = "fl-audit:"
ANSWER = "fl-audit"  # name of the record with the answer to the audit, which the mod `insider` adds to a reply


class Observer(StrEnum):
    """The adversary: another client, which sees the released models, or the server, which sees every reply."""

    CLIENT = "client"
    SERVER = "server"


class TargetAction(StrEnum):
    """A kind of reply that the audit can request from the target's client in a trial."""

    OWN = "own"  # its learned update
    OWN_OPPOSITE = "own, opposite"  # its learned update with the opposite sign
    CRAFTED = "crafted"  # a fixed public update, much longer than any clipping norm
    CRAFTED_OPPOSITE = "crafted, opposite"  # the crafted update with the opposite sign
    OWN_WHOLE = "own, with crafted whole numbers"  # its learned update, with crafted integer and boolean tensors
    OWN_WHOLE_OPPOSITE = "own, with crafted whole numbers, opposite"
    # The received model with a minimal change of one value, for mechanisms that fail on an update of zero.
    ALMOST_NOTHING = "almost nothing"
    NOTHING = "nothing"  # the received model, which is an update of zero
    WITHOUT_RECORD = "without its record"  # the update that it learns without the target record
    OTHER_RECORD = "with another record"  # the update that it learns with another record in place of the target record


class UpdateFormat(StrEnum):
    """The meaning of the arrays in a client's reply: its model, or its model minus the received model."""

    MODELS = "models"
    UPDATES = "updates"


class AbsentTargetMetrics(StrEnum):
    """Treatment of the metrics in the target's reply in a trial without its contribution: kept, or set to 0."""

    KEPT = "kept"  # metrics and example count are unchanged, since the claim covers models alone
    WITHHELD = "withheld"  # metrics and example count are 0, since the claim covers everything that a client sends


@dataclass(frozen=True)
class TrialTag:
    """The audit's tag on a message to a client: it names the trial and tells the client how to reply."""

    trial: int  # number of the trial; 0 is the app's own training
    group: str = ""  # the group ID that the message has without the audit
    action: TargetAction | None = None  # action of the target's client; None for all other clients
    replies: UpdateFormat = UpdateFormat.MODELS  # whether the client replies with models or with updates
    # Reported metrics if the client contributes nothing.
    numbers: AbsentTargetMetrics = AbsentTargetMetrics.KEPT
    length: float = 0.0  # L2 norm of crafted updates
    is_still: bool = False  # whether all clients except the target's repeat their replies of the first trial
    pull: TargetAction | None = None  # crafted action that replaces such a repeated reply; None repeats the reply
    round: int = 0  # number, from 0, of the training round
    is_about_records: bool = False  # whether the claim is about records, so that the target's client changes a record

    def written(self) -> str:
        """Return the tag as a string for a message's group ID; `read_tag` is the inverse."""
        return _PREFIX + json.dumps(asdict(self))


def read_tag(message: Message) -> TrialTag | None:
    """Return the audit's tag on a message and restore the message's original group ID; None without a valid tag."""
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
        tag = TrialTag(**(entries | kinds))
    except (ValueError, KeyError, TypeError):  # a tag of another version is ignored, so that the app goes on
        return None
    message.metadata.group_id = tag.group
    return tag


@dataclass(frozen=True)
class ClientAnswer:
    """A client's answer to the audit, sent in its reply: facts on its data and code, and its learned update."""

    partition: int | None  # the client's partition ID; None if the app has none
    # The learned update of the target's client, before it is replaced, shape (parameters,); None for other clients.
    update: Floats | None = None
    records: int | None = None  # number of the client's records; None if the client app did not call `held`
    code: str = ""  # digest of the client's code and settings
    outside: tuple[str, ...] = ()  # paths outside of the trial's working copy to which the client wrote
    fault: str = ""  # reason why the object that the app passed to `held` is no data set; empty if it is one

    def record(self) -> ConfigRecord:
        """Return the answer as a `ConfigRecord` to add to a reply; `taken_answer` is the inverse."""
        update = None if self.update is None else self.update.astype(np.float32).tobytes()
        values = {
            "partition": self.partition,
            "records": self.records,
            "code": self.code,
            "update": update,
            "fault": self.fault,
        }
        fields = {name: value for name, value in values.items() if value is not None}
        return ConfigRecord({**fields, "outside": list(self.outside)})


def taken_answer(reply: Message) -> ClientAnswer | None:
    """Remove and return a client's answer to the audit from its reply; None if there is none."""
    if reply.has_error() or ANSWER not in reply.content:
        return None
    record = reply.content[ANSWER]
    assert isinstance(record, ConfigRecord)
    del reply.content[ANSWER]
    update_text = record.get("update")
    written = record.get("outside")
    numbers = {name: value for name in ("partition", "records") if isinstance(value := record.get(name), int)}
    update = np.frombuffer(update_text, np.float32).astype(np.float64) if isinstance(update_text, bytes) else None
    outside = tuple(map(str, written)) if isinstance(written, list) else ()
    code, fault = (str(record.get(name, "")) for name in ("code", "fault"))
    partition = numbers.get("partition")
    records = numbers.get("records")
    return ClientAnswer(partition, update, records, code, outside, fault)
