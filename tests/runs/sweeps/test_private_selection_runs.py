"""Private selection of a sweep: what is drawn, what the choice spends, and what is published."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.array_files import read_tensors
from fl_audit.atomic_files import write_json
from fl_audit.parquet_files import read_frame
from fl_audit.privacy.accounting_enums import TrainingCount
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.private_selection import random_count_epsilon
from fl_audit.report.guarantee_warnings import weak_claim_warning
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run_directory import RunDirectory
from fl_audit.runs.stored_models import read_model
from fl_audit.runs.sweeps.grid import Axis, grid
from fl_audit.runs.sweeps.selection import (
    SELECTED,
    PrivateSelection,
    SelectionRule,
    best_of,
    drawn_points,
    outcome_text,
    run_selection,
    selection_page,
)
from fl_audit.runs.sweeps.sweep import run_sweep
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused
from tests.builders.settings import small_settings

VALUES = small_settings(
    training={"rounds": 2},
    privacy={"belief": None, "epsilon": 1.0, "sensitivity": "global", "adjacency": "add-remove-record"},
    audit={"trials": 1, "insider": False},
)
VALUES["run"] = {**VALUES["run"], "seed": None}
GEOMETRIC = SelectionRule(TrainingCount.GEOMETRIC, 2)
POISSON = SelectionRule(TrainingCount.POISSON, 2)


POINTS = grid(VALUES, [Axis("training.learning-rate", (0.1, 0.5))])


def secret_that_draws(number: int, rule: SelectionRule) -> int:
    return next(secret for secret in range(1000) if len(drawn_points(POINTS, rule, secret)) == number)


def selection_with(directory: Path, secret: int, rule: SelectionRule) -> PrivateSelection:
    (directory / "challenger").mkdir(parents=True, exist_ok=True)
    write_json(directory / "challenger" / "seed.json", {"seed": f"{secret:064x}"})
    return run_selection(POINTS, directory, rule, engine=Engine.LOCAL)


def test_points_are_drawn_uniformly_and_as_the_secret_says() -> None:
    secrets = range(1000)
    point_names = [[point.name for point in drawn_points(POINTS, GEOMETRIC, secret).values()] for secret in secrets]
    assert point_names == [
        [point.name for point in drawn_points(POINTS, GEOMETRIC, secret).values()] for secret in secrets
    ]
    names = np.concatenate(point_names)
    assert len(names) / len(secrets) == pytest.approx(2, abs=4.5 * math.sqrt(2 / len(secrets)))
    share = (names == POINTS[0].name).mean()
    assert share == pytest.approx(0.5, abs=4.5 * 0.5 / math.sqrt(len(names)))
    other_rule = SelectionRule(TrainingCount.GEOMETRIC, 3)
    assert any(
        drawn_points(POINTS, other_rule, secret) != drawn_points(POINTS, GEOMETRIC, secret) for secret in secrets
    )
    assert_refused("whole numbers from 2", SelectionRule, TrainingCount.GEOMETRIC, 1)


def test_the_best_has_the_largest_metric_or_the_smallest_loss() -> None:
    scores = {"1": 0.5, "2": 0.7, "3": math.nan, "4": 0.7}
    assert best_of(scores, "accuracy") == "2"
    assert best_of(scores, "loss") == "1"
    assert best_of({"1": math.nan, "2": 0.1}, "loss") == "2"
    assert best_of({}, "accuracy") is None


def test_the_best_of_two_is_published_alone_and_spends_what_the_theorem_says(tmp_path: Path) -> None:
    directory = tmp_path / "selection"
    secret = secret_that_draws(2, GEOMETRIC)
    selection = selection_with(directory, secret, GEOMETRIC)
    claim = selection.claim
    assert selection.epsilon == random_count_epsilon([claim], TrainingCount.GEOMETRIC, 2)
    assert selection.epsilon > selection.single_epsilon

    trainings = sorted((directory / "challenger" / "trainings").glob("0*"))
    point_by_name = drawn_points(POINTS, GEOMETRIC, secret)
    assert [path.name for path in trainings] == list(point_by_name)
    scores = [read_frame(path / "trials.parquet")["test_accuracy"].iloc[0] for path in trainings]
    assert selection.score == max(scores)
    best = trainings[int(np.argmax(scores))]
    assert selection.settings == point_by_name[best.name].settings
    assert len({RunDirectory(path).secret().seed for path in trainings}) == 2

    selected = directory / SELECTED
    assert sorted(path.name for path in selected.iterdir()) == [
        "configuration.json",
        "model.safetensors",
        "selection.json",
    ]
    model = read_tensors(selected / "model.safetensors")
    assert all(value.equal(model[name]) for name, value in read_model(best).items())
    page = selection_page(selection, "A selection")
    public = page + "".join((selected / name).read_text() for name in ("configuration.json", "selection.json"))
    other_scores = [score for score in scores if score != selection.score]
    assert not [secret for secret in (*map(repr, other_scores), *point_by_name, f"{secret:064x}") if secret in public]
    assert "seed" not in json.loads((selected / "configuration.json").read_text())["configuration"]["run"]

    modification_times = {path: path.stat().st_mtime_ns for path in trainings[0].rglob("*.parquet")}
    assert selection_with(directory, secret, GEOMETRIC) == selection
    assert {path: path.stat().st_mtime_ns for path in modification_times} == modification_times
    assert_refused("another private selection", selection_with, directory, secret, POISSON)
    assert_refused("holds a private selection", run_sweep, POINTS, directory, engine=Engine.LOCAL)

    spent = json.loads(printed_by("account", "--ledger", tmp_path / "ledger", *selection.ledger_options, "--json"))
    assert spent["epsilon"] == pytest.approx(selection.epsilon, rel=1e-12)
    assert spent["added"]


@pytest.mark.parametrize(("mean", "is_weak"), [(2, False), (200, True)])
def test_a_weak_choice_is_named_although_one_training_is_not_weak(mean: int, is_weak: bool) -> None:
    claim = Claim("add-remove-record", gaussian_rounds(6.0, 10), 1e-5)
    assert weak_claim_warning(claim.profile.epsilon(1e-5), 1e-5, Adjacency.ADD_REMOVE_RECORD) is None
    rule = SelectionRule(TrainingCount.GEOMETRIC, mean)
    epsilon = random_count_epsilon([claim], rule.count, mean)
    selection = PrivateSelection(rule, claim, epsilon, "accuracy", (), 0.5, ())
    assert ("next to nothing" in selection_page(selection, "A selection")) is is_weak
    assert (selection.to_json()["warning"] is not None) is is_weak


def test_no_training_at_all_publishes_no_model_and_spends_as_much(tmp_path: Path) -> None:
    selection = selection_with(tmp_path, secret_that_draws(0, POISSON), POISSON)
    assert (selection.settings, selection.score) == (None, None)
    assert selection.epsilon == random_count_epsilon([selection.claim], TrainingCount.POISSON, 2)
    assert [path.name for path in (tmp_path / SELECTED).iterdir()] == ["selection.json"]
    assert f"{selection.epsilon:.4g} is spent" in outcome_text(selection)


@pytest.mark.parametrize(
    ("axis", "problem"),
    [
        (Axis("audit.trials", (1, 2)), "single training"),
        (Axis("audit.insider", (True,)), "single training"),
        (Axis("privacy.delta", (0.01, 0.02)), "different adjacencies or deltas"),
    ],
    ids=lambda value: value.key if isinstance(value, Axis) else "",
)
def test_what_the_theorem_does_not_cover_is_refused(tmp_path: Path, axis: Axis, problem: str) -> None:
    assert_refused(
        problem, lambda: run_selection(grid(VALUES, [axis]), tmp_path / "out", GEOMETRIC, engine=Engine.LOCAL)
    )
    assert not (tmp_path / "out").exists()


def test_a_seed_in_the_configuration_is_refused(tmp_path: Path) -> None:
    values = {**VALUES, "run": {**VALUES["run"], "seed": 5}}
    assert_refused("has a seed", lambda: run_selection(grid(values, []), tmp_path, GEOMETRIC, engine=Engine.LOCAL))
