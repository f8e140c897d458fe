"""The audit inside a Flower client app: the mod `insider` and the function `held`.

The mod changes the reply of the target's client (the client under test) in trials, and keeps the client state of trials
separate. If the claim is about records, the app calls `held` to get the records that a client trains on.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fl_audit.app_audits.black_box.dataset_subsets import SelectableDataset, data_set_of
from fl_audit.app_audits.black_box.fingerprint import client_fingerprint
from fl_audit.app_audits.black_box.trial_messages import (
    ANSWER,
    AbsentTargetMetrics,
    Arrays,
    ClientAnswer,
    TargetAction,
    TrialTag,
    base_of,
    contribution,
    flat,
    read_tag,
    record_of,
    records_of,
    shapes_of,
    with_names,
)
from fl_audit.app_audits.black_box.working_copy import in_working_copy, own_copy
from fl_audit.array_types import Floats
from fl_audit.errors import InputError

_OURS = "fl-audit."
_TRIAL = "fl-audit.kind"
_OWN = "fl-audit.own."
_BEFORE = "fl-audit.before."
_STILL = "fl-audit.still."
"""Keys of the audit in a client's state.

All begin with `_OURS`. `_TRIAL` holds the number of the current trial. The others are prefixes: `_OWN` of the state
after the app's own training, `_BEFORE` of the state before the audit, and `_STILL` of replies that the client repeats.
"""
_WITHOUT = (TargetAction.ALMOST_NOTHING, TargetAction.NOTHING)


def insider(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower mod that returns the client app's reply, changed in trials as the server's audit demands.

    The reply is unchanged if the server runs no audit.
    """
    tag = read_tag(message)
    with _kept_apart(context, 0 if tag is None else tag.trial, is_tagged=tag is not None) as state:
        if tag is None:
            return call_next(message, context)
        is_target = tag.action is not None and message.metadata.message_type.startswith("train")
        received = records_of(message) if is_target or tag.pull else {}
        is_still = tag.is_still and tag.action is None and message.metadata.message_type.startswith("train")
        with (
            applying_action(tag.action if is_target and tag.is_about_records else None) as shard,
            _in_a_copy(tag.trial) as outside,
        ):
            content = _reply_to_repeat(state, tag.round) if is_still else None
            reply = call_next(message, context) if content is None else Message(content, reply_to=message)
        if is_still and content is None and not reply.has_error():
            state |= {f"{_STILL}{tag.round}.{name}": deepcopy(record) for name, record in reply.content.items()}
    if reply.has_error():
        return reply
    update = _played(reply, received, tag) if is_target else None
    if is_still and tag.pull is not None:
        _played(reply, received, replace(tag, action=tag.pull))
    with _spared(tag.trial):
        partition = context.node_config.get("partition-id")
        code = "" if tag.trial else client_fingerprint(call_next, context.run_config)
        number = partition if isinstance(partition, int) else None
        answer = ClientAnswer(number, update, shard.records, code, tuple(outside), shard.fault or "")
        reply.content[ANSWER] = answer.record()
    return reply


def _reply_to_repeat(state: dict[str, Any], round: int) -> RecordDict | None:
    """Return the stored reply that the client has to repeat in round `round`; None if there is none."""
    start = f"{_STILL}{round}."
    records = {key.removeprefix(start): deepcopy(record) for key, record in state.items() if key.startswith(start)}
    return RecordDict(records) if records else None


@contextmanager
def _in_a_copy(trial: int) -> Iterator[list[str]]:
    """Run a `with` block in a copy of the working directory; yield the paths outside of it to which the block writes.

    Trial 0, the app's own training, runs in the working directory itself.
    """
    if not trial:
        yield []
        return
    copy = own_copy()
    # The server compares all files after its trials; here Python's audit events are enough.
    with in_working_copy(copy, thoroughly=False):
        yield copy.outside


def _spared(trial: int) -> AbstractContextManager[None]:
    """Suppress all exceptions of the audit if `trial` is 0, which stands for the app's own training."""
    return nullcontext() if trial else suppress(Exception)


def _played(reply: Message, received: dict[str, Arrays], tag: TrialTag) -> Floats | None:
    """Change the target client's reply in place as the trial's tag `tag` demands; return the update that was learned.

    The result is None if no record of the reply has the shapes of the received model.
    """
    assert tag.action is not None
    update = None
    for name, arrays in records_of(reply).items():
        sent = with_names(received, set(arrays), name)
        base = base_of(arrays, sent, tag.replies)
        if update is None and shapes_of(arrays) == shapes_of(base):
            update = flat(arrays) - flat(base)
        if tag.action is not TargetAction.OWN:
            reply.content[name] = record_of(contribution(tag.action, arrays, base, tag.length))
    if tag.numbers is AbsentTargetMetrics.WITHHELD and tag.action in _WITHOUT:
        for numbers in reply.content.metric_records.values():
            for key, value in numbers.items():
                numbers[key] = [0 * number for number in value] if isinstance(value, list) else 0 * value
    return update


@contextmanager
def _kept_apart(context: Context, trial: int, is_tagged: bool) -> Iterator[dict[str, Any]]:
    """Give a client the state of the current trial in a `with` block; yield the audit's own entries of the state.

    `is_tagged` says whether the message has the tag of a trial. Without a tag, a client that was never in a trial keeps
    its state.
    """
    ours = {key: context.state.pop(key) for key in list(context.state) if key.startswith(_OURS)}
    if not trial:  # a new training of the app discards the replies that clients repeat in trials
        ours = {key: record for key, record in ours.items() if not key.startswith(_STILL)}
    if not ours and not is_tagged:
        yield ours
        return
    with _spared(trial):
        _enter(context.state, ours, trial)
    try:
        yield ours
    finally:
        context.state.update(ours)


def _enter(state: RecordDict, ours: dict[str, Any], trial: int) -> None:
    """Replace a client's state by the initial state of a trial, unless the client is already in this trial.

    The initial state is the client's state before the audit. Trial 0 stands for the app's own training, whose latest
    state is restored. `ours` stores both states.
    """
    if not ours:
        ours |= {_BEFORE + key: deepcopy(record) for key, record in state.items()}
        ours[_TRIAL] = ConfigRecord({"trial": 0})
    before = int(ours[_TRIAL]["trial"])
    if before == trial:
        return
    if before == 0:
        ours |= {_OWN + key: record for key, record in state.items()}
    state.clear()
    prefix = _BEFORE if trial else _OWN
    state.update({key.removeprefix(prefix): deepcopy(record) for key, record in ours.items() if key.startswith(prefix)})
    if trial == 0:
        for key in [key for key in ours if key.startswith(_OWN)]:
            del ours[key]
    ours[_TRIAL] = ConfigRecord({"trial": trial})


@dataclass
class RecordRequestLog:
    """Log of the records that an app passes to the function `held` while a client answers one message.

    It also holds the action by which the audit changes these records.
    """

    action: TargetAction | None = None  # the client's action, which may change a record; None changes nothing
    records: int | None = None  # number of the client's records; None if the app did not call `held`
    fault: str | None = None  # reason why the object passed to `held` is no data set; None if it is one

    def of_records(self, elements: tuple[Any, ...]) -> list[SelectableDataset]:
        """Return each part, such as inputs or labels, as a data set, and store their common number of records."""
        datasets = [data_set_of(element) for element in elements]
        counts = [dataset.records for dataset in datasets] + ([] if self.records is None else [self.records])
        if len(set(counts)) > 1:
            raise InputError(
                f"held() was given parts of {' and '.join(map(str, dict.fromkeys(counts)))} records in one message: "
                "accepted are parts of the same records, such as inputs and labels, since one record differs"
            )
        self.records = counts[0]
        return datasets


_shard: ContextVar[RecordRequestLog | None] = ContextVar("shard", default=None)


@contextmanager
def applying_action(action: TargetAction | None) -> Iterator[RecordRequestLog]:
    """In a `with` block, let `held` change the records that an app passes to it, as an audit's action says.

    Without an action (None), `held` returns the records unchanged. The block receives an object that records the calls
    of `held`.
    """
    shard = RecordRequestLog(action)
    token = _shard.set(shard)
    try:
        yield shard
    finally:
        _shard.reset(token)


def held(*elements: Any) -> Any:
    """Return the records that the app has loaded for a client; in some trials one record is missing or replaced.

    An app whose privacy claim is about records calls this function where it loads them. Each argument is an array,
    tensor or table with one record per row, a list, or a data set of torch or Hugging Face. Several arguments, such as
    inputs and labels, describe the same records in the same order; the result is then a tuple. The records are changed
    only in trials and only for the target's client: the first record is missing, or another one is in its place.
    """
    if not elements:
        raise InputError("held() was given nothing: accepted is what the client app has loaded, as in held(records)")
    shard = _shard.get()
    if shard is not None and shard.action is None:
        try:
            shard.of_records(elements)
        except InputError as error:  # must not stop the app's own training; the server reports it before the trials
            shard.fault = shard.fault or str(error)
    elif shard is not None:
        datasets = shard.of_records(elements)
        positions = list(range(datasets[0].records))
        # The first record is the one that differs. Under D all records are selected in the same way, so that an effect
        # of the selection itself occurs under D and D'.
        if shard.action is TargetAction.WITHOUT_RECORD:
            positions = positions[1:]
        elif shard.action is TargetAction.OTHER_RECORD:
            positions = [positions[-1], *positions[1:]]
        elements = tuple(dataset.taken(positions) for dataset in datasets)
    return elements[0] if len(elements) == 1 else elements
