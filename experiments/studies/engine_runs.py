"""Real federations on the local engine, honest and broken: the training, the clients and the insider as they are.

A breach is a small value: another strategy that noises the sums in its own way, or other clients.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray
from torch import Tensor

from clients.app import build_app
from experiments.runs.config import parse_config
from experiments.runs.engines import Engine
from experiments.runs.plan import AuditPlan, resolve
from experiments.runs.run import HONEST, Parties, run_audit
from fl_audit.evidence.belief.family import TestName
from fl_audit.evidence.belief.measured import Measured
from fl_audit.game.game import load_game
from fl_audit.game.public import PublicGame
from fl_audit.mechanisms.clipping import FixedClipping
from fl_audit.mechanisms.noise import add_noise
from fl_audit.protocol import Key, Record
from fl_audit.worlds import WorldBatch
from strategies.dp_strategy import DPStrategy

Sigma = NDArray[np.float64]
NoiseOf = Callable[[DPStrategy, WorldBatch, int, Tensor, Sigma], Tensor]

_CLIENTS = 3
_LAST_ROUND = 30


def breach_plan(seed: int, **changes: dict[str, Any]) -> AuditPlan:
    """Return the plan of one batch of 20 worlds and 30 rounds: logistic regression on digits, 650 parameters."""
    settings: dict[str, Any] = {
        "data": {"name": "digits", "records": 100, "clients": _CLIENTS, "test-records": 10, "population-records": 10},
        "model": {"name": "logistic"},
        "training": {"rounds": _LAST_ROUND, "learning-rate": 0.5},
        "privacy": {"noise-multiplier": 4.0, "delta": 0.01, "clipping-norm": 1.0, "sensitivity": "global",
                    "adjacency": "replace-record", "accountant": "gdp"},
        "audit": {"worlds": 20, "epsilon-star": False, "membership": False},
        "run": {"seed": seed, "worlds-per-batch": 20, "keep-releases": 0, "keep-final-models": False},
    }  # fmt: skip
    return resolve(parse_config({name: section | changes.get(name, {}) for name, section in settings.items()}))


_MODELS = ("logistic", "adult-mlp", "dense-128")
_WORLDS = (2, 5, 20, 60, 200)


def honest_plans(count: int, seed: int = 0) -> Iterator[AuditPlan]:
    """Return plans of honest runs: both scalings, both relations, three models, 2 to 200 worlds, 4 to 12 rounds."""
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        worlds, model = _WORLDS[number % len(_WORLDS)], _MODELS[number % len(_MODELS)]
        yield breach_plan(
            seed=int(rng.integers(2**32)),
            data={"name": "breast-cancer", "records": 30},
            model={"name": model},
            training={"rounds": int(rng.integers(4, 13)), "learning-rate": float(rng.choice([0.1, 1.0, 10.0]))},
            privacy={
                "sensitivity": str(rng.choice(["local", "global"])),
                "adjacency": str(rng.choice(["add-remove-record", "replace-record"])),
            },
            audit={"worlds": worlds},
            run={"worlds-per-batch": worlds},
        )


def measured_run(plan: AuditPlan, parties: Parties = HONEST) -> Measured:
    """Play a run on the local engine, in a directory that is thrown away, and return what the insider measured."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        contents = run_audit(plan, Path(directory) / "run", Engine.LOCAL, parties=parties, with_report=False)
    return contents.run.measured


def _server(noise_of: NoiseOf) -> Parties:
    """Return parties whose server noises the sums in its own way."""

    class Broken(DPStrategy):
        def noise(self, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma) -> Tensor:
            return noise_of(self, batch, server_round, total, sigma)

    return Parties(strategy=Broken)


def _normals(server: DPStrategy, batch: WorldBatch, server_round: int) -> Tensor:
    return server.challenger.standard_normals(batch.worlds, server_round, server.parameters)


def _too_small(server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma) -> Tensor:
    return add_noise(total, _normals(server, batch, server_round), 0.98 * sigma)


def _missing_on_smallest(
    server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma
) -> Tensor:
    columns = load_game(server.public).model.layout.slices().values()
    smallest = min(columns, key=lambda part: part.stop - part.start)
    normals = _normals(server, batch, server_round)
    normals[:, smallest] = 0.0
    return add_noise(total, normals, sigma)


def _for_add_remove(server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma) -> Tensor:
    return add_noise(total, _normals(server, batch, server_round), sigma / 2)


def _same_in_two_rounds(
    server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma
) -> Tensor:
    return add_noise(total, _normals(server, batch, 1 if server_round == _LAST_ROUND else server_round), sigma)


def _same_in_two_worlds(
    server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma
) -> Tensor:
    normals = _normals(server, batch, server_round)
    normals[-1] = normals[0]
    return add_noise(total, normals, sigma)


def _drawn_once(server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma) -> Tensor:
    return add_noise(total, _normals(server, batch, 1), sigma)


def _half_precision(server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma) -> Tensor:
    noise = _normals(server, batch, server_round) * torch.from_numpy(sigma).float().unsqueeze(1)
    return total.add_(noise.half().float())


def _half_draws(server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma) -> Tensor:
    return add_noise(total, _normals(server, batch, server_round).half().float(), sigma)


def _wrong_denominator(server: DPStrategy, batch: WorldBatch, server_round: int, total: Tensor, sigma: Sigma) -> Tensor:
    return add_noise(total.mul_(0.8), _normals(server, batch, server_round), sigma)


def _generous_client() -> ClientApp:
    """Return an app of which one client, neither victim nor insider, clips at three times the norm.

    One that does not clip at all sends more than its records can add up to, which the server refuses.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        config = message.content.config_records[Record.CONFIG]
        public = PublicGame.from_json(str(config[Key.GAME]))
        game = load_game(public)
        honest = next(client for client in range(_CLIENTS) if client not in (game.victim, game.insider))
        if int(str(context.node_config["partition-id"])) == honest:
            config[Key.GAME] = replace(
                public, law=replace(public.law, clipping=FixedClipping(3 * public.law.clipping_norm))
            ).to_json()
        return call_next(message, context)

    return build_app(mods=[mod])


ENGINE_BREACHES: tuple[tuple[str, Parties, tuple[TestName, ...]], ...] = (
    ("noise 2 % too small", _server(_too_small), (TestName.NOISE_TOTAL,)),
    ("noise missing on the smallest tensor", _server(_missing_on_smallest), (TestName.NOISE_TENSOR,)),
    ("noise for add-remove under a replace claim", _server(_for_add_remove), (TestName.NOISE_TOTAL,)),
    ("the same noise in two rounds", _server(_same_in_two_rounds), (TestName.REPEATED_NOISE,)),
    ("the same noise in two worlds", _server(_same_in_two_worlds), (TestName.REPEATED_NOISE,)),
    ("noise drawn once and scaled", _server(_drawn_once), (TestName.SHARED_OVER_ROUNDS,)),
    ("float16 noise", _server(_half_precision), (TestName.LOW_BITS,)),
    ("float16 draws, then scaled", _server(_half_draws), (TestName.LOW_BITS,)),
    (
        "three times the clipping norm for one client",
        Parties(client_app=_generous_client()),
        (TestName.DRIFT_ALONG_GRADIENTS,),
    ),
    ("sum divided by the wrong number", _server(_wrong_denominator), (TestName.DRIFT_ALONG_GRADIENTS,)),
)
"""Every breach of a real federation, and the tests that are to find it."""
