"""Tests that both engines give the same trials, with any number of actors and any batches."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Context, RecordDict, UserConfig
from flwr.superlink.grid import InMemoryGrid
from safetensors.torch import load_file

from fl_audit import trial_batches
from fl_audit.clients.app import app as client_app
from fl_audit.errors import FederationError, InputError
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.flower_app import VerdictViolatedError, server_app
from fl_audit.runs.local_engine import local_grid
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from fl_audit.strategies.secret_draws import SeededChallenger
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import small_toml

SMALL_TOML = small_toml(run={"seed": 0})


def assert_same(first_contents: ReportContents, second_contents: ReportContents) -> None:
    for label in ("trials", "rounds", "releases"):
        pd.testing.assert_frame_equal(getattr(first_contents, label), getattr(second_contents, label), check_exact=True)


def app_context(directory: Path) -> Context:
    """Return the context of an app of Flower's own command, with its configuration and its run in a directory."""
    settings = UserConfig({"config": str(directory / "audit.toml"), "out": str(directory / "flower")})
    return Context(run_id=1, node_id=1, node_config=UserConfig(), state=RecordDict(), run_config=settings)


@pytest.mark.ray
def test_ray_gives_the_trials_of_the_local_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are two actors; a single actor whose processes die is tested among the failures."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # an embedded Ray joins no cluster, whatever the variable names
    plan = small_plan(run={"actors": 2}, audit={"epsilon-star-losses": "federated"})
    local = run_locally(plan, tmp_path / "local")
    ray = run_audit(plan, tmp_path / "ray", Engine.RAY, with_report=False)
    assert_same(local, ray)
    assert ray.summary["timing"]["engine"] == "ray"


@pytest.mark.long
def test_batches_in_flight_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second_contents = run_locally(small_plan(), tmp_path / "two")
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    first_contents = run_locally(small_plan(), tmp_path / "one")
    assert_same(first_contents, second_contents)


def test_batch_sizes_change_no_bit_and_no_weight(tmp_path: Path) -> None:
    runs = {size: run_locally(small_plan(run={"trials-per-batch": size}), tmp_path / str(size)) for size in (2, 5)}
    small_batches = runs[2]
    large_batches = runs[5]
    assert (small_batches.trials["bit"] == large_batches.trials["bit"]).all()
    np.testing.assert_allclose(small_batches.trials["log_odds"], large_batches.trials["log_odds"], rtol=0, atol=1e-4)
    initial_weights = [
        torch.cat([load_file(path)["initial"] for path in sorted((tmp_path / str(size) / "public").glob("releases-*"))])
        for size in (2, 5)
    ]
    assert torch.equal(initial_weights[0], initial_weights[1])


def test_draws_of_a_trial_do_not_depend_on_the_others() -> None:
    challenger = SeededChallenger(7)
    together = challenger.standard_normals(range(10), 3, 50)
    assert torch.equal(together[4:6], challenger.standard_normals([4, 5], 3, 50))
    assert (challenger.membership(range(40)).bits[[3, 17]] == challenger.membership([3, 17]).bits).all()
    spec = ModelSpec("logistic", (30,), 2)
    assert torch.equal(initial_models(spec, 7, range(4))[2:], initial_models(spec, 7, [2, 3]))
    assert not torch.equal(together, challenger.standard_normals(range(10), 4, 50))


def test_the_app_of_flowers_own_command_refuses_what_a_run_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.toml"
    path.write_text(SMALL_TOML.replace("learning-rate = 1.0", "learning-rate = 1e300"))
    context = app_context(tmp_path)
    grid = local_grid(client_app, 3, 60.0)
    assert_refused(r"learning-rate is 1e\+300: accepted are", server_app, grid=grid, context=context)
    assert not (tmp_path / "flower").exists()
    assert "status 2: " in capsys.readouterr().err


def test_the_app_of_flowers_own_command_begins_once_ray_has_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork, by which Ray starts, hangs in OpenBLAS while another thread multiplies matrices."""
    answers = [True, False, False]
    loaded = list[Path]()
    monkeypatch.setattr("ray.is_initialized", lambda: bool(answers) and answers.pop())

    def load(path: Path) -> None:
        assert not answers
        loaded.append(path)
        raise InputError("so far")

    monkeypatch.setattr("fl_audit.runs.flower_app.load_config", load)
    context = app_context(tmp_path)
    assert_refused("so far", server_app, grid=object.__new__(InMemoryGrid), context=context)
    monkeypatch.setattr("fl_audit.runs.flower_app._SECONDS_FOR_RAY", 0.2)
    with pytest.raises(FederationError, match=r"Flower .*no Ray .* 0 s"):
        server_app(grid=object.__new__(InMemoryGrid), context=context)
    assert loaded == [tmp_path / "audit.toml"]
    assert "status 3: " in capsys.readouterr().err


@pytest.mark.long
def test_the_app_of_flowers_own_command_gives_the_same_trials_and_says_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.toml"
    path.write_text(SMALL_TOML)
    context = app_context(tmp_path)
    plan = plan_run(load_config(path))
    contents = run_audit(plan, tmp_path / "known", Engine.LOCAL)
    server_app(grid=local_grid(client_app, plan.federation.clients, 60.0), context=context)
    trials = pd.read_parquet(tmp_path / "flower" / "trials.parquet")
    pd.testing.assert_frame_equal(trials, contents.trials, check_exact=True)
    assert (tmp_path / "flower" / "report.html").exists()
    verdict = contents.summary["verdict"]
    assert f"verdict: {verdict}\nfl-audit: report: {tmp_path / 'flower' / 'report.html'}" in capsys.readouterr().out
    context.run_config["fail-on-violation"] = True
    violated = type("Contents", (), {"summary": {"verdict": "violated"}})
    monkeypatch.setattr("fl_audit.runs.run_report.finish", lambda *_: violated)
    with pytest.raises(VerdictViolatedError):
        server_app(grid=local_grid(client_app, plan.federation.clients, 60.0), context=context)
    assert "status 4" in capsys.readouterr().err
