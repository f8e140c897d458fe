"""Conversion of messages to clients of Flower's old interface (`client_fn`, `NumPyClient`), and of their replies."""

from typing import Any

import flwr.compat.common.recorddict_compat as flower
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import EvaluateIns, FitIns, ndarrays_to_parameters, parameters_to_ndarrays

from fl_audit.errors import InputError


def is_of_old_interface(client: ClientApp) -> bool:
    """Return True if a client app is built from a `client_fn`, which is Flower's old interface."""
    return getattr(client, "_call", None) is not None


def old_message(message: Message) -> Message:
    """Convert a message in place for a client of Flower's old interface, and return it."""
    arrays = next(iter(message.content.array_records.values()), ArrayRecord())
    parameters = ndarrays_to_parameters([array.numpy() for array in arrays.values()])
    config: dict[str, Any] = dict(next(iter(message.content.config_records.values()), ConfigRecord()))
    config.setdefault("current_round", config.get("server-round", 1))
    if message.metadata.message_type.startswith("train"):
        content = flower.fitins_to_recorddict(FitIns(parameters, config), keep_input=True)
    elif message.metadata.message_type.startswith("evaluate"):
        content = flower.evaluateins_to_recorddict(EvaluateIns(parameters, config), keep_input=True)
    else:
        raise InputError(f"clients of the old interface do not answer {message.metadata.message_type!r}")
    message.content = content
    return message


def of_old_message(reply: Message, message: Message) -> Message:
    """Return a client's reply in Flower's old interface, converted to the new one; an error reply is unchanged."""
    if not reply.has_content():
        return reply
    records: dict[str, Any] = {}
    if "fitres.num_examples" in reply.content.metric_records:
        fitted = flower.recorddict_to_fitres(reply.content, keep_input=True)
        arrays = parameters_to_ndarrays(fitted.parameters)
        records["arrays"] = ArrayRecord({f"{index:03d}": Array(value) for index, value in enumerate(arrays)})
        numbers = dict(fitted.metrics)
        count = fitted.num_examples
    else:
        evaluated = flower.recorddict_to_evaluateres(reply.content)
        numbers = {**evaluated.metrics, "loss": evaluated.loss}
        count = evaluated.num_examples
    plain = {name: float(value) for name, value in numbers.items() if isinstance(value, (int, float))}
    records["metrics"] = MetricRecord({**plain, "num-examples": int(count)})
    return Message(RecordDict(records), reply_to=message)
