"""Epsilon* and accuracy of users: what a released model gives away of persons who have several records.

The statistic of a user is the mean of the losses of the user's records. A mean is a fixed function of what an attacker
can compute, as a loss is, so that Epsilon* of these means is a lower bound on what is given away of users as Epsilon*
of losses is on what is given away of records.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fl_audit.adjacency import Unit
from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.registry import audit_of
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.result_columns import ResultColumns
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.released_model.epsilon_star import StarSettings, parametric_epsilon_star
from fl_audit.server.evaluator import EvaluatedRelease

_FEWEST = 2  # users from which a spread is known


def means_of_users(values: Floats, users: Integers) -> Floats:
    """Return the mean of the values of each user's records, users in ascending order, (..., users).

    Parameters
    ----------
    values
        A value for each record, shape (..., n).
    users
        Number of the user of each record, shape (n,).

    Examples
    --------
    >>> means_of_users(np.array([[1.0, 5.0, 3.0]]), np.array([4, 7, 4])).tolist()
    [[2.0, 5.0]]
    """
    _, own, counts = np.unique(users, return_inverse=True, return_counts=True)
    order, starts = np.argsort(own, kind="stable"), np.cumsum(counts) - counts
    if not counts.size:
        return values[..., :0]
    means: Floats = np.add.reduceat(values[..., order], starts, axis=-1) / counts
    return means


@dataclass(frozen=True)
class UserLosses:
    """The losses of users in a trial batch, in the form in which an audit asks for the losses of members."""

    membership: TargetMembership  # membership of the targets
    common_losses: Floats  # of users that every trial has (trials, users)
    differing_losses: Floats  # of the target, or of every target
    replacement_losses: Floats  # of the user in its place under D'; (trials, 0) where nothing replaces it

    @classmethod
    def of(cls, release: EvaluatedRelease) -> "UserLosses":
        """Return the losses of users under a released model.

        Parameters
        ----------
        release
            The release of a run whose units are users.
        """
        federation, instead = release.federation, release.replacement_losses
        users = _required(federation.user)[federation.common_records]
        return cls(
            release.membership,
            means_of_users(release.common_losses, users),
            means_of_users(release.differing_losses, release.target_of_records),
            instead.mean(axis=1, keepdims=True) if instead.shape[1] else instead,
        )

    @property
    def target_of_records(self) -> Integers:
        """The target that each differing unit is."""
        return np.arange(self.differing_losses.shape[1])


def has_losses_of_users(federation: LoadedFederation) -> bool:
    """Return whether users are the units, and the population sample has users enough to compare with.

    Parameters
    ----------
    federation
        The federation.
    """
    others = federation.population_records.user
    is_known = federation.public.mechanism.unit is Unit.USER and others is not None
    return is_known and len(np.unique(_required(others))) >= _FEWEST and len(federation.common.labels) >= _FEWEST


def of_users(star: StarSettings | None, release: EvaluatedRelease) -> ResultColumns:
    """Return Epsilon* of users, by normals, and the accuracy of the model on each test user, on average.

    Parameters
    ----------
    star
        Settings of Epsilon*, its delta and its cut among them; None leaves Epsilon* out.
    release
        The release that is evaluated.
    """
    found: dict[str, Floats] = {}
    if star is not None and has_losses_of_users(release.federation):
        values = np.full(release.batch.count, np.nan)
        for rows, members, population in _members_and_population(release):
            if members.shape[1] >= _FEWEST:
                values[rows] = parametric_epsilon_star(members, population, star.delta, cut=star.cut)
        found["epsilon_star_user"] = values
    users, accuracy = release.federation.test_records.user, {}
    if users is not None and release.federation.public.mechanism.unit is Unit.USER:
        right = (release.logits.argmax(dim=2) == release.federation.test.labels).double().cpu().numpy()
        accuracy["test_accuracy_user"] = means_of_users(right, users).mean(axis=1)
    return ResultColumns(trials={**found, **accuracy}, releases=found)


def _members_and_population(release: EvaluatedRelease) -> Iterator[tuple[Flags, Floats, Floats]]:
    others = means_of_users(release.population_losses, _required(release.federation.population_records.user))
    for rows, members in audit_of(release.federation.public).members(UserLosses.of(release)):
        yield rows, members, others[rows]


def _required(users: Integers | None) -> Integers:
    assert users is not None, "users are the units"
    return users
