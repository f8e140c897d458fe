"""Epsilon*, the privacy risk of a model, and accuracy for users, i.e. persons with several records each.

A user's loss is the mean loss on the user's records. An attacker can compute this mean. Therefore Epsilon* of users'
mean losses is a lower bound on the privacy loss of users, just as Epsilon* of records' losses is a lower bound on the
privacy loss of records.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fl_audit.adjacency import Unit
from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.registry import audit_of
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.released_model.parametric_star import StarSettings, parametric_epsilon_star
from fl_audit.server.release_findings import ReleaseWithOutputs

_FEWEST = 2  # smallest number of users for which a variance can be estimated


def means_by_unit(values: Floats, units: Integers) -> Floats:
    """Return the mean of values over the records of each unit, shape (..., units), units in ascending order.

    Shapes: `units` (n,).

    Examples
    --------
    >>> means_by_unit(np.array([[1.0, 5.0, 3.0]]), np.array([4, 7, 4])).tolist()
    [[2.0, 5.0]]
    """
    _, unit_index, counts = np.unique(units, return_inverse=True, return_counts=True)
    order = np.argsort(unit_index, kind="stable")
    starts = np.cumsum(counts) - counts
    if not counts.size:
        return values[..., :0]
    means: Floats = np.add.reduceat(values[..., order], starts, axis=-1) / counts
    return means


@dataclass(frozen=True)
class UserLosses:
    """The mean losses of users in a batch of trials; audits use them in the same way as losses of records."""

    membership: TargetMembership  # membership of the targets
    common_losses: Floats  # mean losses of the users in all trials, (trials, users)
    differing_losses: Floats  # mean losses of the target, or of every target, (trials, targets)
    replacement_losses: Floats  # mean losses of the target's replacement under D'; (trials, 0) if there is none

    @classmethod
    def of(cls, release: ReleaseWithOutputs) -> "UserLosses":
        """Return the mean losses of users for a release of a run whose privacy unit is the user."""
        federation = release.federation
        instead = release.replacement_losses
        users = _required(federation.user)[federation.common_records]
        return cls(
            release.membership,
            means_by_unit(release.common_losses, users),
            means_by_unit(release.differing_losses, release.target_of_records),
            instead.mean(axis=1, keepdims=True) if instead.shape[1] else instead,
        )

    @property
    def target_of_records(self) -> Integers:
        """Number of the target of each column of `differing_losses`, (targets,): 0, 1, 2, ..., one column a target."""
        return np.arange(self.differing_losses.shape[1])


def has_losses_of_users(federation: LoadedFederation) -> bool:
    """Return whether the unit is the user, with enough users among members and population for their Epsilon*."""
    user = federation.population_records.user
    is_known = federation.public.mechanism.unit is Unit.USER and user is not None
    return is_known and len(np.unique(_required(user))) >= _FEWEST and len(federation.common.labels) >= _FEWEST


def of_users(star: StarSettings | None, release: ReleaseWithOutputs) -> TrialBatchColumns:
    """Return users' Epsilon* and mean accuracy for a released model; a column that does not apply is left out.

    Column `epsilon_star_user`, (trials,), is Epsilon* computed from normal distributions that are fitted to scores of
    the users' mean losses. It is NaN if a trial has too few users. Column `test_accuracy_user`, (trials,), is the
    accuracy per test user, averaged over users.
    """
    columns: dict[str, Floats] = {}
    if star is not None and has_losses_of_users(release.federation):
        values = np.full(release.batch.count, np.nan)
        for rows, members, population in _members_and_population(release):
            if members.shape[1] >= _FEWEST:
                values[rows] = parametric_epsilon_star(members, population, star.delta, cut=star.cut)
        columns["epsilon_star_user"] = values
    users = release.federation.test_records.user
    accuracy = {}
    is_of_classes = not release.federation.test_records.has_quantities
    if users is not None and is_of_classes and release.federation.public.mechanism.unit is Unit.USER:
        right = (release.logits.argmax(dim=2) == release.federation.test.labels).double().cpu().numpy()
        accuracy["test_accuracy_user"] = means_by_unit(right, users).mean(axis=1)
    return TrialBatchColumns(trials={**columns, **accuracy}, releases=columns)


def _members_and_population(release: ReleaseWithOutputs) -> Iterator[tuple[Flags, Floats, Floats]]:
    population_losses = means_by_unit(release.population_losses, _required(release.federation.population_records.user))
    for rows, members in audit_of(release.federation.public).member_losses(UserLosses.of(release)):
        yield rows, members, population_losses[rows]


def _required(users: Integers | None) -> Integers:
    assert users is not None, "users are the units"
    return users
