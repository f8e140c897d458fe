"""A Flower strategy that trains under a DP mechanism, for the trials of several batches at once.

Round i releases r_i, the sum of clipped contributions and noise, and moves the model by r_i / n with a fixed, public n.
The mechanism defines contributions, noise, participation and optimizer. It is DP-FedSGD if clients send gradients of
records, and DP-FedAvg if they train locally. Queries of an audit to clients (`round_queries`) are sent with the
messages of a round; the strategy does not read their content.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from torch import Tensor

from fl_audit.array_packing import copy_to_tensor, pack, unpack
from fl_audit.errors import FederationError
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.observed_rounds import EarlierRound, ServerRound, SideInformation
from fl_audit.learning.optimizers import step
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin, ServerNoiseDraws
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.strategies.aggregation import BatchAggregation
from fl_audit.strategies.contributors import (
    CalledClients,
    ClientRoles,
    ContributingClient,
    RoundMessages,
    available_rows,
    call_of,
    participation_shown,
)
from fl_audit.strategies.noised_sums import NoisedSums, ReleaseOrigin, StepReplay
from fl_audit.strategies.queries import TRAIN, BatchTrainingState, RunQueries
from fl_audit.strategies.received_contributions import UnnoisedRoundSum, receive
from fl_audit.strategies.release_steps import ReleaseSteps
from fl_audit.strategies.reply_checks import ReplyIdentity, read_replies
from fl_audit.strategies.round_secrets_log import RoundSecretsLog
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch

T = TypeVar("T")


@dataclass(eq=False)
class TrialBatchStrategy(ReleaseSteps):
    """Flower strategy that trains several batches of trials under a DP mechanism, and sends an audit's queries."""

    federation: Federation  # public facts of the federation: clients, training and mechanism
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
    _messages: RoundMessages = field(init=False)  # writer of the messages to clients
    # Flower strategies that make the next models, by batch name; empty if the mechanism's optimizer makes them.
    _aggregations: dict[str, BatchAggregation] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._messages = RoundMessages(self.federation, self.roster, self.challenger, self.time_limit)
        if self.federation.aggregation is not None:
            federation = load_federation(self.federation)
            self._aggregations = {
                batch.name: BatchAggregation(federation, list(batch.trials), self.challenger.seed)
                for batch in self.batches
            }
        self.noise_draws = {batch.name: self.federation.mechanism.noise.server_draws() for batch in self.batches}

    @property
    def flower_rounds(self) -> int:
        """Number of Flower rounds to pass to `start`: all training rounds, and later rounds that only send queries."""
        return max([self.federation.rounds, *(query.last_exchange for query in self.round_queries)])

    def summary(self) -> None:
        """Do nothing, because the run prints its own summary."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round: requests for contributions, and the audit's queries.

        After the last training round, or after an early end, only queries are returned.
        """
        if server_round == 1:
            for batch in self.batches:
                models = copy_to_tensor(unpack(arrays[batch.name]))
                self.transcripts[batch.name] = BatchTrainingState.of_start(models, self.federation.mechanism)
        else:
            self._require_own_models(server_round, arrays)
        write = self._messages
        messages = list[Message]()
        for query in self.round_queries:
            messages += query.messages(server_round, self.transcripts, write.message, write.owner_message)
        if server_round > self.federation.rounds:
            return messages
        self._ended = self._ended or (not self.round_queries and self.is_over())
        if self._ended:
            return messages
        self._calls = {batch.name: self._called(batch, server_round) for batch in self.batches}
        for batch in self.batches:
            state, call = self.transcripts[batch.name], self._calls[batch.name]
            messages += write.to_train(batch, server_round, arrays[batch.name], state, call)
        return messages

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
        call = call_of(self.federation, self.roster, self.challenger, batch, server_round)
        if not self.federation.aggregates_clients:
            return call
        available = available_rows(self.federation, self.roster, call, self.challenger.membership(batch.trials))
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
        is_round = server_round <= self.federation.rounds and not self._ended
        expected = [answer for query in self.round_queries for answer in query.answers(server_round)]
        if is_round:
            expected += [
                ReplyIdentity(client.client, TRAIN, name)
                for name, call in self._calls.items()
                for client in call.clients
            ]
        named_round = min(server_round, self.federation.rounds)
        clients_by_node = {self.roster.nodes[answer.client]: answer.client for answer in expected}
        messages = read_replies(replies, expected, clients_by_node, named_round, self._messages.written)
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
            self._check_exactly(batch, self._sums_before_changes(batch, server_round, messages, read[batch.name]))
        released = self._at_once(work, lambda batch: self._release(batch, server_round, read[batch.name]))
        for batch in self.batches:
            latest = self.transcripts[batch.name].latest_round
            assert latest is not None
            self.on_release(batch, latest)
            if self.opening is not None:
                taking_part = self._calls[batch.name].taking_part
                self.opening.log_round(batch, latest, taking_part, self.transcripts[batch.name].bits)
        self._passed_on = {batch.name: models.data for batch, models in released}
        return ArrayRecord({batch.name: models for batch, models in released}), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: the server evaluates models itself, and queries ask clients for anything else."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

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
        """Return the sums of a round with the contributions that clients sent, which a subclass may have changed.

        Sums that have the clients' noise are returned as clients sent them too, and a change of them is noted: they are
        no sums before noise, so a change breaks no claim about those.
        """
        if type(self)._read is TrialBatchStrategy._read:
            return round_sum
        try:
            sums = TrialBatchStrategy._read(self, batch, messages, server_round)
        except FederationError:  # clients of this subclass send contributions in another form
            return round_sum
        if self.federation.mechanism.noise.origin is NoiseOrigin.SERVER:
            return replace(round_sum, sent=sums.sent)
        changed = int((sums.total != round_sum.total).any(dim=1).sum())
        if changed:
            self._log_origin(batch, server_round, ReleaseOrigin.NOT_A_SUM, changed)
        return replace(round_sum, total=sums.total, sent=sums.sent)

    def _check_exactly(self, batch: TrialBatch, round_sum: UnnoisedRoundSum) -> None:
        """Let the challenger recompute some of the sums of a round before noise is added to them."""
        exact = None if self.opening is None else self.opening.exact
        if exact is None:
            return
        mechanism, number = self.federation.mechanism, round_sum.number
        if number == 1:
            exact.check_start(batch, round_sum.models)
        if not exact.chosen_rows(batch, number):
            return
        release = None
        # Correlated noise is drawn from that of earlier rounds, so it cannot be drawn twice.
        if mechanism.adds_noise and not mechanism.clients_add_noise and mechanism.rounds_needed == 1:
            norms = None if round_sum.norms is None else round_sum.norms.numpy()
            sigma = mechanism.server_scale(round_sum.local_sensitivity, norms)
            release = partial(self._noised_once, batch, number, sigma)
        exact.check_sums(batch, round_sum, release, partial(self._request_to, batch, number))

    def _request_to(self, batch: TrialBatch, server_round: int, client: int) -> Message:
        """Return the message by which a client was asked to contribute to the present round."""
        state, call = self.transcripts[batch.name], self._calls[batch.name]
        models = Array(*pack(state.models[-1].numpy()))
        messages = self._messages.to_train(batch, server_round, models, state, call)
        return next(
            message
            for client_called, message in zip(call.clients, messages, strict=True)
            if client_called.client == client
        )

    def _release(self, batch: TrialBatch, server_round: int, round_sum: UnnoisedRoundSum) -> Array:
        """Make a batch's release from the sums `round_sum`, make the next models of it, and return them."""
        mechanism, transcript = self.federation.mechanism, self.transcripts[batch.name]
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
        if self.federation.aggregation is None:
            stepped, transcript.optimizer = step(
                mechanism.optimizer, before, noised.release, transcript.optimizer, mechanism.denominator
            )
        else:
            stepped = self._aggregated(batch, noised.release, round_sum)
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
        transcript.latest_round = round
        if mechanism.rounds_needed > 1:
            transcript.steps = (*transcript.steps, EarlierRound(before, round.noised))[1 - mechanism.rounds_needed :]
        return Array(*pack(moved.numpy()))

    def _aggregated(self, batch: TrialBatch, release: Tensor, round_sum: UnnoisedRoundSum) -> Tensor:
        """Return the next models of a batch as the Flower strategies of its trials make them."""
        aggregation, before = self._aggregations[batch.name], self.transcripts[batch.name].models[-1]
        if self.federation.aggregates_clients:
            return aggregation.of_clients(round_sum.number, before, round_sum.sent)
        return aggregation.of_mean(round_sum.number, before, release / self.federation.mechanism.denominator)

    def _side_information(self, batch: TrialBatch, server_round: int, round_sum: UnnoisedRoundSum) -> SideInformation:
        """Return what the adversary learns besides the release, and adapt the clipping norms for the next round."""
        mechanism, transcript = self.federation.mechanism, self.transcripts[batch.name]
        participation = participation_shown(self.federation, self._calls[batch.name].taking_part)
        of_victim = round_sum.sent.get(self.roster.victim)
        side = SideInformation(taking_part=participation)
        if of_victim is not None and self.federation.threat_model.adversary is Adversary.SERVER:
            side = replace(side, contribution=torch.from_numpy(of_victim.values.copy()))
        if isinstance(mechanism.clipping, AdaptiveClipping):
            assert transcript.norms is not None
            draws = self.challenger.quantile_normals(batch.trials, server_round)
            bits, transcript.bits = round_sum.centred_bits + mechanism.bit_sigma * draws, round_sum.centred_bits
            side = replace(side, norms=transcript.norms, bits=bits)
            transcript.norms = mechanism.clipping.next_norms(transcript.norms, bits / mechanism.denominator + 0.5)
        if mechanism.clients_add_noise:
            side = replace(side, trial_numbers=torch.tensor(list(batch.trials)))
        return side

    def _read(
        self, batch: TrialBatch, messages: Mapping[ReplyIdentity, Message], server_round: int
    ) -> UnnoisedRoundSum:
        """Check the clients' contributions to a batch of trials, and return their sum before noise."""
        call = self._calls[batch.name]
        replies = {client.client: messages[ReplyIdentity(client.client, TRAIN, batch.name)] for client in call.clients}
        return receive(self.federation, self.roster, call, replies, self.transcripts[batch.name], server_round)
