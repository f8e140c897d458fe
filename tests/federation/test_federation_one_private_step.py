"""Tests of one private step a round: its known distribution gives insiders beliefs on training with Opacus."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from scipy import stats

from fl_audit.clients import app
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.local_dpsgd import ClientRandomness, private_steps, step_sample, trained_privately
from fl_audit.learning.private_training import PrivateUpdates
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.planned_run_check import planned_noise, planned_of_signal
from fl_audit.runs.replay import replay
from fl_audit.verdict.sections_verdict import verdict_of
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings

ALL, SOME = 100, 4  # batches larger than every shard, and such that a step samples


def plan_of(**changes: dict[str, Any]) -> Any:
    settings: dict[str, dict[str, Any]] = {
        "training": {
            "strategy": "dp-sgd-clients",
            "rounds": 3,
            "local-steps": 1,
            "local-batch": 100,
            "learning-rate": None,
        },
        "privacy": {"belief": None, "noise-multiplier": 1.5, "sensitivity": None, "clipping-norm": 1.0},
        "audit": {"epsilon-star": False, "membership": False},
    }
    return small_plan(**changed_settings(settings, changes))


def played(directory: Path, batch: int, adversary: str, trials: int, **privacy: Any) -> ReportContents:
    plan = plan_of(training={"local-batch": batch}, privacy=privacy, audit={"adversary": adversary, "trials": trials})
    return run_locally(plan, directory / "run")


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("adversary", ["server", "client"])
@pytest.mark.parametrize("batch", [ALL, SOME])
def test_the_noise_that_is_left_is_that_of_the_distribution(tmp_path: Path, batch: int, adversary: str) -> None:
    contents = played(tmp_path, batch, adversary, 30)
    assert np.isfinite(contents.trials["belief"]).all()
    assert contents.summary["verdict"] in ("consistent", "inconclusive")
    assert not any(test["violated"] for test in contents.summary["noise"]["tests"])
    ratio = np.square(contents.rounds["measured_sigma"] / contents.rounds["sigma"])
    draws = len(ratio) * load_federation(contents.run.plan.federation).model.layout.size
    # The mean of squares of standard normal numbers: its spread is the root of two over their number.
    assert abs(ratio.mean() - 1) < 5 * np.sqrt(2 / draws)
    assert replay(tmp_path / "run").agreement(tmp_path / "run").agrees


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["server", "client"])
@pytest.mark.parametrize("batch", [ALL, SOME])
def test_the_mean_of_log_odds_is_that_of_the_closed_form(tmp_path: Path, batch: int, adversary: str) -> None:
    contents = played(tmp_path, batch, adversary, 400, **{"noise-multiplier": 1.0})
    rounds = contents.rounds
    bits = contents.trials.set_index("trial")["bit"]
    steps = contents.run.plan.federation.mechanism.contribution
    federation = load_federation(contents.run.plan.federation)
    q = steps.rate_of(len(federation.shards[federation.victim]))
    mu = (rounds["local_sensitivity"] / rounds["sigma"]).to_numpy()
    with_record = rounds["trial"].map(bits).to_numpy() == 1
    # One coordinate z is Gaussian, with the record of mean mu with probability q: l = log(1 - q + q e^(mu z - mu^2/2)).
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()

    def llr(coordinate: Any) -> Any:
        return np.log1p(q * np.expm1(mu[:, None] * coordinate - mu[:, None] ** 2 / 2))

    out = llr(nodes[None, :])
    inside = llr(nodes[None, :] + mu[:, None])
    means = np.where(with_record, (1 - q) * (out @ weights) + q * (inside @ weights), out @ weights)
    squares = np.where(with_record, (1 - q) * (out**2 @ weights) + q * (inside**2 @ weights), out**2 @ weights)
    gap = (rounds["increment"].to_numpy() - means) / np.sqrt(squares.sum() - (means**2).sum())
    assert abs(gap.sum()) < 4
    assert q == (1 if batch == ALL else 1 / -(-len(federation.shards[federation.victim]) // SOME))


@pytest.mark.long
def test_scores_are_standard_normal_under_the_truth(tmp_path: Path) -> None:
    contents = played(tmp_path, SOME, "server", 300)
    bits = contents.trials.set_index("trial")["bit"]
    rounds = contents.rounds
    truth = np.where(rounds["trial"].map(bits) == 1, rounds["score_present"], rounds["score_absent"])
    assert stats.kstest(truth, "norm").pvalue > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["server", "client"])
def test_an_honest_run_is_consistent(tmp_path: Path, adversary: str) -> None:
    contents = played(tmp_path, ALL, adversary, 200, **{"noise-multiplier": 1.0})
    assert contents.summary["verdict"] == "consistent"


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("adversary", ["server", "client"])
@pytest.mark.parametrize("batch", [ALL, SOME])
def test_half_the_noise_in_the_clients_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, adversary: str
) -> None:
    def careless(federation: LoadedFederation, client: int, *arguments: Any, **keywords: Any) -> PrivateUpdates:
        public = federation.public
        half = replace(public, mechanism=public.mechanism.with_multiplier(public.mechanism.noise_multiplier / 2))
        private_updates = trained_privately(replace(federation, public=half), client, *arguments, **keywords)
        accountant = private_steps(public.mechanism).accountant_after(arguments[1], len(federation.shards[client]))
        return replace(private_updates, accountant=accountant)

    def only_of_victim(federation: LoadedFederation, client: int, *arguments: Any, **keywords: Any) -> PrivateUpdates:
        train = careless if client == federation.victim else trained_privately
        return train(federation, client, *arguments, **keywords)

    monkeypatch.setattr(app, "trained_privately", only_of_victim)
    assert played(tmp_path, batch, adversary, 20).summary["verdict"] == "violated"


def test_the_sample_that_is_told_is_the_one_that_the_client_trains_on() -> None:
    """The update minus the clipped sum of this sample is noise alone."""
    plan = plan_of(training={"local-batch": SOME}, privacy={"noise-multiplier": 0.01})
    federation = load_federation(plan.federation)
    draws = ClientRandomness(11, (0, 1, 2, 3))
    mechanism = plan.federation.mechanism
    client = (federation.victim + 1) % plan.federation.clients
    models = torch.randn(4, federation.model.layout.size, generator=torch.Generator().manual_seed(1))
    records = len(federation.shards[client])
    steps = private_steps(mechanism)
    sample = step_sample(mechanism, records, draws, 2)
    assert 0 < sample.sum() < sample.size
    shard = federation.shard(client)
    sums = federation.model.clipped_sum(
        models, shard.features, shard.labels, mechanism.clipping_norm, taking_part=torch.from_numpy(sample)
    )
    update = trained_privately(federation, client, models, 2, draws).updates
    unit = steps.schedule.learning_rate / steps.mean_batch(records)
    noise = (update - unit * sums) / (unit * 0.01 * mechanism.clipping_norm)
    assert abs(float(noise.square().mean()) - 1) < 5 * np.sqrt(2 / noise.numel())


@pytest.mark.parametrize("batch", [ALL, SOME])
def test_epsilon_is_that_of_dp_accounting(batch: int) -> None:
    plan = plan_of(training={"local-batch": batch, "rounds": 5}, privacy={"accountant": "pld"})
    steps = plan.federation.mechanism.contribution
    guarantee = plan.guarantee
    assert isinstance(steps, PrivateTraining)
    assert steps.is_one_step
    rates = steps.rates
    epsilons = []
    for rate in rates:
        accountant = PLDAccountant()
        gaussian = dp_accounting.GaussianDpEvent(1.5)
        step_event = gaussian if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, gaussian)
        accountant.compose(dp_accounting.SelfComposedDpEvent(step_event, 5))
        epsilons.append(accountant.get_epsilon(guarantee.delta))
    assert guarantee.epsilon == pytest.approx(max(epsilons), rel=1e-3)


def test_several_steps_have_scores_as_before() -> None:
    one_step, two_steps = (plan_of(training={"local-steps": steps}).federation.mechanism for steps in (1, 2))
    assert (one_step.knows_llr, two_steps.knows_llr) == (True, False)
    sampled = plan_of(training={"local-steps": 2, "local-batch": SOME}).federation.mechanism
    assert (sampled.is_sampled, sampled.sampling_rate) == (False, 1.0)


def test_one_epoch_of_one_batch_is_one_step() -> None:
    changes = {"local-steps": None, "local-epochs": 1}
    assert plan_of(training=changes).federation.mechanism.knows_llr
    assert not plan_of(training=changes | {"local-batch": SOME}).federation.mechanism.knows_llr


@pytest.mark.long
def test_shards_of_several_sizes_have_rates_of_their_own(tmp_path: Path) -> None:
    plan = plan_of(training={"local-batch": SOME}, data={"partition": "linear", "clients": 3}, audit={"trials": 20})
    assert len(plan.federation.mechanism.rates) > 1
    contents = run_locally(plan, tmp_path / "run")
    assert np.isfinite(contents.trials["belief"]).all()
    assert contents.summary["verdict"] in ("consistent", "inconclusive")


def test_weights_whose_rounding_hides_the_noise_are_refused_and_the_remedy_works(tmp_path: Path) -> None:
    small = plan_of(training={"local-learning-rate": 1e-7}, audit={"trials": 4})
    assert_refused(r"raise local-learning-rate, or .*local-steps = 2", run_locally, small, tmp_path / "small")
    for name, remedy in (("raised", {"local-learning-rate": 0.1}), ("scored", {"local-steps": 2})):
        plan = plan_of(training={"local-learning-rate": 1e-7} | remedy, audit={"trials": 4})
        run_locally(plan, tmp_path / name)


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["server", "client"])
@pytest.mark.parametrize("batch", [ALL, SOME])
@pytest.mark.parametrize("clients", [2, 4])
def test_limits_that_are_planned_are_those_of_the_verdict(
    tmp_path: Path, batch: int, adversary: str, clients: int
) -> None:
    """Every gradient exceeds so small a norm, so the plan knows how much each record contributes."""
    plan = plan_of(
        training={"local-batch": batch, "local-learning-rate": 100.0},
        data={"clients": clients},
        privacy={"clipping-norm": 1e-3, "noise-multiplier": 1.0},
        audit={"adversary": adversary, "trials": 40},
    )
    judgement = verdict_of(run_locally(plan, tmp_path / "run")).judgement
    noise = planned_noise(plan)
    signal = planned_of_signal(plan)
    assert noise is not None
    assert signal is not None
    assert judgement.signal is not None
    # How often a record was in by chance remains; noise of others that was not counted would make factors of 1.4 and
    # more of it.
    for limit in (
        judgement.signal.limit,
        judgement.signal.times,
    ):  # of the claimed length, and of the one that was measured
        assert limit - 1 == pytest.approx(signal.limit - 1, rel=0.2)
    assert judgement.limit_of_detection == pytest.approx(noise.limit_of_detection, rel=0.2)


@pytest.mark.parametrize("colluders", [0, 1])
def test_the_plan_hides_a_record_as_the_insider_finds_it_hidden(colluders: int) -> None:
    """Clients have shards of several sizes below the batch size, so each adds noise of its own scale."""
    plan = plan_of(data={"partition": "linear", "clients": 4}, audit={"adversary": "client", "colluders": colluders})
    federation = load_federation(plan.federation)
    steps = plan.federation.mechanism.contribution
    assert isinstance(steps, PrivateTraining)
    insider = federation.insider
    target_size = len(federation.shards[federation.victim])
    known_clients = {insider, *federation.colluders, federation.victim}
    other_sizes = [len(shard) for client, shard in enumerate(federation.shards) if client not in known_clients]
    assert len(other_sizes) == 2 - colluders
    assert steps.hiding == pytest.approx(np.sqrt(1 + sum((target_size / size) ** 2 for size in other_sizes)))
