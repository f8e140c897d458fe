"""Division of users' records into the passes of a computation, such that all records of a user are in one pass."""

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
    """Users with similar numbers of records, so that their records can be padded to the same number k."""

    segments: Tensor  # numbers of the users, int64 (s,)
    places: Tensor  # places of the records of each, int64 (s, k), padded with any place
    # 1 where that is a record of the user, else 0, float32 (s, k); None where all users have k records.
    held: Tensor | None
    # The places, where they follow each other and all users have k records, so that nothing need be copied; else None.
    span: slice | None = None
    run: slice | None = None  # their numbers, where these follow each other, else None

    def read(self, values: Tensor, padded_by_zeros: bool = True) -> Tensor:
        """Return the values of the users' records, shape (axis, s, k, ...), from values (axis, places, ...).

        Parameters
        ----------
        values
            Values of the records at all places, (axis, places, ...).
        padded_by_zeros
            Whether padding is filled with zeros; otherwise it holds any value of the same user, which is faster.
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
    """The places of a pass's records, grouped by user.

    If all trials process the same records, they share one axis of users. If each trial has its own sample, the places
    of all trials are concatenated, and a user who is in two trials counts as two users.
    """

    users: Tensor  # user of each record, int64 (n,), or (trials, n) with -1 for places that only fill up a row
    # Products of the rows of users in inputs that all trials share, by layer and bucket: the same in every round.
    kept: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether each trial has its own sample of records."""
        return self.users.dim() == 2

    @cached_property
    def runs(self) -> tuple[Tensor, Tensor]:
        """Index of the user (run of equal users) of each place, and the number of records of each user."""
        flat = self.users
        if self.is_own:
            trials = torch.arange(len(flat), device=flat.device).unsqueeze(1)
            flat = (flat + 1 + trials * (int(flat.max()) + 2)).flatten()
        _, segment, lengths = torch.unique_consecutive(flat, return_inverse=True, return_counts=True)
        return segment, lengths

    @property
    def count(self) -> int:
        """Number of users along the axis of users."""
        return len(self.runs[1])

    @cached_property
    def is_first(self) -> Tensor:
        """1 at the first place of each user and 0 at the others, float64 (n,) or (trials, n)."""
        segment, lengths = self.runs
        first = torch.zeros(len(segment), dtype=torch.float64, device=segment.device)
        first[lengths.cumsum(0) - lengths] = 1.0
        return first.view(self.users.shape)

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The users in buckets by number of records, so that there is little padding."""
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
        """The trial of each user, int64 (users,), if each trial has its own sample."""
        _, lengths = self.runs
        return (lengths.cumsum(0) - lengths) // self.users.shape[1]


@dataclass(frozen=True)
class MicrobatchUsers:
    """The records of a pass, grouped by user."""

    portion: MicrobatchExamples
    groups: UserGroups
    trials: int  # number of trials

    def by_place(self, of_users: Tensor) -> Tensor:
        """Return values per user (axis, users) expanded to the places of their records, (trials, n)."""
        placed = of_users[:, self.groups.runs[0]]
        return placed.view(self.groups.users.shape) if self.portion.is_own else placed

    def along(self, values: Tensor) -> Tensor:
        """Return values (trials, n, ...) reshaped to (axis, places, ...), as in `UserGroups`."""
        return values.reshape(1, -1, *values.shape[2:]) if self.portion.is_own else values

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum of values (trials, n, ...) over the records of each user, (axis, users, ...)."""
        along, groups = self.along(values), self.groups
        total = along.new_zeros(along.shape[0], groups.count, *along.shape[2:])
        if not all(one.span and one.run for one in groups.buckets):
            return total.index_add_(1, groups.runs[0], along)
        for one in groups.buckets:
            total[:, one.run] = one.read(along).sum(2)
        return total


def _limits(longest: int) -> list[int]:
    """Return the largest number of records per user in each bucket, ascending until `longest` is covered."""
    limits = [1]
    while limits[-1] < longest:
        limits.append(limits[-1] + 1 if limits[-1] < _EXACT else limits[-1] * 3 // 2)
    return limits


def _bucket(segments: Tensor, starts: Tensor, lengths: Tensor) -> Bucket:
    """Return the bucket of the users with the given numbers."""
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
    """Records of whole users that fit into one pass."""

    work: ClippedSumExamples
    users: Tensor  # user of each, int64 (n,)

    @cached_property
    def _shared(self) -> UserGroups:
        """The users of the block's records, if all trials share the records."""
        return UserGroups(self.users)

    def trials_per_pass(self, model: StackedModel) -> int:
        """Return the number of trials per pass."""
        return model.trials_per_pass(max(1, self.work.width))

    def passes(self, model: StackedModel, trials: int) -> Iterator[slice]:
        """Yield the slice of trials of each pass.

        Parameters
        ----------
        model
            The stacked model; its cache of values derived from other records is cleared.
        trials
            Number of trials.
        """
        model.forget()
        width = self.trials_per_pass(model)
        for first in range(0, trials, width):
            yield slice(first, min(trials, first + width))

    def users_of(self, rows: slice, trials: int) -> MicrobatchUsers:
        """Return the records of one pass, grouped by user.

        Parameters
        ----------
        rows
            The trials of the pass.
        trials
            Number of models in the pass; it exceeds the number of trials if the pass is padded with copies.
        """
        portion = self.work.portion(rows, slice(0, self.work.width))
        if self.work.chosen is None:
            return MicrobatchUsers(portion, self._shared, trials)
        assert portion.counted is not None, "what fills up a row does not count"
        users = torch.where(portion.counted > 0, self.users[self.work.chosen[rows]], -1)
        return MicrobatchUsers(portion, UserGroups(users), trials)


@dataclass(frozen=True)
class UserRecords:
    """Records sorted such that those of a user are adjacent; users are sorted by their number of records, ascending.

    So the records of users with equal numbers of records can be read without a copy. The order depends only on `users`,
    so this object and what is cached in it can be reused for all computations on the same records.
    """

    features: Tensor
    labels: Tensor
    users: Tensor
    order: Tensor | None  # number of each user here in the order that was given; None where that is the same
    places: Tensor | None  # places of the records here in the order that was given; None where that is the same
    _blocks: dict[int, list[UserBlock]] = field(default_factory=dict)  # of all records, by their limit

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, users: Tensor) -> "UserRecords":
        """Return the records sorted by user, users with few records first.

        Parameters
        ----------
        features
            Features of the records, float32 (n, *shape), n may be 0.
        labels
            Classes of the records, int64 (n,).
        users
            Number of the user of each record; raises `InputError` if shapes do not match.
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
        """Yield blocks of whole users with up to `limit` records per trial, and at least one user each.

        Parameters
        ----------
        limit
            Number of records per trial that fit into a block.
        taking_part
            Whether each record participates in each trial, bool (trials, n), in the original order; None if all do.
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
