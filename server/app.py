"""The Flower ServerApp: plays the game wave by wave and hands over each finished batch."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.evidence.star.epsilon_star import StarSettings
from fl_audit.game import Game, PublicGame, View, load_game
from fl_audit.learning.memory import give_back_freed_memory
from fl_audit.learning.models import ModelSpec, initial_models
from fl_audit.packing import pack
from fl_audit.worlds import WorldBatch, waves
from server.ahead import BackgroundEvaluation, PreparedNoise, one_thread
from server.challenger import SeededChallenger
from server.evaluator import ReleaseEvaluator
from server.results import BatchResult, InsiderFindings, ResultSink
from server.roll_call import call_the_roll
from server.watched_grid import WatchedGrid
from strategies.dp_fedsgd import DPFedSGD, Roster
from strategies.loss_queries import FederatedLosses, LossQueries


@dataclass(frozen=True)
class FederationPlan:
    """What the server is to do.

    Parameters
    ----------
    public
        The public game.
    seed
        Secret seed of the run.
    model_seed
        Public seed of the initial weights.
    batches
        Batches still to be computed.
    batches_in_flight
        Batches that travel together.
    time_limit
        Seconds that one client call may take.
    keep_releases
        Of how many worlds, from world 0, all that clients saw is kept.
    star
        delta and cut of Epsilon*; None leaves Epsilon* out.
    membership
        Whether the final models are attacked by the membership adversary.
    evaluate_every
        Rounds between two evaluated releases; the initial models and the last release are always evaluated.
    federated_losses
        How Epsilon* is found without pooling members' losses; None pools them.
    """

    public: PublicGame
    seed: int
    model_seed: int
    batches: tuple[WorldBatch, ...]
    batches_in_flight: int = 1
    time_limit: float = 600.0
    keep_releases: int = 4
    star: StarSettings | None = None
    membership: bool = True
    evaluate_every: int = 1
    federated_losses: FederatedLosses | None = None

    @property
    def evaluated_releases(self) -> tuple[int, ...]:
        """Numbers of the releases that are evaluated, 0 being the initial models."""
        rounds = self.public.rounds
        return (*range(0, rounds, self.evaluate_every), rounds)


@dataclass
class FederationClock:
    """When the federation was started, stood ready, and had finished, in seconds of a monotonic clock."""

    started: float = field(default_factory=time.monotonic)
    ready: float = field(default=float("nan"))
    finished: float = field(default=float("nan"))


@dataclass
class ReleaseRecorder:
    """Keeps what clients see of the first worlds.

    Parameters
    ----------
    view
        What they see: noised sums or models.
    keep
        Of how many worlds.
    on_round
        Told the number of worlds that moved one round.
    rows
        What was seen, by batch, the initial models first.
    """

    view: View
    keep: int
    on_round: Callable[[int], None]
    rows: dict[str, list[Tensor]] = field(default_factory=dict)

    def start(self, batch: WorldBatch, initial: Tensor) -> None:
        """Note the initial models of a batch."""
        self.rows[batch.name] = [initial[: self._kept(batch)].clone()]

    def __call__(self, batch: WorldBatch, server_round: int, release: Tensor, models: Tensor) -> None:
        """Note a release."""
        seen = release if self.view is View.UPDATE else models
        self.rows[batch.name].append(seen[: self._kept(batch)].clone())
        self.on_round(batch.count)

    def kept(self, batch: WorldBatch) -> dict[str, Tensor]:
        """Return what is kept of a batch: worlds, its size, initial models, and what was seen of each round."""
        if self._kept(batch) == 0:
            return {}
        initial, *seen = self.rows[batch.name]
        worlds = torch.tensor(list(batch.worlds)[: self._kept(batch)])
        label = "releases" if self.view is View.UPDATE else "models"
        count = torch.tensor(batch.count)
        return {"worlds": worlds, "batch_worlds": count, "initial": initial, label: torch.stack(seen)}

    def _kept(self, batch: WorldBatch) -> int:
        return max(0, min(batch.count, self.keep - batch.first))


def build_server_app(
    plan: FederationPlan,
    sink: ResultSink,
    clock: FederationClock | None = None,
    on_round: Callable[[int], None] = lambda worlds: None,
    strategy_type: type[DPFedSGD] = DPFedSGD,
    interrupted: Callable[[], bool] = lambda: False,
) -> ServerApp:
    """Build the app.

    Parameters
    ----------
    plan
        What to do.
    sink
        Takes finished batches.
    clock
        Told when the federation is ready and when it has finished.
    on_round
        Told the number of worlds that moved one round.
    strategy_type
        The strategy.
    interrupted
        Tells whether the whole run is being ended.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        watched = WatchedGrid(grid, plan.time_limit, interrupted)
        run_federation(plan, watched, sink, clock or FederationClock(), on_round, strategy_type)

    return app


def run_federation(
    plan: FederationPlan,
    grid: WatchedGrid,
    sink: ResultSink,
    clock: FederationClock,
    on_round: Callable[[int], None],
    strategy_type: type[DPFedSGD] = DPFedSGD,
) -> None:
    """Play all batches of a plan on a grid that notices failures and silence.

    Raises
    ------
    FederationError
        If a client fails, is silent for too long, or sends what cannot be released.
    """
    torch.set_num_threads(plan.public.threads)
    game = load_game(plan.public)
    roster = call_the_roll(grid, game)
    clock.ready = time.monotonic()
    for wave in waves(plan.batches, plan.batches_in_flight):
        _play_wave(plan, game, roster, grid, wave, sink, on_round, strategy_type)
        give_back_freed_memory()
    clock.finished = time.monotonic()


def _spec(game: Game) -> ModelSpec:
    return ModelSpec(game.public.model, game.model.feature_shape, game.classes)


def _play_wave(
    plan: FederationPlan,
    game: Game,
    roster: Roster,
    grid: Grid,
    wave: tuple[WorldBatch, ...],
    sink: ResultSink,
    on_round: Callable[[int], None],
    strategy_type: type[DPFedSGD],
) -> None:
    challenger = SeededChallenger(plan.seed)
    recorder = ReleaseRecorder(plan.public.view, plan.keep_releases, on_round)
    releases, federated = plan.evaluated_releases, plan.federated_losses is not None
    evaluator = ReleaseEvaluator(game, challenger, wave, plan.star, plan.membership, releases, federated)
    initial = ArrayRecord()
    for batch in wave:
        models = initial_models(_spec(game), plan.model_seed, batch.worlds)
        recorder.start(batch, models)
        initial[batch.name] = Array(*pack(models.numpy()))
    rounds, size = plan.public.rounds, game.model.layout.size
    with one_thread(plan.public.threads) as drawing, one_thread(plan.public.threads) as evaluating:
        source = PreparedNoise(challenger, drawing, rounds)
        background = BackgroundEvaluation(evaluator, evaluating, evaluator.releases)
        queries = _loss_queries(plan, wave, background, evaluator)
        strategy = strategy_type(plan.public, roster, source, wave, size, plan.time_limit, recorder, queries)
        strategy.start(grid, initial, num_rounds=rounds, evaluate_fn=background)
        background.settle()
        strategy.ask_last(grid)
    for batch in wave:
        sink.finish(_batch_result(batch, strategy, challenger, evaluator, recorder))


def _loss_queries(
    plan: FederationPlan, wave: tuple[WorldBatch, ...], background: BackgroundEvaluation, evaluator: ReleaseEvaluator
) -> LossQueries | None:
    if plan.federated_losses is None:
        return None

    def population(batch: WorldBatch, release: int) -> NDArray[np.float64]:
        background.settle()
        return evaluator.take_population(batch, release)

    return LossQueries(plan.federated_losses, plan.evaluated_releases, wave, plan.public.clients, population)


def _batch_result(
    batch: WorldBatch,
    strategy: DPFedSGD,
    challenger: SeededChallenger,
    evaluator: ReleaseEvaluator,
    recorder: ReleaseRecorder,
) -> BatchResult:
    state, law = strategy.states[batch.name], strategy.public.law
    rounds, insider = strategy.public.rounds, None
    sensitivity = np.full((batch.count, rounds), np.nan)
    if strategy.public.with_insider:
        sensitivity = np.stack(state.local_sensitivity, axis=1)
        insider = InsiderFindings(np.stack(state.log_odds, axis=1).cumsum(axis=1), sensitivity)
    queries = strategy.loss_queries
    star = (evaluator if queries is None else queries).epsilon_star[batch.name]
    own = [] if queries is None else queries.client_epsilon_star[batch.name]
    return BatchResult(
        batch=batch,
        bits=challenger.bits(batch.worlds),
        insider=insider,
        sigma=law.noise_scale(sensitivity),
        evaluated=evaluator.releases,
        accuracy=np.stack(evaluator.accuracy[batch.name], axis=1),
        epsilon_star=np.stack(star, axis=1) if star else None,
        client_epsilon_star=np.stack(own, axis=1) if own else None,
        membership=evaluator.membership.get(batch.name),
        auroc=evaluator.auroc.get(batch.name),
        final_models=state.models[-1],
        kept=recorder.kept(batch),
    )
