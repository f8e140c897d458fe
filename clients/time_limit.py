"""A time limit that a client keeps by itself, on whatever machine it runs."""

import faulthandler
import sys

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fl_audit.protocol import Key, Record


def _has_own_process() -> bool:
    """Whether this process is a Ray actor, which may be ended without harm to anybody else."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def within_time_limit(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower mod: end this actor's process if the call takes longer than the message allows.

    A hanging client keeps the whole simulation waiting, even after its server gave up. The timer runs in C, without
    Python's lock, so it also ends a call that holds that lock. In process (local engine) the engine keeps the time.

    Parameters
    ----------
    message
        What the client is sent; it says how many seconds the call may take.
    context
        The client's state, as Flower hands it over.
    call_next
        The rest of the client app.
    """
    if not _has_own_process():
        return call_next(message, context)
    seconds = message.content.config_records[Record.CONFIG][Key.TIME_LIMIT]
    faulthandler.dump_traceback_later(float(str(seconds)), exit=True)
    try:
        return call_next(message, context)
    finally:
        faulthandler.cancel_dump_traceback_later()
