"""The cases of the equality command: small audits of every kind, and audits of other people's code."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, Strategy

import fl_audit.experiments  # noqa: F401  # sets the environment before Flower is imported
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.scenario_texts import scenario_texts
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_procedure import audit_claim
from fl_audit.app_audits.claim_audit.claim_audit_results import QUICK, TrialBudget
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.app_audits.claim_audit.trial_results import findings, result_json
from fl_audit.app_audits.launchers.review_launcher import reviewed
from fl_audit.app_audits.live.live_audit import measure_live
from fl_audit.app_audits.live.observer_store import TrainingObserver
from fl_audit.app_audits.live.reported_canary_properties import ReportedCanaryProperties
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.audits.canaries.canary_draws import canary_coin, canary_direction
from fl_audit.device import Device
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from tests.app_audits.review.apps import with_strategy, write_app
from tests.builders.hospital import write_hospital
from tests.builders.mechanisms import MECHANISMS
from tests.builders.settings import small_settings

Changes = Mapping[str, dict[str, Any]]
Play = Callable[[Path], Any]


class PlayAudit(Protocol):
    """Play an audit in a directory, and return its summary."""

    def __call__(self, directory: Path, /, *, device: Device) -> Any:
        """Play it on a device."""


_NO_BELIEF: dict[str, Any] = {"belief": None, "noise-multiplier": 1.2, "sensitivity": None}
_LAPLACE: dict[str, Any] = _NO_BELIEF | {"noise": "laplace", "noise-multiplier": 0.4, "accountant": None}
_NO_PRIVACY: dict[str, Any] = {
    "private": False,
    "belief": None,
    "delta": None,
    "sensitivity": None,
    "clipping-norm": None,
}
_ONE_RUN: dict[str, Any] = {
    "kind": "canaries",
    "trials": None,
    "canaries": 6,
    "epsilon-star": False,
    "evaluate-every": 40,
}
_SETTINGS: dict[str, Changes] = {
    "identifiability": {},
    "global sensitivity": {"privacy": {"sensitivity": "global", "accountant": "gdp"}},
    "no privacy": {"privacy": _NO_PRIVACY, "audit": {"insider": False}},
    "Adam": {"training": {"optimizer": "adam", "learning-rate": 0.01}},
    "models shown, momentum": {"training": {"optimizer": "momentum"}, "audit": {"view": "model"}},
    "dense network": {"model": {"name": "dense-128"}, "audit": {"epsilon-star": False}},
    "Laplace": {"privacy": _LAPLACE, "audit": {"epsilon-star": False}},
    "crafted record": {"privacy": {"sensitivity": "global"}, "audit": {"neighbour": "crafted", "epsilon-star": False}},
    "membership": {
        "data": {"records": 120},
        "privacy": _NO_BELIEF | {"accountant": "pld"},
        "audit": {
            "kind": "membership",
            "trials": 24,
            "targets": 60,
            "epsilon-star": False,
            "attacks": ["loss", "shadow", "lira", "rmia", "white-box"],
        },
    },
    "reconstruction": {
        "privacy": {"belief": None, "reconstruction": 0.5, "candidates": 20, "sensitivity": None},
        "audit": {"kind": "reconstruction", "candidates": 20, "trials": 20, "epsilon-star": False},
    },
    "one run with canaries": {
        "data": {"clients": 6},
        "training": {"strategy": "dp-fedavg", "rounds": 40, "learning-rate": 1.0},
        "privacy": _NO_BELIEF | {"accountant": "gdp"},
        "audit": _ONE_RUN,
        "run": {"trials-per-batch": None},
    },
    "clients with Opacus": {
        "data": {"partition": "linear"},
        "training": {"strategy": "dp-sgd-clients", "rounds": 3, "local-batch": 8, "learning-rate": None},
        "privacy": _NO_BELIEF,
        "audit": {"epsilon-star": False, "membership": False},
    },
    "randomised records": {
        "data": {
            "name": "fl_audit.experiments.papers.bernau2019.skewed:skewed_purchases",
            "loader-parameters": {"classes": 10, "generated-records": 400},
        },
        "privacy": _NO_PRIVACY | {"local-randomizer": "randomised-response", "record-epsilon": 2.0},
        "audit": {"insider": False},
    },
}


def _audit(changes: Changes, engine: Engine, directory: Path, device: Device = Device.CPU) -> Any:
    """Play an audit and return its summary."""
    settings = small_settings(**changes)
    settings["run"] |= {"device": str(device)}
    plan = plan_run(parse_config(settings))
    return run_audit(plan, directory, engine, with_report=False).summary


def _convolutional(directory: Path, device: Device = Device.CPU) -> Any:
    """Play an audit of a convolutional network on synthetic images."""
    draw = np.random.default_rng(0)
    path = directory.parent / "pictures.npz"
    np.savez(path, x=draw.random((120, 1, 28, 28), np.float32), y=np.arange(120) % 10)
    data = {"name": "npz", "path": str(path), "records": 40, "test-records": 20}
    audit = {"trials": 2, "epsilon-star": False, "membership": False}
    changes: Changes = {"data": data, "model": {"name": "mnist-cnn"}, "audit": audit, "run": {"trials-per-batch": 2}}
    return _audit(changes, Engine.LOCAL, directory, device)


def _users(changes: Changes, directory: Path, device: Device = Device.CPU) -> Any:
    """Play an audit of a table of patients with several records, whose units are the patients."""
    data = {
        "name": "csv",
        "path": str(write_hospital(directory.parent)),
        "label": "readmitted",
        "user": "patient_id",
        "drop": ["hospital"],
        "records": 150,
    }
    privacy = _NO_BELIEF | {"adjacency": "add-remove-user", "accountant": "pld"}
    settings = {"data": data, "privacy": privacy, "audit": {"epsilon-star": False, "membership": False}}
    merged = {name: settings.get(name, {}) | changes.get(name, {}) for name in {**settings, **changes}}
    return _audit(merged, Engine.LOCAL, directory, device)


_OF_USERS: dict[str, Changes] = {
    "users": {},
    "sampled users": {"training": {"sampling-rate": 0.4}},
    "users, adaptive": {"privacy": {"clipping": "adaptive"}},
    "users as targets": {"audit": {"kind": "membership", "targets": 9, "trials": 24}},
}
AUDITS: dict[str, PlayAudit] = {
    **{name: partial(_audit, changes, Engine.LOCAL) for name, changes in {**_SETTINGS, **MECHANISMS}.items()},
    "convolutional network": _convolutional,
    **{name: partial(_users, changes) for name, changes in _OF_USERS.items()},
}
"""Audits on the local engine, by name; each is played on the device that is named, or on the CPU."""
ON_RAY: dict[str, Play] = {
    f"{name}, on Ray": partial(_audit, {**_SETTINGS, **MECHANISMS}[name], Engine.RAY)
    for name in ("identifiability", "distributed")
}
"""Two of the audits on Ray."""


def _made_up_results(_: Path) -> Any:
    """Audit a claim with synthetic trials: a Gaussian shift that is twice as large as claimed."""
    random = np.random.default_rng(0)

    def play(_kind: str, _first: int, count: int) -> tuple[Transcripts, np.ndarray[Any, Any]]:
        bits = random.random(count) < 0.5
        steps = random.standard_normal((count, 1, 3))
        steps[:, :, 0] += 2.0 * bits[:, None]
        direction = np.zeros_like(steps)
        zeros = np.zeros_like(steps)
        direction[:, :, 0] = 1.0
        every = np.ones(count, dtype=bool)
        numbers = np.zeros((count, 0))
        tensors = (("weight", slice(0, 2)), ("bias", slice(2, 3)))
        return Transcripts(steps, steps, direction, zeros, zeros, every, every, numbers, (), ~every, tensors), bits

    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    budget = TrialBudget(200, (600,), (1.0,), 1, 1, 1)
    result = audit_claim(claim, ["removed"], play, frozenset(), lambda _: "it refused", budget)
    return result_json(result, findings(result, scenario_texts()))


def _private_strategy() -> Strategy:
    return DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), 1.0, 1.0, 4)


def _strategy(directory: Path) -> Any:
    """Audit Flower's wrapper with fixed clipping."""
    del directory
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    result = audit_system(
        AuditedSystem(_private_strategy, clients=4), claim, budget=QUICK, include=["removed", "opposite", "huge"]
    )
    return result_json(result, findings(result, scenario_texts()))


def _review(directory: Path) -> Any:
    """Review an app that averages with a tenth of the noise that it claims."""
    private = "DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), 0.1, 2.0, 4)"
    app = write_app(directory.parent / "app", "equality_app", with_strategy(private))
    options = ReviewOptions(
        noise_multiplier=1.0,
        adjacency="add-remove-client",
        is_quick=True,
        processes=1,
        rounds=1,
        clients=4,
        seconds=1e5,
    )
    return reviewed(app, options)


def _live(directory: Path) -> Any:
    """Judge the canaries of 20 rounds of a synthetic training with a tenth of the noise."""
    size = 650
    directions = 11
    coins = 12
    watch = TrainingObserver(directory, directions, 1, StatedReleases("add-remove-client", 1.0, 20), 1e-5)
    draw = np.random.default_rng(0)
    model = np.zeros(size)
    for number in range(1, 21):
        release = 0.1 * draw.normal(size=size)
        release += canary_coin(coins, number, 0) * canary_direction(directions, number, 0, size)
        watch.store_scores(number, [model], [model + release], [ReportedCanaryProperties(0)], 0)
        model = model + release
    return json.loads(json.dumps(measure_live(directory, coins).to_json()))


OTHERS: dict[str, Play] = {
    "black box, made-up trials": _made_up_results,
    "black box, strategy": _strategy,
    "black box, review of an app": _review,
    "canaries, live": _live,
}
"""Audits of other people's code and of a running federation, by name."""
