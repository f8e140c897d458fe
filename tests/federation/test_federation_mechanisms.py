"""Tests of federations under every mechanism, step by step: releases, the insider's results, and replay.

Everything is computed a second time here, for one client and one trial after the other, in float64.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.federation.contributions import RoundContext
from fl_audit.federation.hypotheses import likelihood_ratio_input, sums_of
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.observed_rounds import ServerRound, part_seen_by_clients
from fl_audit.federation.record_tensors import Examples
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.local_training import local_batches
from fl_audit.learning.models import build_model
from fl_audit.mechanisms.contribution import AdaptiveClipping, LocalTraining, PoissonSampling, RotatingCohorts
from fl_audit.mechanisms.noise_draws import noise_share
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.message_keys import Key, NonTrainingQuery
from fl_audit.privacy.strategy_matrices import inverse, strategy_matrix
from fl_audit.randomness import Purpose, generator
from fl_audit.runs.replay import replay, stored_rounds
from fl_audit.runs.run import ClientAppAndStrategy
from fl_audit.strategies.secret_draws import SeededChallenger
from tests.builders.clients import SentMessage, overheard_app
from tests.builders.mechanisms import MECHANISMS
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings
from tests.federation.elsewhere import AppElsewhere
from tests.learning.gradient_truth import clip_and_sum, example_gradients

TRIALS = 6
ROUNDING = 1e-5


def plan_of(name: str, **run: Any) -> RunPlan:
    """Return the plan of a mechanism in six trials."""
    sections = {"audit": {"trials": TRIALS}, "run": {"trials-per-batch": TRIALS} | run}
    return small_plan(**changed_settings(MECHANISMS[name], sections))


def play(name: str, directory: Path, keep: int = TRIALS, **run: Any) -> RunPlan:
    """Run a mechanism in six trials, of which `keep` are stored."""
    plan = plan_of(name, **{"keep-releases": keep} | run)
    run_locally(plan, directory)
    return plan


class Stored(NamedTuple):
    """Stored rounds of a run."""

    federation: LoadedFederation
    rounds: tuple[ServerRound, ...]


def stored_run(plan: RunPlan, directory: Path) -> Stored:
    (path,) = (directory / "public").glob("releases-*")
    federation = load_federation(plan.federation)
    return Stored(federation, tuple(stored_rounds(federation, load_file(path))))


# A second, plain account of what units contribute.


class ByHand(NamedTuple):
    """Clipped contributions in float64, (trials, parameters), and whether they were within the norm."""

    total: Tensor
    within: Tensor


def by_hand(
    federation: LoadedFederation, client: int, examples: Examples, models: Tensor, number: int, norms: Tensor
) -> ByHand:
    """Return the contribution of examples of a client, computed for one trial after the other."""
    module = build_model(federation.spec)
    kind = federation.public.mechanism.contribution
    totals = []
    within = []
    for model, norm in zip(models, norms.tolist(), strict=True):
        if not isinstance(kind, LocalTraining):
            gradients = example_gradients(module, model[None], examples.features, examples.labels)
            totals.append(clip_and_sum(gradients, norm)[0].double())
            within.append(0.5)
            continue
        draw = generator(federation.public.data_seed, Purpose.LOCAL_ORDER, round=number, client=client)
        current = model.double()
        for batch in local_batches(len(examples.labels), kind.schedule, draw):
            batch_indices = torch.from_numpy(batch)
            gradients = example_gradients(
                module, current[None], examples.features[batch_indices], examples.labels[batch_indices]
            )
            current = current - kind.schedule.learning_rate * gradients[0].mean(dim=0)
        update = model.double() - current
        totals.append(update * min(1.0, norm / float(update.norm())))
        within.append(float(update.norm() <= norm))
    return ByHand(torch.stack(totals), torch.tensor(within, dtype=torch.float64))


class Round(NamedTuple):
    """A round computed by hand: the contributions of the differing unit, of its replacement, and of all others."""

    shared: ByHand
    present: ByHand
    absent: ByHand
    target: Tensor
    """In which trials the differing unit takes part."""


def round_by_hand(plan: RunPlan, federation: LoadedFederation, server_round: ServerRound) -> Round:
    mechanism = plan.federation.mechanism
    public = plan.federation
    models = server_round.models[-2]
    challenger = SeededChallenger(plan.config.run.seed or 0)
    norms = server_round.side.norms
    norms = torch.full((TRIALS,), mechanism.clipping_norm, dtype=torch.float64) if norms is None else norms
    nothing = ByHand(torch.zeros(models.shape, dtype=torch.float64), torch.full((TRIALS,), 0.5).double())

    def of(client: int, examples: Examples | None) -> ByHand:
        return (
            nothing if examples is None else by_hand(federation, client, examples, models, server_round.number, norms)
        )

    present = of(federation.victim, federation.differing)
    absent = of(federation.victim, federation.replacement)
    total = torch.zeros_like(nothing.total)
    bits = torch.zeros(TRIALS, dtype=torch.float64)
    target = torch.ones(TRIALS, dtype=torch.bool)
    for client in range(public.clients):
        counts = np.ones(TRIALS, dtype=bool)
        match mechanism.participation:
            case RotatingCohorts() as cohorts:
                counts[:] = client in cohorts.eligible_units(public.data_seed, server_round.number)
            case PoissonSampling(rate) if mechanism.unit is Unit.CLIENT:
                counts = challenger.client_participation(range(TRIALS), server_round.number, public.clients, rate)[
                    :, client
                ]
        if client == federation.victim:
            target = torch.from_numpy(counts)
        if mechanism.unit is Unit.CLIENT:
            if client != federation.victim:
                contribution = of(client, federation.shard_without_targets(client))
                total += contribution.total * torch.from_numpy(counts)[:, None]
                bits += (contribution.within - 0.5) * torch.from_numpy(counts)
            continue
        shard = federation.shards[client]
        participation = np.ones((TRIALS, len(shard)), dtype=bool)
        if isinstance(mechanism.participation, PoissonSampling):
            participation = challenger.participation(
                range(TRIALS), server_round.number, client, len(shard), mechanism.participation.rate
            )
        for position, record in enumerate(shard):
            if record == federation.target:
                target = torch.from_numpy(participation[:, position])
            else:
                counts = torch.from_numpy(participation[:, position])[:, None]
                total += of(client, federation.training.take(np.array([record]))).total * counts
    return Round(ByHand(total, bits + 0.5), present, absent, target)


def chosen(plan: RunPlan, hand_round: Round) -> ByHand:
    """Return what the differing unit, or its replacement, added in each trial."""
    bits = torch.from_numpy(SeededChallenger(plan.config.run.seed or 0).membership(range(TRIALS)).bits)
    total = torch.where(bits[:, None], hand_round.present.total, hand_round.absent.total) * hand_round.target[:, None]
    within = torch.where(bits, hand_round.present.within, hand_round.absent.within)
    return ByHand(total, torch.where(hand_round.target, within, 0.5))


def noise_by_hand(plan: RunPlan, federation: LoadedFederation, server_round: ServerRound) -> Tensor:
    """Return the noise of a release."""
    mechanism = plan.federation.mechanism
    size = federation.model.layout.size
    challenger = SeededChallenger(plan.config.run.seed or 0)
    if mechanism.clients_add_noise:
        seeds = [challenger.noise_seed(client) for client in range(plan.federation.clients)]
        return mechanism.share_scale * sum(
            noise_share(seed, range(TRIALS), server_round.number, size).double() for seed in seeds
        )  # type: ignore[return-value]
    draws = [
        challenger.standard_normals(range(TRIALS), number, size).double()
        for number in range(1, server_round.number + 1)
    ]
    row = np.zeros(server_round.number)
    row[-1] = 1.0
    if isinstance(mechanism.noise, CorrelatedGaussian):
        row = inverse(strategy_matrix(mechanism.noise.matrix, mechanism.noise.rounds, mechanism.noise.bands))[
            server_round.number - 1
        ]
    norms = (
        torch.full((TRIALS,), mechanism.clipping_norm).double()
        if server_round.side.norms is None
        else server_round.side.norms
    )
    scale = mechanism.noise_multiplier * mechanism.adjacency.sensitivity_of_sum(1.0) * norms
    return scale[:, None] * sum(float(coefficient) * draw for coefficient, draw in zip(row, draws, strict=False))  # type: ignore[return-value]


def close(actual_tensor: Tensor, expected: Tensor, rounding: float = ROUNDING) -> None:
    np.testing.assert_allclose(actual_tensor.double().numpy(), expected.double().numpy(), rtol=0, atol=rounding)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_release_is_what_its_distribution_says_and_the_insider_knows_what_it_may(name: str, tmp_path: Path) -> None:
    plan = play(name, tmp_path / "run")
    stored = stored_run(plan, tmp_path / "run")
    mechanism = plan.federation.mechanism
    threat_model = plan.federation.threat_model
    took_part = 0
    for server_round in stored.rounds:
        hand = round_by_hand(plan, stored.federation, server_round)
        target_share = chosen(plan, hand)
        close(
            server_round.release,
            hand.shared.total + target_share.total + noise_by_hand(plan, stored.federation, server_round),
        )
        took_part += int(hand.target.sum())
        # What the insider works out: both sums, and which of their parts are certain.
        sums = sums_of(
            stored.federation,
            server_round.models[-2],
            RoundContext(server_round.number, server_round.side.norms),
            server_round.side,
        )
        close(sums.shared, hand.shared.total)
        is_known = not mechanism.is_sampled or threat_model.sees_participation
        assert sums.weight == (1.0 if is_known else mechanism.sampling_rate)
        counts = hand.target[:, None] if is_known else 1.0
        close(sums.present, hand.present.total * counts)
        close(sums.absent, hand.absent.total * counts)
        _check_bits(plan, server_round, hand, target_share)
        _check_what_is_seen(plan, stored, server_round, hand, target_share)
    assert took_part > 0


def _check_bits(plan: RunPlan, server_round: ServerRound, hand: Round, target_share: ByHand) -> None:
    mechanism = plan.federation.mechanism
    if not isinstance(mechanism.clipping, AdaptiveClipping):
        return
    draws = SeededChallenger(plan.config.run.seed or 0).quantile_normals(range(TRIALS), server_round.number)
    assert server_round.side.bits is not None
    close(
        server_round.side.bits, hand.shared.within - 0.5 + target_share.within - 0.5 + mechanism.bit_sigma * draws, 1e-9
    )


def _check_what_is_seen(
    plan: RunPlan, stored: Stored, server_round: ServerRound, hand: Round, target_share: ByHand
) -> None:
    """Check that an observation minus its true mean is the noise that the insider does not know."""
    mechanism = plan.federation.mechanism
    threat_model = plan.federation.threat_model
    challenger = SeededChallenger(plan.config.run.seed or 0)
    observed, hypotheses = likelihood_ratio_input(
        stored.federation, part_seen_by_clients(plan.federation.view, mechanism, server_round)
    )
    size = stored.federation.model.layout.size
    if isinstance(mechanism.noise, CorrelatedGaussian):
        bits = torch.from_numpy(challenger.membership(range(TRIALS)).bits)
        mean = hypotheses.shared + torch.where(bits[:, None], hypotheses.present, hypotheses.absent)
        draws = challenger.standard_normals(range(TRIALS), server_round.number, size)
        close(observed - mean, mechanism.noise_multiplier * mechanism.global_sensitivity * draws)
    elif mechanism.clients_add_noise:
        insider_clients = {stored.federation.insider, *stored.federation.colluders}
        is_server = threat_model.adversary is Adversary.SERVER
        noise_clients = (
            {stored.federation.victim} if is_server else set(range(plan.federation.clients)) - insider_clients
        )
        shares = [
            noise_share(challenger.noise_seed(client), range(TRIALS), server_round.number, size).double()
            for client in noise_clients
        ]
        close(observed - hypotheses.shared.double() - target_share.total, mechanism.share_scale * sum(shares))  # type: ignore[arg-type]
    else:
        assert torch.equal(observed, server_round.release)


def test_an_adaptive_norm_follows_its_rule_and_the_noise_follows_the_norm(tmp_path: Path) -> None:
    plan = play("adaptive", tmp_path / "run")
    stored = stored_run(plan, tmp_path / "run")
    clipping = plan.federation.mechanism.clipping
    assert isinstance(clipping, AdaptiveClipping)
    norms = torch.full((TRIALS,), 0.3, dtype=torch.float64)
    for server_round in stored.rounds:
        assert server_round.side.norms is not None
        assert server_round.side.bits is not None
        close(server_round.side.norms, norms, 1e-12)
        share = server_round.side.bits / 5 + 0.5  # five clients, each bit less one half
        norms = norms * torch.exp(-0.2 * (share - 0.5))
    table = pd.read_parquet(tmp_path / "run" / "rounds.parquet").sort_values(["round", "trial"])
    used = torch.cat([server_round.side.norms for server_round in stored.rounds if server_round.side.norms is not None])
    np.testing.assert_allclose(table["clipping_norm"], used)
    np.testing.assert_allclose(table["sigma"], 1.5 * used)
    assert table["clipping_norm"].nunique() > TRIALS


def test_the_noise_of_an_adaptive_norm_is_told_without_an_insider_too(tmp_path: Path) -> None:
    columns = []
    for has_insider in (True, False):
        audit = {"trials": TRIALS, "insider": has_insider}
        plan = small_plan(**changed_settings(MECHANISMS["adaptive"], {"audit": audit}))
        run_locally(plan, tmp_path / str(has_insider))
        table = pd.read_parquet(tmp_path / str(has_insider) / "rounds.parquet")
        columns.append(table[["trial", "round", "sigma", "clipping_norm"]])
    pd.testing.assert_frame_equal(*columns)
    assert columns[1]["sigma"].nunique() > TRIALS


def test_without_bit_noise_the_norm_rises_exactly_while_all_are_longer() -> None:
    """Andrew et al. 2021: with no update within the norm the share is 0, so the norm grows by exp(eta gamma)."""
    clipping = AdaptiveClipping(2.0, quantile=0.5, learning_rate=0.2)
    norms = torch.tensor([2.0, 1.0], dtype=torch.float64)
    close(
        clipping.next_norms(norms, torch.tensor([0.0, 1.0]).double()), norms * torch.tensor([0.1, -0.1]).double().exp()
    )
    close(clipping.next_norms(norms, torch.tensor([0.5, 0.5]).double()), norms)


# Replay, batches, engines.


# Of a part of a batch sums are worked out in other shapes than those of the run, which is the harder case.
@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("name", "keep"), [*((name, 2) for name in MECHANISMS), ("sampled records", TRIALS)])
def test_replay_from_public_files_gives_the_same_beliefs(name: str, keep: int, tmp_path: Path) -> None:
    play(name, tmp_path / "run", keep)
    table = pd.read_parquet(tmp_path / "run" / "rounds.parquet")
    log_odds = table.pivot(index="trial", columns="round", values="log_odds").to_numpy()
    scale = table.pivot(index="trial", columns="round", values="sigma").to_numpy()
    shutil.rmtree(tmp_path / "run" / "challenger")
    again = replay(tmp_path / "run")
    assert again.trials.tolist() == list(range(keep))
    np.testing.assert_allclose(again.log_odds, log_odds[:keep], rtol=0, atol=1e-6)
    np.testing.assert_allclose(again.sigma, scale[:keep], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", ["sampled clients", "adaptive", "distributed", "banded cohorts"])
def test_batches_change_no_trial_of_clients(name: str, tmp_path: Path) -> None:
    tables = []
    for size in (TRIALS, 2):
        play(name, tmp_path / str(size), 1, **{"trials-per-batch": size})
        tables.append(pd.read_parquet(tmp_path / str(size) / "rounds.parquet").sort_values(["trial", "round"]))
    for column in ("log_odds", "sigma", "local_sensitivity"):
        np.testing.assert_allclose(tables[1][column], tables[0][column], rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.xdist_group("elsewhere")
@pytest.mark.parametrize("name", ["adaptive, sampled", "distributed"])
def test_clients_in_another_process_give_the_same_trials(
    name: str, app_elsewhere: AppElsewhere, tmp_path: Path
) -> None:
    plan = play(name, tmp_path / "local")
    run_locally(plan, tmp_path / "apart", parties=ClientAppAndStrategy(client_app=app_elsewhere))
    for label in ("trials", "rounds"):
        tables = [pd.read_parquet(tmp_path / run_name / f"{label}.parquet") for run_name in ("local", "apart")]
        pd.testing.assert_frame_equal(*tables, check_exact=True)


# Secrets.


def told_in(name: str, directory: Path) -> tuple[RunPlan, list[SentMessage]]:
    """Run a mechanism, and return every message to a client."""
    messages: list[SentMessage] = []
    plan = plan_of(name)
    run_locally(plan, directory, parties=ClientAppAndStrategy(client_app=overheard_app(messages)))
    return plan, messages


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["sampled clients", "replaced sampled clients", "sampled records", "adaptive, sampled"]
)
def test_an_insider_is_not_told_when_the_target_takes_part(name: str, tmp_path: Path) -> None:
    plan, messages = told_in(name, tmp_path / "run")
    federation = load_federation(plan.federation)
    challenger = SeededChallenger(plan.config.run.seed or 0)
    observations = [observation for observation in messages if observation.kind == f"query.{NonTrainingQuery.OBSERVE}"]
    assert len(observations) == plan.federation.rounds
    for observation in observations:
        taking_part = observation.arrays["taking_part"]
        assert not taking_part[:, federation.target].any()
        assert set(observation.config) == {Key.FEDERATION, Key.ROUND, Key.BATCH, Key.TIME_LIMIT}
        if federation.unit is Unit.CLIENT:
            number = int(observation.config[Key.ROUND])
            rate = plan.federation.mechanism.sampling_rate
            participation = challenger.client_participation(range(TRIALS), number, plan.federation.clients, rate)
            other_clients = [client for client in range(plan.federation.clients) if client != federation.target]
            assert np.array_equal(taking_part[:, other_clients], participation[:, other_clients])


def test_an_insider_who_sees_who_takes_part_is_told(tmp_path: Path) -> None:
    plan, messages = told_in("sampled clients, seen", tmp_path / "run")
    challenger = SeededChallenger(plan.config.run.seed or 0)
    rate = plan.federation.mechanism.sampling_rate
    for message in messages:
        if message.kind == f"query.{NonTrainingQuery.OBSERVE}":
            participation = challenger.client_participation(
                range(TRIALS), int(message.config[Key.ROUND]), plan.federation.clients, rate
            )
            assert np.array_equal(message.arrays["taking_part"], participation)


@pytest.mark.long
def test_an_insider_is_told_the_seeds_of_its_own_and_its_colluders_noise_alone(tmp_path: Path) -> None:
    plan, messages = told_in("distributed", tmp_path / "run")
    federation = load_federation(plan.federation)
    challenger = SeededChallenger(plan.config.run.seed or 0)
    seeds = {challenger.noise_seed(client): client for client in range(plan.federation.clients)}
    assert len(seeds) == plan.federation.clients
    observers = set()
    for message in messages:
        if message.kind == "train":
            assert seeds[int(message.config[Key.NOISE_SEED])] == message.client
            continue
        observers.add(message.client)
        seed_owners = {seeds[int(seed)] for seed in message.arrays["noise_seeds"]}
        assert seed_owners == {message.client, *federation.colluders}
        assert len(seed_owners) == 2
        assert federation.victim not in seed_owners
        assert Key.NOISE_SEED not in message.config
    assert observers == {federation.insider}


@pytest.mark.long
def test_only_a_server_that_is_the_adversary_shows_a_contribution(tmp_path: Path) -> None:
    for name in ("local", "local, at the server"):
        _, messages = told_in(name, tmp_path / name)
        array_sets = [message.arrays for message in messages if message.kind == f"query.{NonTrainingQuery.OBSERVE}"]
        assert array_sets
        assert all(("contribution" in arrays) == (name != "local") for arrays in array_sets)
        assert all(("noise_seeds" in arrays) == (name == "local") for arrays in array_sets)
