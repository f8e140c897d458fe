"""The Flower ServerApp of a run: it trains batches of trials, several at a time, and passes on each finished batch."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_packing import pack
from fl_audit.array_types import Floats
from fl_audit.audits.registry import audit_of
from fl_audit.federation.initial_weights import InitialWeightsSource, starting_models
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.observed_rounds import InsiderView, ServerRound, stored_tensors
from fl_audit.federation.trial_batch_columns import TrialBatchColumns
from fl_audit.learning.glibc_allocator import give_back_freed_memory
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.server import release_evaluation as evaluation
from fl_audit.server.federation_plan import FederationPlan, FederationTimestamps
from fl_audit.server.reply_timeout_grid import ReplyTimeoutGrid, discover_clients
from fl_audit.server.run_queries import known_noise_seeds, run_queries
from fl_audit.server.trial_batch_results import BatchResult, ResultSink, TargetOutputsCollector
from fl_audit.server.user_epsilon_star import of_users
from fl_audit.strategies.contributors import ClientRoles
from fl_audit.strategies.exact_checks import ExactChecks
from fl_audit.strategies.round_secrets_log import RoundSecretsLog
from fl_audit.strategies.secret_draws import PrefetchingChallenger, SeededChallenger, record_draws
from fl_audit.trial_batches import TrialBatch, waves

_OnRound = Callable[[int], None]  # called with the number of trials that finished a round


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
        """Record initial models of a batch for the run directory, and return those of all trials as a Flower array.

        `models` has shape (trials, parameters).
        """
        self.initial[batch.name] = models[: self._kept(batch)].clone()
        return Array(*pack(models.numpy()))

    def __call__(self, batch: TrialBatch, made: ServerRound) -> None:
        """Record a round as clients see it, and the adaptive clipping norms of all trials."""
        kept = stored_tensors(self.view, made.first(self._kept(batch)))
        if self.noise_seeds:
            kept["noise_seeds"] = torch.tensor(self.noise_seeds, dtype=torch.int64)
        self.rounds[batch.name].append({name: value.clone() for name, value in kept.items()})
        if made.side.norms_array is not None:
            self.norms[batch.name].append(made.side.norms_array)
        self.on_round(batch.count)

    def kept(self, batch: TrialBatch) -> dict[str, Tensor]:
        """Return the recorded tensors of a batch by name, stacked over rounds; empty if no trial is recorded.

        A tensor that some rounds lack is NaN there.
        """
        if self._kept(batch) == 0:
            return {}
        trials, rounds = torch.tensor(list(batch.trials)[: self._kept(batch)]), self.rounds[batch.name]
        told = {"trials": trials, "batch_trials": torch.tensor(batch.count), "initial": self.initial[batch.name]}
        named = {name: value for one in rounds for name, value in one.items()}
        return told | {
            name: torch.stack([one[name] if name in one else torch.full_like(value, torch.nan) for one in rounds])
            for name, value in named.items()
        }

    def _kept(self, batch: TrialBatch) -> int:
        return max(0, min(batch.count, self.keep - batch.first))


def build_server_app(
    plan: FederationPlan,
    sink: ResultSink,
    clock: FederationTimestamps | None = None,
    on_round: _OnRound = lambda trials: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> ServerApp:
    """Return the ServerApp that carries out a plan."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        watched = ReplyTimeoutGrid(grid, plan.time_limit, interrupted)
        run_federation(plan, watched, sink, clock or FederationTimestamps(), on_round)

    return app


def run_federation(
    plan: FederationPlan, grid: ReplyTimeoutGrid, sink: ResultSink, clock: FederationTimestamps, on_round: _OnRound
) -> None:
    """Train all batches of trials of a plan, and pass the result of each finished batch to `sink`."""
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
    roster: ClientRoles,
    grid: Grid,
    wave: tuple[TrialBatch, ...],
    sink: ResultSink,
    on_round: _OnRound,
) -> None:
    public, threads = plan.public, plan.public.threads
    prior = public.prior_of_candidates if public.candidate_prior else None
    with evaluation.one_thread(threads) as drawing, evaluation.one_thread(threads) as evaluating:
        challenger = PrefetchingChallenger(
            plan.seed, public.targets, public.membership_scheme, prior, executor=drawing, rounds=public.rounds
        )
        insiders = known_noise_seeds(federation, challenger)
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

        round_queries = run_queries(plan, federation, insiders, wave, population, challenger)
        size = federation.model.layout.size
        opening = _secrets_log(plan, federation, challenger)
        strategy = plan.strategy(
            public, roster, challenger, wave, size, plan.time_limit, recorder, round_queries, is_over, opening
        )
        strategy.start(grid, ArrayRecord(initial), num_rounds=strategy.flower_rounds, evaluate_fn=background)
        background.settle()
    found_by = (evaluator, *round_queries, *(one for one in (stopping, opening) if one is not None))
    for batch in wave:
        columns = _distribution_columns(plan, batch, recorder.norms[batch.name])
        for source in found_by:
            columns |= source.columns(batch)
        columns |= record_draws(federation, challenger, batch)
        last = strategy.transcripts[batch.name].models[-1] if stopping is None else stopping.models(batch).cpu()
        result = BatchResult(
            batch=batch,
            membership=challenger.membership(batch.trials),
            rounds=public.rounds,
            evaluated=plan.evaluated_releases,
            columns=columns,
            final_models=last,
            kept=recorder.kept(batch),
            targets=tuple(federation.targets.tolist()),
            outputs={} if outputs is None else outputs.outputs(batch),
        )
        sink(result)


def _secrets_log(
    plan: FederationPlan, federation: LoadedFederation, challenger: SeededChallenger
) -> RoundSecretsLog | None:
    """Return a log of the challenger's secrets, which it discloses after training; None if the audit discloses none."""
    public = federation.public
    audit = audit_of(public)
    if not audit.opens_secrets(public):
        return None
    exact = ExactChecks(federation, challenger, partial(_public_models, plan, federation))
    return RoundSecretsLog(public, challenger, audit.opened_target(federation), exact)


def _public_models(plan: FederationPlan, federation: LoadedFederation, trials: Sequence[int]) -> Tensor:
    """Return the initial models that follow from public values, as anybody may compute them."""
    if plan.initial is InitialWeightsSource.DRAWN:
        return initial_models(federation.spec, plan.model_seed, trials)
    return starting_models(federation, plan.initial, plan.model_seed, trials)


def _findings(plan: FederationPlan, losses: dict[tuple[str, int], Floats]) -> Iterator[evaluation.ReleaseFinding]:
    """Yield functions from a release to columns of results.

    If members' losses stay with their owners, one of the functions returns no columns. This function stores the
    population losses in `losses`, keyed by batch and release.
    """

    def kept_population(release: evaluation.ReleaseWithOutputs) -> TrialBatchColumns:
        losses[release.batch.name, release.number] = release.population_losses
        return TrialBatchColumns()

    yield evaluation.utility
    if plan.federated_losses is not None:  # members' losses stay with their owners
        yield kept_population
    elif plan.star is not None:
        yield partial(evaluation.pooled_epsilon_star, plan.star)
    if plan.public.mechanism.unit is Unit.USER:
        yield partial(of_users, None if plan.federated_losses is not None else plan.star)
    if plan.membership:
        yield evaluation.loss_threshold


def _target_outputs(plan: FederationPlan) -> TargetOutputsCollector | None:
    """Return the collector of outputs on the targets' records; None if no attack of the audit uses them."""
    public = plan.public
    if not audit_of(public).keeps_outputs(public):
        return None
    return TargetOutputsCollector(plan.evaluated_releases, plan.sees_weights, public.ascent > 0, plan.attribute)


def _distribution_columns(plan: FederationPlan, batch: TrialBatch, norms: list[Floats]) -> TrialBatchColumns:
    """Return each round's noise standard deviation and adaptive clipping norms as columns.

    The deviation is NaN if noise follows the local sensitivity.
    """
    unknown = np.full((batch.count, plan.public.rounds), np.nan)
    used = np.stack(norms, axis=1) if norms else None
    rounds = {"sigma": plan.public.mechanism.server_scale(unknown, used)}
    return TrialBatchColumns(rounds=rounds if used is None else rounds | {"clipping_norm": used})
