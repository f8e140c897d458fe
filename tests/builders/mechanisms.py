"""One small federation for each kind of mechanism, as changes to the small configuration."""

from typing import Any

from tests.builders.settings import changed_settings

Changes = dict[str, dict[str, Any]]

_CLIENTS: Changes = {
    "data": {"records": 60, "clients": 5},
    "training": {
        "strategy": "dp-fedavg",
        "rounds": 4,
        "learning-rate": 1.0,
        "local-epochs": 2,
        "local-batch": 5,
        "local-learning-rate": 0.5,
    },
    "privacy": {
        "belief": None,
        "noise-multiplier": 1.5,
        "accountant": "pld",
        "sensitivity": "global",
        "adjacency": "add-remove-client",
        "clipping-norm": 0.3,
    },
    "audit": {"epsilon-star": False, "membership": False},
}
_RECORDS: Changes = {
    "data": {"records": 60, "clients": 4},
    "training": {"strategy": "dp-fedsgd", "rounds": 4, "learning-rate": 1.0},
    "privacy": _CLIENTS["privacy"] | {"adjacency": "replace-record"},
    "audit": _CLIENTS["audit"],
}


def _with(base: Changes, **changes: dict[str, Any]) -> Changes:
    return changed_settings(base, changes)


MECHANISMS: dict[str, Changes] = {
    "clients": _CLIENTS,
    "replaced clients": _with(_CLIENTS, privacy={"adjacency": "replace-client"}),
    "sampled clients": _with(_CLIENTS, training={"sampling-rate": 0.5}),
    "sampled clients, seen": _with(_CLIENTS, training={"sampling-rate": 0.5}, audit={"participation": "seen"}),
    "replaced sampled clients": _with(
        _CLIENTS, training={"sampling-rate": 0.5}, privacy={"adjacency": "replace-client"}
    ),
    "sampled records": _with(_RECORDS, training={"sampling-rate": 0.4}),
    "cohorts": _with(_CLIENTS, training={"cohort": 2}),
    "distributed": _with(_CLIENTS, privacy={"noise": "distributed"}, audit={"colluders": 1}),
    "distributed among owners of records": _with(_RECORDS, privacy={"noise": "distributed"}),
    "local": _with(_CLIENTS, privacy={"noise": "local"}),
    "local, at the server": _with(_CLIENTS, privacy={"noise": "local"}, audit={"adversary": "server"}),
    "local records, at the server": _with(_RECORDS, privacy={"noise": "local"}, audit={"adversary": "server"}),
    "adaptive": _with(_CLIENTS, privacy={"clipping": "adaptive"}),
    "adaptive, sampled": _with(_CLIENTS, training={"sampling-rate": 0.5}, privacy={"clipping": "adaptive"}),
    "tree": _with(_CLIENTS, privacy={"noise": "tree"}),
    "banded": _with(_CLIENTS, privacy={"noise": "banded"}),
    "banded cohorts": _with(_CLIENTS, training={"cohort": 2}, privacy={"noise": "banded"}),
    "banded records": _with(_RECORDS, privacy={"noise": "banded"}),
}
"""By name, one of every kind."""
