"""Division of examples into passes with all records of a user in one, and choice of what each pass computes.

There is a choice only if trials have their own samples or their own records.

If trials have samples of the same examples, there are two ways. In the first way, every trial processes all examples,
and examples outside of the trial's sample get weight 0. Then the first layer can compute all trials in one matrix
product. In the second way, every trial processes only its own sample, padded to the size of the largest sample with
examples of weight 0. This is less work, but no matrix product is shared.

If every trial has its own records, no matrix product can be shared anyway. Such records may be stored in a type that
takes less memory than float32, such as bytes for bits; each pass converts its own part.

A record whose user is not named is a user with one record.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning.pass_budgets import slices
from fl_audit.learning.user_groups import UserGroups

GATHERED_BELOW = 0.4
"""Each trial processes only its own sample if the largest sample is at most this share of all examples.

Both ways cost the same at a share of 0.4 for the model 104-6-6-2, 0.55 for logistic regression, 0.9 for the CNN on
MNIST and 0.95 for 600-128-100, on one core.
"""


@dataclass(frozen=True)
class Microbatch:
    """Examples of one pass, that is, of one forward and backward computation for some trials."""

    # Features: (n, *shape) if all trials share the examples, or (trials, n, *shape) if each trial has its own.
    features: Tensor
    labels: Tensor  # classes of the examples, (n,) or (trials, n)
    sample_weights: Tensor | None = None  # float32 (trials, n): 1 for an example that counts, else 0; None if all do
    groups: UserGroups | None = None  # the examples grouped by user; None if each example is a user

    @property
    def is_own(self) -> bool:
        """Whether each trial has its own examples; otherwise all trials share them."""
        return self.labels.dim() == 2

    @property
    def examples(self) -> int:
        """Number of examples per trial."""
        return self.labels.shape[-1]

    def merged(self, trials: int) -> tuple[Tensor, Tensor]:
        """Return the features for a stacked model, and the class for each of its outputs, (trials * n,).

        The features are (trials * n, *shape), or (n, *shape) if all trials share the n examples.
        """
        if self.is_own:
            return self.features.flatten(0, 1), self.labels.flatten()
        return self.features, self.labels.repeat(trials)

    def take(self, examples: slice) -> "Microbatch":
        """Return only the examples in a slice, for every trial, each as a user."""
        index = (slice(None), examples) if self.is_own else examples
        sample_weights = None if self.sample_weights is None else self.sample_weights[:, examples]
        return Microbatch(self.features[index], self.labels[index], sample_weights)

    def with_groups(self, groups: UserGroups) -> "Microbatch":
        """Return the same examples, grouped by user."""
        return replace(self, groups=groups)


@dataclass(frozen=True)
class ClippedSumPass:
    """One pass of a clipped sum: models, examples, and the clipping of the users' gradients."""

    models: Tensor  # parameters of the models of the pass, float32 (trials, parameters)
    microbatch: Microbatch  # examples of the pass
    # L2 norm to which each user's gradient is clipped, positive, or one for each trial, float64 (trials, 1); None for
    # no clipping.
    clipping_norm: float | Tensor | None
    slack: float = 0.0  # number added to each norm before clipping, at least 0; Opacus avoids a division by 0 with it


@dataclass(frozen=True)
class ClippedSumInputs(Microbatch):
    """All examples whose clipped gradients are summed.

    They are processed in parts, each in one pass (a forward and a backward computation).
    """

    # Indices of the examples that each trial processes, int64 (trials, width); None if each processes all.
    chosen: Tensor | None = None
    users: Tensor | None = None  # number of each example's user, int64 (n,); None if each example is a user

    @classmethod
    def of(
        cls, features: Tensor, labels: Tensor, taking_part: Tensor | None, users: Tensor | None = None
    ) -> "ClippedSumInputs":
        """Return the examples of a clipped sum in the form that is cheaper to compute with.

        If a trial's sample contains more than the share `GATHERED_BELOW` of the examples, the result has all examples,
        with weights 0 and 1. Otherwise the result has only the sampled examples of each trial.

        Shapes: `features` (n, *shape), `labels` (n,), `taking_part` (trials, n), `users` (n,).
        """
        if taking_part is None:
            return cls(features, labels, users=users)
        if not is_gathering_cheaper(taking_part):
            return cls(features, labels, taking_part.float(), users=users)
        sample_weights, chosen = _gathered(taking_part)
        return cls(features, labels, sample_weights, chosen=chosen, users=users)

    @property
    def width(self) -> int:
        """Number of examples that each trial processes."""
        return self.labels.shape[-1] if self.chosen is None else self.chosen.shape[1]

    def microbatch(self, rows: slice, examples: slice) -> Microbatch:
        """Return the examples that one pass computes, with features as float32."""
        sample_weights = None if self.sample_weights is None else self.sample_weights[rows, examples]
        index = examples if self.chosen is None else self.chosen[rows, examples]
        if not self.is_own:
            return Microbatch(self.features[index].float(), self.labels[index], sample_weights)
        if self.chosen is None:
            return Microbatch(self.features[rows, examples].float(), self.labels[rows, examples], sample_weights)
        trials = torch.arange(len(self.labels), device=self.labels.device)[rows].unsqueeze(1)
        return Microbatch(self.features[trials, index].float(), self.labels[trials, index], sample_weights)

    def grouped_microbatch(self, rows: slice) -> Microbatch:
        """Return all examples for one pass over some trials, grouped by user."""
        microbatch = self.microbatch(rows, slice(0, self.width))
        if self.users is None:
            return microbatch
        if self.chosen is None:
            return microbatch.with_groups(self._shared_groups)
        assert microbatch.sample_weights is not None, "what fills up a row does not count"
        user_numbers = torch.where(microbatch.sample_weights > 0, self.users[self.chosen[rows]], -1)
        return microbatch.with_groups(UserGroups(user_numbers))

    @cached_property
    def _shared_groups(self) -> UserGroups:
        assert self.users is not None
        return UserGroups(self.users)


def is_gathering_cheaper(taking_part: Tensor) -> bool:
    """Return whether it is cheaper that each trial processes only its own sample, padded to the largest sample.

    Shapes: `taking_part` (trials, n).
    """
    return _largest_sample(taking_part) <= GATHERED_BELOW * taking_part.shape[1]


def _largest_sample(taking_part: Tensor) -> int:
    return int(taking_part.sum(1).max()) if taking_part.numel() else 0


def _gathered(taking_part: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights and the indices of the examples in each trial's padded sample, each (trials, largest sample).

    Weights are 1 for examples of the sample. Padding has weight 0 and index 0.
    """
    trials, examples = taking_part.nonzero(as_tuple=True)
    counts = taking_part.sum(1)
    columns = torch.arange(len(trials), device=trials.device) - (counts.cumsum(0) - counts)[trials]
    shape = (len(taking_part), _largest_sample(taking_part))
    chosen = torch.zeros(shape, dtype=torch.int64, device=taking_part.device)
    sample_weights = torch.zeros(shape, device=taking_part.device)
    chosen[trials, columns] = examples
    sample_weights[trials, columns] = 1.0
    return sample_weights, chosen


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
    _blocks: dict[int, list[ClippedSumInputs]] = field(
        default_factory=dict
    )  # blocks of all records, keyed by their limit

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

    def blocks(self, limit: int, taking_part: Tensor | None = None) -> Iterator[ClippedSumInputs]:
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

    def _cut(self, limit: int, taking_part: Tensor | None) -> Iterator[ClippedSumInputs]:
        for records in self._record_slices(limit, taking_part):
            index = (slice(None), records) if self.is_own else records
            sample = None if taking_part is None else taking_part[:, records]
            users = None if self.users is None else self.users[records]
            block = ClippedSumInputs.of(self.features[index], self.labels[index], sample, users)
            if block.width:
                yield block

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
