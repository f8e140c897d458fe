"""The Flower ServerApp of a run: it trains batches of trials, several at a time, and passes on each finished batch."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_packing import pack
from fl_audit.array_types import Floats
from fl_audit.audits.audit import ReleaseQuery
from fl_audit.audits.registry import audit_of
from fl_audit.federation.federation import Federation
from fl_audit.federation.initial_weights import InitialWeights, starting_models
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.local_dpsgd_updates import private_steps
from fl_audit.federation.noise_measurement_directions import number_of_directions
from fl_audit.federation.observed_rounds import InsiderView, ServerRound, kept_of
from fl_audit.federation.result_columns import ResultColumns
from fl_audit.learning.allocator import give_back_freed_memory
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noises.base import NoiseOrigin
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.released_model.parametric_star import StarSettings
from fl_audit.server import evaluator as evaluation
from fl_audit.server.monitored_grid import MonitoredGrid, discover_clients
from fl_audit.server.trial_batch_results import BatchResult, FinalModelQueries, ResultSink, TargetOutputs
from fl_audit.server.user_losses import of_users
from fl_audit.strategies.challenger import PrefetchingChallenger, SeededChallenger, record_draws, true_side
from fl_audit.strategies.challenger_log import ChallengerLog, open_shares
from fl_audit.strategies.contributors import ClientRoster
from fl_audit.strategies.dp_strategy import DPStrategy
from fl_audit.strategies.epsilon_star_queries import EpsilonStarQueries, FederatedLossSettings
from fl_audit.strategies.queries import AccountantStateCollector
from fl_audit.strategies.release_scoring import CanaryQueries, LogOddsQueries, ScoreQueries, TargetQueries
from fl_audit.trials import TrialBatch, waves
from fl_audit.verdict.noise_measurement import sampled_places
from fl_audit.verdict.noise_statistics import NoiseStatisticsLayout

_Queries = LogOddsQueries | ScoreQueries | TargetQueries | CanaryQueries | EpsilonStarQueries | AccountantStateCollector
"""Kinds of queries that are sent with the rounds, whose answers become columns of the tables."""
_Wave = tuple[TrialBatch, ...]  # batches of trials that are trained together
_OnRound = Callable[[int], None]  # called with the number of trials that finished a round


@dataclass(frozen=True)
class FederationPlan:
    """The server's plan of a run: which trials it trains, what it stores, and how it evaluates models."""

    public: Federation  # the public federation
    seed: int  # secret seed of the run
    model_seed: int  # public seed of the initial weights
    batches: tuple[TrialBatch, ...]  # batches of trials still to be computed
    batches_in_flight: int = 1  # number of batches that are trained together
    time_limit: float = 600.0  # seconds that one client call may take
    keep_releases: int = 4  # number of trials, from trial 0, for which the clients' view of every round is stored
    star: StarSettings | None = None  # delta and cut of Epsilon*; None leaves Epsilon* out
    membership: bool = True  # whether the final models are attacked by loss-threshold membership inference
    # Rounds between two evaluated releases; the initial models and the last release are always evaluated.
    evaluate_every: int = 1
    # Settings of Epsilon* without pooling members' losses; None pools them.
    federated_losses: FederatedLossSettings | None = None
    # The server's strategy; studies of broken mechanisms use another one.
    strategy: type[DPStrategy] = DPStrategy
    # Number of evaluated releases without a smaller loss on the population sample after which the training of a trial
    # ends, see `CheckpointSelector`; None trains all rounds.
    patience: int | None = None
    sees_weights: bool = False  # whether the features of a white-box attacker are stored
    more: FinalModelQueries = field(
        default_factory=FinalModelQueries
    )  # further queries to final models about the targets
    initial: InitialWeights = InitialWeights.DRAWN  # source of the initial weights

    @property
    def evaluated_releases(self) -> tuple[int, ...]:
        """Numbers of the releases (models after a round) that are evaluated; 0 is the initial model."""
        rounds = self.public.rounds
        return (*range(0, rounds, self.evaluate_every), rounds)


@dataclass
class FederationTimestamps:
    """Times at which a federation started, was ready and finished (monotonic clock, seconds); NaN until then."""

    started: float = field(default_factory=time.monotonic)
    ready: float = field(default=float("nan"))
    finished: float = field(default=float("nan"))


@dataclass
class _ReleaseRecorder:
    """Recorder of what clients see in every round, for the first `keep` trials of the run."""

    view: InsiderView  # the view of clients: noised sums or models
    keep: int  # number of trials, from trial 0
    on_round: _OnRound
    noise_seeds: Sequence[int] = ()  # seeds of the noise that the insider knows; empty if the server adds the noise
    initial: dict[str, Tensor] = field(default_factory=dict)  # initial models of the kept trials, by batch
    rounds: dict[str, list[dict[str, Tensor]]] = field(default_factory=lambda: defaultdict(list))  # the views of rounds
    # The clipping norms of each round, of all trials, by batch; empty if the norm is fixed.
    norms: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))

    def start(self, batch: TrialBatch, models: Tensor) -> Array:
        """Record the initial models (trials, parameters) of a batch, and return all of them as a Flower array."""
        self.initial[batch.name] = models[: self._kept(batch)].clone()
        return Array(*pack(models.numpy()))

    def __call__(self, batch: TrialBatch, made: ServerRound) -> None:
        """Record what clients see of a round in the recorded trials, and the adaptive clipping norms of all trials."""
        kept = kept_of(self.view, made.first(self._kept(batch)))
        if self.noise_seeds:
            kept["noise_seeds"] = torch.tensor(self.noise_seeds, dtype=torch.int64)
        self.rounds[batch.name].append({name: value.clone() for name, value in kept.items()})
        if made.side.norms_array is not None:
            self.norms[batch.name].append(made.side.norms_array)
        self.on_round(batch.count)

    def kept(self, batch: TrialBatch) -> dict[str, Tensor]:
        """Return the recorded tensors of a batch of trials, keyed by name; empty if none of its trials is recorded.

        They are the trial numbers, the batch's size, the initial models, and what clients saw, stacked over rounds.
        """
        if self._kept(batch) == 0:
            return {}
        trials, rounds = torch.tensor(list(batch.trials)[: self._kept(batch)]), self.rounds[batch.name]
        told = {"trials": trials, "batch_trials": torch.tensor(batch.count), "initial": self.initial[batch.name]}
        return told | {name: torch.stack([one[name] for one in rounds]) for name in rounds[0]}

    def _kept(self, batch: TrialBatch) -> int:
        return max(0, min(batch.count, self.keep - batch.first))


def build_server_app(
    plan: FederationPlan,
    sink: ResultSink,
    clock: FederationTimestamps | None = None,
    on_round: _OnRound = lambda trials: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> ServerApp:
    """Return the ServerApp that carries out a plan.

    Parameters
    ----------
    plan
        Plan of the federation.
    sink
        Function that receives the result of each finished batch of trials.
    clock
        Clock whose times are set when the federation is ready and when it has finished; None if nobody needs them.
    on_round
        Function that is called after every round of a batch with the batch's number of trials.
    interrupted
        Function that returns whether the run was interrupted, and must therefore stop.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        watched = MonitoredGrid(grid, plan.time_limit, interrupted)
        run_federation(plan, watched, sink, clock or FederationTimestamps(), on_round)

    return app


def run_federation(
    plan: FederationPlan, grid: MonitoredGrid, sink: ResultSink, clock: FederationTimestamps, on_round: _OnRound
) -> None:
    """Train all batches of trials of a plan, and pass the result of each finished batch to `sink`.

    Parameters
    ----------
    plan
        Plan of the federation.
    grid
        The grid that sends messages to the clients and receives their replies.
    sink
        Function that receives the result of each finished batch of trials.
    clock
        Clock whose times are set when the federation is ready and when it has finished.
    on_round
        Function that is called after every round of a batch with the batch's number of trials.

    Raises
    ------
    FederationError
        If a client fails, does not reply in time, or sends an invalid reply.
    """
    torch.set_num_threads(plan.public.threads)
    federation = load_federation(plan.public)
    roster = discover_clients(grid, federation)
    clock.ready = time.monotonic()
    for wave in waves(plan.batches, plan.batches_in_flight):
        _play_wave(plan, federation, roster, grid, wave, sink, on_round)
        give_back_freed_memory()
    clock.finished = time.monotonic()


def _play_wave(
    plan: FederationPlan,
    federation: LoadedFederation,
    roster: ClientRoster,
    grid: Grid,
    wave: _Wave,
    sink: ResultSink,
    on_round: _OnRound,
) -> None:
    public, threads = plan.public, plan.public.threads
    prior = public.prior_of_candidates if public.candidate_prior else None
    with evaluation.one_thread(threads) as drawing, evaluation.one_thread(threads) as evaluating:
        challenger = PrefetchingChallenger(
            plan.seed, public.targets, public.membership_scheme, prior, executor=drawing, rounds=public.rounds
        )
        insiders = _insiders(federation, challenger)
        recorder = _ReleaseRecorder(public.view, plan.keep_releases, on_round, insiders.get(federation.insider, ()))
        initial = {
            batch.name: recorder.start(batch, starting_models(federation, plan.initial, plan.model_seed, batch.trials))
            for batch in wave
        }
        stopping = None if plan.patience is None else evaluation.CheckpointSelector(plan.patience)
        losses = dict[tuple[str, int], Floats]()
        outputs = _target_outputs(plan)
        findings: list[evaluation.ReleaseFinding] = list(_findings(plan, losses))
        if outputs is not None:
            findings.append(outputs)
        evaluator = evaluation.ReleaseEvaluator(federation, challenger, wave, findings, stopping)
        background = evaluation.BackgroundEvaluation(evaluator, evaluating, plan.evaluated_releases)

        def population(batch: TrialBatch, release: int) -> Floats:
            background.settle()
            return losses.pop((batch.name, release))

        def is_over() -> bool:
            # With adaptive clipping all rounds are run, since the tables contain the norm of every round.
            return stopping is not None and not public.mechanism.is_adaptive and all(map(stopping.is_over, wave))

        round_queries = _round_queries(plan, federation, insiders, wave, population, challenger)
        size = federation.model.layout.size
        opening = _opening(federation, challenger)
        strategy = plan.strategy(
            public, roster, challenger, wave, size, plan.time_limit, recorder, round_queries, is_over, opening
        )
        strategy.start(grid, ArrayRecord(initial), num_rounds=strategy.exchanges, evaluate_fn=background)
        background.settle()
    found_by = (evaluator, *round_queries, *(one for one in (stopping, opening) if one is not None))
    for batch in wave:
        columns = _distribution_columns(plan, batch, recorder.norms[batch.name])
        for source in found_by:
            columns |= source.columns(batch)
        last = strategy.transcripts[batch.name].models[-1] if stopping is None else stopping.models(batch).cpu()
        sink(
            BatchResult(
                batch=batch,
                membership=challenger.membership(batch.trials),
                rounds=public.rounds,
                evaluated=plan.evaluated_releases,
                columns=columns | record_draws(federation, challenger, batch),
                final_models=last,
                kept=recorder.kept(batch),
                targets=tuple(federation.targets.tolist()),
                outputs={} if outputs is None else outputs.outputs(batch),
            )
        )


def _opening(federation: LoadedFederation, challenger: SeededChallenger) -> ChallengerLog | None:
    """Return the challenger's log, which reveals secrets of trials after training; None if the audit reveals none."""
    public = federation.public
    audit = audit_of(public)
    if not audit.opens_secrets(public):
        return None
    places = tuple(number for number, _ in sampled_places(federation.model.layout))
    return ChallengerLog(public, challenger, audit.opened_target(federation), places)


def _findings(plan: FederationPlan, losses: dict[tuple[str, int], Floats]) -> Iterator[evaluation.ReleaseFinding]:
    """Yield functions, each of which evaluates a release and returns columns of results, such as the accuracy.

    If the losses of members stay with their owners, one function computes nothing. It stores the population losses of
    the release in `losses`, keyed by the name of the batch and the number of the release. Later queries send them to
    the owners.
    """

    def kept_population(release: evaluation.EvaluatedRelease) -> ResultColumns:
        losses[release.batch.name, release.number] = release.population_losses
        return ResultColumns()

    yield evaluation.utility
    if plan.federated_losses is not None:  # members' losses stay with their owners
        yield kept_population
    elif plan.star is not None:
        yield partial(evaluation.pooled_epsilon_star, plan.star)
    if plan.public.mechanism.unit is Unit.USER:
        yield partial(of_users, None if plan.federated_losses is not None else plan.star)
    if plan.membership:
        yield evaluation.loss_threshold


def _target_outputs(plan: FederationPlan) -> TargetOutputs | None:
    """Return the collector of the models' outputs on the targets' records; None if no attack of the audit uses them.

    A target is a unit whose membership is in question.
    """
    public = plan.public
    if not audit_of(public).keeps_outputs(public):
        return None
    return TargetOutputs(plan.evaluated_releases, plan.sees_weights, public.ascent > 0, plan.more)


def _insiders(federation: LoadedFederation, challenger: SeededChallenger) -> dict[int, list[int]]:
    """Return the noise seeds that each insider (adversarial client) knows, keyed by insider.

    They are its own seed and those of its colluders. The lists are empty if clients do not add the noise, or if the
    adversary is the server.
    """
    knows_some = (
        federation.public.mechanism.clients_add_noise
        and federation.public.threat_model.adversary is not Adversary.SERVER
    )
    known = {
        insider: (insider, *federation.colluders(insider)) if knows_some else () for insider in federation.insiders
    }
    return {insider: [challenger.noise_seed(client) for client in clients] for insider, clients in known.items()}


def _round_queries(
    plan: FederationPlan,
    federation: LoadedFederation,
    insiders: dict[int, list[int]],
    wave: _Wave,
    population: Callable[[TrialBatch, int], Floats],
    challenger: SeededChallenger,
) -> tuple[_Queries, ...]:
    """Return the queries of a run besides training: for states of accountants, for answers of insiders, and for losses.

    Parameters
    ----------
    plan
        The plan of the federation.
    federation
        The federation with its data.
    insiders
        Noise seeds that each insider knows, keyed by the number of the insider's client.
    wave
        Batches of trials that are trained at the same time.
    population
        Function that takes a batch and the number of a release, and returns the population losses.
    challenger
        Challenger of the run, which knows the secrets of the trials.
    """
    round_queries, public = list[_Queries](), plan.public
    if isinstance(public.mechanism.contribution, PrivateTraining):
        shards = [len(shard) for shard in federation.shards]
        round_queries.append(AccountantStateCollector(plan.evaluated_releases, shards, private_steps(public.mechanism)))
    round_queries += _release_queries(federation, insiders, wave, challenger)
    if plan.federated_losses is not None:
        federated = plan.federated_losses
        round_queries.append(EpsilonStarQueries(federated, plan.evaluated_releases, wave, public.clients, population))
    return tuple(round_queries)


def _release_queries(
    federation: LoadedFederation, insiders: dict[int, list[int]], wave: _Wave, challenger: SeededChallenger
) -> list[_Queries]:
    """Return the queries by which this audit sends every release to insiders (clients that act as adversaries).

    A release is the models after a round. The result is empty if the audit sends no release to insiders. `insiders`
    maps the number of each insider's client to the noise seeds that it knows. `wave` holds the batches of trials that
    are trained at the same time.
    """
    public = federation.public
    match audit_of(public).query(public):
        case ReleaseQuery.NOTHING:
            return []
        case ReleaseQuery.CANARIES:
            return [CanaryQueries(public, {federation.insider: ()}, wave, federation, challenger)]
        case ReleaseQuery.TARGETS:
            return [TargetQueries(public, insiders, wave, challenger, knows_others=True)]
        case ReleaseQuery.CANDIDATES:
            return [TargetQueries(public, insiders, wave, challenger, knows_others=False)]
        case ReleaseQuery.SCORES:
            return [ScoreQueries(public, insiders, wave)]
        case ReleaseQuery.LOG_ODDS:
            opened = partial(true_side, federation, challenger)
            has_shares = public.mechanism.noise.origin is NoiseOrigin.CLIENTS
            shares = partial(open_shares, federation, challenger) if has_shares else None
            return [LogOddsQueries(public, insiders, wave, measured_layout(federation), opened, shares)]
        case query:
            assert_never(query)


def measured_layout(federation: LoadedFederation) -> NoiseStatisticsLayout:
    """Return the layout of the noise measurements of an insider (adversarial client).

    It follows from the model's layers and from the sampling.
    """
    layout = federation.model.layout
    sides = 3 if federation.public.is_secretly_sampled else 2
    directions = number_of_directions(layout.size)
    return NoiseStatisticsLayout(layout.names, directions, sampled_places(layout), sides, layout.size)


def _distribution_columns(plan: FederationPlan, batch: TrialBatch, norms: list[Floats]) -> ResultColumns:
    """Return the result columns with each round's noise standard deviation `sigma`, and the clipping norms if adaptive.

    `sigma` is NaN in rounds whose noise follows the local sensitivity.
    """
    unknown = np.full((batch.count, plan.public.rounds), np.nan)
    used = np.stack(norms, axis=1) if norms else None
    rounds = {"sigma": plan.public.mechanism.server_scale(unknown, used)}
    return ResultColumns(rounds=rounds if used is None else rounds | {"clipping_norm": used})
