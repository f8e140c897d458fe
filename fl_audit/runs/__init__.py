"""Runs of a simulated federation: configuration, plan, run directory, engines, sweeps.

Importing it prepares the environment of Flower and Ray, which read it at their first import.
"""

import os

_FOR_FLOWER_AND_RAY = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def settle_environment() -> None:
    """Set environment variables for Flower and Ray, except for those that the user has set.

    They turn off telemetry, and make Ray start its workers in this Python environment. They also prevent Ray from
    starting again if it is called after its end. Flower and Ray read them at their first import.
    """
    for name, value in _FOR_FLOWER_AND_RAY.items():
        os.environ.setdefault(name, value)


settle_environment()
