"""The Flower ServerApp of a run: it trains batches of trials, several at a time, and passes on each finished batch."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_packing import pack
from fl_audit.array_types import Floats
from fl_audit.audits.membership.attacks.registry import attacks_named
from fl_audit.audits.membership.attribute_inference import attribute_of
from fl_audit.audits.registry import audit_of
from fl_audit.clients.app import ClientReplay
from fl_audit.clients.app import app as honest_client_app
from fl_audit.federation.initial_weights import InitialWeightsSource, starting_models
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.observed_rounds import ServerRound, stored_tensors
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.glibc_allocator import give_back_freed_memory
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.threat_model import InsiderView
from fl_audit.server import release_evaluation as evaluation
from fl_audit.server import release_findings
from fl_audit.server.release_findings import ClientMetrics, OnRelease, ReleaseFinding, ReleaseWithOutputs
from fl_audit.server.reply_timeout_grid import ReplyTimeoutGrid, discover_clients
from fl_audit.server.run_queries import federated_losses, known_noise_seeds, run_queries
from fl_audit.server.trial_batch_results import BatchResult, ResultSink, TargetOutputsCollector
from fl_audit.server.user_epsilon_star import of_users
from fl_audit.strategies.contributors import ClientRoles
from fl_audit.strategies.exact_checks import ExactChecks
from fl_audit.strategies.round_secrets_log import RoundSecretsLog
from fl_audit.strategies.second_seed import draws_in_common
from fl_audit.strategies.secret_draws import PrefetchingChallenger, SeededChallenger, record_draws
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch, waves

_OnRound = Callable[[int], None]  # called with the number of trials that finished a round


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
    checkpoint_every: int | None = None  # number of rounds between stored models of trial 0; None stores none
    noise_seeds: Sequence[int] = ()  # seeds of the noise that the insider knows; empty if the server adds the noise
    initial: dict[str, Tensor] = field(default_factory=dict)  # initial models of the kept trials, by batch
    rounds: dict[str, list[dict[str, Tensor]]] = field(default_factory=lambda: defaultdict(list))  # the views of rounds
    checkpoints: dict[int, Tensor] = field(default_factory=dict)  # models of trial 0 (parameters,), by round
    # The clipping norms of each round, of all trials, by batch; empty if the norm is fixed.
    norms: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))

    def start(self, batch: TrialBatch, models: Tensor) -> Array:
        """Record initial models of a batch for the run directory, and return those of all trials as a Flower array.

        `models` has shape (trials, parameters).
        """
        self.initial[batch.name] = models[: self._kept(batch)].clone()
        return Array(*pack(models.numpy()))

    def __call__(self, batch: TrialBatch, server_round: ServerRound) -> None:
        """Record a round as clients see it, and the adaptive clipping norms of all trials."""
        tensors = stored_tensors(self.view, server_round.first(self._kept(batch)))
        if self.noise_seeds:
            tensors["noise_seeds"] = torch.tensor(self.noise_seeds, dtype=torch.int64)
        self.rounds[batch.name].append({name: value.clone() for name, value in tensors.items()})
        if server_round.side.norms_array is not None:
            self.norms[batch.name].append(server_round.side.norms_array)
        if self.checkpoint_every is not None and batch.first == 0 and server_round.number % self.checkpoint_every == 0:
            self.checkpoints[server_round.number] = server_round.models[-1][0].clone()
        self.on_round(batch.count)

    def kept(self, batch: TrialBatch) -> dict[str, Tensor]:
        """Return the recorded tensors of a batch by name, stacked over rounds; empty if no trial is recorded.

        A tensor that some rounds lack is NaN there.
        """
        if self._kept(batch) == 0:
            return {}
        trials = torch.tensor(list(batch.trials)[: self._kept(batch)])
        rounds = self.rounds[batch.name]
        tensors = {"trials": trials, "batch_trials": torch.tensor(batch.count), "initial": self.initial[batch.name]}
        values = {name: value for round in rounds for name, value in round.items()}
        return tensors | {
            name: torch.stack([round[name] if name in round else torch.full_like(value, torch.nan) for round in rounds])
            for name, value in values.items()
        }

    def _kept(self, batch: TrialBatch) -> int:
        return max(0, min(batch.count, self.keep - batch.first))


def build_server_app(
    plan: RunPlan,
    batches: Sequence[TrialBatch],
    sink: ResultSink,
    timestamps: FederationTimestamps | None = None,
    on_round: _OnRound = lambda trials: None,
    strategy: type[TrialBatchStrategy] = TrialBatchStrategy,
    on_release: OnRelease | None = None,
    client_app: ClientApp | None = None,
) -> ServerApp:
    """Return the ServerApp that carries out batches of trials of a plan; studies of faults use another strategy.

    `client_app`: App of the clients, which the challenger may call again; None if it is not at hand.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        watched = ReplyTimeoutGrid(grid, plan.config.run.client_time_limit)
        run_federation(
            plan,
            batches,
            watched,
            sink,
            timestamps or FederationTimestamps(),
            on_round,
            strategy,
            on_release,
            client_app,
        )

    return app


def run_federation(
    plan: RunPlan,
    batches: Sequence[TrialBatch],
    grid: ReplyTimeoutGrid,
    sink: ResultSink,
    timestamps: FederationTimestamps,
    on_round: _OnRound,
    strategy: type[TrialBatchStrategy] = TrialBatchStrategy,
    on_release: OnRelease | None = None,
    client_app: ClientApp | None = None,
) -> None:
    """Train batches of trials of a plan, and pass the result of each finished batch to `sink`."""
    torch.set_num_threads(plan.federation.threads)
    federation = load_federation(plan.federation)
    roster = discover_clients(grid, federation)
    timestamps.ready = time.monotonic()
    for wave in waves(batches):
        _play_wave(plan, federation, roster, grid, wave, sink, on_round, strategy, on_release, client_app)
        give_back_freed_memory()
    timestamps.finished = time.monotonic()


def _play_wave(
    plan: RunPlan,
    federation: LoadedFederation,
    roles: ClientRoles,
    grid: Grid,
    wave: tuple[TrialBatch, ...],
    sink: ResultSink,
    on_round: _OnRound,
    strategy_of_server: type[TrialBatchStrategy],
    on_release: OnRelease | None,
    client_app: ClientApp | None,
) -> None:
    config = plan.config
    public = plan.federation
    threads = plan.federation.threads
    prior = public.prior_of_candidates if public.candidate_prior else None
    with evaluation.one_thread(threads) as drawing, evaluation.one_thread(threads) as evaluating:
        challenger = PrefetchingChallenger(
            plan.seed, public.targets, public.membership_scheme, prior, executor=drawing, rounds=public.rounds
        )
        noise_seeds = known_noise_seeds(federation, challenger)
        recorder = _ReleaseRecorder(
            public.view, _kept_releases(plan), on_round, config.run.checkpoint_every, noise_seeds
        )
        initial = {
            batch.name: recorder.start(
                batch, starting_models(federation, config.model.initial, config.model.seed, batch.trials)
            )
            for batch in wave
        }
        patience = config.training.early_stopping
        stopping = None if patience is None else evaluation.CheckpointSelector(patience)
        losses = dict[tuple[str, int], Floats]()
        outputs = _target_outputs(plan, federation)
        findings: list[ReleaseFinding] = list(_findings(plan, losses, on_release))
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

        round_queries = run_queries(plan, federation, noise_seeds, wave, population, challenger)
        size = federation.model.layout.size
        opening = _secrets_log(plan, federation, challenger, client_app)
        time_limit = config.run.client_time_limit
        strategy = strategy_of_server(
            public, roles, challenger, wave, size, time_limit, recorder, round_queries, is_over, opening
        )
        strategy.start(grid, ArrayRecord(initial), num_rounds=strategy.flower_rounds, evaluate_fn=background)
        background.settle()
        if opening is not None and opening.exact is not None and wave[0].first == 0:
            _compare_with_second_seed(opening.exact, strategy, federation)
    found_by = (evaluator, *round_queries, *(selector for selector in (stopping, opening) if selector is not None))
    for batch in wave:
        columns = _noise_columns(plan, batch, recorder.norms[batch.name])
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
            checkpoints=recorder.checkpoints if batch.first == 0 else {},
            targets=tuple(federation.targets.tolist()),
            outputs={} if outputs is None else outputs.outputs(batch),
        )
        sink(result)


def _secrets_log(
    plan: RunPlan, federation: LoadedFederation, challenger: SeededChallenger, client_app: ClientApp | None
) -> RoundSecretsLog | None:
    """Return a log of the challenger's secrets, which it discloses after training; None if the audit discloses none."""
    public = federation.public
    audit = audit_of(public)
    if not audit.opens_secrets(public):
        return None
    replay = None
    if client_app is not None and client_app is not honest_client_app:
        replay = ClientReplay(client_app, public.clients)
    exact = ExactChecks(federation, challenger, partial(_public_models, plan, federation), replay)
    return RoundSecretsLog(public, challenger, audit.opened_target(federation), exact)


def _compare_with_second_seed(exact: ExactChecks, strategy: TrialBatchStrategy, federation: LoadedFederation) -> None:
    """Note which draws of a server of the first batch are the same with another secret seed.

    A server of somebody else may refuse to begin anew; then nothing is noted.
    """
    try:
        shares, is_anew = draws_in_common(strategy, federation, exact.challenger, exact.initial)
    except Exception:  # a server of somebody else may need anything to begin
        return
    exact.note_draws_in_common(strategy.batches[0], shares, is_anew)


def _public_models(plan: RunPlan, federation: LoadedFederation, trials: Sequence[int]) -> Tensor:
    """Return the initial models that follow from public values, as anybody may compute them."""
    model = plan.config.model
    if model.initial is InitialWeightsSource.DRAWN:
        return initial_models(federation.spec, model.seed, trials)
    return starting_models(federation, model.initial, model.seed, trials)


def _findings(
    plan: RunPlan, losses: dict[tuple[str, int], Floats], on_release: OnRelease | None
) -> Iterator[ReleaseFinding]:
    """Yield functions from a release to columns of results.

    If members' losses stay with their owners, one of the functions returns no columns. This function stores the
    population losses in `losses`, keyed by batch and release.
    """

    def kept_population(release: ReleaseWithOutputs) -> TrialBatchColumns:
        losses[release.batch.name, release.number] = release.population_losses
        return TrialBatchColumns()

    on_metrics = on_release if plan.config.audit.trials == 1 else None
    yield partial(release_findings.release_metrics, plan.metrics, on_metrics)
    if plan.config.training.client_metrics:
        yield ClientMetrics(plan.metrics)
    is_federated = federated_losses(plan) is not None
    if is_federated:  # members' losses stay with their owners
        yield kept_population
    elif plan.star is not None:
        yield partial(release_findings.pooled_epsilon_star, plan.star)
    if plan.federation.mechanism.unit is Unit.USER:
        yield partial(of_users, None if is_federated else plan.star)
    if plan.config.audit.membership:
        yield release_findings.loss_threshold


def _kept_releases(plan: RunPlan) -> int:
    """Return of how many trials, from trial 0, the clients' view of every round is stored.

    Releases whose log-odds nobody could recompute are not kept.
    """
    keep_releases = plan.config.run.keep_releases
    assert keep_releases is not None, "a plan names of how many trials releases are kept"
    return 0 if audit_of(plan.federation).why_not_recomputed(plan.federation) else keep_releases


def _target_outputs(plan: RunPlan, federation: LoadedFederation) -> TargetOutputsCollector | None:
    """Return the collector of outputs on the targets' records; None if no attack of the audit uses them."""
    public = plan.federation
    if not audit_of(public).keeps_outputs(public):
        return None
    keeps_features = any(attack.sees_gradients for attack in attacks_named(plan.config.audit.attacks))
    attribute = attribute_of(plan, federation)
    return TargetOutputsCollector(plan.evaluated_releases, keeps_features, public.ascent > 0, attribute)


def _noise_columns(plan: RunPlan, batch: TrialBatch, norms: list[Floats]) -> TrialBatchColumns:
    """Return each round's noise scale and adaptive clipping norms as columns.

    The scale is NaN if noise follows the local sensitivity, or if clients add it in the steps of their training.
    """
    unknown = np.full((batch.count, plan.federation.rounds), np.nan)
    used = np.stack(norms, axis=1) if norms else None
    mechanism = plan.federation.mechanism
    is_inside = mechanism.noise.origin is NoiseOrigin.TRAINING
    rounds = {"sigma": unknown if is_inside else mechanism.server_scale(unknown, used)}
    return TrialBatchColumns(rounds=rounds if used is None else rounds | {"clipping_norm": used})
