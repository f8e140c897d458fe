"""Small audits for tests."""

from collections.abc import Callable
from typing import Any

from fl_audit.experiments.runs.plan import AuditPlan

MakePlan = Callable[..., AuditPlan]


def small_settings(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration that runs in a second: breast-cancer, logistic regression; sections may be changed.

    A change to None takes a setting away. A guarantee gets a relation and the paper's accountant where none is named.
    """
    settings: dict[str, Any] = {
        "data": {"name": "breast-cancer", "records": 60, "clients": 3, "test-records": 50},
        "model": {"name": "logistic"},
        "training": {"rounds": 4, "learning-rate": 1.0},
        "privacy": {"belief": 0.9, "delta": 0.01, "clipping-norm": 1.0, "sensitivity": "local"},
        "audit": {"trials": 6, "epsilon-star": True},
        "run": {"trials-per-batch": 3, "keep-releases": 4, "client-time-limit": 60.0, "seed": 0},
    }
    for section, values in changes.items():
        changed = settings.get(section, {}) | values
        settings[section] = {key: value for key, value in changed.items() if value is not None}
    if settings["privacy"].get("private") is not False:
        settings["privacy"] = {"adjacency": _relation(settings), "accountant": "rdp-classic"} | settings["privacy"]
    return settings


def _relation(settings: dict[str, Any]) -> str:
    """Return how neighbours differ where a test does not say it."""
    strategy, kind = settings["training"].get("strategy"), settings["audit"].get("kind")
    if strategy == "dp-fedavg":
        return "add-remove-client"
    return (
        "add-remove-record"
        if strategy == "dp-sgd-clients" or kind in ("membership", "reconstruction")
        else "replace-record"
    )
