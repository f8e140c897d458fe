"""The messages of trials: the audit's own data in Flower messages, and the named tensors that messages hold.

To a client, a tag travels in the message's group ID, which Flower transmits without using it; the tag is removed before
the app sees the message. From a client, the answer to the audit travels in a `ConfigRecord` of its own, which is
removed before the app's strategy sees the reply. Flower's mods only use arrays and metrics.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeVar, assert_never

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray

from fl_audit.array_packing import pack, unpack
from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator

Arrays = dict[str, NDArray[np.generic]]

Part = TypeVar("Part")
_STEPS = 4
_LEAST = 1e-6
"""`_slightly_changed` increases a value by this number of its floating-point spacings, but by at least this amount."""

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


def arrays_of(record: Mapping[str, Array]) -> Arrays:
    """Return the tensors of a Flower record as read-only numpy arrays, keyed by name and in the order of the record."""
    return {name: unpack(array) for name, array in record.items()}


def records_of(message: Message) -> dict[str, Arrays]:
    """Return the tensors of a message, keyed first by the name of the array record and then by the tensor's name."""
    return {name: arrays_of(record) for name, record in message.content.array_records.items()}


def record_of(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return a Flower `ArrayRecord` that holds the given tensors under the given names, in the same order."""
    return ArrayRecord({name: Array(*pack(np.asarray(value))) for name, value in arrays.items()})


def flat(arrays: Mapping[str, NDArray[np.generic]], model: Mapping[str, NDArray[np.generic]] | None = None) -> Floats:
    """Return all tensors as one float64 vector, concatenated in the alphabetical order of their names.

    `model`: A tensor that is missing from `arrays`, is not numeric or has another shape contributes NaN.
    """

    def column(array: NDArray[np.generic] | None, expected: NDArray[np.generic]) -> Floats:
        is_there = array is not None and array.shape == expected.shape and array.dtype.kind in "fiub"
        return np.asarray(array, dtype=np.float64).ravel() if is_there else np.full(expected.size, np.nan)

    expected = sorted((model or arrays).items())
    return np.concatenate([np.zeros(0), *(column(arrays.get(name), value) for name, value in expected)])


def shapes_of(model: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a model, keyed by name in alphabetical order."""
    return {name: model[name].shape for name in sorted(model)}


def with_names(records: Mapping[str, Arrays], names: set[str], record: str = "") -> Arrays | None:
    """Return the tensors of the first record that has the wanted names and no others.

    If no record has exactly these names, all tensors of the first record that has at least these names are returned.
    The result is None if no record has all of the names.
    """
    candidates = [*([records[record]] if record in records else []), *records.values()]
    exact = next((arrays for arrays in candidates if set(arrays) == names), None)
    return exact or next((arrays for arrays in candidates if set(arrays) >= names), None)


def base_of(reply: Arrays, received: Arrays | None, update_format: UpdateFormat) -> Arrays:
    """Return the tensors that a client would send if it had learned nothing.

    If replies are models, the result is the received tensors. If replies are updates, the result is zeros.

    `reply`: The result has the same names and types.
    """
    if received is None or update_format is UpdateFormat.UPDATES:
        return {name: np.zeros_like(value) for name, value in reply.items()}
    # A reply may have another precision than the received tensors, and serialised models may have another shape.
    return {name: received[name].astype(value.dtype, copy=False) for name, value in reply.items()}


def with_update(arrays: Arrays, steps: Mapping[str, Floats]) -> Arrays:
    """Return tensors with an update added to them, keyed by name; each tensor keeps its type.

    Integers are rounded and limited to the range of their type. A boolean becomes True if its sum is at least 1/2.

    `steps`: A tensor without an update is returned unchanged.
    """
    there = dict(arrays)
    for name in arrays.keys() & steps.keys():
        value: Any = arrays[name].astype(np.float64) + steps[name]
        dtype = arrays[name].dtype
        if dtype.kind == "b":
            value = value >= 0.5
        elif dtype.kind in "iu":
            limits: np.iinfo[Any] = np.iinfo(str(dtype))
            value = np.clip(np.rint(value), limits.min, limits.max)
        there[name] = np.asarray(value).astype(dtype)
    return there


def contribution(action: TargetAction, update: Arrays, base: Arrays, length: float) -> Arrays:
    """Return the tensors that the target's client sends in a trial, keyed by name.

    Depending on the action, they are the client's own tensors `update`, the tensors `base` of a client that learned
    nothing, or `base` plus an update. This update is crafted (fixed and public), or the opposite of the client's own or
    of the crafted update. Some actions take only the integer and boolean tensors from a crafted update.
    """
    match action:
        case TargetAction.OWN | TargetAction.WITHOUT_RECORD | TargetAction.OTHER_RECORD:
            return update
        case TargetAction.NOTHING:
            return base
        case TargetAction.ALMOST_NOTHING:
            return _slightly_changed(base)
        case TargetAction.OWN_OPPOSITE:
            # Integers have no opposite, since they may be the bytes of a serialised model such as a tree.
            floats = {name: value.astype(np.float64) for name, value in base.items() if _is_float(value)}
            return with_update(base, {name: value - update[name].astype(np.float64) for name, value in floats.items()})
        case TargetAction.CRAFTED:
            return with_update(base, crafted(base, length))
        case TargetAction.CRAFTED_OPPOSITE:
            return with_update(base, crafted(base, -length))
        case TargetAction.OWN_WHOLE:
            return update | whole_parts(contribution(TargetAction.CRAFTED, update, base, length), base)
        case TargetAction.OWN_WHOLE_OPPOSITE:
            opposite = contribution(TargetAction.OWN_OPPOSITE, update, base, length)
            return opposite | whole_parts(contribution(TargetAction.CRAFTED_OPPOSITE, update, base, length), base)
        case _:
            assert_never(action)


def crafted(model: Mapping[str, NDArray[np.generic]], length: float) -> dict[str, Floats]:
    """Return a fixed pseudorandom update for the numeric and boolean tensors of a model, the same in every process.

    All entries of integer and boolean tensors change by the same whole number, at least 1 in absolute value. A trial
    thus shows whether such tensors are passed on without clipping and noise.
    """
    numbers = {name: model[name] for name in sorted(model) if model[name].dtype.kind in "fiub"}
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS, client=len(numbers))
    directions = {name: draws.standard_normal(value.shape) for name, value in numbers.items()}
    norm = np.sqrt(sum(float(np.sum(directions[name] ** 2)) for name, value in numbers.items() if _is_float(value)))
    scale = length / max(norm, 1.0)
    whole = np.copysign(np.ceil(abs(scale)), scale)
    return {
        name: np.asarray(scale * directions[name] if _is_float(value) else np.full(value.shape, whole))
        for name, value in numbers.items()
    }


def whole_parts(arrays: Mapping[str, Part], model: Mapping[str, NDArray[np.generic]]) -> dict[str, Part]:
    """Return the entries of `arrays` that belong to integer or boolean tensors of the model, keyed by tensor name.

    `model`: Every name in `arrays` occurs here.
    """
    return {name: value for name, value in arrays.items() if model[name].dtype.kind in "iub"}


def _is_float(value: NDArray[np.generic]) -> bool:
    return value.dtype.kind == "f"


def _slightly_changed(base: Arrays) -> Arrays:
    """Return a copy of `base` that differs as little as possible: one floating-point value is slightly larger.

    The increase is four times the distance to the next floating-point number, or 1e-6 if that is more.
    """
    for name in sorted(base):
        if _is_float(base[name]) and base[name].size:
            value = np.array(base[name])
            first = value.reshape(-1)[0]
            value.reshape(-1)[0] = first + max(_STEPS * np.spacing(np.abs(first)), _LEAST)
            return base | {name: value}
    return base
