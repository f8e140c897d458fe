"""Trackers of experiments stay silent in games: rows of games are no rows of the app's own training."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any
from unittest.mock import patch

_SWITCHES = {"WANDB_MODE": "disabled", "NEPTUNE_MODE": "debug"}
"""What trackers that are started in a game read from the environment."""
_LOGS = {
    "wandb": ("log", "Run.log"),
    "wandb.sdk.wandb_run": ("Run.log",),
    "mlflow": (
        "log_metric", "log_metrics", "log_param", "log_params", "log_artifact", "log_artifacts", "log_dict", "log_text",
    ),
    # Writers that are there already, then new ones, each of which would open a file and start a thread.
    "torch.utils.tensorboard.writer": ("FileWriter.add_event", "FileWriter"),
    "tensorboardX.writer": ("FileWriter.add_event", "FileWriter"),
}  # fmt: skip
"""What writes to a tracker that the app has started already, by module: functions, and methods of classes."""


def _nothing(*_: Any, **__: Any) -> None:
    """Take anything, and do nothing."""


class _SilentFile:
    """A writer of files that opens none: it takes any call, and does nothing."""

    def __init__(self, place: str = "", *_: Any, **__: Any) -> None:
        self._place = place

    def get_logdir(self) -> str:
        """Return where it would write."""
        return self._place

    def __getattr__(self, _: str) -> Any:
        return _nothing


@contextmanager
def silent_trackers() -> Iterator[None]:
    """Keep the known trackers from noting anything; afterwards they go on as before."""
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, _SWITCHES))
        for module, names in _LOGS.items():
            for name in names if module in sys.modules else ():
                owner, _, function = name.rpartition(".")
                try:
                    found = attrgetter(owner)(sys.modules[module]) if owner else sys.modules[module]
                except AttributeError:  # of another version
                    continue
                if hasattr(found, function):
                    silent = _SilentFile if function == "FileWriter" else _nothing
                    stack.enter_context(patch.object(found, function, silent))
        yield
