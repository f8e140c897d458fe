"""A time limit that a client keeps by itself, on whatever machine it runs."""

import faulthandler
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def _has_own_process() -> bool:
    """Whether this process is a Ray actor, which may be ended without harm to anybody else."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End this actor's process if the block takes longer.

    A hanging client keeps the whole simulation waiting, even after its server gave up. The timer runs in C, without
    Python's lock, so it also ends a call that holds that lock. In process (local engine) the engine keeps the time.
    """
    if not _has_own_process():
        yield
        return
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
