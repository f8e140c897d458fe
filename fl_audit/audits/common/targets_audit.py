"""Base class of audits with many targets, each of which is in the training set of a trial or left out."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.audits.audit import WITHOUT_INSIDER, AuditKind, ClientRole, LossesOf, MemberLosses
from fl_audit.errors import require

if TYPE_CHECKING:
    from fl_audit.array_types import Flags, Floats
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.loaded_federation import LoadedFederation
    from fl_audit.federation.target_membership import TargetMembership

_SURELY_TWO = 40  # of so many fair coins fewer than two fall on one side once in 2.7e10 times


class TargetsAudit(AuditKind):
    """An audit with many targets, some of which are members in each trial."""

    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return the role of an owner of targets, for every client."""
        return ClientRole.OWNER_OF_TARGETS

    def opened_target(self, federation: "LoadedFederation") -> int | None:
        """Return None, since the sampling of all targets is disclosed after the run."""
        return None

    def members(self, losses: MemberLosses) -> "Iterator[tuple[Flags, Floats]]":
        """Yield one trial at a time, because the number of members differs between trials."""
        is_in = losses.membership.is_in[:, losses.target_of_records]
        for trial, held in enumerate(is_in):
            rows = np.arange(len(is_in)) == trial
            yield rows, np.concatenate([losses.common_losses[trial], losses.differing_losses[trial, held]])[np.newaxis]

    def own_losses(
        self, federation: "LoadedFederation", client: int, membership: "TargetMembership", losses: LossesOf
    ) -> "list[tuple[Floats, Flags]]":
        """Return the losses on each record of the client's targets, which it holds where the target is in."""
        present, found = federation.present(client, membership), losses(federation.shard(client))
        return [(found[:, [at]], present[:, at]) for at in np.flatnonzero(federation.differs(client))]

    def require_evaluable(self, federation: "LoadedFederation", epsilon_star: bool, membership: bool) -> None:
        """Raise `InputError` for Epsilon* if a trial could have fewer than two members."""
        sure = len(federation.common.labels) >= 2 or not epsilon_star or len(federation.targets) >= _SURELY_TWO
        require(
            sure,
            f"Epsilon* needs 2 members, and of {len(federation.targets)} targets, in or out by chance, fewer may be "
            "in: "
            f"use {_SURELY_TWO} targets, fewer targets than there are records, or epsilon-star = false",
        )

    def shows_part_of_target(self, public: "Federation") -> bool:
        """Return True: insiders see in which samples the target of the pair takes part.

        Every target has a separate insider, which knows the membership and sampling of all other targets.
        """
        return True

    def not_weighed_again(self, public: "Federation") -> str:
        """Return the reason: LLRs depend on the coins of the other targets, which are the challenger's secret."""
        if not public.with_insider:
            return WITHOUT_INSIDER
        return (
            "of the membership audit, whose insiders know coins that are the challenger's: accepted is one with "
            "[audit] kind = 'identifiability'"
        )

    def in_question(self, public: "Federation", chosen: str) -> str:
        """Return a phrase on the number of targets."""
        return f"one of {public.targets} {self.counted} in each trial"

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the defaults: the add-remove relation for the strategy's unit, and an insider if there is noise."""
        of_unit = Adjacency.ADD_REMOVE_RECORD if strategy == "dp-fedsgd" else Adjacency.ADD_REMOVE_CLIENT
        is_private = privacy.get("private") is not False
        relation = {} if is_private else {"adjacency": str(privacy.get("adjacency", of_unit))}
        return {"insider": is_private, "membership": False}, relation
