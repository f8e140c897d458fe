"""Tests of users as units in real federations: direct computations, every mechanism, and breaches."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import DpEvent, GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from scipy.stats import kstest
from torch import Tensor

import fl_audit.clients.owner_contributions
import fl_audit.strategies.received_contributions
from fl_audit.clients.owner_contributions import LocalTrainingInput, contribute_as_victim, contribute_members
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.federation.contributions import ContributionByTrial, RoundContext
from fl_audit.federation.federation_records import split_of
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.record_tensors import Examples
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.microbatching import GroupedRecords
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.runs.replay import replay
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.verdict.judging import run_family
from fl_audit.verdict.stored_measurements import measured_in
from tests.builders.hospital import hospital_data, write_hospital
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings

Changes = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hospital(tmp_path_factory.mktemp("hospital"))


def plan_of(table: Path, **changes: dict[str, Any]) -> RunPlan:
    settings: Changes = {
        "data": hospital_data(table),
        "training": {"rounds": 6, "learning-rate": 0.5},
        "privacy": {
            "belief": None,
            "noise-multiplier": 2.0,
            "sensitivity": None,
            "adjacency": "add-remove-user",
            "accountant": "pld",
        },
        "audit": {"trials": 60, "epsilon-star": False, "membership": False},
        "run": {"seed": 1, "trials-per-batch": 60},
    }
    return small_plan(**changed_settings(settings, changes))


def direct_sums(federation: LoadedFederation, model: Tensor, users: np.ndarray) -> Tensor:
    """Return the sum of the clipped gradients of the users in float64, computed from one record after the other."""
    weight, bias = (view[0].double() for view in federation.model.layout.views(model.unsqueeze(0)).values())
    user_gradients = []
    assert federation.user is not None
    for user in users:
        total = torch.zeros(federation.model.layout.size, dtype=torch.float64)
        for position in np.flatnonzero(federation.user == user):
            features = federation.training.features[position].double()
            label = int(federation.training.labels[position])
            error = torch.softmax(weight @ features + bias, 0)
            error[label] -= 1
            total += torch.cat([torch.outer(error, features).flatten(), error])
        user_gradients.append(total * min(1.0, federation.public.mechanism.clipping_norm / float(total.norm())))
    return torch.stack(user_gradients)


def test_d_holds_whole_users_and_so_does_every_client(table: Path) -> None:
    federation = load_federation(plan_of(table).federation)
    split = split_of(federation.public)
    user_sets = [set(group.user.tolist()) for group in (split.inside, split.outside, split.test) if group is not None]
    assert all(not group & other_group for index, group in enumerate(user_sets) for other_group in user_sets[:index])
    assert federation.public.records == len(split.inside) <= 150
    assert federation.public.users == len(user_sets[0]) == federation.units
    client_units = [set(federation.units_of(client).tolist()) for client in range(3)]
    assert set.union(*client_units) == set(range(federation.units))
    assert sum(map(len, client_units)) == federation.units
    # What a resolved plan says resolves to itself.
    public = federation.public
    assert (len(split_of(public).inside), len(split_of(public).test)) == (public.records, public.test_records)


@pytest.mark.parametrize("rate", [None, 0.3])
def test_contributions_equal_a_direct_computation(table: Path, rate: float | None) -> None:
    plan = plan_of(table, training={"sampling-rate": rate}, audit={"kind": "membership", "targets": 9})
    federation = load_federation(plan.federation)
    trials = range(4)
    models = initial_models(ModelSpec("logistic", federation.model.feature_shape, federation.classes), 0, trials)
    challenger = SeededChallenger(5, federation.public.targets)
    membership = challenger.membership(trials)
    is_in = np.ones((4, federation.units), dtype=np.bool_)
    is_in[:, federation.targets] = membership.is_in
    total = torch.zeros_like(models)
    for client in range(3):
        units = federation.units_of(client)
        record_mask = None
        if rate is not None:
            participation = challenger.participation(trials, 1, client, len(units), rate)
            is_in[:, units] &= participation
            record_mask = federation.by_record(client, participation)
        own_membership = membership.of_targets(federation.targets_of(client))
        total += contribute_members(
            federation, client, LocalTrainingInput(models, RoundContext(1), record_mask), own_membership
        ).total
    for trial in trials:
        expected = direct_sums(federation, models[trial], np.flatnonzero(is_in[trial])).sum(0)
        assert (total[trial].double() - expected).norm() < 1e-6 * max(1, federation.units)


def test_the_victim_adds_all_records_of_the_differing_user_or_none(table: Path) -> None:
    federation = load_federation(plan_of(table).federation)
    models = initial_models(ModelSpec("logistic", federation.model.feature_shape, federation.classes), 0, range(2))
    membership = SeededChallenger(3).membership(range(2))
    contribution, sensitivity = contribute_as_victim(
        federation, LocalTrainingInput(models, RoundContext(1)), membership
    )
    other_units = [unit for unit in federation.units_of(federation.victim) if unit != federation.target]
    assert federation.differing.count > 1
    for trial, bit in enumerate(membership.bits):
        users = np.array([*other_units, federation.target] if bit else other_units)
        assert (contribution.total[trial].double() - direct_sums(federation, models[trial], users).sum(0)).norm() < 1e-5
        target_norm = direct_sums(federation, models[trial], np.array([federation.target])).norm()
        assert sensitivity[trial] == pytest.approx(float(target_norm), rel=1e-5)


MECHANISMS: dict[str, Changes] = {
    "central": {},
    "replaced": {"privacy": {"adjacency": "replace-user"}},
    "sampled": {"training": {"sampling-rate": 0.4}},
    "sampled, seen": {"training": {"sampling-rate": 0.4}, "audit": {"participation": "seen"}},
    "replaced, sampled": {"training": {"sampling-rate": 0.4}, "privacy": {"adjacency": "replace-user"}},
    "distributed": {"privacy": {"noise": "distributed"}},
    "local, at the server": {"privacy": {"noise": "local"}, "audit": {"adversary": "server"}},
    "tree": {"privacy": {"noise": "tree"}},
    "banded": {"privacy": {"noise": "banded"}},
    "adaptive": {"privacy": {"clipping": "adaptive"}},
    "adaptive, sampled": {"privacy": {"clipping": "adaptive"}, "training": {"sampling-rate": 0.4}},
    "by hospital": {"data": {"owner": "hospital", "partition": "natural", "drop": None, "clients": None}},
    "membership": {"audit": {"kind": "membership", "targets": 12}},
    "membership, sampled": {"audit": {"kind": "membership", "targets": 12}, "training": {"sampling-rate": 0.4}},
    "membership, banded": {"audit": {"kind": "membership", "targets": 12}, "privacy": {"noise": "banded"}},
    "membership, adaptive": {"audit": {"kind": "membership", "targets": 12}, "privacy": {"clipping": "adaptive"}},
    "reconstruction": {"audit": {"kind": "reconstruction", "candidates": 8}},
}


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", MECHANISMS)
def test_standardised_increments_are_normal_and_nobody_is_accused(name: str, table: Path) -> None:
    contents = results_of_run(plan_of(table, **MECHANISMS[name]))
    tables = contents.run.tables
    if "membership" in name:
        assert tables.targets is not None
        squares = tables.targets["noise_squares"]
        rounds = tables.targets["noise_rounds"]
        # The noise along the contributions of every target, by the challenger's knowledge of the coins.
        assert float(squares.sum() / rounds.sum()) == pytest.approx(1.0, abs=0.2)
    elif name != "reconstruction":
        rounds = tables.rounds
        bits = tables.trials.set_index("trial")["bit"].astype(bool).reindex(rounds["trial"]).to_numpy()
        if "score_present" in rounds:
            scores = np.where(bits, rounds["score_present"], rounds["score_absent"])
        else:
            mu = rounds["local_sensitivity"] / rounds["sigma"]
            scores = ((rounds["increment"] - np.where(bits, 1, -1) * mu**2 / 2) / mu).to_numpy()
        assert kstest(scores[~np.isnan(scores)], "norm").pvalue > 0.001
    assert contents.summary["verdict"] != "violated"


@pytest.mark.long
@pytest.mark.parametrize("clipping", ["fixed", "adaptive"])
def test_public_files_alone_give_the_same_log_odds(clipping: str, table: Path, tmp_path: Path) -> None:
    plan = plan_of(table, audit={"trials": 6}, privacy={"clipping": clipping})
    run_locally(plan, tmp_path / "run")  # releases of 4 of 6 trials are kept
    replay_result = replay(tmp_path / "run")
    match = replay_result.agreement(tmp_path / "run")
    assert match is not None
    assert match.difference < 1e-6


Contribute = Callable[..., ContributionByTrial]
HONEST: Contribute = fl_audit.clients.owner_contributions.contributed
PAIR = fl_audit.clients.owner_contributions.differing_contributions


def _by(whose: Callable[[Tensor], Tensor]) -> Contribute:
    """Clip together the records of groups other than the users."""

    def contributed(
        federation: LoadedFederation,
        client: int,
        examples: Examples,
        models: Tensor,
        moment: RoundContext,
        taking_part: Tensor | None = None,
    ) -> ContributionByTrial:
        assert examples.user is not None
        records = GroupedRecords.of(examples.features, examples.labels, whose(examples.user))
        return ContributionByTrial(federation.model.clipped_sums(models, records, 1.0, None, taking_part).total)

    return contributed


def _first_records(
    federation: LoadedFederation, client: int, examples: Examples, *arguments: Any
) -> ContributionByTrial:
    assert examples.user is not None
    _, first = np.unique(examples.user.numpy(), return_index=True)
    record_mask = arguments[2] if len(arguments) > 2 else None
    return HONEST(
        federation,
        client,
        examples.take(first),
        *arguments[:2],
        record_mask if record_mask is None else record_mask[:, first],
    )


def _times(federation: LoadedFederation, client: int, examples: Examples, *arguments: Any) -> ContributionByTrial:
    """Count every record of a user instead of the user."""
    assert examples.user is not None
    contribution = HONEST(federation, client, examples, *arguments)
    return ContributionByTrial(contribution.total * (len(examples.user) / len(examples.user.unique())))


def _sampled_by_record(
    federation: LoadedFederation, client: int, examples: Examples, *arguments: Any
) -> ContributionByTrial:
    models, moment = arguments[:2]
    participation = torch.from_numpy(
        np.random.default_rng((client, moment.number)).random((len(models), examples.count)) < 0.4
    )
    return HONEST(federation, client, examples, models, moment, participation)


def _any_record_drawn(
    federation: LoadedFederation, client: int, examples: Examples, *arguments: Any
) -> ContributionByTrial:
    """Let a user participate if any of its records is drawn, so that users with many records do so too often."""
    assert examples.user is not None
    models, moment = arguments[:2]
    draw = np.random.default_rng((client, moment.number)).random((len(models), examples.count)) < 0.4
    users = examples.user.numpy()
    participation = np.stack([draw[:, users == user].any(axis=1) for user in users], axis=1)
    return HONEST(federation, client, examples, models, moment, torch.from_numpy(participation))


def _pair(change: Callable[..., tuple[ContributionByTrial, ContributionByTrial]]) -> Any:
    """Change the contributions of the differing user and its replacement, given the contributions of its parts."""

    def contributions(
        federation: LoadedFederation, models: Tensor, moment: RoundContext, randomised_records: Any = None
    ) -> tuple[ContributionByTrial, ContributionByTrial]:
        index_groups = np.split(np.arange(federation.differing.count), [1])
        part_contributions = [
            HONEST(federation, federation.victim, federation.differing.take(indices), models, moment)
            for indices in index_groups
        ]
        return change(*PAIR(federation, models, moment, randomised_records), *part_contributions)

    return contributions


SAMPLED: Changes = {"training": {"sampling-rate": 0.4}, "audit": {"participation": "seen"}}
BREACHES: dict[str, tuple[str, Any, Changes]] = {
    "users are clipped by record": ("contributed", _by(lambda users: torch.arange(len(users))), {}),
    "users are counted by their records": ("contributed", _times, {}),
    "users are sampled by record": ("contributed", _sampled_by_record, SAMPLED),
    "a user takes part with any record that is drawn": ("contributed", _any_record_drawn, SAMPLED),
    "only the first record of a user is used": ("contributed", _first_records, {}),
    "two users are clipped as one": ("contributed", _by(lambda users: users // 2), {}),
    "the two halves of a user are clipped apart": (
        "contributed",
        _by(lambda users: users * 2 + torch.arange(len(users)) % 2),
        {},
    ),
    "one record is kept in both trials": (
        "differing_contributions",
        _pair(lambda present, absent, first_contribution, remaining_contribution: (present, first_contribution)),
        {},
    ),
    "only one record is taken out": (
        "differing_contributions",
        _pair(lambda present, absent, first_contribution, remaining_contribution: (present, remaining_contribution)),
        {},
    ),
    "the user is there twice": (
        "differing_contributions",
        _pair(
            lambda present, absent, first_contribution, remaining_contribution: (
                ContributionByTrial(2 * present.total),
                absent,
            )
        ),
        {},
    ),
    "the records of the user are clipped one by one": (
        "differing_contributions",
        lambda federation, models, moment, randomised=None: (
            _by(lambda users: torch.arange(len(users)))(
                federation, federation.victim, federation.differing, models, moment
            ),
            PAIR(federation, models, moment, randomised)[1],
        ),
        {},
    ),
}
"""Dishonest replacements in a federation: the name of the function at the clients, and another one."""


def broken_tests(table: Path, where: str, instead: Any, changes: Changes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the tests that fail in a run of few users with many records each and little noise."""
    monkeypatch.setattr(fl_audit.clients.owner_contributions, where, instead)
    # A server refuses a sum that is longer than its users together; the verdict has to find it without that.
    monkeypatch.setattr(fl_audit.strategies.received_contributions, "_require_short", lambda *_: None)
    settings: Changes = {
        "data": {"records": 160},
        "training": {"rounds": 15, "learning-rate": 0.05},
        "privacy": {"noise-multiplier": 1.0, "clipping-norm": 1.0},
        "audit": {"trials": 100},
        "run": {"trials-per-batch": 100, "keep-releases": 0, "seed": 5},
    }
    merged = changed_settings(settings, changes)
    measured = measured_in(results_of_run(plan_of(table, **merged)).run)
    return [str(test.name) for test in run_family(measured)[0] if test.violated]


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("name", BREACHES)
def test_breaches_of_users_as_units_are_found(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_hospital(tmp_path_factory.mktemp("few"), stays=400, patients=40)
    assert broken_tests(table, *BREACHES[name], monkeypatch)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("changes", [{}, SAMPLED], ids=["everybody", "sampled"])
def test_the_same_federation_is_honest_without_a_breach(
    changes: Changes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_hospital(tmp_path, stays=400, patients=40)
    assert not broken_tests(table, "contributed", HONEST, changes, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("rate", [None, 0.3])
def test_the_guarantee_of_a_plan_counts_users(rate: float | None, table: Path) -> None:
    plan = plan_of(table, training={"sampling-rate": rate})
    event: DpEvent = GaussianDpEvent(plan.federation.mechanism.noise_multiplier)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(event if rate is None else PoissonSampledDpEvent(rate, event), plan.federation.rounds)
    assert plan.guarantee is not None
    assert plan.guarantee.epsilon == pytest.approx(accountant.get_epsilon(0.01), rel=2e-3)
    assert plan.federation.mechanism.denominator == pytest.approx(plan.federation.users * (rate or 1))


def test_users_at_several_clients_are_refused_with_their_number_or_given_to_the_first(table: Path) -> None:
    apart = {"partition": "dirichlet", "clients": 3}
    error = assert_refused(None, lambda: load_federation(plan_of(table, data=apart).federation))
    number, users = re.findall(r"([\d,]+) of ([\d,]+) users .*several clients", str(error))[0]
    assert 1 < int(number) <= int(users)
    for remedy in (*error.remedies, *error.choices):
        fixed = load_federation(plan_of(table, data=apart | {remedy.key: remedy.value}).federation)
        client_units = [set(fixed.units_of(client).tolist()) for client in range(3)]
        assert sum(map(len, client_units)) == fixed.units
    first = load_federation(plan_of(table, data=apart | {"user-across-clients": "first"}).federation)
    records = load_federation(plan_of(table, data=apart | {"user-across-clients": "first"}).federation).training
    assert records.count == first.public.records


def test_the_first_records_of_each_user_are_read_and_no_more(table: Path) -> None:
    plan = plan_of(table, data={"records-per-user": 3})
    federation = load_federation(plan.federation)
    assert federation.user is not None
    assert np.bincount(federation.user).max() == 3
    frame = pd.read_csv(table)
    first_rows = frame[frame.groupby("patient_id").cumcount() < 3]
    assert len(load_source(plan.federation.data).pool) == len(first_rows)


def test_owners_of_a_data_set_can_be_its_users(tmp_path: Path) -> None:
    images = np.zeros((6, 28, 28), np.uint8)
    owners = np.array(["a", "b", "a", "c", "b", "a"])
    np.savez(tmp_path / "femnist_digits_12clients.npz", x=images, y=np.array([0, 1, 2, 3, 4, 5]), client=owners)
    pool = load_source(DataSpec("femnist", str(tmp_path), (("user", "owner"), ("records-per-user", 2)))).pool
    assert pool.users == pool.owners == ("a", "b", "c")
    assert pool.labels.tolist() == [0, 1, 2, 3, 4]
    assert_refused("whose its records", load_source, DataSpec("digits", None, (("user", "owner"),)))
    assert_refused("whose each record", load_source, DataSpec("digits", None, (("records-per-user", 2),)))
