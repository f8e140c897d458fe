"""The contributions that clients sent to a round: their check, and their sum before noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Message
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.errors import FederationError
from fl_audit.federation.federation import Federation
from fl_audit.learning.stacked_layers import cached_rows
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.message_keys import Key
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.strategies.contributors import CalledClients, ClientRoles
from fl_audit.strategies.queries import BatchTrainingState
from fl_audit.strategies.reply_checks import read_array, require_finite

_ROUNDING = 1e-3  # relative amount by which rounding may enlarge the norm of a float32 sum


@dataclass(frozen=True)
class ReceivedContribution:
    """The contribution of one client to a round, in the trials to which it contributes."""

    client: int  # partition of the client
    rows: Integers | None  # ascending indices, within the batch, of the contribution's trials; None for all
    values: Floats32  # (trials of the client, parameters)

    def in_trial(self, row: int) -> Floats32 | None:
        """Return the contribution to a trial, given by its index within the batch; None if there is none."""
        if self.rows is None:
            return self.values[row]
        index = int(np.searchsorted(self.rows, row))
        return self.values[index] if index < len(self.rows) and self.rows[index] == row else None


@dataclass(frozen=True)
class UnnoisedRoundSum:
    """Sum of a round's contributions before noise, with all that it was computed from.

    A quantile bit says whether a client's contribution is within the clipping norm.
    """

    number: int  # number of the round
    models: Tensor  # models before the round, float32 (trials, parameters)
    norms: Tensor | None  # adaptive clipping norms, float64 (trials,); None if the norm is fixed
    taking_part: Tensor | None  # secret sample of units, bool (trials, units); None if all take part
    total: Tensor  # sum of contributions by ascending client number, float32 (trials, parameters)
    # Local sensitivity as reported by the client with the target, float64 (trials,); 0 unless it scales the noise.
    local_sensitivity: Floats
    centred_bits: Tensor  # sum over clients of (quantile bit - 1/2), float64 (trials,); 0 for a fixed clipping norm
    sent: Mapping[int, ReceivedContribution]  # checked contributions, by client


def receive(
    federation: Federation,
    roles: ClientRoles,
    call: CalledClients,
    replies: Mapping[int, Message],
    state: BatchTrainingState,
    server_round: int,
) -> UnnoisedRoundSum:
    """Check all contributions of a round to a batch of trials, and return their sum before noise.

    `replies`: By client, one of each called client.
    """
    models = state.models[-1]
    shape = (len(models), models.shape[1])
    sent = dict[int, ReceivedContribution]()
    for called in call.clients:
        trials = shape[0] if called.rows is None else len(called.rows)
        reply, client = replies[called.client], called.client
        values = read_array(reply, Key.SUM, (trials, shape[1]), np.float32, client, server_round, finite=False)
        sent[client] = ReceivedContribution(client, called.rows, values)
    total = sum_contributions(list(sent.values()), shape, server_round)
    for contribution in sent.values():
        longest = _longest_contribution(federation, roles, contribution.client, state.norms, shape[1])
        _require_short(contribution, longest, shape[0], server_round)
    bits, sensitivity = torch.zeros(shape[0], dtype=torch.float64), np.zeros(shape[0])
    for client, contribution in sent.items():
        if federation.mechanism.is_adaptive:
            rows = slice(None) if contribution.rows is None else torch.from_numpy(contribution.rows)
            bits[rows] += _centred_bits(federation, roles, contribution, replies[client], server_round)
        if client == roles.victim and federation.mechanism.scaling is SensitivityKind.LOCAL:
            sensitivity = read_array(
                replies[client], Key.LOCAL_SENSITIVITY, shape[:1], np.float64, client, server_round
            )
    return UnnoisedRoundSum(server_round, models, state.norms, call.taking_part, total, sensitivity, bits, sent)


def _centred_bits(
    federation: Federation, roles: ClientRoles, contribution: ReceivedContribution, reply: Message, server_round: int
) -> Tensor:
    """Return a client's checked quantile bits minus 1/2, float64 (trials of the client,)."""
    client = contribution.client
    within = read_array(reply, Key.WITHIN, contribution.values.shape[:1], np.float64, client, server_round)
    # A client that contributes nothing sends 1/2, which is 0 when centred: it holds a target, or is a canary. With
    # users as units, a client sends 1/2 plus the sum of its users' centred bits.
    has_half_bits = client in roles.targets or federation.is_canary(client)
    accepted, accepted_text = ((0.0, 0.5, 1.0), "0, 1/2 and 1") if has_half_bits else ((0.0, 1.0), "0 and 1")
    if federation.mechanism.unit is Unit.USER and (users := len(roles.shards[client])):
        accepted = tuple(0.5 * np.arange(1 - users, 1 + users + 1))
        accepted_text = f"half of the whole numbers from {1 - users} to {1 + users}"
    if not np.isin(within, accepted).all():
        sender = f"round {server_round}: client {client}"
        raise FederationError(f"{sender} sent '{Key.WITHIN}' other than {accepted_text}")
    return torch.from_numpy(within - 0.5)


def sum_contributions(sent: Sequence[ReceivedContribution], shape: tuple[int, int], server_round: int) -> Tensor:
    """Return the sum of the clients' contributions, float32 (trials, parameters); all of them must be finite."""
    total = torch.zeros(shape)
    sums, are_finite = total.numpy(), True
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in cached_rows(*shape):
            for contribution in sent:
                if contribution.rows is None:
                    np.add(sums[rows], contribution.values[rows], out=sums[rows])
                else:
                    first, last = np.searchsorted(contribution.rows, (rows.start, rows.stop))
                    sums[contribution.rows[first:last]] += contribution.values[first:last]
            are_finite = are_finite and bool(np.isfinite(sums[rows]).all())
    # A summand that is not finite makes the sum not finite, so single clients are checked only to name the culprit.
    if not are_finite:
        for contribution in sent:
            require_finite(contribution.values, Key.SUM, contribution.client, server_round)
        raise FederationError(f"round {server_round}: the sum of '{Key.SUM}' over {len(sent)} clients is not finite")
    return total


def _require_short(contribution: ReceivedContribution, longest: Floats | float, trials: int, server_round: int) -> None:
    """Raise `FederationError` if a contribution's L2 norm in one of its trials exceeds what clipping allows."""
    array, longest_by_trial = contribution.values, np.broadcast_to(longest, trials)
    limits = longest_by_trial if contribution.rows is None else longest_by_trial[contribution.rows]
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
    columns_in_blocks = rows.shape[1] // _BLOCK * _BLOCK
    blocks, remaining = rows[:, :columns_in_blocks].reshape(len(rows), -1, _BLOCK), rows[:, columns_in_blocks:]
    with np.errstate(over="ignore"):
        squares = np.einsum("ijk,ijk->ij", blocks, blocks).sum(axis=1, dtype=np.float64)
        squares += np.einsum("ij,ij->i", remaining, remaining)
    bounds: Floats = np.sqrt(squares) * _MARGIN + 1e-16 * rows.shape[1]
    return bounds


def _longest_contribution(
    federation: Federation, roles: ClientRoles, client: int, norms: Tensor | None, parameters: int
) -> Floats | float:
    """Return an upper bound of the L2 norm of an honest client's contribution, for all trials or for each.

    The bound is the number of the client's units times the clipping norm. If the client adds noise, sigma
    (sqrt(parameters) + 8) is added to the bound. The norm of the noise exceeds this term with probability below
    1e-13. The bound is infinite for an insider with gradient ascent, and for DP-SGD.

    `norms`: The adaptive clipping norms of the round, (trials,); None if the norm is fixed.
    """
    mechanism = federation.mechanism
    pushes = federation.ascent > 0 and client == roles.insider
    if pushes or isinstance(mechanism.contribution, PrivateTraining):
        return np.inf
    is_one = mechanism.unit is Unit.CLIENT or federation.is_canary(client)
    units = 1 if is_one else len(roles.shards[client])
    limit: Floats | float = mechanism.clipping_norm if norms is None else norms.numpy()
    noise = mechanism.share_scale * (np.sqrt(parameters) + 8.0)
    return units * limit * (1 + _ROUNDING) + noise
