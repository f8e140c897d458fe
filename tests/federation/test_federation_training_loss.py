"""Audited runs with class weights, label smoothing and falling step sizes."""

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fl_audit.federation.loaded_federation import load_federation
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.runs.replay import replay
from fl_audit.runs.stored_run import read_run
from tests.builders.runs import run_locally, small_plan

_ALL = {"class-weights": [4.0, 0.5], "label-smoothing": 0.1, "learning-rate-decay": 0.7}
_LOCAL = {"strategy": "dp-fedavg", "local-learning-rate": 0.3, "learning-rate": 1.0}
_FULL_BATCHES = _LOCAL | {"local-batch": 60, "local-learning-rate": 0.5}
_BY_CLIENT = {"privacy": {"adjacency": "add-remove-client", "sensitivity": "global"}}


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    ("training", "audit", "extra_settings"),
    [
        (_ALL, {"view": "update"}, {}),
        (_ALL | {"optimizer": "momentum"}, {"view": "model"}, {}),
        (_ALL | _LOCAL, {}, _BY_CLIENT),
        (_ALL | _LOCAL | {"learning-rate-decay": "cosine"}, {"view": "model"}, _BY_CLIENT),
    ],
)
def test_an_audit_is_honest_and_replays(
    training: dict[str, Any], audit: dict[str, Any], extra_settings: dict[str, Any], tmp_path: Path
) -> None:
    plan = small_plan(training={"rounds": 5} | training, audit={"trials": 40} | audit, **extra_settings)
    contents = run_locally(plan, tmp_path / "run")
    ratio = (contents.rounds["measured_sigma"] / contents.rounds["sigma"]).to_numpy()
    assert np.abs(ratio - 1).max() < 0.5, "what an insider subtracts is what owners added"
    shutil.rmtree(tmp_path / "run" / "challenger")
    again = replay(tmp_path / "run")
    log_odds = contents.trials["log_odds"].to_numpy()[: len(again.trials)]
    last = again.log_odds if again.log_odds.ndim == 1 else again.log_odds[:, -1]
    np.testing.assert_allclose(last, log_odds, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("decay", "shares"), [(0.5, (1, 0.5, 0.25)), ("cosine", (1, 0.75, 0.25))])
@pytest.mark.parametrize(("training", "trials"), [({"learning-rate": 0.5}, 1), (_FULL_BATCHES, 1), (_FULL_BATCHES, 2)])
def test_a_run_without_privacy_takes_the_steps_of_a_torch_loop(
    training: dict[str, Any], trials: int, decay: float | str, shares: tuple[float, ...], tmp_path: Path
) -> None:
    """Clients with equally many records that take one step each move together as the pooled records do."""
    open_privacy = {"private": False, "belief": None, "delta": None, "clipping-norm": None, "sensitivity": None}
    plan = small_plan(
        privacy=open_privacy,
        training=_ALL | training | {"rounds": 3, "learning-rate-decay": decay},
        audit={"insider": False, "trials": trials, "epsilon-star": False, "membership": False},
    )
    run_locally(plan, tmp_path / "run")
    federation = load_federation(plan.federation)
    examples = federation.training
    module = copy.deepcopy(federation.model.template).requires_grad_(True)
    start = initial_models(federation.spec, plan.config.model.seed, [0])[0]
    torch.nn.utils.vector_to_parameters(start, module.parameters())
    for share in shares:
        loss = torch.nn.functional.cross_entropy(
            module(examples.features), examples.labels, torch.tensor([4.0, 0.5]), reduction="sum", label_smoothing=0.1
        )
        gradients = torch.autograd.grad(loss / len(examples.labels), list(module.parameters()))
        for weights, gradient in zip(module.parameters(), gradients, strict=True):
            weights.data.sub_(0.5 * share * gradient)
    computed_model = federation.model.layout.flatten(read_run(tmp_path / "run").model(0))
    truth = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(computed_model.flatten(), truth, rtol=1e-5, atol=1e-6)
