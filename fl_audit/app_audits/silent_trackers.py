"""Experiment trackers and hubs that other people's code may use, and how an audit keeps them quiet."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any
from unittest.mock import patch

TRACKERS_OFF = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
}
"""Environment variables, with their values, that disable trackers which are started later."""
_LOGS = {
    "wandb": ("log", "Run.log"),
    "wandb.sdk.wandb_run": ("Run.log",),
    "mlflow": (
        "log_metric",
        "log_metrics",
        "log_param",
        "log_params",
        "log_artifact",
        "log_artifacts",
        "log_dict",
        "log_text",
    ),
    # The first name is for existing writers, and the second for new ones, which would open a file and start a thread.
    "torch.utils.tensorboard.writer": ("FileWriter.add_event", "FileWriter"),
    "tensorboardX.writer": ("FileWriter.add_event", "FileWriter"),
}
"""Functions and methods, keyed by module, that log to a tracker which the app has already started."""


class _NullTensorBoardWriter:
    """Replacement for TensorBoard's `FileWriter`: it opens no file, accepts any call, and does nothing."""

    def __init__(self, directory: str = "", *_: Any, **__: Any) -> None:
        self.get_logdir = lambda: directory

    def __getattr__(self, _: str) -> Any:
        return _nothing


def _nothing(*_: Any, **__: Any) -> None:
    pass


@contextmanager
def silent_trackers() -> Iterator[None]:
    """Disable trackers within a `with` block: those that are started in it, and those that log already."""
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, TRACKERS_OFF))
        for module, names in _LOGS.items():
            for name in names if module in sys.modules else ():
                owner, _, function = name.rpartition(".")
                try:
                    owner_object = attrgetter(owner)(sys.modules[module]) if owner else sys.modules[module]
                except AttributeError:  # another version of the tracker
                    continue
                if hasattr(owner_object, function):
                    silent = _NullTensorBoardWriter if function == "FileWriter" else _nothing
                    stack.enter_context(patch.object(owner_object, function, silent))
        yield
