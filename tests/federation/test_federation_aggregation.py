"""Tests of Flower strategies as aggregations of a run: without privacy, and as post-processing under a claim."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fl_audit.errors import FederationError
from fl_audit.federation.contributions import RoundContext, contributed
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.target_membership import MembershipScheme
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.replay import replay
from fl_audit.runs.run import run_audit
from fl_audit.runs.stored_run import read_run
from fl_audit.strategies import aggregation as aggregation_module
from fl_audit.strategies.aggregation_registry import AGGREGATIONS
from tests.builders.refusals import refusal_test, refusals
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import small_settings
from tests.federation.test_federation_engines import assert_same

_OPEN = {
    "data": {"partition": "dirichlet", "partition-parameters": {"alpha": 1.0}},
    "privacy": {"private": False, "belief": None, "delta": None, "clipping-norm": None, "sensitivity": None},
}
_TRAINING = {"rounds": 3, "learning-rate": None}


@pytest.fixture(autouse=True)
def _user_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search the directory of `own_strategies` for modules, as that of a user."""
    monkeypatch.syspath_prepend(Path(__file__).parent)


def _open_plan(aggregation: str, trials: int = 1, **training: Any) -> RunPlan:
    """Return the plan of a training without privacy by an aggregation, with clients of different sizes."""
    settings = small_settings(
        **_OPEN,
        training=_TRAINING | {"aggregation": aggregation} | training,
        audit={"insider": False, "trials": trials, "epsilon-star": False, "membership": False},
    )
    return plan_run(parse_config(settings))


def _final(plan: RunPlan, run_directory: Path) -> Tensor:
    run_locally(plan, run_directory)
    return load_federation(plan.federation).model.layout.flatten(read_run(run_directory).model(0))


def _updates(federation: LoadedFederation, models: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the updates of all clients, (clients, parameters), and their numbers of records."""
    clients = range(federation.public.clients)
    updates = [
        contributed(federation, client, federation.shard(client), models, RoundContext(number)).total[0]
        for client in clients
    ]
    return torch.stack(updates), torch.tensor([len(federation.shards[client]) for client in clients])


@pytest.mark.parametrize("name", ["fedavg", "median"])
def test_models_are_those_that_clients_trained_and_the_strategy_averaged(name: str, tmp_path: Path) -> None:
    plan = _open_plan(name)
    federation = load_federation(plan.federation)
    models = initial_models(federation.spec, plan.config.model.seed, [0])
    assert plan.federation.membership_scheme is MembershipScheme.ALL
    for number in range(1, 4):
        updates, records = _updates(federation, models, number)
        assert len(set(records.tolist())) > 1, "weights would be equal"
        weights = (records / records.sum()).unsqueeze(1)
        moved = (weights * updates).sum(0) if name == "fedavg" else torch.from_numpy(np.median(updates, axis=0))
        models = models - moved
    torch.testing.assert_close(_final(plan, tmp_path / "run"), models[0], rtol=1e-5, atol=1e-6)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_every_name_of_flowers_trains(name: str, tmp_path: Path) -> None:
    extra_settings = {"proximal-mu": 0.1} if name == "fedprox" else {}
    plan = _open_plan(name, **extra_settings)
    before = initial_models(load_federation(plan.federation).spec, plan.config.model.seed, [0])[0]
    assert float((_final(plan, tmp_path / "run") - before).norm()) > 0.01


def test_a_strategy_of_ones_own_chooses_clients_and_draws_by_trial_alone(tmp_path: Path) -> None:
    def finals(name: str, batch: int) -> list[Tensor]:
        settings = _open_plan("own_strategies:half", trials=3).config.changed(run={"trials_per_batch": batch})
        run_locally(plan_run(settings), tmp_path / name)
        run = read_run(tmp_path / name)
        layout = load_federation(plan_run(settings).federation).model.layout
        return [layout.flatten(run.model(trial)) for trial in range(3)]

    together = finals("together", 3)
    alone = finals("alone", 1)
    for joint_model, lone_model in zip(together, alone, strict=True):
        torch.testing.assert_close(joint_model, lone_model, rtol=1e-5, atol=1e-6)
    assert float((together[0] - together[1]).norm()) > 1e-3, "trials draw for themselves"


@pytest.mark.ray
@pytest.mark.long
def test_engines_give_the_same(tmp_path: Path) -> None:
    plan = _open_plan("own_strategies:half", trials=2)
    local = run_locally(plan, tmp_path / "local")
    assert_same(local, run_audit(plan, tmp_path / "ray", Engine.RAY, with_report=False))


def test_a_proximal_strategy_of_ones_own_gives_clients_its_weight(tmp_path: Path) -> None:
    plan = _open_plan("own_strategies:prox")
    assert plan.config.training.proximal_mu == 0.5
    fedprox_plan = _open_plan("fedprox", **{"proximal-mu": 0.5})
    assert torch.equal(_final(plan, tmp_path / "own"), _final(fedprox_plan, tmp_path / "named"))
    assert not torch.equal(_final(_open_plan("fedavg"), tmp_path / "avg"), _final(fedprox_plan, tmp_path / "again"))


@pytest.mark.parametrize("strategy", ["dp-fedavg", "dp-fedsgd"])
def test_planning_calls_a_factory_of_ones_own_once(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()
    honest = aggregation_module.import_function

    def counted(name: str, noun: str) -> Callable[..., Any]:
        factory = honest(name, noun)
        return lambda: (calls.append(name), factory())[1]

    monkeypatch.setattr(aggregation_module, "import_function", counted)
    _open_plan("own_strategies:half", strategy=strategy)
    assert calls == ["own_strategies:half"]


@pytest.mark.parametrize(
    ("name", "expected_message"),
    [
        ("WithRate", r"sends clients the setting 'lr': clients of this run follow \[training\]"),
        ("Speaking", "sends messages by itself"),
        ("Failing", "aggregate_train raised ZeroDivisionError: nothing to divide by$"),
        ("waiting", "waits for more clients than the 3 that take part"),
    ],
)
def test_what_a_strategy_does_otherwise_is_said_in_a_line(
    name: str, expected_message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None)
    with pytest.raises(FederationError, match=rf"^round 1: aggregation 'own_strategies:{name}': .*{expected_message}"):
        run_locally(_open_plan(f"own_strategies:{name}"), tmp_path / "run")


test_settings_that_do_not_go_together_are_refused = refusal_test(
    [
        *refusals(
            lambda training: small_plan(**_OPEN, training=_TRAINING | training, audit={"insider": False}),
            ({"aggregation": "own_strategies:no_strategy"}, "returned a int: accepted is a function without arguments"),
            ({"aggregation": "own_strategies:noisy"}, "whose noise a run would not account for: .*fl-audit strategy"),
            ({"aggregation": "fedsomething"}, "accepted are 'fedavg', .* or 'package.module:name' of your own"),
            ({"aggregation": "nowhere:made"}, "there is no module 'nowhere'"),
            (
                {"aggregation": "fedavg", "optimizer": "adam"},
                "optimizer = adam has no effect with aggregation = fedavg",
            ),
            ({"aggregation": "fedavg", "momentum": 0.5}, "momentum = 0.5 has no effect"),
            ({"aggregation": "fedprox"}, "aggregation = fedprox needs proximal-mu, which is left out"),
            ({"proximal-mu": 0.1, "strategy": "dp-fedsgd"}, "proximal-mu = 0.1 needs strategy = dp-fedavg"),
        ),
        # A claim leaves nothing to strategies that compare clients.
        *refusals(
            lambda name: small_plan(training={"strategy": "dp-fedavg", "aggregation": name, "learning-rate": None}),
            *(
                (name, r"gets the released mean alone: .* audited with fl-audit strategy")
                for name, aggregation in AGGREGATIONS.items()
                if aggregation.compares_clients
            ),
        ),
    ]
)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("strategy", ["dp-fedsgd", "dp-fedavg"])
def test_under_a_claim_fedavg_moves_by_the_released_mean(strategy: str, tmp_path: Path) -> None:
    """FedAvg of one model, that before minus the released mean, is a plain step of size 1."""
    usual = {"strategy": strategy, "learning-rate": 1.0}
    plain, by_flower = (
        small_plan(training=usual | extra_training) for extra_training in ({}, {"aggregation": "fedavg"})
    )
    contents = run_locally(by_flower, tmp_path / "flower")
    run_locally(plain, tmp_path / "plain")
    layout = load_federation(plain.federation).model.layout
    finals = [layout.flatten(read_run(tmp_path / name).model(2)) for name in ("flower", "plain")]
    torch.testing.assert_close(*finals, rtol=1e-4, atol=1e-5)
    assert replay(tmp_path / "flower").agreement(tmp_path / "flower").agrees
    assert contents.summary["verdict"] != "violated"


def test_under_a_claim_a_strategy_is_recomputed_from_the_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(training={"aggregation": "own_strategies:half"}, audit={"trials": 3})
    assert _wrong_steps(run_locally(plan, tmp_path / "honest")) == 0
    honest = aggregation_module.BatchAggregation.of_mean
    aggregations = list[object]()

    def forged(self: aggregation_module.BatchAggregation, number: int, models: Tensor, mean: Tensor) -> Tensor:
        aggregations.append(self)
        moved = honest(self, number, models, mean)
        return moved + 1e-3 if self is aggregations[0] else moved  # the server's own, and not that of the log

    monkeypatch.setattr(aggregation_module.BatchAggregation, "of_mean", forged)
    assert _wrong_steps(run_locally(plan, tmp_path / "forged")) > 0


def _wrong_steps(contents: ReportContents) -> float:
    assert contents.run.tables.opened is not None
    return float(contents.run.tables.opened["wrong_steps"].sum())
