"""The clients that contribute to a round: their choice, and the messages to them.

Canary clients are artificial; a coin of the audit decides whether each contributes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.typing import ConfigRecordValues
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_packing import pack
from fl_audit.array_types import Integers
from fl_audit.audits.registry import audit_of
from fl_audit.federation.federation import Federation
from fl_audit.federation.local_dpsgd import ClientRandomness, step_sample
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.message_keys import Key, MessageRecordName, models_key, pack_participation
from fl_audit.strategies.queries import TRAIN, BatchTrainingState, More
from fl_audit.strategies.reply_checks import ReplyIdentity
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch


@dataclass(frozen=True)
class ClientRoles:
    """The clients of a federation, numbered by partition, each with its node, targets, colluders and units."""

    nodes: Sequence[int]  # Flower node ID of each partition
    # Numbers of the targets that a partition holds, keyed by partition; partitions without targets have no entry.
    targets: Mapping[int, tuple[int, ...]]
    insider: int  # partition of the insider
    shards: tuple[Integers, ...]  # numbers of the units of each partition: records of D, users, or the client itself
    units: int  # number of units of all partitions together

    @property
    def victim(self) -> int:
        """Partition (client number) of the client that holds the first target."""
        return next(client for client, target in self.targets.items() if 0 in target)


@dataclass(frozen=True)
class ContributingClient:
    """A client whose contribution to a round is requested, with the trials and settings that the request states."""

    client: int  # partition of the client
    # Ascending indices, within the batch, of the trials to which the client contributes; None for all trials.
    rows: Integers | None = None
    settings: dict[str, ConfigRecordValues] = field(default_factory=dict)  # further settings in the message, by name


@dataclass(frozen=True)
class CalledClients:
    """All clients that are asked to contribute to a round, for one batch of trials."""

    clients: tuple[ContributingClient, ...]  # the clients, by ascending number
    taking_part: Tensor | None = None  # secret sample of units, bool (trials, units); None without sampling


def call_of(
    federation: Federation, roles: ClientRoles, challenger: SeededChallenger, batch: TrialBatch, server_round: int
) -> CalledClients:
    """Return the clients that are asked to contribute to a round, and the secret sample of units, if there is one."""
    call = _without_canaries(federation, roles, challenger, batch, server_round)
    coins = challenger.coins(batch.trials, server_round, federation.canaries)
    if isinstance(federation.mechanism.contribution, PrivateTraining):
        settings: dict[str, ConfigRecordValues] = {Key.COINS: coins.tobytes()} if coins.size else {}
        clients = (
            replace(client, settings=client.settings | settings) if client.client == roles.victim else client
            for client in call.clients
        )
        return replace(call, clients=tuple(clients))
    trials = list(batch.trials)
    added = (
        ContributingClient(federation.clients + index, None, {Key.COINS: coins[:, index].tobytes(), Key.TRIALS: trials})
        for index in range(federation.canaries)
    )
    return replace(call, clients=(*call.clients, *added))


def available_rows(
    federation: Federation, roles: ClientRoles, call: CalledClients, membership: TargetMembership
) -> dict[int, Integers | None]:
    """Return the clients from which an aggregation may choose, each with its trials; None for all trials.

    A client that is in D alone is asked in no trial with D', and sends no update of zero there.
    """
    available = {client.client: client.rows for client in call.clients}
    for client, targets in roles.targets.items():
        if client in available and federation.pair.replacement is None:
            rows = np.flatnonzero(membership.of_targets(targets).is_in.any(axis=1))
            before = available[client]
            available[client] = rows if before is None else np.intersect1d(before, rows)
    return available


def participation_shown(federation: Federation, taking_part: Tensor | None) -> Tensor | None:
    """Return which units take part, as far as the adversary may know, bool (trials, units); None if all take part.

    If the participation of the target is secret, the column of the target is False.
    """
    is_shown = federation.threat_model.sees_participation or audit_of(federation).shows_part_of_target(federation)
    if taking_part is None or is_shown:
        return taking_part
    tensor = taking_part.clone()
    tensor[:, federation.pair.index] = False
    return tensor


def _without_canaries(
    federation: Federation, roles: ClientRoles, challenger: SeededChallenger, batch: TrialBatch, server_round: int
) -> CalledClients:
    participation = federation.mechanism.participation
    if not participation.is_sampled:
        turn = federation.eligible_units(server_round)
        whose = range(federation.clients) if turn is None else turn.tolist()
        of_steps = _samples_of_steps(federation, roles, challenger, batch, server_round) if turn is None else None
        return CalledClients(tuple(ContributingClient(client) for client in whose), of_steps)
    match federation.mechanism.unit:
        case Unit.RECORD | Unit.USER:
            taking_part, clients = np.zeros((batch.count, roles.units), dtype=np.bool_), list[ContributingClient]()
            for client, shard in enumerate(roles.shards):
                participates = challenger.participation(
                    batch.trials, server_round, client, len(shard), participation.rate
                )
                taking_part[:, shard] = participates
                clients.append(ContributingClient(client, None, {Key.PARTICIPATION: pack_participation(participates)}))
            return CalledClients(tuple(clients), torch.from_numpy(taking_part))
        case Unit.CLIENT:
            participates = challenger.client_participation(
                batch.trials, server_round, federation.clients, participation.rate
            )
            there = [client for client in range(federation.clients) if participates[:, client].any()]
            called = tuple(ContributingClient(client, np.flatnonzero(participates[:, client])) for client in there)
            return CalledClients(called, torch.from_numpy(participates))
        case _:
            assert_never(federation.mechanism.unit)


def _samples_of_steps(
    federation: Federation, roles: ClientRoles, challenger: SeededChallenger, batch: TrialBatch, server_round: int
) -> Tensor | None:
    """Return which records clients sample for the first DP-SGD step of a round, bool (trials, units).

    The samples are drawn again from the same seeds. None if clients sample no records, or if the audit does not open
    secrets.
    """
    if not federation.mechanism.is_sampled or not audit_of(federation).opens_secrets(federation):
        return None
    taking_part = np.zeros((batch.count, roles.units), dtype=np.bool_)
    for client, shard in enumerate(roles.shards):
        draws = ClientRandomness(challenger.noise_seed(client), tuple(batch.trials))
        taking_part[:, shard] = step_sample(federation.mechanism, len(shard), draws, server_round)
    return torch.from_numpy(taking_part)


@dataclass(eq=False)
class RoundMessages:
    """Writer of the messages of a federation to its clients, which notes the round of each."""

    federation: Federation  # public facts of the federation, which every message holds
    roster: ClientRoles  # nodes and targets of the clients
    challenger: SeededChallenger  # source of membership and of the seeds of clients' noise
    time_limit: float  # seconds that a client may take for one message
    # Round of the latest message, by client, kind and batch.
    written: dict[ReplyIdentity, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._federation_json = self.federation.to_json()

    def to_train(
        self, batch: TrialBatch, server_round: int, models: Array, state: BatchTrainingState, call: CalledClients
    ) -> Iterator[Message]:
        """Yield the requests for the contributions of all called clients to a batch of trials.

        `models` are those of all trials of the batch, and `state` is what the batch has come to.
        """
        whole = ArrayRecord({models_key(0): models} | _norms(state, slice(None)))
        common = self._content(batch, server_round, whole, {})  # for all clients without settings of their own
        for client in call.clients:
            trials, arrays, settings = list(batch.trials), whole, dict(client.settings)
            if client.rows is not None and len(client.rows) < batch.count:
                trials = [trials[row] for row in client.rows]
                trial_models = state.models[-1].numpy()[client.rows]
                arrays = ArrayRecord({models_key(0): Array(*pack(trial_models))} | _norms(state, client.rows))
            if self.federation.clients_draw:
                settings |= {Key.NOISE_SEED: self.challenger.noise_seed(client.client), Key.TRIALS: trials}
            settings |= self._membership(client.client, trials)
            is_common = arrays is whole and not settings
            content = common if is_common else self._content(batch, server_round, arrays, settings)
            yield self._sent(client.client, TRAIN, batch, server_round, content)

    def message(
        self, client: int, kind: str, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More
    ) -> Message:
        """Return a message of a kind to a client about a batch of trials, with arrays and settings."""
        return self._sent(client, kind, batch, server_round, self._content(batch, server_round, arrays, settings))

    def owner_message(
        self, client: int, kind: str, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More
    ) -> Message:
        """Return a message that also says in which trials the client's targets are in the data."""
        settings_of_owner = {**settings, **self._membership(client, batch.trials)}
        return self.message(client, kind, batch, server_round, arrays, settings_of_owner)

    def _membership(self, client: int, trials: Sequence[int]) -> More:
        """Return a message entry on the trials in which a client's targets are in the data; {} without targets."""
        targets = self.roster.targets.get(client)
        return {Key.MEMBERSHIP: self.challenger.membership(trials).of_targets(targets).pack()} if targets else {}

    def _content(self, batch: TrialBatch, server_round: int, arrays: ArrayRecord, settings: More) -> RecordDict:
        config = ConfigRecord({Key.FEDERATION: self._federation_json, Key.ROUND: server_round, Key.BATCH: batch.name})
        config.update({Key.TIME_LIMIT: float(self.time_limit), **settings})
        return RecordDict({MessageRecordName.ARRAYS: arrays, MessageRecordName.CONFIG: config})

    def _sent(self, client: int, kind: str, batch: TrialBatch, server_round: int, content: RecordDict) -> Message:
        self.written[ReplyIdentity(client, kind, batch.name)] = server_round
        return Message(content, self.roster.nodes[client], kind)


def _norms(state: BatchTrainingState, rows: Integers | slice) -> dict[str, Array]:
    """Return a message entry with the adaptive clipping norms of some trials; {} if the norm is fixed."""
    return {} if state.norms is None else {Key.NORMS: Array(*pack(state.norms.numpy()[rows]))}
