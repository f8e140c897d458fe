"""A Flower strategy that trains under a DP mechanism, for the trials of several batches at once.

Round i releases r_i, the sum of clipped contributions and noise, and moves the model by r_i / n with a fixed, public n.
The mechanism defines contributions, noise, participation and optimizer. It is DP-FedSGD if clients send gradients of
records, and DP-FedAvg if they train locally. Queries of an audit to clients (`round_queries`) are sent with the
messages of a round; the strategy does not read their content.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_packing import copy_to_tensor, pack, unpack
from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.audits.registry import audit_of
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.observed_rounds import EarlierRound, InsiderView, ServerRound, SideInformation
from fl_audit.learning.optimizers import step
from fl_audit.mechanisms.contribution import AdaptiveClipping, PrivateTraining
from fl_audit.mechanisms.noise_addition import add_noise
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin, ServerNoiseDraws
from fl_audit.message_keys import Key, MessageRecordName, models_key
from fl_audit.strategies.aggregation import BatchAggregation
from fl_audit.strategies.contributors import (
    CalledClients,
    ClientRoles,
    ContributingClient,
    ReceivedContribution,
    UnnoisedRoundSum,
    call_of,
    receive,
)
from fl_audit.strategies.errors import FederationError
from fl_audit.strategies.exact_checks import SumsBeforeNoise
from fl_audit.strategies.noised_sums import (
    NoisedSums,
    NoisingServer,
    RecordedDraws,
    ReleaseOrigin,
    StepReplay,
    copy_of,
    noised_sums,
)
from fl_audit.strategies.queries import TRAIN, BatchTrainingState, More, RunQueries
from fl_audit.strategies.reply_checks import ReplyIdentity, read_array, read_replies
from fl_audit.strategies.round_secrets_log import RoundSecretsLog
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch

_ROUNDING = 1e-3  # relative amount by which rounding may enlarge the norm of a float32 sum

T = TypeVar("T")


@dataclass(eq=False)
class TrialBatchStrategy(Strategy):
    """Flower strategy that trains several batches of trials under a DP mechanism, and sends an audit's queries."""

    public: Federation  # public facts of the federation: clients, training and mechanism
    roster: ClientRoles  # nodes, units and roles of the clients
    challenger: SeededChallenger  # source of membership, samples and noise
    batches: Sequence[TrialBatch]  # batches of trials; all are trained at once
    parameters: int  # number of scalar parameters of one model
    time_limit: float  # seconds that a client may take for one message
    on_release: Callable[[TrialBatch, ServerRound], None]  # called with each batch and round after its release
    round_queries: Sequence[RunQueries] = ()  # the audit's queries to clients, besides requests for contributions
    # Function that returns whether training has to end early by a public rule; used only without queries.
    is_over: Callable[[], bool] = lambda: False
    opening: RoundSecretsLog | None = None  # the challenger's log of secrets for the verdict; None logs nothing
    # Training state, by batch name.
    transcripts: dict[str, BatchTrainingState] = field(init=False, default_factory=dict)
    noise_draws: dict[str, ServerNoiseDraws] = field(init=False)  # the server's draws of noise, by batch name
    _replays: dict[str, StepReplay] = field(init=False, default_factory=dict)  # of a server's own steps, by batch name
    _ended: bool = field(init=False, default=False)
    _passed_on: dict[str, bytes] = field(init=False, default_factory=dict)  # the latest models as sent, by batch name
    _calls: dict[str, CalledClients] = field(init=False, default_factory=dict)
    _written: dict[ReplyIdentity, int] = field(init=False, default_factory=dict)
    # Flower strategies that make the next models, by batch name; empty if the mechanism's optimizer makes them.
    _aggregations: dict[str, BatchAggregation] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._federation_json = self.public.to_json()
        if self.public.aggregation is not None:
            federation = load_federation(self.public)
            self._aggregations = {
                batch.name: BatchAggregation(federation, list(batch.trials), self.challenger.seed)
                for batch in self.batches
            }
        self.noise_draws = {batch.name: self.public.mechanism.noise.server_draws() for batch in self.batches}

    @property
    def flower_rounds(self) -> int:
        """Number of Flower rounds to pass to `start`: all training rounds, and later rounds that only send queries."""
        return max([self.public.rounds, *(query.last_exchange for query in self.round_queries)])

    def summary(self) -> None:
        """Do nothing, because the run prints its own summary."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round: requests for contributions, and the audit's queries.

        After the last training round, or after an early end, only queries are returned.
        """
        mechanism = self.public.mechanism
        if server_round == 1:
            for batch in self.batches:
                norms = (
                    torch.full((batch.count,), mechanism.clipping_norm, dtype=torch.float64)
                    if mechanism.is_adaptive
                    else None
                )
                self.transcripts[batch.name] = BatchTrainingState(
                    [copy_to_tensor(unpack(arrays[batch.name]))], norms=norms
                )
        else:
            self._require_own_models(server_round, arrays)
        messages = list[Message]()
        for query in self.round_queries:
            messages += query.messages(server_round, self.transcripts, self._message, self._owner_message)
        if server_round > self.public.rounds:
            return messages
        self._ended = self._ended or (not self.round_queries and self.is_over())
        if self._ended:
            return messages
        self._calls = {batch.name: self._called(batch, server_round) for batch in self.batches}
        return [
            *messages,
            *(message for batch in self.batches for message in self._train_messages(batch, server_round, arrays)),
        ]

    def _require_own_models(self, server_round: int, arrays: ArrayRecord) -> None:
        """Raise `FederationError` if the models that clients are to train are not those that the audit knows."""
        for batch in self.batches:
            array, models = arrays[batch.name], self.transcripts[batch.name].models[-1]
            if array.data is not self._passed_on.get(batch.name) and not np.array_equal(unpack(array), models.numpy()):
                raise FederationError(
                    f"round {server_round}: the models of {batch.name} are not those of the last step: accepted are "
                    "changes in 'post_process_models', where the audit can tell them from a breach"
                )

    def _called(self, batch: TrialBatch, server_round: int) -> CalledClients:
        """Return the clients that are asked to contribute: those that take part, or the choice of an aggregation."""
        call = call_of(self.public, self.roster, self.challenger, batch, server_round)
        if not self.public.aggregates_clients:
            return call
        available = {client.client: client.rows for client in call.asked}
        membership = self.challenger.membership(batch.trials)
        for client, targets in self.roster.targets.items():
            # A client that is in D alone is asked in no trial with D', and sends no update of zero there.
            if client in available and self.public.pair.replacement is None:
                rows = np.flatnonzero(membership.of_targets(targets).is_in.any(axis=1))
                before = available[client]
                available[client] = rows if before is None else np.intersect1d(before, rows)
        models = self.transcripts[batch.name].models[-1]
        chosen = self._aggregations[batch.name].choose(server_round, models, available)
        return CalledClients(tuple(ContributingClient(client, rows) for client, rows in chosen.items()))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check all replies, make the round's release for every batch of trials, and return the new models.

        The `ArrayRecord` holds one array (trials, parameters) for each batch, by name; None if the round has only
        queries. The metrics are always None.
        """
        is_round = server_round <= self.public.rounds and not self._ended
        expected = [answer for query in self.round_queries for answer in query.answers(server_round)]
        if is_round:
            expected += [
                ReplyIdentity(client.client, TRAIN, name) for name, call in self._calls.items() for client in call.asked
            ]
        named_round = min(server_round, self.public.rounds)
        clients_asked = {self.roster.nodes[answer.client]: answer.client for answer in expected}
        messages = read_replies(replies, expected, clients_asked, named_round, self._written)
        # Everything is read and checked before anything is released.
        work = self.batches if is_round else ()
        read = {
            batch.name: round_sum
            for batch, round_sum in self._at_once(work, lambda b: self._read(b, messages, server_round))
        }
        for query in self.round_queries:
            query.read_answers(server_round, messages)
        if not is_round:
            return None, None
        for batch in work:
            sums = self._sums_before_changes(batch, server_round, messages, read[batch.name])
            self._check_exactly(batch, server_round, messages, sums)
        released = self._at_once(work, lambda batch: self._release(batch, server_round, read[batch.name]))
        for batch in self.batches:
            made = self.transcripts[batch.name].made
            assert made is not None
            self.on_release(batch, made)
            if self.opening is not None:
                taking_part = self._calls[batch.name].taking_part
                self.opening.log_round(batch, made, taking_part, self.transcripts[batch.name].bits)
        self._passed_on = {batch.name: models.data for batch, models in released}
        return ArrayRecord({batch.name: models for batch, models in released}), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: the server evaluates models itself, and queries ask clients for anything else."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Add the server's noise to the sums of a batch of trials in place, and return them.

        A subclass may draw the noise in another way. What it does to the noised sums belongs into `post_process_sums`,
        or into this method after a call of ours. Then it is told apart from missing noise, see
        `fl_audit.strategies.noised_sums`.

        Parameters
        ----------
        batch
            The batch of trials.
        server_round
            Number of the round, from 1.
        total
            Sums of the contributions, shape (trials, parameters).
        sigma
            Standard deviation of the noise for each trial, shape (trials,), as the mechanism prescribes.
        """
        normals = partial(self.challenger.standard_normals, batch.trials, server_round, self.parameters)
        draws = self.noise_draws[batch.name]
        if isinstance(draws, RecordedDraws):
            draws.deviations.append(sigma)
        return add_noise(total, draws.next(normals, server_round), sigma)

    def post_process_sums(self, batch: TrialBatch, server_round: int, noised: Tensor) -> Tensor:
        """Return what the server releases of noised sums; a subclass may round, clamp or project them.

        It is called after the noise, whether the server or the clients added it.

        Parameters
        ----------
        batch
            The batch of trials.
        server_round
            Number of the round, from 1.
        noised
            Noised sums, float32 (trials, parameters); they may be overwritten.
        """
        return noised

    def post_process_models(self, batch: TrialBatch, server_round: int, models: Tensor) -> Tensor:
        """Return the models that the server releases, from those of the optimizer's step; a subclass may change them.

        Parameters
        ----------
        batch
            The batch of trials.
        server_round
            Number of the round, from 1.
        models
            Models after the step, float32 (trials, parameters); they may be overwritten.
        """
        return models

    def _has_own(self, *names: str) -> bool:
        """Return whether a subclass has put a method of its own in the place of one of these of ours."""
        return any(getattr(type(self), name) is not getattr(TrialBatchStrategy, name) for name in names)

    @property
    def _has_own_changes(self) -> bool:
        return self._has_own("noise", "post_process_sums", "post_process_models")

    def _replay_of(self, batch: TrialBatch, server_round: int) -> StepReplay:
        """Return the copies that repeat the server's steps; they are made before its first one."""
        if batch.name not in self._replays:
            # Coins of canaries differ from round to round; a rule that follows them shows in the first.
            coins = self.challenger.coins(batch.trials, server_round, self.public.canaries)
            members = self.challenger.membership(batch.trials).is_in
            secrets = np.concatenate([members, coins], axis=1).astype(np.int64)
            self._replays[batch.name] = StepReplay.of(self, batch, secrets)
        return self._replays[batch.name]

    def noised_release(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> NoisedSums:
        """Return the release of a round by `noise`, and the noised sums if it follows from them.

        Parameters
        ----------
        batch
            The batch of trials, as `noise` takes it.
        server_round
            Number of the round, from 1.
        total
            Sums of the contributions, float32 (trials, parameters); they may be overwritten.
        sigma
            Standard deviation of the noise for each trial, (trials,).
        """
        if not self._has_own("noise"):
            release = self.noise(batch, server_round, total, sigma)
            return NoisedSums(release, release, ReleaseOrigin.NOISED_SUM)
        return noised_sums(self, batch, server_round, total, sigma, self._replay_of(batch, server_round))

    def _noised_once(self, batch: TrialBatch, server_round: int, sigma: Floats, total: Tensor) -> NoisedSums:
        """Return what `noised_release` would return for other sums, without any effect on later rounds."""
        if not self._has_own("noise"):
            return self.noised_release(batch, server_round, total, sigma)
        twin = copy_of(self, batch, self.public.mechanism.noise.server_draws())
        return noised_sums(twin, batch, server_round, total, sigma, StepReplay.of(self, batch, None))

    @staticmethod
    def _at_once(batches: Sequence[TrialBatch], work: Callable[[TrialBatch], T]) -> list[tuple[TrialBatch, T]]:
        """Return each batch with the result of `work` for it, computed in one thread per batch."""
        if not batches:
            return []
        with ThreadPoolExecutor(len(batches)) as threads:
            return list(zip(batches, threads.map(work, batches), strict=True))

    def _sums_before_changes(
        self,
        batch: TrialBatch,
        server_round: int,
        messages: Mapping[ReplyIdentity, Message],
        round_sum: UnnoisedRoundSum,
    ) -> UnnoisedRoundSum:
        """Return the sums of what clients sent, and note it if a subclass changed sums that have the clients' noise.

        Such sums are no sums before noise, so a change of them breaks no claim about those.
        """
        if not self._has_own("_read") or self._server_adds_noise:
            return round_sum
        sums = TrialBatchStrategy._read(self, batch, messages, server_round)
        changed = int((sums.total != round_sum.total).any(dim=1).sum())
        if changed and self.opening is not None:
            self.opening.log_origin(batch, server_round, ReleaseOrigin.NOT_A_SUM, changed)
        return replace(round_sum, total=sums.total)

    @property
    def _server_adds_noise(self) -> bool:
        return self.public.mechanism.noise.origin is NoiseOrigin.SERVER

    def _check_exactly(
        self,
        batch: TrialBatch,
        server_round: int,
        messages: Mapping[ReplyIdentity, Message],
        round_sum: UnnoisedRoundSum,
    ) -> None:
        """Let the challenger recompute some of the sums of a round before noise is added to them."""
        exact = None if self.opening is None else self.opening.exact
        if exact is None:
            return
        transcript, mechanism, call = self.transcripts[batch.name], self.public.mechanism, self._calls[batch.name]
        if server_round == 1:
            exact.check_start(batch, transcript.models[-1])
        if not exact.chosen_rows(batch, server_round):
            return
        sent = self._sent_arrays(batch, server_round, messages)
        norms = None if transcript.norms is None else transcript.norms.numpy()
        release = None
        # Correlated noise is drawn from that of earlier rounds, so it cannot be drawn twice.
        if mechanism.adds_noise and not mechanism.clients_add_noise and mechanism.rounds_needed == 1:
            sigma = mechanism.server_scale(round_sum.local_sensitivity, norms)
            release = partial(self._noised_once, batch, server_round, sigma)
        sums = SumsBeforeNoise(
            server_round,
            transcript.models[-1],
            transcript.norms,
            call.taking_part,
            round_sum.total,
            round_sum.centred_bits,
            round_sum.local_sensitivity,
            sent,
            release,
        )
        exact.check_sums(batch, sums)

    def _sent_arrays(
        self, batch: TrialBatch, server_round: int, messages: Mapping[ReplyIdentity, Message]
    ) -> dict[int, tuple[Integers | None, Floats32]]:
        """Return the contributions of a round by client, float32 (trials of the client, parameters).

        Each comes with the rows of the client's trials; None for all trials.
        """
        sent = dict[int, tuple[Integers | None, Floats32]]()
        for client in self._calls[batch.name].asked:
            shape = batch.count if client.rows is None else len(client.rows), self.parameters
            reply = messages[ReplyIdentity(client.client, TRAIN, batch.name)]
            sent[client.client] = (
                client.rows,
                read_array(reply, Key.SUM, shape, np.float32, client.client, server_round),
            )
        return sent

    def _release(self, batch: TrialBatch, server_round: int, round_sum: UnnoisedRoundSum) -> Array:
        """Make a batch's release from the sums `round_sum`, make the next models of it, and return them."""
        mechanism, transcript = self.public.mechanism, self.transcripts[batch.name]
        side = self._side_information(batch, server_round, round_sum)
        noised = NoisedSums(round_sum.total, round_sum.total, ReleaseOrigin.NOISED_SUM)
        if self._has_own_changes:
            self._replay_of(batch, server_round)
        if mechanism.adds_noise and not mechanism.clients_add_noise:
            sigma = mechanism.server_scale(round_sum.local_sensitivity, side.norms_array)
            noised = self.noised_release(batch, server_round, round_sum.total, sigma)
            self._log_origin(batch, server_round, noised.origin, noised.changed)
        noised = self._post_processed(batch, server_round, noised)
        before = transcript.models[-1]
        tensor = self._shown(noised)
        if self.public.aggregation is None:
            stepped, transcript.optimizer = step(
                mechanism.optimizer, before, noised.release, transcript.optimizer, mechanism.denominator
            )
        else:
            stepped = self._aggregated(batch, server_round, noised.release, round_sum.by_client)
            # The models do not follow from the releases by the public optimizer, so they are stored beside them.
            tensor = noised.release if tensor is None else tensor
        moved = self._released_models(batch, server_round, stepped)
        if not np.isfinite(moved.numpy()).all():
            problem = f"round {server_round}: a model of {batch.name} is no longer finite"
            raise FederationError(f"{problem}: learning rate, clipping norm and noise together move it too far")
        transcript.models = [*transcript.models[-2:], moved]
        round = ServerRound(
            server_round,
            tuple(transcript.models),
            noised.release,
            side,
            transcript.steps,
            tensor,
            None if moved is stepped else stepped,
        )
        transcript.made = round
        if mechanism.rounds_needed > 1:
            transcript.steps = (*transcript.steps, EarlierRound(before, round.noised))[1 - mechanism.rounds_needed :]
        return Array(*pack(moved.numpy()))

    def _log_origin(
        self, batch: TrialBatch, server_round: int, origin: ReleaseOrigin, changed: int, of_models: bool = False
    ) -> None:
        if self.opening is not None:
            self.opening.log_origin(batch, server_round, origin, changed, of_models)

    def _post_processed(self, batch: TrialBatch, server_round: int, noised: NoisedSums) -> NoisedSums:
        """Return the release that `post_process_sums` makes of noised sums, beside the sums that the tests look at."""
        if not self._has_own("post_process_sums"):
            return noised
        sums = noised.release.clone()

        def change(server: NoisingServer, order: Tensor) -> Tensor:
            return server.post_process_sums(batch, server_round, sums[order].clone())

        release = self.post_process_sums(batch, server_round, noised.release)
        origin = self._replays[batch.name].origin_of_change(change, release)
        if changed := int((release != sums).any(dim=1).sum()):
            self._log_origin(batch, server_round, origin, changed)
        before = sums if noised.noised is None or noised.noised is noised.release else noised.noised
        return NoisedSums(release, before, noised.origin, max(noised.changed, changed))

    def _released_models(self, batch: TrialBatch, server_round: int, stepped: Tensor) -> Tensor:
        """Return the models that `post_process_models` makes of those of the optimizer's step."""
        if not self._has_own("post_process_models"):
            return stepped

        def change(server: NoisingServer, order: Tensor) -> Tensor:
            return server.post_process_models(batch, server_round, stepped[order].clone())

        moved = self.post_process_models(batch, server_round, stepped.clone())
        origin = self._replays[batch.name].origin_of_change(change, moved)
        if changed := int((moved != stepped).any(dim=1).sum()):
            self._log_origin(batch, server_round, origin, changed, of_models=True)
        return moved

    def _aggregated(
        self,
        batch: TrialBatch,
        server_round: int,
        total: Tensor,
        by_client: Mapping[int, tuple[Integers | None, Floats32]] | None,
    ) -> Tensor:
        """Return the next models of a batch as the Flower strategies of its trials make them."""
        aggregation, before = self._aggregations[batch.name], self.transcripts[batch.name].models[-1]
        if by_client is not None:
            return aggregation.of_clients(server_round, before, by_client)
        return aggregation.of_mean(server_round, before, total / self.public.mechanism.denominator)

    def _shown(self, noised: NoisedSums) -> Tensor | None:
        """Return the noised sums that adversaries are shown beside the release; None if they see the release alone.

        A strategy that changes releases shows sums in every round, or its rounds could not be replayed from them.
        """
        if not self._has_own_changes:
            return None
        if self.public.view is InsiderView.MODEL and not self._has_own("post_process_models"):
            return noised.noised if noised.changed else None
        return noised.before_changes

    def _side_information(self, batch: TrialBatch, server_round: int, round_sum: UnnoisedRoundSum) -> SideInformation:
        """Return what the adversary learns besides the release, and adapt the clipping norms for the next round."""
        mechanism, transcript = self.public.mechanism, self.transcripts[batch.name]
        side = SideInformation(taking_part=self._shown_participation(batch), contribution=round_sum.of_victim)
        if isinstance(mechanism.clipping, AdaptiveClipping):
            assert transcript.norms is not None
            draws = self.challenger.quantile_normals(batch.trials, server_round)
            bits, transcript.bits = round_sum.centred_bits + mechanism.bit_sigma * draws, round_sum.centred_bits
            side = replace(side, norms=transcript.norms, bits=bits)
            transcript.norms = mechanism.clipping.next_norms(transcript.norms, bits / mechanism.denominator + 0.5)
        if mechanism.clients_add_noise:
            side = replace(side, trial_numbers=torch.tensor(list(batch.trials)))
        return side

    def _shown_participation(self, batch: TrialBatch) -> Tensor | None:
        """Return which units take part, as far as the adversary may know, bool (trials, units); None if all take part.

        If the participation of the target is secret, the column of the target is False.
        """
        taking_part = self._calls[batch.name].taking_part
        if (
            taking_part is None
            or self.public.threat_model.sees_participation
            or (audit_of(self.public).shows_part_of_target(self.public))
        ):
            return taking_part
        tensor = taking_part.clone()
        tensor[:, self.public.pair.index] = False
        return tensor

    def _read(
        self, batch: TrialBatch, messages: Mapping[ReplyIdentity, Message], server_round: int
    ) -> UnnoisedRoundSum:
        """Check the clients' contributions to a batch of trials, and return their sum before noise."""
        contributions = []
        for client in self._calls[batch.name].asked:
            reply, longest = (
                messages[ReplyIdentity(client.client, TRAIN, batch.name)],
                self._longest(client.client, batch),
            )
            half_bits = client.client in self.roster.targets or self.public.is_canary(client.client)
            users = len(self.roster.shards[client.client]) if self.public.mechanism.unit is Unit.USER else 0
            contributions.append(ReceivedContribution(client.client, reply, client.rows, longest, half_bits, users))
        shape = batch.count, self.parameters
        read = receive(self.public, contributions, self.roster.victim, shape, server_round)
        if self.public.aggregates_clients:
            return replace(read, by_client=self._sent_arrays(batch, server_round, messages))
        return read

    def _longest(self, client: int, batch: TrialBatch) -> Floats | float:
        """Return an upper bound of the L2 norm of an honest client's contribution, for all trials or for each.

        The bound is the number of the client's units times the clipping norm. If the client adds noise, sigma
        (sqrt(parameters) + 8) is added to the bound. The norm of the noise exceeds this term with probability below
        1e-13. The bound is infinite for an insider with gradient ascent, and for DP-SGD.
        """
        mechanism, norms = self.public.mechanism, self.transcripts[batch.name].norms
        pushes = self.public.ascent > 0 and client == self.roster.insider
        if pushes or isinstance(mechanism.contribution, PrivateTraining):
            return np.inf
        is_one = mechanism.unit is Unit.CLIENT or self.public.is_canary(client)
        units = 1 if is_one else len(self.roster.shards[client])
        limit: Floats | float = mechanism.clipping_norm if norms is None else norms.numpy()
        noise = mechanism.share_scale * (np.sqrt(self.parameters) + 8.0)
        return units * limit * (1 + _ROUNDING) + noise

    def _train_messages(self, batch: TrialBatch, server_round: int, models: ArrayRecord) -> Iterator[Message]:
        whole = ArrayRecord({models_key(0): models[batch.name]} | self._norms(batch, slice(None)))
        common = self._content(batch, server_round, whole, {})  # for all clients without settings of their own
        for client in self._calls[batch.name].asked:
            trials, arrays, settings = list(batch.trials), whole, dict(client.more)
            if client.rows is not None and len(client.rows) < batch.count:
                trials = [trials[row] for row in client.rows]
                trial_models = self.transcripts[batch.name].models[-1].numpy()[client.rows]
                arrays = ArrayRecord({models_key(0): Array(*pack(trial_models))} | self._norms(batch, client.rows))
            if self.public.clients_draw:
                settings |= {Key.NOISE_SEED: self.challenger.noise_seed(client.client), Key.TRIALS: trials}
            settings |= self._membership(client.client, trials)
            is_common = arrays is whole and not settings
            content = common if is_common else self._content(batch, server_round, arrays, settings)
            yield self._sent(client.client, TRAIN, batch, server_round, content)

    def _norms(self, batch: TrialBatch, rows: Integers | slice) -> dict[str, Array]:
        norms = self.transcripts[batch.name].norms
        return {} if norms is None else {Key.NORMS: Array(*pack(norms.numpy()[rows]))}

    def _membership(self, client: int, trials: Sequence[int]) -> More:
        """Return a message entry on the trials in which a client's targets are in the data; {} without targets."""
        targets = self.roster.targets.get(client)
        return {Key.MEMBERSHIP: self.challenger.membership(trials).of_targets(targets).pack()} if targets else {}

    def _owner_message(
        self, client: int, kind: str, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More
    ) -> Message:
        """Return a message that also says in which trials the client's targets are in the data."""
        settings_told = {**settings, **self._membership(client, batch.trials)}
        return self._message(client, kind, batch, server_round, arrays, settings_told)

    def _message(
        self, client: int, kind: str, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More
    ) -> Message:
        return self._sent(client, kind, batch, server_round, self._content(batch, server_round, arrays, settings))

    def _content(self, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More) -> RecordDict:
        config = ConfigRecord({Key.FEDERATION: self._federation_json, Key.ROUND: server_round, Key.BATCH: batch.name})
        config.update({Key.TIME_LIMIT: float(self.time_limit), **settings})
        return RecordDict({MessageRecordName.ARRAYS: arrays, MessageRecordName.CONFIG: config})

    def _sent(self, client: int, kind: str, batch: TrialBatch, server_round: int, content: RecordDict) -> Message:
        self._written[ReplyIdentity(client, kind, batch.name)] = server_round
        return Message(content, self.roster.nodes[client], kind)
