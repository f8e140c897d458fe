"""Apps whose clients are overheard, or play another mechanism than is claimed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import NDArray

import fl_audit.clients.app
from fl_audit.array_packing import unpack
from fl_audit.clients.app import build_app
from fl_audit.federation.federation import Federation
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.message_keys import Key, MessageRecordName, NonTrainingQuery


def app_through(mod: Mod) -> ClientApp:
    """Return an app with a modifier around all messages but identification, and not training alone."""
    app = ClientApp()
    app.train(mods=[mod])(fl_audit.clients.app.train)
    app.query(NonTrainingQuery.IDENTIFY)(fl_audit.clients.app.identify)
    app.query(NonTrainingQuery.OBSERVE, mods=[mod])(fl_audit.clients.app.observe)
    app.query(NonTrainingQuery.LOSS_RANGE, mods=[mod])(fl_audit.clients.app.answer_loss_range)
    app.query(NonTrainingQuery.LOSS_MOMENTS, mods=[mod])(fl_audit.clients.app.answer_loss_moments)
    return app


class SentMessage(NamedTuple):
    """A message to a client."""

    kind: str  # the type of the message
    client: int
    config: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def overheard_app(messages: list[SentMessage]) -> ClientApp:
    """Return an app that adds every message to a client to a list, but those of identification."""

    def note(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        content = message.content
        arrays = {str(key): array for record in content.array_records.values() for key, array in record.items()}
        messages.append(
            SentMessage(
                message.metadata.message_type,
                int(str(context.node_config["partition-id"])),
                {str(key): value for key, value in content.config_records[MessageRecordName.CONFIG].items()},
                {key: np.array(unpack(array)) for key, array in arrays.items()},
            )
        )
        return call_next(message, context)

    return app_through(note)


def app_with_mechanism(change: Callable[[Mechanism], Mechanism]) -> ClientApp:
    """Return an app whose clients train by a change of the claimed mechanism."""

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        config = message.content.config_records[MessageRecordName.CONFIG]
        public = Federation.from_json(str(config[Key.FEDERATION]))
        config[Key.FEDERATION] = replace(public, mechanism=change(public.mechanism)).to_json()
        return call_next(message, context)

    return build_app(mods=[mod])
