"""Division of the records of users into the passes of a computation: the records of a user stay together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning.microbatching import ClippedSumExamples, MicrobatchExamples
from fl_audit.learning.stacked_model import StackedModel

_EXACT = 8
"""Number of records up to which the users of a bucket have the same number of them."""


class Bucket(NamedTuple):
    """Users with similar numbers of records."""

    segments: Tensor  # numbers of the users, int64 (s,)
    places: Tensor  # places of the records of each, int64 (s, k), padded with any place
    # 1 where that is a record of the user, else 0, float32 (s, k); None where all users have k records.
    held: Tensor | None
    # The places, where they follow each other and all users have k records, so that nothing need be copied; else None.
    span: slice | None = None
    run: slice | None = None  # their numbers, where these follow each other, else None

    def read(self, values: Tensor, padded_by_zeros: bool = True) -> Tensor:
        """Return values (axis, places, ...) of the users' records, (axis, s, k, ...).

        Parameters
        ----------
        values
            A value for each place.
        padded_by_zeros
            Whether padded places hold zeros; else they hold any value of the user, which takes less time.
        """
        users, most = self.places.shape
        if self.span is not None:
            return values[:, self.span].reshape(len(values), users, most, *values.shape[2:])
        read = values.index_select(1, self.places.flatten()).view(len(values), users, most, *values.shape[2:])
        if self.held is None or not padded_by_zeros:
            return read
        return read.mul_(self.held.view(users, most, *([1] * (values.dim() - 2))))


@dataclass(frozen=True)
class UserGroups:
    """The places of the records in a pass, and which of them belong together.

    Where all trials work on the same records, users stand in one axis that the trials share; where each trial has drawn
    its own, the places of all trials stand in one row, and a user of two trials counts as two.
    """

    users: Tensor  # user of each record, int64 (n,), or (trials, n) with -1 for places that only fill up a row
    # Products of the rows of users in inputs that all trials share, by layer and bucket: the same in every round.
    kept: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether each trial has drawn records of its own."""
        return self.users.dim() == 2

    @cached_property
    def runs(self) -> tuple[Tensor, Tensor]:
        """The run of equal users that each place belongs to, and the length of each run."""
        flat = self.users
        if self.is_own:
            trials = torch.arange(len(flat), device=flat.device).unsqueeze(1)
            flat = (flat + 1 + trials * (int(flat.max()) + 2)).flatten()
        _, segment, lengths = torch.unique_consecutive(flat, return_inverse=True, return_counts=True)
        return segment, lengths

    @property
    def count(self) -> int:
        """Number of users along one axis."""
        return len(self.runs[1])

    @cached_property
    def is_first(self) -> Tensor:
        """1 for places that are the first of their user and 0 for others, float64 (n,) or (trials, n)."""
        segment, lengths = self.runs
        first = torch.zeros(len(segment), dtype=torch.float64, device=segment.device)
        first[lengths.cumsum(0) - lengths] = 1.0
        return first.view(self.users.shape)

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The users by how many records they have, so that little is padded."""
        _, lengths = self.runs
        starts = lengths.cumsum(0) - lengths
        real = self.users.flatten()[starts] >= 0
        longest = int((lengths * real).max()) if len(lengths) else 0
        sizes = torch.bucketize(lengths, torch.tensor(_limits(longest), device=lengths.device))
        sizes = torch.where(real, sizes, -1)
        order = torch.argsort(sizes, stable=True)
        found, counts = torch.unique_consecutive(sizes[order], return_counts=True)
        some = zip(found.tolist(), torch.split(order, counts.tolist()), strict=True)
        return [_bucket(segments, starts, lengths) for size, segments in some if size >= 0]

    @cached_property
    def trial_of_user(self) -> Tensor:
        """The trial of each user, where trials have drawn their own, int64 (users,)."""
        _, lengths = self.runs
        return (lengths.cumsum(0) - lengths) // self.users.shape[1]


@dataclass(frozen=True)
class MicrobatchUsers:
    """The records of a pass, and the users that they are of."""

    portion: MicrobatchExamples
    groups: UserGroups
    trials: int  # number of trials

    def by_place(self, of_users: Tensor) -> Tensor:
        """Return `of_users`, (axis, users), at the place of each record, (trials, n)."""
        placed = of_users[:, self.groups.runs[0]]
        return placed.view(self.groups.users.shape) if self.portion.is_own else placed

    def along(self, values: Tensor) -> Tensor:
        """Return values (trials, n, ...) with the places in the second axis, (axis, places, ...)."""
        return values.reshape(1, -1, *values.shape[2:]) if self.portion.is_own else values

    def summed(self, values: Tensor) -> Tensor:
        """Return values (trials, n, ...) added up over the records of each user, (axis, users, ...)."""
        along, groups = self.along(values), self.groups
        total = along.new_zeros(along.shape[0], groups.count, *along.shape[2:])
        if not all(one.span and one.run for one in groups.buckets):
            return total.index_add_(1, groups.runs[0], along)
        for one in groups.buckets:
            total[:, one.run] = one.read(along).sum(2)
        return total


def _limits(longest: int) -> list[int]:
    """Return the largest number of records in each bucket, up to the number that any user has."""
    limits = [1]
    while limits[-1] < longest:
        limits.append(limits[-1] + 1 if limits[-1] < _EXACT else limits[-1] * 3 // 2)
    return limits


def _bucket(segments: Tensor, starts: Tensor, lengths: Tensor) -> Bucket:
    """Return the users of some numbers, with the places of their records."""
    first, own, count = starts[segments], lengths[segments], len(segments)
    fewest, most = (int(one) for one in own.aminmax())
    places = first.unsqueeze(1) + torch.arange(most, device=lengths.device)
    held = None
    if fewest < most:
        is_held = places < (first + own).unsqueeze(1)
        held, places = is_held.float(), torch.where(is_held, places, first.unsqueeze(1))
    start, number = int(first[0]), int(segments[0])
    follow = held is None and int(first[-1]) + most - start == count * most
    span = slice(start, start + count * most) if follow else None
    run = slice(number, number + count) if int(segments[-1]) - number == count - 1 else None
    return Bucket(segments, places, held, span, run)


@dataclass(frozen=True)
class UserBlock:
    """Records of whole users that a pass may hold."""

    work: ClippedSumExamples
    users: Tensor  # user of each, int64 (n,)

    @cached_property
    def _shared(self) -> UserGroups:
        """The users of records that all trials share."""
        return UserGroups(self.users)

    def trials_per_pass(self, model: StackedModel) -> int:
        """Return the number of trials that run together."""
        return model.trials_per_pass(max(1, self.work.width))

    def passes(self, model: StackedModel, trials: int) -> Iterator[slice]:
        """Yield the trials of each pass.

        Parameters
        ----------
        model
            The stacked model, which discards intermediate results on other records.
        trials
            Number of trials.
        """
        model.forget()
        width = self.trials_per_pass(model)
        for first in range(0, trials, width):
            yield slice(first, min(trials, first + width))

    def users_of(self, rows: slice, trials: int) -> MicrobatchUsers:
        """Return the users of one pass.

        Parameters
        ----------
        rows
            The trials of the pass.
        trials
            Number of models in the pass, which exceeds that of the trials where copies fill up the pass.
        """
        portion = self.work.portion(rows, slice(0, self.work.width))
        if self.work.chosen is None:
            return MicrobatchUsers(portion, self._shared, trials)
        assert portion.counted is not None, "what fills up a row does not count"
        users = torch.where(portion.counted > 0, self.users[self.work.chosen[rows]], -1)
        return MicrobatchUsers(portion, UserGroups(users), trials)


@dataclass(frozen=True)
class UserRecords:
    """Records sorted by user, so that those of each user follow one another; users with few records come first.

    Users with equally many records follow each other, so that their records are read without a copy. The order depends
    on the users alone: whoever computes on the same records again keeps this, and what is derived from it.
    """

    features: Tensor
    labels: Tensor
    users: Tensor
    order: Tensor | None  # number of each user here in the order that was given; None where that is the same
    places: Tensor | None  # places of the records here in the order that was given; None where that is the same
    _blocks: dict[int, list[UserBlock]] = field(default_factory=dict)  # of all records, by their limit

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, users: Tensor) -> "UserRecords":
        """Return the records in this order.

        Parameters
        ----------
        features
            Features of the records, as for `fl_audit.learning.user_gradients.clipped_user_sum`.
        labels
            Classes of the records, as for `clipped_user_sum`.
        users
            Number of the user of each record; `InputError` if shapes do not fit.
        """
        found = f"there are {len(users)} users of {len(labels)} records"
        require(users.shape == labels.shape and labels.dim() == 1, f"{found}: accepted is one for each, shape (n,)")
        places, by_size, runs = None, None, users
        if len(torch.unique_consecutive(users)) > len(torch.unique(users)):
            places = torch.argsort(users, stable=True)
            runs = users[places]
        _, run, lengths = torch.unique_consecutive(runs, return_inverse=True, return_counts=True)
        if bool((lengths[1:] < lengths[:-1]).any()):
            by_size = torch.argsort(lengths, stable=True)
            sorted_places = torch.argsort(lengths[run], stable=True)
            places = sorted_places if places is None else places[sorted_places]
        if places is None:
            return cls(features, labels, users, None, None)
        return cls(features.index_select(0, places), labels[places], users[places], by_size, places)

    def blocks(self, limit: int, taking_part: Tensor | None = None) -> Iterator[UserBlock]:
        """Yield blocks of whole users, with as many records as fit into one, and at least one user each.

        Parameters
        ----------
        limit
            Number of records of a trial that fit into a block.
        taking_part
            Whether each record takes part in each trial, bool (trials, n), in the order that was given; None if all do.
        """
        if taking_part is not None:
            yield from self._cut(limit, taking_part if self.places is None else taking_part[:, self.places])
            return
        if limit not in self._blocks:
            self._blocks[limit] = list(self._cut(limit, None))
        yield from self._blocks[limit]

    def _cut(self, limit: int, taking_part: Tensor | None) -> Iterator[UserBlock]:
        if len(self.labels) == 0:
            return
        _, lengths = torch.unique_consecutive(self.users, return_counts=True)
        ends = lengths.cumsum(0)
        # Number of records up to the end of each user, in every trial.
        held = ends.unsqueeze(0) if taking_part is None else taking_part.cumsum(1)[:, ends - 1]
        first = 0
        while first < len(ends):
            before = held[:, first - 1 : first] if first else torch.zeros_like(held[:, :1])
            most = (held[:, first:] - before).amax(0)
            last = first + max(1, int(torch.searchsorted(most, limit, right=True)))
            some = slice(int(ends[first - 1]) if first else 0, int(ends[last - 1]))
            part = None if taking_part is None else taking_part[:, some]
            work = ClippedSumExamples.of(self.features[some], self.labels[some], part)
            if work.width:
                yield UserBlock(work, self.users[some])
            first = last
