"""Division of the records of users into the passes of a computation: the records of a user stay together."""

from collections.abc import Iterator
from dataclasses import dataclass
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
    held: Tensor  # 1 where that is a record of the user, else 0, float32 (s, k)
    # The places, where they follow each other and all users have k records, so that nothing need be copied; else None.
    span: slice | None = None
    run: slice | None = None  # their numbers, where these follow each other, else None

    def read(self, values: Tensor) -> Tensor:
        """Return values (axis, places, ...) of the users' records, (axis, s, k, ...); padded places hold zeros.

        Parameters
        ----------
        values
            A value for each place.
        """
        users, most = self.places.shape
        if self.span is not None:
            return values[:, self.span].reshape(len(values), users, most, *values.shape[2:])
        held = self.held.view(users, most, *([1] * (values.dim() - 2)))
        read = values.index_select(1, self.places.flatten()).view(len(values), users, most, *values.shape[2:])
        return read * held


@dataclass(frozen=True)
class MicrobatchUsers:
    """The records of a pass, and which of them belong together.

    Where all trials work on the same records, users stand in one axis that the trials share; where each trial has drawn
    its own, the places of all trials stand in one row, and a user of two trials counts as two.
    """

    portion: MicrobatchExamples
    users: Tensor  # user of each record, int64 (n,), or (trials, n) with -1 for places that only fill up a row
    trials: int  # number of trials

    @cached_property
    def runs(self) -> tuple[Tensor, Tensor]:
        """The run of equal users that each place belongs to, and the length of each run."""
        flat = self.users
        if self.portion.is_own:
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
        starts, found = lengths.cumsum(0) - lengths, []
        real = self.users.flatten()[starts] >= 0
        longest = int(lengths[real].max()) if bool(real.any()) else 0
        low, high = 0, 1
        while low < longest:
            segments = (real & (lengths > low) & (lengths <= high)).nonzero().flatten()
            if len(segments):
                found.append(_bucket(segments, starts, lengths))
            low, high = high, high + 1 if high < _EXACT else high * 3 // 2
        return found

    def by_place(self, of_users: Tensor) -> Tensor:
        """Return `of_users`, (axis, users), at the place of each record, (trials, n)."""
        placed = of_users[:, self.runs[0]]
        return placed.view(self.users.shape) if self.portion.is_own else placed

    def along(self, values: Tensor) -> Tensor:
        """Return values (trials, n, ...) with the places in the second axis, (axis, places, ...)."""
        return values.reshape(1, -1, *values.shape[2:]) if self.portion.is_own else values

    def summed(self, values: Tensor) -> Tensor:
        """Return values (trials, n, ...) added up over the records of each user, (axis, users, ...)."""
        along = self.along(values)
        total = along.new_zeros(along.shape[0], self.count, *along.shape[2:])
        if not all(one.span and one.run for one in self.buckets):
            return total.index_add_(1, self.runs[0], along)
        for one in self.buckets:
            total[:, one.run] = one.read(along).sum(2)
        return total

    @cached_property
    def trial_of_user(self) -> Tensor:
        """The trial of each user, where trials have drawn their own, int64 (users,)."""
        _, lengths = self.runs
        return (lengths.cumsum(0) - lengths) // self.users.shape[1]


def _bucket(segments: Tensor, starts: Tensor, lengths: Tensor) -> Bucket:
    """Return the users of some numbers, with the places of their records."""
    first, own = starts[segments], lengths[segments]
    most, count = int(own.max()), len(segments)
    within = torch.arange(most, device=lengths.device)
    held = within < own.unsqueeze(1)
    places = torch.where(held, first.unsqueeze(1) + within, first.unsqueeze(1))
    start, number = int(first[0]), int(segments[0])
    follow = int(first[-1]) + most - start == count * most and int(own.min()) == most
    span = slice(start, start + count * most) if follow else None
    run = slice(number, number + count) if int(segments[-1]) - number == count - 1 else None
    return Bucket(segments, places, held.float(), span, run)


@dataclass(frozen=True)
class UserBlock:
    """Records of whole users that a pass may hold."""

    work: ClippedSumExamples
    users: Tensor  # user of each, int64 (n,)

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
        portion, users = self.work.portion(rows, slice(0, self.work.width)), self.users
        if self.work.chosen is not None:
            assert portion.counted is not None, "what fills up a row does not count"
            users = torch.where(portion.counted > 0, users[self.work.chosen[rows]], -1)
        return MicrobatchUsers(portion, users, trials)


@dataclass(frozen=True)
class UserRecords:
    """Records sorted by user, so that those of each user follow one another."""

    features: Tensor
    labels: Tensor
    users: Tensor
    taking_part: Tensor | None
    order: Tensor | None = None  # number of each user here in the order that was given; None where that is the same

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, users: Tensor, taking_part: Tensor | None) -> "UserRecords":
        """Return the records of each user one after the other; users with few records come first if all take part.

        Parameters
        ----------
        features
            Features of the records, as for `fl_audit.learning.user_gradients.clipped_user_sum`.
        labels
            Classes of the records, as for `clipped_user_sum`.
        users
            Number of the user of each record; `InputError` if shapes do not fit.
        taking_part
            Whether each record takes part in each trial, bool (trials, n); None if all do.
        """
        found = f"there are {len(users)} users of {len(labels)} records"
        require(users.shape == labels.shape and labels.dim() == 1, f"{found}: accepted is one for each, shape (n,)")
        order, runs = None, users
        if len(torch.unique_consecutive(users)) > len(torch.unique(users)):
            order = torch.argsort(users, stable=True)
            runs = users[order]
        by_size = None
        if taking_part is None:
            # Users with equally many records follow each other, so that their records are read without a copy.
            _, run, lengths = torch.unique_consecutive(runs, return_inverse=True, return_counts=True)
            if bool((lengths[1:] < lengths[:-1]).any()):
                by_size = torch.argsort(lengths, stable=True)
                places = torch.argsort(lengths[run], stable=True)
                order = places if order is None else order[places]
        if order is None:
            return cls(features, labels, users, taking_part)
        part = None if taking_part is None else taking_part[:, order]
        return cls(features.index_select(0, order), labels[order], users[order], part, by_size)

    def blocks(self, limit: int) -> Iterator[UserBlock]:
        """Yield blocks of whole users, with as many records as fit into one, and at least one user each.

        Parameters
        ----------
        limit
            Number of records of a trial that fit into a block.
        """
        if len(self.labels) == 0:
            return
        _, lengths = torch.unique_consecutive(self.users, return_counts=True)
        ends = lengths.cumsum(0)
        # Number of records up to the end of each user, in every trial.
        held = ends.unsqueeze(0) if self.taking_part is None else self.taking_part.cumsum(1)[:, ends - 1]
        first = 0
        while first < len(ends):
            before = held[:, first - 1 : first] if first else torch.zeros_like(held[:, :1])
            most = (held[:, first:] - before).amax(0)
            last = first + max(1, int(torch.searchsorted(most, limit, right=True)))
            some = slice(int(ends[first - 1]) if first else 0, int(ends[last - 1]))
            part = None if self.taking_part is None else self.taking_part[:, some]
            work = ClippedSumExamples.of(self.features[some], self.labels[some], part)
            if work.width:
                yield UserBlock(work, self.users[some])
            first = last
