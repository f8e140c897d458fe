"""What the clients sent in a round: checked whole before any of it is used."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Message
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.arrays import Floats, Floats32, Integers
from fl_audit.game.public import PublicGame
from fl_audit.learning.layout import cached_rows
from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.mechanisms.standpoint import Place
from fl_audit.protocol import Key
from strategies.errors import FederationError
from strategies.replies import read_array


@dataclass(frozen=True)
class ReceivedContribution:
    """What one client sent."""

    client: int  # its partition
    reply: Message  # its reply
    rows: Integers | None = None  # the worlds of the batch that it was asked about, ascending; None is all of them
    # The largest L2 norm that an honest contribution has, one for all worlds of the batch or each its own (worlds,).
    longest: Floats | float = np.inf
    # Whether it may tell one half in place of a bit, as a client does who is not there in a world.
    half_bits: bool = True

    def shape(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Return the shape that its arrays must have, of stacked models of the shape of the batch."""
        return shape if self.rows is None else (len(self.rows), shape[1])


@dataclass(frozen=True)
class Received:
    """What came of a round."""

    total: Tensor  # sum of contributions in partition order, float32 (worlds, parameters)
    local_sensitivity: Floats  # what the victim says of it, float64 (worlds,); zero where the noise does not follow it
    # Sum over clients of their bits less one half, float64 (worlds,); zero where the norm is fixed.
    centred_bits: Tensor
    # The victim's contribution by itself, where the server is the adversary; None elsewhere.
    of_victim: Tensor | None = None


def receive(
    public: PublicGame, sent: Sequence[ReceivedContribution], victim: int, shape: tuple[int, int], server_round: int
) -> Received:
    """Read everything that was sent in a round.

    Parameters
    ----------
    public
        The public game, whose law says what must be there.
    sent
        What clients sent, by partition, ascending.
    victim
        The victim's partition.
    shape
        (worlds, parameters).
    server_round
        Round that is named in errors.

    Raises
    ------
    FederationError
        If something is missing, mis-shaped, not finite or longer than it may be: then nothing is released.
    """
    law, worlds = public.law, shape[0]
    total = sum_contributions(sent, shape, server_round)
    sensitivity, bits, own = np.zeros(worlds), torch.zeros(worlds, dtype=torch.float64), None
    for one in sent:
        if law.is_adaptive:
            some = slice(None) if one.rows is None else torch.from_numpy(one.rows)
            bits[some] += torch.from_numpy(_bits(one, shape, server_round)) - 0.5
        if one.client == victim and law.scaling is NoiseScaling.LOCAL:
            found = read_array(one.reply, Key.LOCAL_SENSITIVITY, (worlds,), np.float64, victim, server_round)
            sensitivity = found.astype(np.float64)
        if one.client == victim and public.standpoint.place is Place.SERVER:
            own = torch.from_numpy(read_array(one.reply, Key.SUM, shape, np.float32, victim, server_round).copy())
    return Received(total, sensitivity, bits, own)


def _bits(one: ReceivedContribution, shape: tuple[int, int], server_round: int) -> Floats:
    bits = read_array(one.reply, Key.WITHIN, one.shape(shape)[:1], np.float64, one.client, server_round)
    # One half is that of a client who contributes nothing: centred it is 0.
    accepted, said = ((0.0, 0.5, 1.0), "0, 1/2 and 1") if one.half_bits else ((0.0, 1.0), "0 and 1")
    if not np.isin(bits, accepted).all():
        raise FederationError(f"round {server_round}: client {one.client} sent '{Key.WITHIN}' other than {said}")
    return bits.astype(np.float64)


def sum_contributions(sent: Sequence[ReceivedContribution], shape: tuple[int, int], server_round: int) -> Tensor:
    """Return the sum of what clients sent, added in their order, each element once in memory.

    Parameters
    ----------
    sent
        What clients sent.
    shape
        (worlds, parameters) of the sum.
    server_round
        Round that is named in errors.

    Raises
    ------
    FederationError
        As `read_array`, or if the sum overflows or a contribution is too long.
    """
    arrays = [
        read_array(one.reply, Key.SUM, one.shape(shape), np.float32, one.client, server_round, finite=False)
        for one in sent
    ]
    total = torch.zeros(shape)
    sums, are_finite = total.numpy(), True
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in cached_rows(*shape):
            for one, array in zip(sent, arrays, strict=True):
                _add(sums, rows, array, one.rows)
            are_finite = are_finite and bool(np.isfinite(sums[rows]).all())
    # No value that is not finite can leave a sum finite, so clients are looked at one by one only to name one.
    if not are_finite:
        for one in sent:
            read_array(one.reply, Key.SUM, one.shape(shape), np.float32, one.client, server_round)
        raise FederationError(f"round {server_round}: the sum of '{Key.SUM}' over {len(sent)} clients is not finite")
    for one, array in zip(sent, arrays, strict=True):
        _require_short(one, array, shape[0], server_round)
    return total


def _require_short(one: ReceivedContribution, array: NDArray[np.floating], worlds: int, server_round: int) -> None:
    """Refuse a contribution that is longer than an honest one: the noise is not made for it."""
    longest = np.broadcast_to(one.longest, worlds)
    limits = longest if one.rows is None else longest[one.rows]
    if np.isinf(limits).all():
        return
    for rows in cached_rows(*array.shape):
        lengths = np.linalg.norm(array[rows].astype(np.float64), axis=1)
        if (lengths > limits[rows]).any():
            worst = int(np.argmax(lengths - limits[rows]))
            raise FederationError(
                f"round {server_round}: client {one.client} sent '{Key.SUM}' of length {lengths[worst]:.6g}, which "
                f"clipping leaves at {limits[rows][worst]:.6g} at most"
            )


def _add(sums: Floats32, rows: slice, array: NDArray[np.floating], asked: Integers | None) -> None:
    """Add what a client sent about some worlds to their sums."""
    if asked is None:
        np.add(sums[rows], array[rows], out=sums[rows])
        return
    first, last = np.searchsorted(asked, (rows.start, rows.stop))
    sums[asked[first:last]] += array[first:last]
