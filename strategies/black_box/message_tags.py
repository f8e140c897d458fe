"""Tags of the audit on messages, in a place that neither the app nor its mods read.

A message keeps its content: the note to the client stands in its group id, which Flower hands on and nobody uses, and
is taken away before the app sees the message. The answer travels in a `ConfigRecord` of its own, which the watched
strategy takes out before the app's strategy sees the reply. Flower's mods count arrays and metrics, not these.
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
    OWN_WHOLE = "own, with crafted whole numbers"  # its learned update, except for whole numbers and booleans
    OWN_WHOLE_OPPOSITE = "own, with crafted whole numbers, opposite"
    # The model that it was sent, but for the smallest change that can be seen: some mechanisms cannot bear none.
    ALMOST_NOTHING = "almost nothing"
    NOTHING = "nothing"  # the model that it was sent
    WITHOUT_RECORD = "without its record"  # its learned update without its differing record
    OTHER_RECORD = "with another record"  # its learned update with another record instead


class UpdateFormat(StrEnum):
    """The meaning of the arrays in a reply: the client's model, or its change."""

    MODELS = "models"
    UPDATES = "updates"


class AbsentTargetMetrics(StrEnum):
    """The treatment of the numbers that the target's client reports where it contributes nothing."""

    KEPT = "kept"  # they stay: the claim is about models alone, and every client counts as much as ever
    WITHHELD = "withheld"  # they are 0, and so is its weight: the claim is about everything that leaves the client


@dataclass(frozen=True)
class TrialTag:
    """The tag of the audit on a message to a client."""

    trial: int  # number of the trial; 0 is the app's own training
    group: str = ""  # the group id that the message has without us
    action: TargetAction | None = None  # contribution of the target's client; None for everybody else
    replies: UpdateFormat = UpdateFormat.MODELS  # meaning of the arrays in replies
    numbers: AbsentTargetMetrics = AbsentTargetMetrics.KEPT  # treatment of numbers where nothing is contributed
    length: float = 0.0  # length of crafted updates
    is_still: bool = False  # whether everybody but the target's client replies what it replied the first time
    pull: TargetAction | None = None  # contribution of such a client instead of its own; None for its earlier reply
    round: int = 0  # the round, from 0, of a message that asks to train
    is_about_records: bool = False  # whether the claim is about records, so that the target's client changes its own

    def written(self) -> str:
        """Return the tag as a group id."""
        return _PREFIX + json.dumps(asdict(self))


def read_note(message: Message) -> TrialTag | None:
    """Return the tag on a message, None if there is none; the message then has its own group id again."""
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
    except (ValueError, KeyError, TypeError):  # of another version: nobody's app ends for it
        return None
    message.metadata.group_id = note.group
    return note


@dataclass(frozen=True)
class ClientAnswer:
    """The answer of a client to the audit: its partition, its update, its number of records, and its code."""

    partition: int | None  # the number of its partition; None where the app has none
    # The model that the target's client would have sent, less the model that it received, shape (parameters,); None
    # from everybody else.
    update: Floats | None = None
    records: int | None = None  # number of its records; None if the client app did not ask for them
    code: str = ""  # the fingerprint of what the client runs
    outside: tuple[str, ...] = ()  # places of writes that could not be kept apart
    fault: str = ""  # why the app's object is no data set; empty if it is one

    def record(self) -> ConfigRecord:
        """Return the answer as a record of a reply."""
        update = None if self.update is None else self.update.astype(np.float32).tobytes()
        told = {"partition": self.partition, "records": self.records, "code": self.code, "update": update,
                "fault": self.fault}  # fmt: skip
        said = {name: value for name, value in told.items() if value is not None}
        return ConfigRecord({**said, "outside": list(self.outside)})


def taken_answer(reply: Message) -> ClientAnswer | None:
    """Take the audit's answer out of a reply; None if there is none."""
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
