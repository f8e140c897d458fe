"""The program of an embedded Ray: starts Ray in this process, prints its address, and waits for the end of its input.

The first argument holds the arguments of `ray.init` as a JSON object. The program prints one JSON object: the "address"
of Ray as HOST:PORT, or an "error". It belongs to a process of its own, since Ray reads its token and its directory from
the environment of the process that starts it.
"""

import json
import logging
import sys

import ray

_HELPERS = (
    ("ray._private.services", "start_api_server", (None, None)),
    ("ray._private.node:Node", "start_monitor", None),
    ("ray._private.node:Node", "start_log_monitor", None),
)
"""Functions of Ray that start its API server, its autoscaler and its log monitor; and what they return without these.

They take about 6 seconds of processor time at the start of Ray on two cores, 2 of them before Ray answers, and nobody
uses them here; Ray has no public setting for them.
"""


def skip_helpers() -> None:
    """Make Ray start without its helpers, as far as it has the functions named above."""
    for module_name, function, result in _HELPERS:
        module, _, name = module_name.partition(":")
        owner = sys.modules.get(module)
        owner = getattr(owner, name, None) if name else owner
        if hasattr(owner, function):
            setattr(owner, function, lambda *_, result=result, **__: result)


def main() -> None:
    """Start Ray, print its address, and end it when standard input ends."""
    skip_helpers()
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **json.loads(sys.argv[1]))
        answer = {"address": ray.get_runtime_context().gcs_address}
    except Exception as error:  # Ray raises anything down to Exception itself
        answer = {"error": next(iter(str(error).strip().splitlines()), type(error).__name__)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
