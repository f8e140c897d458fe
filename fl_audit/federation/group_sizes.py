"""Largest groups of records, users and clients that belong together, for group privacy."""

from dataclasses import dataclass

import numpy as np

from fl_audit.federation.federation_records import split_of
from fl_audit.federation.loaded_federation import LoadedFederation


@dataclass(frozen=True)
class GroupSizes:
    """Sizes of the largest groups in D; those of users are None if no column identifies users."""

    records_of_client: int
    records_of_user: int | None = None
    users_of_client: int | None = None
    clients_of_user: int | None = None


def group_sizes(federation: LoadedFederation) -> GroupSizes:
    """Return the sizes of the largest groups among the records of a federation."""
    user, records = split_of(federation.public).inside.user, max(len(shard) for shard in federation.shards)
    if user is None:
        return GroupSizes(records)
    held = [np.unique(user[shard[shard < len(user)]]) for shard in federation.shards]
    _, clients = np.unique(np.concatenate(held), return_counts=True)
    of_user = int(np.unique(user, return_counts=True)[1].max())
    return GroupSizes(records, of_user, max(map(len, held)), int(clients.max()))
