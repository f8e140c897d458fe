"""Division of records into the passes of a computation, so that all records of a user are in one pass.

A record whose user is not named is a user with one record.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning.microbatching import ClippedSumInputs, Microbatch, is_gathering_cheaper
from fl_audit.learning.pass_budgets import slices
from fl_audit.learning.user_groups import UserGroups


@dataclass(frozen=True)
class RecordBlock:
    """Records of whole users that fit into one pass, that is, one forward and backward computation."""

    inputs: ClippedSumInputs  # the records, with the samples of the trials
    users: Tensor | None  # number of each record's user, int64 (n,); None if each record is a user

    @property
    def width(self) -> int:
        """Number of records that each trial processes, at least 1."""
        return self.inputs.width

    @cached_property
    def _shared_groups(self) -> UserGroups:
        assert self.users is not None
        return UserGroups(self.users)

    def microbatch(self, rows: slice) -> Microbatch:
        """Return the block's records for one pass over some trials, grouped by user."""
        microbatch = self.inputs.microbatch(rows, slice(0, self.width))
        if self.users is None:
            return microbatch
        if self.inputs.chosen is None:
            return microbatch.with_groups(self._shared_groups)
        assert microbatch.sample_weights is not None, "what fills up a row does not count"
        user_numbers = torch.where(microbatch.sample_weights > 0, self.users[self.inputs.chosen[rows]], -1)
        return microbatch.with_groups(UserGroups(user_numbers))


@dataclass(frozen=True)
class GroupedRecords:
    """Records in an order in which each user's records are adjacent, and users with few records come first.

    In this order, the records of users with equal numbers of records are read without a copy. The object can be reused
    in all rounds. Without users, each record is a user.
    """

    features: Tensor  # features of the records, (n, *shape), or (trials, n, *shape) if they differ between trials
    labels: Tensor  # classes of the records, int64 (n,) or (trials, n)
    users: Tensor | None = None  # number of each record's user, int64 (n,); None if each record is a user
    # Position of each sorted user among the users before sorting, int64 (users,); None if no user was moved.
    user_order: Tensor | None = None
    # Position of each sorted record before sorting, int64 (n,); None if no record was moved.
    record_order: Tensor | None = None
    _blocks: dict[int, list[RecordBlock]] = field(default_factory=dict)  # blocks of all records, keyed by their limit

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, users: Tensor | None) -> "GroupedRecords":
        """Return records sorted by user, beginning with the users with the fewest records.

        Raises `InputError` if the shapes of `labels` and `users` differ.

        Shapes: `features` (n, *shape), `labels` (n,), `users` (n,).
        """
        if users is None:
            return cls(features, labels)
        counts = f"there are {len(users)} users of {len(labels)} records"
        require(users.shape == labels.shape and labels.dim() == 1, f"{counts}: accepted is one for each, shape (n,)")
        different_users = len(torch.unique(users))
        if different_users == len(users):
            return cls(features, labels)
        record_order = None
        user_order = None
        sorted_users = users
        if len(torch.unique_consecutive(users)) > different_users:
            record_order = torch.argsort(users, stable=True)
            sorted_users = users[record_order]
        _, user_of_record, lengths = torch.unique_consecutive(sorted_users, return_inverse=True, return_counts=True)
        if bool((lengths[1:] < lengths[:-1]).any()):
            user_order = torch.argsort(lengths, stable=True)
            by_length = torch.argsort(lengths[user_of_record], stable=True)
            record_order = by_length if record_order is None else record_order[by_length]
        if record_order is None:
            return cls(features, labels, users)
        rows = features.index_select(0, record_order)
        return cls(rows, labels[record_order], users[record_order], user_order, record_order)

    @property
    def is_own(self) -> bool:
        """Whether each trial has its own records; otherwise all trials share them."""
        return self.labels.dim() == 2

    def blocks(self, limit: int, taking_part: Tensor | None = None) -> Iterator[RecordBlock]:
        """Yield blocks of whole users with about `limit` records per trial; a block has at least one user.

        Blocks in which no trial has a record are left out.

        Shapes: `taking_part` (trials, n).
        """
        if taking_part is not None:
            order = self.record_order
            yield from self._cut(limit, taking_part if order is None else taking_part[:, order])
            return
        if limit not in self._blocks:
            self._blocks[limit] = list(self._cut(limit, None))
        yield from self._blocks[limit]

    def _cut(self, limit: int, taking_part: Tensor | None) -> Iterator[RecordBlock]:
        for records in self._record_slices(limit, taking_part):
            index = (slice(None), records) if self.is_own else records
            sample = None if taking_part is None else taking_part[:, records]
            inputs = ClippedSumInputs.of(self.features[index], self.labels[index], sample)
            if inputs.width:
                yield RecordBlock(inputs, None if self.users is None else self.users[records])

    def _record_slices(self, limit: int, taking_part: Tensor | None) -> Iterator[slice]:
        """Yield the slice of the records of each block."""
        count = self.labels.shape[-1]
        sample = taking_part if taking_part is not None and is_gathering_cheaper(taking_part) else None
        if count == 0 or (self.users is None and (sample is None or count <= limit)):
            yield from slices(count, limit)
            return
        if self.users is None:
            ends = torch.arange(1, count + 1, device=self.labels.device)
        else:
            ends = torch.unique_consecutive(self.users, return_counts=True)[1].cumsum(0)
        # Number of records that a trial processes up to the end of each user.
        totals = ends.unsqueeze(0) if sample is None else sample.cumsum(1)[:, ends - 1]
        first = 0
        while first < len(ends):
            before = totals[:, first - 1 : first] if first else torch.zeros_like(totals[:, :1])
            largest = (totals[:, first:] - before).amax(0)
            last = first + max(1, int(torch.searchsorted(largest, limit, right=True)))
            yield slice(int(ends[first - 1]) if first else 0, int(ends[last - 1]))
            first = last
