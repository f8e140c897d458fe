"""Contributions of single units, each computed alone, from which the sum of a round in one trial is recomputed.

A released sum is private if it is the sum of contributions of the units in the data, each of which is computed from
one unit alone and is no longer than the clipping norm. So each unit's contribution is computed here by itself, while
clients compute the sum of all their units at once. Any influence of one unit on the contribution of another, any unit
that counts more than once and any missing clipping makes a difference.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.federation.contributions import ContributionByTrial, RoundContext, contributed
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.record_tensors import Examples
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.privacy.accounting_enums import VectorNorm

_SCALARS = 2**22  # most numbers of the contributions that are held at a time
_HALF_ULP = 2.0**-24  # relative error of one operation on 32-bit numbers
_LIKELY = 4.0  # roundings of n operations exceed 4 sqrt(n) half units with probability 7e-4 (Higham & Mary 2019)
_PAIRS = 8  # pairs of opposite perturbations with which the effect of roundings is tried


@dataclass(frozen=True)
class CheckedCell:
    """One trial of one round, whose sum is recomputed: everything that determines the sum, secrets included."""

    model: Tensor  # model before the round, float32 (1, parameters)
    moment: RoundContext  # number and clipping norm of the round
    members: Flags  # which targets are in the data, bool (targets,)
    taking_part: Flags | None  # which units take part, bool (units,); None if all whose turn it is
    is_replaced: bool  # whether a replacement takes the place of a target that is not in the data


@dataclass(frozen=True)
class UnitChunk:
    """Some units of a client, and the function that computes the contribution of each of them from a model."""

    numbers: Integers  # numbers of the units, (units,)
    of_model: Callable[[Tensor], ContributionByTrial]  # from a model (1, parameters) to rows (units, parameters)


@dataclass
class ContributionTotals:
    """Sums over single contributions, in 64-bit numbers."""

    total: Tensor  # sum of the contributions, float64 (parameters,)
    sizes: Tensor  # sum of their absolute values, float64 (parameters,)
    centred_bits: float = (
        0.0  # sum over units of 1/2 for each one within an adaptive clipping norm, -1/2 for the others
    )
    lengths: list[Floats] = field(default_factory=list)  # norms of the contributions, in that of the clipping
    numbers: list[Integers] = field(default_factory=list)  # numbers of the units, in the order of the lengths

    @classmethod
    def zero(cls, parameters: int) -> "ContributionTotals":
        """Return the sums over no contribution."""
        return cls(torch.zeros(parameters, dtype=torch.float64), torch.zeros(parameters, dtype=torch.float64))

    @property
    def count(self) -> int:
        """Number of contributions."""
        return sum(len(lengths) for lengths in self.lengths)

    @property
    def longest(self) -> tuple[float, int]:
        """Length of the longest contribution and the number of its unit; (0, -1) without contributions."""
        if self.count == 0:
            return 0.0, -1
        lengths = np.concatenate(self.lengths)
        numbers = np.concatenate(self.numbers)
        at = int(lengths.argmax())
        return float(lengths[at]), int(numbers[at])

    def add(self, numbers: Integers, contribution: ContributionByTrial, norm: VectorNorm) -> None:
        """Add the contributions of some units, given by their rows, whose lengths are measured in a norm."""
        rows = contribution.total.double().cpu()
        self.total += rows.sum(0)
        self.sizes += rows.abs().sum(0)
        self.centred_bits += float(contribution.centred_bits.sum())
        self.lengths.append(rows.norm(p=norm.order, dim=1).numpy())
        self.numbers.append(numbers)

    def rounding(self, terms: int) -> float:
        """Return how far a sum of these contributions in 32-bit numbers may be from the exact one, as an L2 norm.

        Each of the added numbers went through `terms` operations at most, and through one addition for each other one.
        """
        return _LIKELY * _HALF_ULP * math.sqrt(terms + self.count) * float(self.sizes.norm())


def operations(federation: LoadedFederation) -> int:
    """Return the number of operations in the longest inner products of a pass, forward and backward."""
    wide = max(math.prod(shape) // max(1, shape[0] if shape else 1) for shape in federation.model.layout.shapes)
    high = max(shape[0] if shape else 1 for shape in federation.model.layout.shapes)
    return wide + high + math.prod(federation.model.feature_shape)


def recompute(federation: LoadedFederation, client: int, cell: CheckedCell) -> ContributionTotals:
    """Return the sums over the units of a client that are in the data and take part in a round of one trial."""
    totals = ContributionTotals.zero(cell.model.shape[1])
    norm = federation.public.mechanism.clipping.measured_in
    for chunk in unit_chunks(federation, client, cell):
        totals.add(chunk.numbers, chunk.of_model(cell.model), norm)
    return totals


def rounding_of_passes(
    federation: LoadedFederation, client: int, cell: CheckedCell, draw: np.random.Generator, steps: int
) -> float:
    """Return how far roundings in the computation of a client's contributions may move their sum, as an L2 norm.

    A pass in 32-bit numbers is the exact pass of a model whose parameters are changed by about the roundings of an
    inner product. Such changes are tried, in opposite pairs, so that a unit at a kink of the network crosses it. The
    sum over units of the largest effect is doubled, since both sides are rounded; `steps` is the number of passes in
    a row.
    """
    size = _LIKELY * _HALF_ULP * math.sqrt(operations(federation))
    total = 0.0
    changes = [size * torch.from_numpy(draw.standard_normal(cell.model.shape)).to(cell.model) for _ in range(_PAIRS)]
    for chunk in unit_chunks(federation, client, cell):
        rows = chunk.of_model(cell.model).total
        moved = torch.zeros(len(chunk.numbers))
        for change in (sign * change for change in changes for sign in (1, -1)):
            changed_rows = chunk.of_model(cell.model * (1 + change)).total
            moved = torch.maximum(moved, (changed_rows.double() - rows.double()).norm(dim=1).float().cpu())
        total += float(moved.sum())
    return 2 * steps * total


def unit_chunks(federation: LoadedFederation, client: int, cell: CheckedCell) -> Iterator[UnitChunk]:
    """Yield the units of a client that are in the data and take part, some at a time."""
    match federation.unit:
        case Unit.RECORD:
            yield from _records(federation, client, cell)
        case Unit.USER:
            yield from _users(federation, client, cell)
        case Unit.CLIENT:
            yield from _whole_client(federation, client, cell)
        case _:
            assert_never(federation.unit)


def _present(federation: LoadedFederation, client: int, cell: CheckedCell) -> Flags:
    """Return which records of a client's shard are in the data of the trial, bool (records,)."""
    own_targets = federation.targets_of(client)
    if not own_targets:
        return np.ones(len(federation.shards[client]), dtype=np.bool_)
    present: Flags = federation.present(client, TargetMembership(cell.members[None, list(own_targets)]))[0]
    return present


def _replacement(federation: LoadedFederation, client: int, cell: CheckedCell) -> Examples | None:
    """Return the records in the place of the target in D', where the trial has them and the target's turn is drawn."""
    if client != federation.victim or not cell.is_replaced or cell.members[0]:
        return None
    if federation.unit is not Unit.CLIENT and cell.taking_part is not None and not cell.taking_part[federation.target]:
        return None
    return federation.replacement


def _records(federation: LoadedFederation, client: int, cell: CheckedCell) -> Iterator[UnitChunk]:
    own_records = federation.shards[client]
    used = _present(federation, client, cell)
    if cell.taking_part is not None:
        used = used & cell.taking_part[own_records]
    together = max(1, _SCALARS // cell.model.shape[1])
    shard = federation.shard(client)
    for portion in _portions(np.flatnonzero(used), together):
        yield _single_records(federation, client, own_records[portion], shard.take(portion), cell.moment)
    if (instead := _replacement(federation, client, cell)) is not None:
        yield _single_records(federation, client, np.array([federation.target]), instead, cell.moment)


def _portions(indices: Integers, size: int) -> Iterator[Integers]:
    return (indices[start : start + size] for start in range(0, len(indices), size))


def _single_records(
    federation: LoadedFederation, client: int, numbers: Integers, examples: Examples, context: RoundContext
) -> UnitChunk:
    alone = Examples(examples.features.unsqueeze(1), examples.labels.unsqueeze(1))

    def of_model(model: Tensor) -> ContributionByTrial:
        return contributed(federation, client, alone, model.expand(len(numbers), -1), context)

    return UnitChunk(numbers, of_model)


def _users(federation: LoadedFederation, client: int, cell: CheckedCell) -> Iterator[UnitChunk]:
    present = _present(federation, client, cell)
    owner = federation.unit_of_records(client)
    shard = federation.shard(client)
    for user in np.unique(owner[present]).tolist():
        if cell.taking_part is None or cell.taking_part[user]:
            records = shard.take(np.flatnonzero(present & (owner == user)))
            yield _together(federation, client, user, records, cell.moment)
    if (instead := _replacement(federation, client, cell)) is not None:
        yield _together(federation, client, federation.target, instead, cell.moment)


def _whole_client(federation: LoadedFederation, client: int, cell: CheckedCell) -> Iterator[UnitChunk]:
    own_targets = federation.targets_of(client)
    if not own_targets or cell.members[list(own_targets)].all():
        yield _together(federation, client, client, federation.shard(client), cell.moment)
    elif (instead := _replacement(federation, client, cell)) is not None:
        yield _together(federation, client, client, instead, cell.moment)


def _together(
    federation: LoadedFederation, client: int, number: int, examples: Examples, context: RoundContext
) -> UnitChunk:
    return UnitChunk(np.array([number]), lambda model: contributed(federation, client, examples, model, context))
