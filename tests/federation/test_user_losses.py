"""Tests of Epsilon* and accuracy of users, against a direct computation in a federation and against known truth."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_audit.audits.common.findings_epsilon_star import UserEpsilonStarFinding
from fl_audit.audits.common.report_cautions import cautions_for_reader
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.federation.federation_records import split_of
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.released_model.empirical_star import empirical_epsilon_star
from fl_audit.released_model.minimum_sample_size import FEWEST
from fl_audit.released_model.parametric_star import StarSettings, epsilon_star_gaussian, parametric_epsilon_star
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run
from fl_audit.server.release_findings import ReleaseWithOutputs, release_metrics
from fl_audit.server.user_epsilon_star import means_by_unit, of_users
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch
from tests.builders.hospital import hospital_data, write_hospital

STAR = StarSettings(1e-3, 0.01)


def settings_of(directory: Path, adjacency: str, **audit: object) -> dict[str, dict[str, object]]:
    return {
        "data": hospital_data(write_hospital(directory)),
        "training": {"rounds": 2, "learning-rate": 0.5},
        "privacy": {"noise-multiplier": 2.0, "delta": 0.01, "clipping-norm": 1.0, "adjacency": adjacency},
        "audit": {"trials": 3, "membership": False, **audit},
        "run": {"seed": 1},
    }


@pytest.mark.parametrize("adjacency", ["add-remove-user", "replace-user"])
def test_losses_and_accuracy_of_users_equal_a_direct_computation(tmp_path: Path, adjacency: str) -> None:
    public = plan_run(parse_config(settings_of(tmp_path, adjacency))).federation
    federation = load_federation(public)
    trials = range(3)
    models = initial_models(ModelSpec("logistic", federation.model.feature_shape, federation.classes), 0, trials)
    challengers = (SeededChallenger(seed, federation.public.targets) for seed in range(50))
    memberships = (challenger.membership(trials) for challenger in challengers)
    membership = next(candidate for candidate in memberships if 0 < candidate.bits.sum() < 3)
    assert 0 < membership.bits.sum() < 3, "both data sets are used"
    release = ReleaseWithOutputs(federation, TrialBatch(0, 0, 3), 2, models, membership)
    trial_metrics = of_users(STAR, release).trials
    split = split_of(public)
    instead = federation.replacement
    inside = federation.losses(models, federation.training)
    population_losses = federation.losses(models, federation.population)
    for trial in range(3):
        members = pd.Series(inside[trial]).groupby(split.inside.user).mean()
        target = split.inside.user[federation.target_records[0]]
        if not membership.bits[trial]:
            members = members.drop(target)
            if instead is not None:
                members[-1] = federation.losses(models, instead)[trial].mean()
        population = pd.Series(population_losses[trial]).groupby(federation.population_records.user).mean()
        expected_star = parametric_epsilon_star(members.to_numpy(), population.to_numpy(), STAR.delta, cut=STAR.cut)
        assert trial_metrics["epsilon_star_user"][trial] == pytest.approx(float(expected_star), rel=1e-5)
        right = (release.logits[trial].argmax(dim=1) == federation.test.labels).numpy()
        by_user = pd.Series(right.astype(float)).groupby(federation.test_records.user).mean()
        assert trial_metrics["test_accuracy_user"][trial] == pytest.approx(by_user.mean())


def test_epsilon_star_of_users_is_that_of_the_distribution_of_their_means() -> None:
    """Records vary around their user. Users in D differ by 0.8 standard deviations, their records by far less."""
    draw = np.random.default_rng(4)
    users = 40_000
    sizes = draw.integers(1, 8, users)
    whose = np.repeat(np.arange(users), sizes)

    def means(shift: float) -> np.ndarray:
        around = draw.normal(0, 4, len(whose))
        around -= means_by_unit(around, whose)[whose]
        return means_by_unit((draw.normal(shift, 1, users) + 20)[whose] + around, whose)

    computed_star = empirical_epsilon_star(means(-0.8), means(0), 1e-3, 0.01)
    truth = epsilon_star_gaussian(-0.8, 1, 0, 1, 1e-3, 0.01)
    assert float(computed_star) == pytest.approx(float(truth), abs=0.15)


def test_a_test_set_without_users_leaves_their_accuracy_open() -> None:
    """Official test records, such as those of MNIST, do not name their users."""
    assert UserEpsilonStarFinding(None, math.nan, math.nan).to_json()["of_users"]["test_accuracy"] is None


def test_the_summary_has_users_only_where_they_are_the_units(tmp_path: Path) -> None:
    contents = results_of_run(settings_of(tmp_path, "add-remove-user"))
    summary = contents.summary
    user_summary = summary["of_users"]
    assert np.isfinite([user_summary["epsilon_star"]["mean"], user_summary["epsilon_star"]["untrained_mean"]]).all()
    assert 0 < user_summary["test_accuracy"] < 1
    (caution,) = [line for line in summary["look_at"] if line.startswith("Epsilon* of users")]
    assert str(FEWEST) in caution, "some 30 users are too few, and the number that is needed is named"
    outside = len(np.unique(load_federation(contents.plan.federation).population_records.user))
    assert f"{outside} outside it" in caution
    large_federation = replace(contents.plan.federation, users=5 * FEWEST)
    for count, is_said in ((FEWEST - 1, True), (FEWEST, False)):
        sizes = replace(contents.run.group_sizes, users_outside=count)
        of_many = replace(contents.run, plan=replace(contents.plan, federation=large_federation), group_sizes=sizes)
        lines = cautions_for_reader(replace(contents, run=of_many))
        assert any(line.startswith("Epsilon* of users") for line in lines) is is_said, "few users outside D are too few"
    apart = results_of_run(settings_of(tmp_path, "add-remove-user", **{"epsilon-star-losses": "federated"})).summary[
        "of_users"
    ]
    assert apart["epsilon_star"] is None, "the losses stay with their owners"
    of_records = results_of_run(settings_of(tmp_path, "add-remove-record")).summary
    assert of_records["of_users"] is None
    assert not any(line.startswith("Epsilon* of users") for line in of_records["look_at"])


def test_test_records_that_are_the_population_pass_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test records are the population sample, because D takes all others."""
    settings = {
        "data": {"name": "digits", "records": 1438, "test-records": 359, "clients": 2},
        "privacy": {"noise-multiplier": 2.0, "delta": 1e-4, "adjacency": "add-remove-record"},
        "audit": {"trials": 2, "membership": False},
    }
    federation = load_federation(plan_run(parse_config(settings)).federation)
    assert federation.population_records is federation.test_records
    models = initial_models(ModelSpec("logistic", federation.model.feature_shape, federation.classes), 0, range(2))
    expected = federation.losses(models, federation.population)
    membership = SeededChallenger(0, federation.public.targets).membership(range(2))
    release = ReleaseWithOutputs(federation, TrialBatch(0, 0, 2), 2, models, membership)
    passed = list[int]()
    logits_function = federation.model.logits
    monkeypatch.setattr(
        federation.model, "logits", lambda *arguments: passed.append(len(arguments[1])) or logits_function(*arguments)
    )  # type: ignore[func-returns-value]
    release_metrics(("accuracy",), None, release)
    assert np.array_equal(release.population_losses, expected)
    assert passed == [359]
