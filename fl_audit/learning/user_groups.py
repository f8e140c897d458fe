"""Groups of a pass's records by user, and buckets of users with similar numbers of records."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

_EXACT_LENGTHS = 8
"""Users with up to this number of records share a bucket only with users of the same number of records."""


class Bucket(NamedTuple):
    """Users with similar numbers of records, whose records are padded to the same number k."""

    users: Tensor  # indices of the s users, int64 (s,)
    positions: Tensor  # positions of each user's records, int64 (s, k), padded with the user's first position
    is_record: Tensor | None  # 1 for a record and 0 for padding, float32 (s, k); None if all users have k records
    # `positions` as a slice if they are consecutive and without padding, otherwise None
    position_slice: slice | None = None
    user_slice: slice | None = None  # `users` as a slice if they are consecutive, otherwise None

    def read(self, values: Tensor, padded_by_zeros: bool = True) -> Tensor:
        """Return the values of the records of s users, padded to k records per user, (axis, s, k, ...).

        Shapes: `values` (axis, records, ...).
        """
        users, length = self.positions.shape
        if self.position_slice is not None:
            return values[:, self.position_slice].reshape(len(values), users, length, *values.shape[2:])
        padded = values.index_select(1, self.positions.flatten()).view(len(values), users, length, *values.shape[2:])
        if self.is_record is None or not padded_by_zeros:
            return padded
        return padded.mul_(self.is_record.view(users, length, *([1] * (values.dim() - 2))))


@dataclass(frozen=True)
class UserGroups:
    """The positions of a pass's records, grouped by user.

    Arrays with a value for each user have the shape (axis, users, ...). If all trials share the records, `axis` is the
    number of trials. If each trial has its own sample, the positions of all trials are concatenated, `axis` is 1, and a
    user who is in two trials counts as two users.
    """

    user_numbers: Tensor  # number of each record's user, int64 (n,), or (trials, n) with -1 for padding
    # Cache of Gram matrices of inputs that all trials share, keyed by layer and bucket; they are equal in all rounds.
    input_products: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether each trial has its own sample of records; otherwise all trials process the same records."""
        return self.user_numbers.dim() == 2

    @cached_property
    def user_of_record_and_counts(self) -> tuple[Tensor, Tensor]:
        """Index of each record's user, int64 (positions,), and number of records of each user, int64 (users,).

        Users are told apart by changes between neighbours in `user_numbers`. So a user whose records do not follow each
        other counts several times.
        """
        flat = self.user_numbers
        if self.is_own:
            trials = torch.arange(len(flat), device=flat.device).unsqueeze(1)
            flat = (flat + 1 + trials * (int(flat.max()) + 2)).flatten()
        _, user_of_record, lengths = torch.unique_consecutive(flat, return_inverse=True, return_counts=True)
        return user_of_record, lengths

    @property
    def count(self) -> int:
        """Number of users. If each trial has its own sample, a user counts once for each trial."""
        return len(self.user_of_record_and_counts[1])

    @cached_property
    def first_positions(self) -> Tensor:
        """Position of each user's first record, int64 (users,)."""
        _, lengths = self.user_of_record_and_counts
        return lengths.cumsum(0) - lengths

    @cached_property
    def is_first(self) -> Tensor:
        """1 at each user's first record in the pass and 0 at all other records, float64 (n,) or (trials, n)."""
        first = torch.zeros(self.user_numbers.numel(), dtype=torch.float64, device=self.user_numbers.device)
        first[self.first_positions] = 1.0
        return first.view(self.user_numbers.shape)

    @cached_property
    def buckets(self) -> list[Bucket]:
        """Users in buckets of similar numbers of records, so that little padding is needed."""
        _, lengths = self.user_of_record_and_counts
        is_user = self.user_numbers.flatten()[self.first_positions] >= 0
        longest = int((lengths * is_user).max()) if len(lengths) else 0
        sizes = torch.bucketize(lengths, torch.tensor(_limits(longest), device=lengths.device))
        sizes = torch.where(is_user, sizes, -1)
        order = torch.argsort(sizes, stable=True)
        size_values, counts = torch.unique_consecutive(sizes[order], return_counts=True)
        users_by_size = zip(size_values.tolist(), torch.split(order, counts.tolist()), strict=True)
        return [_bucket(users, self.first_positions, lengths) for size, users in users_by_size if size >= 0]

    def values_per_record(self, of_users: Tensor) -> Tensor:
        """Return the value of each record's user, (trials, n), from the values of users, (axis, users)."""
        of_records = of_users.index_select(1, self.user_of_record_and_counts[0])
        return of_records.view(self.user_numbers.shape) if self.is_own else of_records

    def on_user_axis(self, values: Tensor) -> Tensor:
        """Return values of records, (trials, n, ...), with the first axis of arrays that have a value for each user.

        If each trial has its own sample, all records are put into one row, (1, trials * n, ...). Otherwise nothing
        changes.
        """
        return values.reshape(1, -1, *values.shape[2:]) if self.is_own else values

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum of a value over the records of each user, shape (axis, users, ...).

        Shapes: `values` (trials, n, ...).
        """
        along = self.on_user_axis(values)
        total = along.new_zeros(along.shape[0], self.count, *along.shape[2:])
        if not all(bucket.position_slice and bucket.user_slice for bucket in self.buckets):
            return total.index_add_(1, self.user_of_record_and_counts[0], along)
        for bucket in self.buckets:
            total[:, bucket.user_slice] = bucket.read(along).sum(2)
        return total


def _limits(longest: int) -> list[int]:
    """Return the largest number of records per user for each bucket, ascending.

    A bucket holds users with similar numbers of records, which are computed together. The last limit is at least
    `longest`, the largest number of records of a user.
    """
    limits = [1]
    while limits[-1] < longest:
        limits.append(limits[-1] + 1 if limits[-1] < _EXACT_LENGTHS else limits[-1] * 3 // 2)
    return limits


def _bucket(users: Tensor, starts: Tensor, lengths: Tensor) -> Bucket:
    """Return the `Bucket` of the users with the indices `users`, whose records are padded to one length.

    `starts` and `lengths`, each (users,), give the first record and the number of records of every user.
    """
    first = starts[users]
    counts = lengths[users]
    fewest, longest = (int(count) for count in counts.aminmax())
    positions = first.unsqueeze(1) + torch.arange(longest, device=lengths.device)
    padding_mask = None
    if fewest < longest:
        is_record = positions < (first + counts).unsqueeze(1)
        padding_mask = is_record.float()
        positions = torch.where(is_record, positions, first.unsqueeze(1))
    start = int(first[0])
    user = int(users[0])
    are_consecutive = padding_mask is None and int(first[-1]) + longest - start == len(users) * longest
    position_slice = slice(start, start + len(users) * longest) if are_consecutive else None
    user_slice = slice(user, user + len(users)) if int(users[-1]) - user == len(users) - 1 else None
    return Bucket(users, positions, padding_mask, position_slice, user_slice)
