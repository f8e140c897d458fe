"""Configurations of small audits."""

import json
from collections.abc import Mapping
from typing import Any


def small_settings(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration that runs in a second: breast-cancer, logistic regression; sections may be changed.

    The accountant is that of the paper. A change to None takes a setting away, so that its default holds. A guarantee
    gets a relation where none is named.
    """
    settings: dict[str, Any] = {
        "data": {"name": "breast-cancer", "records": 60, "clients": 3, "test-records": 50},
        "model": {"name": "logistic"},
        "training": {"rounds": 4, "learning-rate": 1.0},
        "privacy": {
            "belief": 0.9,
            "delta": 0.01,
            "clipping-norm": 1.0,
            "sensitivity": "local",
            "accountant": "rdp-classic",
        },
        "audit": {"trials": 6, "epsilon-star": True},
        "run": {"trials-per-batch": 3, "keep-releases": 4, "client-time-limit": 60.0, "seed": 0},
    }
    for section, values in changes.items():
        changed = settings.get(section, {}) | values
        settings[section] = {key: value for key, value in changed.items() if value is not None}
    if settings["privacy"].get("private") is False:
        settings["privacy"] = {key: value for key, value in settings["privacy"].items() if key != "accountant"}
    else:
        settings["privacy"] = {"adjacency": _relation(settings)} | settings["privacy"]
    return settings


def changed_settings(
    settings: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return settings with changes; a section keeps what is not changed."""
    return {name: {**settings.get(name, {}), **changes.get(name, {})} for name in {**settings, **changes}}


def toml_text(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return settings as the text of a configuration; those that are None are left out."""
    lines = list[str]()
    for section, values in settings.items():
        lines += [
            f"[{section}]",
            *(f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None),
        ]
    return "\n".join([*lines, ""])


def small_toml(**changes: dict[str, Any]) -> str:
    """Return the text of a configuration that names little; sections may be changed as of `small_settings`."""
    settings: dict[str, Any] = {
        "data": {"name": "breast-cancer", "records": 60, "clients": 3},
        "model": {},
        "training": {"rounds": 3, "learning-rate": 1.0},
        "privacy": {"adjacency": "replace-record", "epsilon": 2.0, "delta": 0.01},
        "audit": {"trials": 4},
        "run": {},
    }
    changed = {section: values | changes.get(section, {}) for section, values in settings.items()}
    return toml_text({section: values for section, values in changed.items() if values})


def tiny_toml(**changes: dict[str, Any]) -> str:
    """Return the text of a configuration of two trials, rounds and clients; see `small_toml`."""
    data = {"records": 40, "clients": 2} | changes.get("data", {})
    training = {"rounds": 2, "learning-rate": None}
    audit = {"trials": 2, "neighbour": "random"}
    privacy = {"epsilon": None, "delta": None, "belief": 0.9}
    return small_toml(**(changes | {"data": data, "training": training, "privacy": privacy, "audit": audit}))


def _relation(settings: dict[str, Any]) -> str:
    """Return how neighbours differ where a test does not say it."""
    strategy = settings["training"].get("strategy")
    kind = settings["audit"].get("kind")
    if strategy == "dp-fedavg":
        return "add-remove-client"
    return (
        "add-remove-record"
        if strategy == "dp-sgd-clients" or kind in ("membership", "reconstruction")
        else "replace-record"
    )
