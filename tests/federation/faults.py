"""Faulty clients, made of an honest client by Flower mods."""

import os
import signal
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fl_audit.clients.app import build_app
from fl_audit.message_keys import Key, MessageRecordName

FROZEN_CLIENT, FAULTY_CLIENT = 1, 2


def faulty_app(kind: str, once: Path | None = None, always: bool = False) -> ClientApp:
    """Return an app whose client 2 has a fault of the given kind in round 2.

    If `once` names a file, the fault occurs the first time only, which the file notes; with `always` it occurs every
    time. With "hangs and freezes" client 1 freezes too. With "dies, later raises" the client dies in two calls of
    the round, answers the third one, and then raises.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        config = message.content.config_records[MessageRecordName.CONFIG]
        client = context.node_config["partition-id"]
        faulty = (FROZEN_CLIENT, FAULTY_CLIENT) if kind == "hangs and freezes" else (FAULTY_CLIENT,)
        due = client in faulty and config[Key.ROUND] == 2
        if not due or (once is not None and not always and _noted(once) > 0):
            return call_next(message, context)
        if once is not None:
            with once.open("a") as file:
                file.write("x")
        match kind:
            case "dies, later raises" if once is not None and _noted(once) <= 2:
                os._exit(1)
            case "dies, later raises" if once is not None and _noted(once) == 3:
                return call_next(message, context)
            case "raises" | "dies, later raises":
                raise RuntimeError("disk full")
            case "dies":
                os._exit(1)
            case "hangs and freezes" if client == FROZEN_CLIENT:
                os.kill(os.getpid(), signal.SIGSTOP)
            case "hangs" | "hangs and freezes":
                time.sleep(600)
            case "freezes":
                os.kill(os.getpid(), signal.SIGSTOP)
        reply = call_next(message, context)
        if kind == "nan":
            arrays = reply.content.array_records[MessageRecordName.ARRAYS]
            total = arrays[Key.SUM].numpy().copy()
            total[0, 0] = np.nan
            arrays[Key.SUM] = Array(total)
        return reply

    return build_app(mods=[mod])


def _noted(once: Path) -> int:
    return once.stat().st_size if once.exists() else 0
