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
    # The first opens a file and starts a thread, for every writer anew; whatever is added goes to what it returns.
    "torch.utils.tensorboard.writer": ("SummaryWriter._get_file_writer", "SummaryWriter.add_scalars"),
    "tensorboardX.writer": ("SummaryWriter._get_file_writer", "SummaryWriter.add_scalars"),
}  # fmt: skip
"""What writes to a tracker that the app has started already, by module: functions, and methods of classes."""


class _Silent:
    """Takes any call of any name, and does nothing."""

    def __getattr__(self, _: str) -> "_Silent":
        return self

    def __call__(self, *_: Any, **__: Any) -> "_Silent":
        return self


_SILENT = _Silent()


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
                    stack.enter_context(patch.object(found, function, _SILENT))
        yield
