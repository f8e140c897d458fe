"""Division of users' records into the passes of a computation, so that all records of a user are in one pass."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning.microbatching import ClippedSumInputs, Microbatch
from fl_audit.learning.pass_budgets import slices
from fl_audit.learning.stacked_model import StackedModel

_EXACT = 8
"""Users with up to this number of records share a bucket only with users of the same number of records."""


class Bucket(NamedTuple):
    """Users with similar numbers of records, whose records are padded to the same number k."""

    segments: Tensor  # numbers of the s users, int64 (s,)
    places: Tensor  # places of each user's records, int64 (s, k), padded with the user's first place
    held: Tensor | None  # 1 for a record and 0 for padding, float32 (s, k); None if all users have k records
    span: slice | None = None  # `places` as a slice if they are consecutive and without padding, otherwise None
    run: slice | None = None  # `segments` as a slice if they are consecutive, otherwise None

    def read(self, values: Tensor, padded_by_zeros: bool = True) -> Tensor:
        """Return the values of the records of s users, padded to k records per user, (axis, s, k, ...).

        Shapes: `values` (axis, records, ...).
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
    """The places (positions) of a pass's records, grouped by user.

    If each trial has its own sample, the places of all trials are concatenated, and a user who is in two trials counts
    as two users. Otherwise all trials share the users.
    """

    users: Tensor  # number of each record's user, int64 (n,), or (trials, n) with -1 for padding
    # Cache of Gram matrices of inputs that all trials share, keyed by layer and bucket; they are equal in all rounds.
    kept: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether each trial has its own sample of records; otherwise all trials process the same records."""
        return self.users.dim() == 2

    @cached_property
    def user_of_record_and_counts(self) -> tuple[Tensor, Tensor]:
        """Index of each record's user, int64 (places,), and number of records of each user, int64 (users,).

        Users are told apart by changes between neighbours in `users`. So a user whose records do not follow each other
        counts several times. A place is a record's position in the pass.
        """
        flat = self.users
        if self.is_own:
            trials = torch.arange(len(flat), device=flat.device).unsqueeze(1)
            flat = (flat + 1 + trials * (int(flat.max()) + 2)).flatten()
        _, segment, lengths = torch.unique_consecutive(flat, return_inverse=True, return_counts=True)
        return segment, lengths

    @property
    def count(self) -> int:
        """Number of users. If each trial has its own sample, a user counts once for each trial."""
        return len(self.user_of_record_and_counts[1])

    @cached_property
    def is_first(self) -> Tensor:
        """1 at each user's first record in the pass and 0 at all other records, float64 (n,) or (trials, n)."""
        segment, lengths = self.user_of_record_and_counts
        first = torch.zeros(len(segment), dtype=torch.float64, device=segment.device)
        first[lengths.cumsum(0) - lengths] = 1.0
        return first.view(self.users.shape)

    @cached_property
    def buckets(self) -> list[Bucket]:
        """Users in buckets of similar numbers of records, so that little padding is needed."""
        _, lengths = self.user_of_record_and_counts
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
        """Index of each user's trial, int64 (users,); defined only if each trial has its own sample of records."""
        _, lengths = self.user_of_record_and_counts
        return (lengths.cumsum(0) - lengths) // self.users.shape[1]


@dataclass(frozen=True)
class MicrobatchByUser:
    """Records of one pass, grouped by user.

    Arrays with a value for each user have the shape (axis, users, ...). `axis` is the number of trials. If each trial
    has its own sample, `axis` is 1, and `users` counts the users of all trials together.
    """

    portion: Microbatch  # records of the pass
    groups: UserGroups  # places of the records, grouped by user
    trials: int  # number of trials in the pass

    def values_per_record(self, of_users: Tensor) -> Tensor:
        """Return the value of each record's user, (trials, n), from the values of users, (axis, users)."""
        placed = of_users[:, self.groups.user_of_record_and_counts[0]]
        return placed.view(self.groups.users.shape) if self.portion.is_own else placed

    def on_user_axis(self, values: Tensor) -> Tensor:
        """Return values of records, (trials, n, ...), with the first axis of arrays that have a value for each user.

        If each trial has its own sample, all records are put into one row, (1, trials * n, ...). Otherwise nothing
        changes.
        """
        return values.reshape(1, -1, *values.shape[2:]) if self.portion.is_own else values

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum of a value over the records of each user, shape (axis, users, ...).

        `values` has the shape (trials, n, ...). `axis` is the number of trials if the trials share the records.
        Otherwise it is 1, and `users` counts the users of all trials.
        """
        along, groups = self.on_user_axis(values), self.groups
        total = along.new_zeros(along.shape[0], groups.count, *along.shape[2:])
        if not all(one.span and one.run for one in groups.buckets):
            return total.index_add_(1, groups.user_of_record_and_counts[0], along)
        for one in groups.buckets:
            total[:, one.run] = one.read(along).sum(2)
        return total


def _limits(longest: int) -> list[int]:
    """Return the largest number of records per user for each bucket, ascending.

    A bucket holds users with similar numbers of records, which are computed together. The last limit is at least
    `longest`, the largest number of records of a user.
    """
    limits = [1]
    while limits[-1] < longest:
        limits.append(limits[-1] + 1 if limits[-1] < _EXACT else limits[-1] * 3 // 2)
    return limits


def _bucket(segments: Tensor, starts: Tensor, lengths: Tensor) -> Bucket:
    """Return the `Bucket` of the users with the numbers `segments`, whose records are padded to one length.

    `starts` and `lengths`, each (users,), give the first record and the number of records of every user.
    """
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
    """Records of whole users that fit into one pass, that is, one forward and backward computation."""

    work: ClippedSumInputs  # the records, with the samples of the trials
    users: Tensor  # number of each record's user, int64 (n,)

    @cached_property
    def _shared(self) -> UserGroups:
        return UserGroups(self.users)

    def trials_per_pass(self, model: StackedModel) -> int:
        """Return the number of trials in one pass over the block's records."""
        return model.trials_per_pass(max(1, self.work.width))

    def passes(self, model: StackedModel, trials: int) -> Iterator[slice]:
        """Yield the slice of trials of each pass over the block's records."""
        model.forget()
        yield from slices(trials, self.trials_per_pass(model))

    def users_of(self, rows: slice, trials: int) -> MicrobatchByUser:
        """Return the block's records for one pass, grouped by user."""
        portion = self.work.portion(rows, slice(0, self.work.width))
        if self.work.chosen is None:
            return MicrobatchByUser(portion, self._shared, trials)
        assert portion.counted is not None, "what fills up a row does not count"
        users = torch.where(portion.counted > 0, self.users[self.work.chosen[rows]], -1)
        return MicrobatchByUser(portion, UserGroups(users), trials)


@dataclass(frozen=True)
class RecordsSortedByUser:
    """Records in an order in which each user's records are adjacent, and users with few records come first.

    In this order, the records of users with equal numbers of records are read without a copy. The object can be reused
    in all rounds.
    """

    features: Tensor  # features of the sorted records, (n, *shape)
    labels: Tensor  # classes of the sorted records, int64 (n,)
    users: Tensor  # number of each sorted record's user, int64 (n,)
    order: Tensor | None  # position of each sorted user among the users before sorting; None if no user was moved
    places: Tensor | None  # position of each sorted record before sorting; None if no record was moved
    _blocks: dict[int, list[UserBlock]] = field(default_factory=dict)  # blocks of all records, keyed by their limit

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, users: Tensor) -> "RecordsSortedByUser":
        """Return records sorted by user, beginning with the users with the fewest records.

        Raises `InputError` if the shapes of `labels` and `users` differ.

        Shapes: `features` (n, *shape).
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
        """Yield blocks of whole users with at most `limit` records per trial; a block has at least one user.

        Shapes: `taking_part` (trials, n).
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
            work = ClippedSumInputs.of(self.features[some], self.labels[some], part)
            if work.width:
                yield UserBlock(work, self.users[some])
            first = last
