"""The Flower ServerApp: plays the game wave by wave and hands over each finished batch."""

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

from fl_audit.arrays import Floats
from fl_audit.federation.columns import Columns
from fl_audit.federation.contributing import private_steps
from fl_audit.federation.game import Game, load_game, number_of_directions
from fl_audit.federation.initial_weights import InitialWeights, starting_models
from fl_audit.federation.public import PublicGame
from fl_audit.federation.seen import Made, View, kept_of
from fl_audit.learning.memory import give_back_freed_memory
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.standpoint import Place
from fl_audit.packing import pack
from fl_audit.released_model.epsilon_star import StarSettings
from fl_audit.server import evaluator as evaluation
from fl_audit.server.results import BatchResult, MoreQuestions, ResultSink, TargetOutputs
from fl_audit.server.watched_grid import WatchedGrid, call_the_roll
from fl_audit.strategies.challenger import AheadChallenger, SeededChallenger, record_draws, true_side
from fl_audit.strategies.contributors import Roster
from fl_audit.strategies.dp_strategy import DPStrategy
from fl_audit.strategies.inquiries import AccountantNotes
from fl_audit.strategies.insider_inquiry import CanaryInquiry, InsiderInquiry, ScoreInquiry, TargetInquiry
from fl_audit.strategies.loss_queries import FederatedLosses, LossQueries
from fl_audit.verdict.noise_meter import sampled_places
from fl_audit.verdict.residuals import ResidualsLayout
from fl_audit.worlds import WorldBatch, waves

_Inquiry = InsiderInquiry | ScoreInquiry | TargetInquiry | CanaryInquiry | LossQueries | AccountantNotes
"""What parties are asked, or tell, beside their contributions, and which leaves columns in the tables."""
_Wave = tuple[WorldBatch, ...]
_OnRound = Callable[[int], None]  # is told the number of worlds that moved one round


@dataclass(frozen=True)
class FederationPlan:
    """What the server is to do."""

    public: PublicGame  # the public game
    seed: int  # secret seed of the run
    model_seed: int  # public seed of the initial weights
    batches: tuple[WorldBatch, ...]  # batches still to be computed
    batches_in_flight: int = 1  # batches that travel together
    time_limit: float = 600.0  # seconds that one client call may take
    keep_releases: int = 4  # of how many worlds, from world 0, all that clients saw is kept
    star: StarSettings | None = None  # delta and cut of Epsilon*; None leaves Epsilon* out
    membership: bool = True  # whether the final models are attacked by the membership adversary
    # Rounds between two evaluated releases; the initial models and the last release are always evaluated.
    evaluate_every: int = 1
    # How Epsilon* is found without pooling members' losses; None pools them.
    federated_losses: FederatedLosses | None = None
    # The strategy that the server follows; a study of broken mechanisms puts another in its place.
    strategy: type[DPStrategy] = DPStrategy
    # So many evaluated releases without a smaller loss on the population sample end the training of a world, see
    # `EarlyStopping`; None trains all rounds.
    patience: int | None = None
    sees_weights: bool = False  # whether what white-box attackers see of the targets is kept
    more: MoreQuestions = field(default_factory=MoreQuestions)  # what else final models are asked about the targets
    initial: InitialWeights = InitialWeights.DRAWN  # where training begins

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
class _ReleaseRecorder:
    """Keeps what clients see of the first worlds."""

    view: View  # what they see: noised sums or models
    keep: int  # of how many worlds
    on_round: _OnRound
    noise_seeds: Sequence[int] = ()  # seeds of the noise that the insider knows; none where the server adds the noise
    initial: dict[str, Tensor] = field(default_factory=dict)  # initial models of the kept worlds, by batch
    rounds: dict[str, list[dict[str, Tensor]]] = field(default_factory=lambda: defaultdict(list))  # what was seen
    # The clipping norms of each round, of all worlds, by batch; none where the norm is fixed.
    norms: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))

    def start(self, batch: WorldBatch, models: Tensor) -> Array:
        """Note the initial models (worlds, parameters) of a batch, and return them as a message holds them."""
        self.initial[batch.name] = models[: self._kept(batch)].clone()
        return Array(*pack(models.numpy()))

    def __call__(self, batch: WorldBatch, made: Made) -> None:
        """Note a round."""
        kept = kept_of(self.view, made.first(self._kept(batch)))
        if self.noise_seeds:
            kept["noise_seeds"] = torch.tensor(self.noise_seeds, dtype=torch.int64)
        self.rounds[batch.name].append({name: value.clone() for name, value in kept.items()})
        if made.side.norms_array is not None:
            self.norms[batch.name].append(made.side.norms_array)
        self.on_round(batch.count)

    def kept(self, batch: WorldBatch) -> dict[str, Tensor]:
        """Return what is kept of a batch: worlds, its size, initial models, and by name what was seen of each round."""
        if self._kept(batch) == 0:
            return {}
        worlds, rounds = torch.tensor(list(batch.worlds)[: self._kept(batch)]), self.rounds[batch.name]
        told = {"worlds": worlds, "batch_worlds": torch.tensor(batch.count), "initial": self.initial[batch.name]}
        return told | {name: torch.stack([one[name] for one in rounds]) for name in rounds[0]}

    def _kept(self, batch: WorldBatch) -> int:
        return max(0, min(batch.count, self.keep - batch.first))


def build_server_app(
    plan: FederationPlan,
    sink: ResultSink,
    clock: FederationClock | None = None,
    on_round: _OnRound = lambda worlds: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> ServerApp:
    """Build the app.

    Parameters
    ----------
    plan, sink, clock, on_round, interrupted
        As of `run_federation`; and what tells whether the whole run is being ended.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        watched = WatchedGrid(grid, plan.time_limit, interrupted)
        run_federation(plan, watched, sink, clock or FederationClock(), on_round)

    return app


def run_federation(
    plan: FederationPlan, grid: WatchedGrid, sink: ResultSink, clock: FederationClock, on_round: _OnRound
) -> None:
    """Play all batches of a plan on a grid that notices failures and silence.

    Parameters
    ----------
    plan, grid
        What to do, and what sends messages to the clients and receives their replies.
    sink, clock, on_round
        Take finished batches, when the federation was ready and had finished, and how many worlds moved one round.

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
        _play_wave(plan, game, roster, grid, wave, sink, on_round)
        give_back_freed_memory()
    clock.finished = time.monotonic()


def _play_wave(
    plan: FederationPlan, game: Game, roster: Roster, grid: Grid, wave: _Wave, sink: ResultSink, on_round: _OnRound
) -> None:
    public, threads = plan.public, plan.public.threads
    prior = public.prior_of_candidates if public.candidate_prior else None
    with evaluation.one_thread(threads) as drawing, evaluation.one_thread(threads) as evaluating:
        challenger = AheadChallenger(
            plan.seed, public.targets, public.who_is_in, prior, executor=drawing, rounds=public.rounds
        )
        insiders = _insiders(game, challenger)
        recorder = _ReleaseRecorder(public.view, plan.keep_releases, on_round, insiders.get(game.insider, ()))
        initial = {
            batch.name: recorder.start(batch, starting_models(game, plan.initial, plan.model_seed, batch.worlds))
            for batch in wave
        }
        stopping = None if plan.patience is None else evaluation.EarlyStopping(plan.patience)
        losses = dict[tuple[str, int], Floats]()
        outputs = _target_outputs(plan)
        findings: list[evaluation.ReleaseFinding] = list(_findings(plan, losses))
        if outputs is not None:
            findings.append(outputs)
        evaluator = evaluation.ReleaseEvaluator(game, challenger, wave, findings, stopping)
        background = evaluation.BackgroundEvaluation(evaluator, evaluating, plan.evaluated_releases)

        def population(batch: WorldBatch, release: int) -> Floats:
            background.settle()
            return losses.pop((batch.name, release))

        def is_over() -> bool:
            # The norms of every round belong to the tables, where they are adaptive.
            return stopping is not None and not public.law.is_adaptive and all(map(stopping.is_over, wave))

        inquiries = _inquiries(plan, game, insiders, wave, population, challenger)
        size = game.model.layout.size
        strategy = plan.strategy(public, roster, challenger, wave, size, plan.time_limit, recorder, inquiries, is_over)
        strategy.start(grid, ArrayRecord(initial), num_rounds=strategy.exchanges, evaluate_fn=background)
        background.settle()
    found_by = (evaluator, *inquiries, *([] if stopping is None else [stopping]))
    for batch in wave:
        columns = _law_columns(plan, batch, recorder.norms[batch.name])
        for source in found_by:
            columns |= source.columns(batch)
        last = strategy.transcripts[batch.name].models[-1] if stopping is None else stopping.models(batch).cpu()
        sink(
            BatchResult(
                batch=batch,
                membership=challenger.membership(batch.worlds),
                rounds=public.rounds,
                evaluated=plan.evaluated_releases,
                columns=columns | record_draws(game, challenger, batch),
                final_models=last,
                kept=recorder.kept(batch),
                targets=tuple(game.targets.tolist()),
                outputs={} if outputs is None else outputs.outputs(batch),
            )
        )


def _findings(plan: FederationPlan, losses: dict[tuple[str, int], Floats]) -> Iterator[evaluation.ReleaseFinding]:
    """Give what is found in each evaluated release; `losses` takes those that data owners will be asked about."""

    def kept_population(release: evaluation.EvaluatedRelease) -> Columns:
        losses[release.batch.name, release.number] = release.population_losses
        return Columns()

    yield evaluation.utility
    if plan.federated_losses is not None:  # losses of members stay with their owners
        yield kept_population
    elif plan.star is not None:
        yield partial(evaluation.pooled_epsilon_star, plan.star)
    if plan.membership:
        yield evaluation.loss_threshold


def _target_outputs(plan: FederationPlan) -> TargetOutputs | None:
    """Return what takes the models' answers to the targets, where somebody attacks with them."""
    public = plan.public
    if not public.plays_membership or public.exactly_one:
        return None
    return TargetOutputs(plan.evaluated_releases, plan.sees_weights, public.ascent > 0, plan.more)


def _insiders(game: Game, challenger: SeededChallenger) -> dict[int, list[int]]:
    """Return the insiders, each with the seeds of the noise that it knows: its own and its colluders'."""
    knows_some = game.public.law.clients_add_noise and game.public.standpoint.place is not Place.SERVER
    known = {insider: (insider, *game.colluders(insider)) if knows_some else () for insider in game.insiders}
    return {insider: [challenger.noise_seed(client) for client in clients] for insider, clients in known.items()}


def _inquiries(
    plan: FederationPlan,
    game: Game,
    insiders: dict[int, list[int]],
    wave: _Wave,
    population: Callable[[WorldBatch, int], Floats],
    challenger: SeededChallenger,
) -> tuple[_Inquiry, ...]:
    """Return what parties are asked beside their contributions."""
    inquiries, public = list[_Inquiry](), plan.public
    if isinstance(public.law.contribution, PrivateTraining):
        shards = [len(shard) for shard in game.shards]
        inquiries.append(AccountantNotes(plan.evaluated_releases, shards, private_steps(public.law)))
    if public.canaries > 0:
        inquiries.append(CanaryInquiry(public, {game.insider: ()}, wave, game, challenger))
    if public.with_insider and public.plays_membership:
        inquiries.append(TargetInquiry(public, insiders, wave, challenger))
    elif public.with_insider and not public.law.weighs_exactly:
        inquiries.append(ScoreInquiry(public, insiders, wave))
    elif public.with_insider:
        opened = partial(true_side, game, challenger)
        inquiries.append(InsiderInquiry(public, insiders, wave, measured_layout(game), opened))
    if plan.federated_losses is not None:
        federated = plan.federated_losses
        inquiries.append(LossQueries(federated, plan.evaluated_releases, wave, public.clients, population))
    return tuple(inquiries)


def measured_layout(game: Game) -> ResidualsLayout:
    """Return what an insider's measurements of the noise stand for."""
    layout = game.model.layout
    sides = 3 if game.public.is_secretly_sampled else 2
    directions = number_of_directions(layout.size)
    return ResidualsLayout(layout.names, directions, sampled_places(layout), sides, layout.size)


def _law_columns(plan: FederationPlan, batch: WorldBatch, norms: list[Floats]) -> Columns:
    """Return what the release law says of every round where nobody measures the local sensitivity."""
    unknown = np.full((batch.count, plan.public.rounds), np.nan)
    used = np.stack(norms, axis=1) if norms else None
    rounds = {"sigma": plan.public.law.server_scale(unknown, used)}
    return Columns(rounds=rounds if used is None else rounds | {"clipping_norm": used})
