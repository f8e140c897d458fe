"""Base class of audits with many targets; some trials have a target in the training set, and other trials do not."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.audits.audit import WITHOUT_INSIDER, BaseAudit, ClientRole, LossesAndMembership, LossesOf
from fl_audit.errors import require
from fl_audit.federation.target_membership import MembershipScheme

if TYPE_CHECKING:
    from fl_audit.array_types import Flags, Floats
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.loaded_federation import LoadedFederation
    from fl_audit.federation.target_membership import TargetMembership

_SURELY_TWO = 40  # with this many fair coins, the probability of fewer than two heads is 1 in 2.7e10


class TargetsAudit(BaseAudit):
    """Base class of audits with many targets, each of which is a member in some trials and not in others."""

    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return OWNER_OF_TARGETS, the role of every client in these audits."""
        return ClientRole.OWNER_OF_TARGETS

    def opened_target(self, federation: "LoadedFederation") -> int | None:
        """Return None, which means that the sampling of all targets is disclosed after the run."""
        return None

    def member_losses(self, losses: LossesAndMembership) -> "Iterator[tuple[Flags, Floats]]":
        """Yield, for each trial, a mask of shape (trials,) that selects it, and its model's losses on its members.

        The losses have shape (1, records). Trials differ in the number of members, so each trial has its own pair.
        """
        is_in = losses.membership.is_in[:, losses.target_of_records]
        for trial, is_member in enumerate(is_in):
            rows = np.arange(len(is_in)) == trial
            yield (
                rows,
                np.concatenate([losses.common_losses[trial], losses.differing_losses[trial, is_member]])[np.newaxis],
            )

    def own_losses(
        self, federation: "LoadedFederation", client: int, membership: "TargetMembership", losses: LossesOf
    ) -> "list[tuple[Floats, Flags]]":
        """Return a pair of losses and a trial mask for each of the client's target records.

        The losses of the trials' models on the record, shape (trials, 1), are computed by the function `losses`. The
        mask, shape (trials,), is true for the trials that trained on the record, as `membership` says.
        """
        present = federation.present(client, membership)
        unit_losses = losses(federation.shard(client))
        return [(unit_losses[:, [at]], present[:, at]) for at in np.flatnonzero(federation.differs(client))]

    def require_evaluable(self, federation: "LoadedFederation", epsilon_star: bool, membership: bool) -> None:
        """Check, if `epsilon_star` is true, that each trial has the two member records which Epsilon* needs.

        Raises `InputError` if a trial could have fewer. `membership` has no effect.
        """
        if not epsilon_star:
            return
        other_records = len(federation.common.labels)
        targets = len(federation.targets)
        if self.scheme is MembershipScheme.EXACTLY_ONE:
            problem = f"Epsilon* needs 2 members, and of {targets} {self.counted} one is in, with no other record"
            require(
                other_records >= 1,
                f"{problem}: use fewer {self.counted} than there are records, or epsilon-star = false",
            )
            return
        require(
            other_records >= 2 or targets >= _SURELY_TWO,
            f"Epsilon* needs 2 members, and of {targets} targets, in or out by chance, fewer may be in: "
            f"use {_SURELY_TWO} targets, fewer targets than there are records, or epsilon-star = false",
        )

    def shows_part_of_target(self, federation: "Federation") -> bool:
        """Return True: each insider learns in which rounds its own target is sampled."""
        return True

    def why_not_recomputed(self, federation: "Federation") -> str:
        """Return why log-likelihood ratios cannot be recomputed: they depend on the other targets' membership."""
        if not federation.with_insider:
            return WITHOUT_INSIDER
        return (
            "of the membership audit, whose insiders know coins that are the challenger's: accepted is one with "
            "[audit] kind = 'identifiability'"
        )

    def in_question(self, federation: "Federation", chosen: str) -> str:
        """Return a phrase that says how many targets there are, such as "one of 100 targets in each trial"."""
        return f"one of {federation.targets} {self.counted} in each trial"

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the default values for [audit] and for [privacy], as two dicts keyed by setting.

        By default there is an insider only in private training, and no membership attack on losses. The dict for
        [privacy] is empty for private training. For training without privacy it holds the adjacency of `privacy`. If
        `privacy` has none, the adjacency is add-remove-record for the strategy "dp-fedsgd", and add-remove-client for
        all others.
        """
        of_unit = Adjacency.ADD_REMOVE_RECORD if strategy == "dp-fedsgd" else Adjacency.ADD_REMOVE_CLIENT
        is_private = privacy.get("private") is not False
        relation = {} if is_private else {"adjacency": str(privacy.get("adjacency", of_unit))}
        return {"insider": is_private, "membership": False}, relation
