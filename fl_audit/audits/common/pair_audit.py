"""Base class of audits that train each trial on D or on D': the victim client, and the losses of members."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fl_audit.adjacency import Unit
from fl_audit.audits.audit import WITHOUT_INSIDER, AuditKind, ClientRole, LossesOf, MemberLosses
from fl_audit.errors import require

if TYPE_CHECKING:
    from fl_audit.array_types import Flags, Floats
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.loaded_federation import LoadedFederation
    from fl_audit.federation.target_membership import TargetMembership


class PairAudit(AuditKind):
    """An audit whose trials train on D or on D', which differ in one unit."""

    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return the victim's role for the client that holds the differing unit, and the owner's role for others."""
        return ClientRole.VICTIM if client == federation.victim else ClientRole.OWNER

    def opened_target(self, federation: "LoadedFederation") -> int | None:
        """Return the number of the differing record or user, or of the victim client if the unit is the client."""
        return federation.victim if federation.unit is Unit.CLIENT else federation.target

    def members(self, losses: MemberLosses) -> "Iterator[tuple[Flags, Floats]]":
        """Yield the trials with D, then those with D', each with the losses on their training records."""
        bits = losses.membership.bits
        for bit, own in ((True, losses.differing_losses), (False, losses.replacement_losses)):
            rows = bits == bit
            if rows.any():
                yield rows, np.concatenate([losses.common_losses[rows], own[rows]], axis=1)

    def own_losses(
        self, federation: "LoadedFederation", client: int, membership: "TargetMembership", losses: LossesOf
    ) -> "list[tuple[Floats, Flags]]":
        """Return the losses on the differing unit in trials with D, and on its replacement in trials with D'."""
        return [(losses(federation.differing), membership.bits), (losses(federation.replacement), ~membership.bits)]

    def require_evaluable(self, federation: "LoadedFederation", epsilon_star: bool, membership: bool) -> None:
        """Raise `InputError` if there are fewer than two records in D' or in the population sample."""
        wanted = [(epsilon_star, "Epsilon*", "epsilon-star"), (membership, "the membership attack", "membership")]
        for name, count in (
            ("D'", len(federation.common.labels)),
            ("the population sample", len(federation.population.labels)),
        ):
            for is_on, what, key in wanted:
                enough = not is_on or count >= 2
                require(enough, f"{what} needs 2 records in {name}, there are {count}: use more, or {key} = false")

    def not_weighed_again(self, public: "Federation") -> str:
        """Return the reason where there is no insider, else an empty text: an insider uses public values alone."""
        return "" if public.with_insider else WITHOUT_INSIDER

    def in_question(self, public: "Federation", chosen: str) -> str:
        """Return a description of how the neighbour was chosen."""
        pair, which = public.pair, "" if public.mechanism.unit is Unit.RECORD else f" is {public.mechanism.unit} "
        which = which and f"{which}{public.pair.index}"
        which = which if pair.crafted is None else f" in the place of record {pair.index}"
        return f"neighbour {chosen}{which}"
