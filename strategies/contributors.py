"""The clients that contribute to a round: their choice, and the check and sum of their contributions.

Canary clients are artificial; a coin of the audit decides whether each contributes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np
import torch
from flwr.app import Message
from flwr.app.typing import ConfigRecordValues
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.audits.registry import audit_of
from fl_audit.federation.federation import Federation
from fl_audit.federation.local_dpsgd import ClientRandomness, step_sample
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.stacked_layers import cached_rows
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.message_keys import Key, pack_participation
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.strategies.errors import FederationError
from fl_audit.strategies.queries import TRAIN
from fl_audit.strategies.reply_checks import ReplyIdentity, read_array
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch

_ROUNDING = 1e-3  # relative amount by which rounding may enlarge the norm of a float32 sum


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
    more: dict[str, ConfigRecordValues] = field(default_factory=dict)  # further settings in the message, by name


@dataclass(frozen=True)
class CalledClients:
    """All clients that are asked to contribute to a round, for one batch of trials."""

    asked: tuple[ContributingClient, ...]  # the clients, by ascending number
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
            replace(client, more=client.more | settings) if client.client == roles.victim else client
            for client in call.asked
        )
        return replace(call, asked=tuple(clients))
    trials = list(batch.trials)
    added = (
        ContributingClient(federation.clients + index, None, {Key.COINS: coins[:, index].tobytes(), Key.TRIALS: trials})
        for index in range(federation.canaries)
    )
    return replace(call, asked=(*call.asked, *added))


def available_rows(
    public: Federation, roles: ClientRoles, call: CalledClients, membership: TargetMembership
) -> dict[int, Integers | None]:
    """Return the clients from which an aggregation may choose, each with its trials; None for all trials.

    A client that is in D alone is asked in no trial with D', and sends no update of zero there.
    """
    available = {client.client: client.rows for client in call.asked}
    for client, targets in roles.targets.items():
        if client in available and public.pair.replacement is None:
            rows = np.flatnonzero(membership.of_targets(targets).is_in.any(axis=1))
            before = available[client]
            available[client] = rows if before is None else np.intersect1d(before, rows)
    return available


def participation_shown(public: Federation, taking_part: Tensor | None) -> Tensor | None:
    """Return which units take part, as far as the adversary may know, bool (trials, units); None if all take part.

    If the participation of the target is secret, the column of the target is False.
    """
    is_shown = public.threat_model.sees_participation or audit_of(public).shows_part_of_target(public)
    if taking_part is None or is_shown:
        return taking_part
    tensor = taking_part.clone()
    tensor[:, public.pair.index] = False
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
                drawn = challenger.participation(batch.trials, server_round, client, len(shard), participation.rate)
                taking_part[:, shard] = drawn
                clients.append(ContributingClient(client, None, {Key.PARTICIPATION: pack_participation(drawn)}))
            return CalledClients(tuple(clients), torch.from_numpy(taking_part))
        case Unit.CLIENT:
            drawn = challenger.client_participation(batch.trials, server_round, federation.clients, participation.rate)
            there = [client for client in range(federation.clients) if drawn[:, client].any()]
            called = tuple(ContributingClient(client, np.flatnonzero(drawn[:, client])) for client in there)
            return CalledClients(called, torch.from_numpy(drawn))
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


@dataclass(frozen=True)
class ReceivedContribution:
    """The unchecked contribution of one client, and the limits that an honest client's contribution never exceeds."""

    client: int  # partition of the client
    reply: Message  # reply of the client
    rows: Integers | None = None  # ascending indices, within the batch, of the contribution's trials; None for all
    # Largest L2 norm of an honest contribution: one number for all trials, or one per trial, (trials,).
    longest: Floats | float = np.inf
    half_bits: bool = True  # whether a quantile bit may be 1/2, as in trials to which the client contributes nothing
    users: int = 0  # number of the client's users, each with a quantile bit, if the unit is the user; otherwise 0

    def _sum(self, shape: tuple[int, int], server_round: int, finite: bool = True) -> Floats32:
        """Return the client's checked sum, float32; `shape` is (trials of the batch, parameters)."""
        own_shape = shape if self.rows is None else (len(self.rows), shape[1])
        return read_array(self.reply, Key.SUM, own_shape, np.float32, self.client, server_round, finite)


@dataclass(frozen=True)
class UnnoisedRoundSum:
    """Sum of a round's contributions before noise, with local sensitivity, quantile bits and the victim's contribution.

    A quantile bit says whether a client's contribution is within the clipping norm.
    """

    total: Tensor  # sum of contributions by ascending client number, float32 (trials, parameters)
    # Local sensitivity as reported by the client with the target, float64 (trials,); 0 unless it scales the noise.
    local_sensitivity: Floats
    centred_bits: Tensor  # sum over clients of (quantile bit - 1/2), float64 (trials,); 0 for a fixed clipping norm
    # Contribution of the client with the target, float32 (trials, parameters); None unless the server is the adversary.
    of_victim: Tensor | None = None
    # Contributions by client, each with the rows of its trials (None for all), float32 (trials of the client,
    # parameters). None unless a Flower strategy sees them.
    by_client: Mapping[int, tuple[Integers | None, Floats32]] | None = None


def receive(
    federation: Federation, sent: Sequence[ReceivedContribution], victim: int, shape: tuple[int, int], server_round: int
) -> UnnoisedRoundSum:
    """Check all contributions of a round; return their sum before noise, local sensitivity and quantile bits."""
    mechanism, trials = federation.mechanism, shape[0]
    total = sum_contributions(sent, shape, server_round)
    sensitivity, bits, own_share = np.zeros(trials), torch.zeros(trials, dtype=torch.float64), None
    for contribution in sent:
        if mechanism.is_adaptive:
            own_shape = (trials if contribution.rows is None else len(contribution.rows),)
            within = read_array(
                contribution.reply, Key.WITHIN, own_shape, np.float64, contribution.client, server_round
            )
            # A client that contributes nothing sends 1/2, which is 0 when centred. With users as units, a client sends
            # 1/2 plus the sum of its users' centred bits.
            accepted, accepted_text = (
                ((0.0, 0.5, 1.0), "0, 1/2 and 1") if contribution.half_bits else ((0.0, 1.0), "0 and 1")
            )
            if contribution.users:
                accepted = tuple(0.5 * np.arange(1 - contribution.users, 1 + contribution.users + 1))
                accepted_text = f"half of the whole numbers from {1 - contribution.users} to {1 + contribution.users}"
            if not np.isin(within, accepted).all():
                sender = f"round {server_round}: client {contribution.client}"
                raise FederationError(f"{sender} sent '{Key.WITHIN}' other than {accepted_text}")
            bits[slice(None) if contribution.rows is None else torch.from_numpy(contribution.rows)] += torch.from_numpy(
                within - 0.5
            )
        if contribution.client == victim and mechanism.scaling is SensitivityKind.LOCAL:
            sensitivity = read_array(
                contribution.reply, Key.LOCAL_SENSITIVITY, (trials,), np.float64, victim, server_round
            )
        if contribution.client == victim and federation.threat_model.adversary is Adversary.SERVER:
            own_share = torch.from_numpy(
                read_array(contribution.reply, Key.SUM, shape, np.float32, victim, server_round).copy()
            )
    return UnnoisedRoundSum(total, sensitivity, bits, own_share)


def sum_contributions(sent: Sequence[ReceivedContribution], shape: tuple[int, int], server_round: int) -> Tensor:
    """Return the checked sum of the clients' contributions, float32 (trials, parameters)."""
    arrays = [contribution._sum(shape, server_round, finite=False) for contribution in sent]
    total = torch.zeros(shape)
    sums, are_finite = total.numpy(), True
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in cached_rows(*shape):
            for one, array in zip(sent, arrays, strict=True):
                if one.rows is None:
                    np.add(sums[rows], array[rows], out=sums[rows])
                else:
                    first, last = np.searchsorted(one.rows, (rows.start, rows.stop))
                    sums[one.rows[first:last]] += array[first:last]
            are_finite = are_finite and bool(np.isfinite(sums[rows]).all())
    # A summand that is not finite makes the sum not finite, so single clients are checked only to name the culprit.
    if not are_finite:
        for one in sent:
            one._sum(shape, server_round)
        raise FederationError(f"round {server_round}: the sum of '{Key.SUM}' over {len(sent)} clients is not finite")
    for one, array in zip(sent, arrays, strict=True):
        _require_short(one, array, shape[0], server_round)
    return total


def _require_short(contribution: ReceivedContribution, array: Floats32, trials: int, server_round: int) -> None:
    """Raise `FederationError` if a contribution's L2 norm in one of its trials exceeds what clipping allows."""
    longest = np.broadcast_to(contribution.longest, trials)
    limits = longest if contribution.rows is None else longest[contribution.rows]
    if np.isinf(limits).all():
        return
    for rows in cached_rows(*array.shape):
        rows_sent = array[rows]
        if (_lengths_at_most(rows_sent) <= limits[rows]).all():
            continue
        wide = rows_sent.astype(np.float64)
        # As `np.linalg.norm` but without temporary arrays; differences in the last bits do not matter here.
        lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        if (lengths > limits[rows]).any():
            worst = int(np.argmax(lengths - limits[rows]))
            problem = f"client {contribution.client} sent '{Key.SUM}' of length {lengths[worst]:.6g}"
            allowed = f"which clipping leaves at {limits[rows][worst]:.6g} at most"
            raise FederationError(f"round {server_round}: {problem}, {allowed}")


_BLOCK = 2048
"""Number of squares in a block that is summed in float32; the sums of blocks are added in float64."""
_MARGIN = 1.0002
"""Factor that covers the rounding error of a row's norm in float32.

In a block, 2,049 roundings of relative error 2**-24 change the norm by half of their sum, which is 6e-5.
"""


def _lengths_at_most(rows: Floats32) -> Floats:
    """Return an upper bound of each row's L2 norm, (trials,).

    A bound exceeds the norm by about 0.02 %, and is computed faster than the exact norm.
    """
    whole = rows.shape[1] // _BLOCK * _BLOCK
    blocks, remaining = rows[:, :whole].reshape(len(rows), -1, _BLOCK), rows[:, whole:]
    with np.errstate(over="ignore"):
        squares = np.einsum("ijk,ijk->ij", blocks, blocks).sum(axis=1, dtype=np.float64)
        squares += np.einsum("ij,ij->i", remaining, remaining)
    bounds: Floats = np.sqrt(squares) * _MARGIN + 1e-16 * rows.shape[1]
    return bounds


def longest_contribution(
    public: Federation, roles: ClientRoles, client: int, norms: Tensor | None, parameters: int
) -> Floats | float:
    """Return an upper bound of the L2 norm of an honest client's contribution, for all trials or for each.

    The bound is the number of the client's units times the clipping norm. If the client adds noise, sigma
    (sqrt(parameters) + 8) is added to the bound. The norm of the noise exceeds this term with probability below
    1e-13. The bound is infinite for an insider with gradient ascent, and for DP-SGD.

    `norms`: The adaptive clipping norms of the round, (trials,); None if the norm is fixed.
    """
    mechanism = public.mechanism
    pushes = public.ascent > 0 and client == roles.insider
    if pushes or isinstance(mechanism.contribution, PrivateTraining):
        return np.inf
    is_one = mechanism.unit is Unit.CLIENT or public.is_canary(client)
    units = 1 if is_one else len(roles.shards[client])
    limit: Floats | float = mechanism.clipping_norm if norms is None else norms.numpy()
    noise = mechanism.share_scale * (np.sqrt(parameters) + 8.0)
    return units * limit * (1 + _ROUNDING) + noise


def sent_arrays(
    asked: Sequence[ContributingClient],
    messages: Mapping[ReplyIdentity, Message],
    shape: tuple[int, int],
    server_round: int,
    batch_name: str,
) -> dict[int, tuple[Integers | None, Floats32]]:
    """Return the contributions of a round by client, float32 (trials of the client, parameters).

    Each comes with the rows of the client's trials; None for all trials.

    `shape`: Numbers of trials of the batch and of parameters.
    """
    sent = dict[int, tuple[Integers | None, Floats32]]()
    for client in asked:
        trials = shape[0] if client.rows is None else len(client.rows)
        reply = messages[ReplyIdentity(client.client, TRAIN, batch_name)]
        array = read_array(reply, Key.SUM, (trials, shape[1]), np.float32, client.client, server_round)
        sent[client.client] = (client.rows, array)
    return sent
