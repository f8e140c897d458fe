"""Measure the largest groups in D, such as the most records of one user, and count the users outside D."""

from dataclasses import dataclass

import numpy as np

from fl_audit.federation.federation_records import split_of
from fl_audit.federation.loaded_federation import LoadedFederation


@dataclass(frozen=True)
class GroupSizes:
    """Sizes of the largest groups in D, e.g. the largest number of records that one client has.

    Sizes that concern users are None if no column identifies users.
    """

    records_of_client: int
    records_of_user: int | None = None
    users_of_client: int | None = None
    clients_of_user: int | None = None
    # Number of users in the population sample, with whom users in D are compared; None if it has no users.
    users_outside: int | None = None


def group_sizes(federation: LoadedFederation) -> GroupSizes:
    """Return the largest number of records per client, records per user, users per client, and clients per user."""
    outside = federation.population_records.user
    user, records = split_of(federation.public).inside.user, max(len(shard) for shard in federation.shards)
    if user is None:
        return GroupSizes(records)
    users_held = [np.unique(user[shard[shard < len(user)]]) for shard in federation.shards]
    _, clients = np.unique(np.concatenate(users_held), return_counts=True)
    users_outside = None if outside is None else len(np.unique(outside))
    of_user = int(np.unique(user, return_counts=True)[1].max())
    return GroupSizes(records, of_user, max(map(len, users_held)), int(clients.max()), users_outside)
