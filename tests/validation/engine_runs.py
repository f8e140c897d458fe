"""Real federations on the local engine, honest and broken, with the usual training, clients and insider.

A breach is a small value: another strategy that adds noise to the sums in its own way, or other clients.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from torch import Tensor

from fl_audit.array_types import Flags, Floats
from fl_audit.clients.app import build_app
from fl_audit.federation.contributions import RoundContext, differing_contributions
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.run_tables import RunTables
from fl_audit.mechanisms.contribution import FixedClipping
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.progress import no_progress
from fl_audit.runs.run import HONEST, ClientAppAndStrategy, _federate, _play
from fl_audit.runs.run_directory import RunDirectory
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.verdict.stored_measurements import measured_in
from tests.validation.breach_kinds import Breach, NoiseRound
from tests.validation.signal_breaches import TargetRound

_CLIENTS = 3
_LAST_ROUND = 30


def breach_plan(seed: int, **changes: dict[str, Any]) -> RunPlan:
    """Return the plan of one batch of 100 trials and 30 rounds: logistic regression on digits, 650 parameters.

    `changes` are settings that differ, by section of the configuration.
    """
    settings: dict[str, Any] = {
        "data": {"name": "digits", "records": 100, "clients": _CLIENTS, "test-records": 10, "population-records": 10},
        "model": {"name": "logistic"},
        "training": {"rounds": _LAST_ROUND, "learning-rate": 0.5},
        "privacy": {
            "noise-multiplier": 4.0,
            "delta": 0.01,
            "clipping-norm": 1.0,
            "sensitivity": "global",
            "adjacency": "replace-record",
            "accountant": "gdp",
        },
        "audit": {"trials": 100, "epsilon-star": False, "membership": False},
        "run": {"seed": seed, "trials-per-batch": 100, "keep-releases": 0},
    }
    return plan_run(parse_config({name: section | changes.get(name, {}) for name, section in settings.items()}))


_MODELS = ("logistic", "adult-mlp", "dense-128")
_TRIALS = (2, 5, 20, 60, 200)


def _of_clients(**privacy: str) -> dict[str, dict[str, Any]]:
    """Return changes that make clients the unit and let them train by themselves."""
    local = {"local-steps": 1, "local-batch": 10, "local-learning-rate": 0.1}
    training = {"strategy": "dp-fedavg", "learning-rate": 1.0} | local
    return {"training": training, "privacy": {"adjacency": "add-remove-client"} | privacy}


_MECHANISMS: tuple[dict[str, dict[str, Any]], ...] = (
    {},
    {"privacy": {"sensitivity": "local"}},
    {"training": {"optimizer": "adam", "learning-rate": 0.01}},
    {"training": {"optimizer": "momentum"}, "audit": {"view": "model"}},
    {"training": {"learning-rate": 100.0}, "audit": {"view": "model"}},
    {"training": {"sampling-rate": 0.3}, "privacy": {"accountant": "pld"}},
    {"training": {"sampling-rate": 0.3}, "privacy": {"accountant": "pld"}, "audit": {"participation": "seen"}},
    {"privacy": {"noise": "distributed"}},
    {"privacy": {"noise": "local"}, "audit": {"adversary": "server"}},
    {"privacy": {"noise": "banded", "accountant": "pld"}},
    {"privacy": {"noise": "tree", "accountant": "pld"}},
    _of_clients(clipping="adaptive"),
    _of_clients(noise="distributed"),
    {"training": {"learning-rate": 100.0}},
)
"""Mechanisms of the honest runs, as changes of `breach_plan`."""


def _write_nasty_records(path: Path) -> None:
    """Write 200 records of which some features are a thousand times as large as others, and some constant."""
    draw = np.random.default_rng(7)
    features = draw.standard_normal((200, 9))
    labels = (features[:, 0] + features[:, 1] > 0).astype(np.int64)
    features[:, 3:6] *= 1000.0
    features[:, 6:] = 1.0, 0.0, -1000.0
    np.savez(path, x=features[:160], y=labels[:160], x_test=features[160:], y_test=labels[160:])


def honest_plans(count: int, directory: Path, seed: int = 0) -> Iterator[RunPlan]:
    """Return plans of honest runs: many mechanisms and models, 2 to 200 trials, 4 to 12 rounds, plain and nasty data.

    The nasty records are written to the directory.
    """
    nasty = directory / "nasty.npz"
    _write_nasty_records(nasty)
    data: list[dict[str, Any]] = [{"name": "breast-cancer", "records": records} for records in (30, 20)]
    data.append({"name": "npz", "path": str(nasty), "records": 40})
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        mechanism = _MECHANISMS[number % len(_MECHANISMS)]
        trials = _TRIALS[int(rng.integers(len(_TRIALS)))]
        relation = str(rng.choice(["add-remove-record", "replace-record"]))
        changes: dict[str, dict[str, Any]] = {
            "data": data[int(rng.integers(3))],
            "model": {"name": _MODELS[int(rng.integers(3))]},
            "training": {"rounds": int(rng.integers(4, 13)), "learning-rate": float(rng.choice([0.1, 1.0, 10.0]))},
            "privacy": {"adjacency": relation},
            "audit": {"trials": trials},
            "run": {"trials-per-batch": trials},
        }
        merged = {name: section | mechanism.get(name, {}) for name, section in changes.items()}
        yield breach_plan(int(rng.integers(2**32)), **merged)


def measured_run(plan: RunPlan, parties: ClientAppAndStrategy = HONEST) -> NoiseMeasurements:
    """Play a temporary run, in one thread, and return the insider's measurements, without its report and summary."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        directory = RunDirectory(Path(scratch) / "run")
        with directory.opened(plan, False) as opened:
            federate = partial(_federate, Engine.LOCAL, opened, None, parties, None)
            _play(opened, directory, Engine.LOCAL.value, federate, no_progress)
            tables = RunTables(**directory.store(opened.config).tables(opened.config.audit.trials))
    return measured_in(FinishedRun(opened, tables))


def parties_of(breach: Breach) -> ClientAppAndStrategy:
    """Return the parties of a real federation with a breach."""
    if breach.unclipped or breach.clip != 1:
        # A server refuses what is longer than clipped records can add up to, as without any clipping it soon is.
        return ClientAppAndStrategy(
            client_app=_clipped_at(3.0 if breach.unclipped else breach.clip, everybody=not breach.unclipped)
        )

    # Honest noise of every batch by round, and what a breach keeps of its own: drawing it takes longer than a round.
    honest = dict[int, dict[int, Floats]]()
    kept_noise = dict[int, dict[int, Floats]]()

    class Broken(TrialBatchStrategy):
        def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
            batch_noise = honest.setdefault(batch.first, {})

            def normals(number: int) -> Floats:
                if number not in batch_noise:
                    noise_tensor = self.challenger.standard_normals(batch.trials, number, self.parameters)
                    batch_noise[number] = noise_tensor.double().numpy()
                return batch_noise[number]

            sizes = tuple(
                tensor_slice.stop - tensor_slice.start
                for tensor_slice in load_federation(self.federation).model.layout.slices().values()
            )
            members = self.challenger.membership(batch.trials).bits
            # It differs from run to run, and stays the same in all rounds of a run.
            key = int(1e6 * abs(float(normals(1)[0, 0])))
            mine = kept_noise.setdefault(batch.first, {})
            at = NoiseRound(normals, server_round, self.federation.rounds, members, sigma, sizes, key, mine)
            noise = breach.drawn(at)
            if breach.target is not None:
                models = self.transcripts[batch.name].models[-1]
                noise = breach.altered(_target_of(self.federation, models, members, server_round, key), noise)
            noise_tensor = torch.from_numpy(noise)
            if breach.spares_sum:
                unit = torch.nn.functional.normalize(total.double(), dim=1)
                noise_tensor = noise_tensor - (noise_tensor * unit).sum(dim=1, keepdim=True) * unit
            return total.mul_(breach.scale).add_(noise_tensor.float())

    return ClientAppAndStrategy(strategy=Broken)


def _target_of(public: Federation, models: Tensor, members: Flags, number: int, key: int) -> TargetRound:
    """Return the target's contribution to a round of a real federation."""

    def sides(factor: float) -> tuple[Floats, Floats]:
        wider = FixedClipping(factor * public.mechanism.clipping_norm)
        federation = load_federation(replace(public, mechanism=replace(public.mechanism, clipping=wider)))
        contributions = differing_contributions(federation, models, RoundContext(number))
        present, absent = (contribution.total.double().numpy() for contribution in contributions)
        return present, absent

    def clipped_at(factor: float) -> Floats:
        present, absent = sides(factor)
        return np.where(members[:, None], present, absent)

    return TargetRound(*sides(1.0), clipped_at, members, public.mechanism.clipping_norm, number, key)


def _clipped_at(factor: float, *, everybody: bool) -> ClientApp:
    """Return an app whose clients clip at a multiple of the norm: one that is neither victim nor insider, or all."""

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        config = message.content.config_records[MessageRecordName.CONFIG]
        public = Federation.from_json(str(config[Key.FEDERATION]))
        federation = load_federation(public)
        client = int(str(context.node_config["partition-id"]))
        honest = next(number for number in range(_CLIENTS) if number not in (federation.victim, federation.insider))
        if message.metadata.message_type == "train" and (
            client == honest or (everybody and client != federation.victim)
        ):
            wider = FixedClipping(factor * public.mechanism.clipping_norm)
            config[Key.FEDERATION] = replace(public, mechanism=replace(public.mechanism, clipping=wider)).to_json()
        return call_next(message, context)

    return build_app(mods=[mod])
