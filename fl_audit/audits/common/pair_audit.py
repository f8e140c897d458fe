"""Base class of the audits whose trials train either on D or on D', which differ in one unit."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fl_audit.adjacency import Unit
from fl_audit.audits.audit import WITHOUT_INSIDER, BaseAudit, ClientRole, LossesAndMembership, LossesOf
from fl_audit.errors import require

if TYPE_CHECKING:
    from fl_audit.array_types import Flags, Floats
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.loaded_federation import LoadedFederation
    from fl_audit.federation.target_membership import TargetMembership


def neighbour_text(federation: "Federation", chosen: str) -> str:
    """Return a phrase that says by which rule the neighbour D' was chosen, and which unit differs."""
    pair = federation.pair
    which = "" if federation.mechanism.unit is Unit.RECORD else f" is {federation.mechanism.unit} {pair.index}"
    if pair.crafted is not None:
        which = f" in the place of record {pair.index}"
    return f"neighbour {chosen}{which}"


class PairAudit(BaseAudit):
    """Base class of the audits whose trials train either on D or on D', which differ in one unit.

    The victim is the client that holds the differing unit.
    """

    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return the role VICTIM for the client that holds the differing unit, and OWNER for all other clients."""
        return ClientRole.VICTIM if client == federation.victim else ClientRole.OWNER

    def opened_target(self, federation: "LoadedFederation") -> int | None:
        """Return the number of the differing record or user, or of the victim client if the unit is the client."""
        return federation.victim if federation.unit is Unit.CLIENT else federation.target

    def member_losses(self, losses: LossesAndMembership) -> "Iterator[tuple[Flags, Floats]]":
        """Yield the losses of each trial's model on its training records: trials with D first, then trials with D'.

        Each item is a pair: a mask of the trials, bool (trials,), and their losses, shape (selected trials, records).
        An item without trials is left out.
        """
        bits = losses.membership.bits
        for bit, unit_losses in ((True, losses.differing_losses), (False, losses.replacement_losses)):
            rows = bits == bit
            if rows.any():
                yield rows, np.concatenate([losses.common_losses[rows], unit_losses[rows]], axis=1)

    def own_losses(
        self, federation: "LoadedFederation", client: int, membership: "TargetMembership", losses: LossesOf
    ) -> "list[tuple[Floats, Flags]]":
        """Return the losses on the differing unit and on its replacement, each with a mask of trials.

        Losses have the shape (trials, records). The first mask is true for trials with D, the second for trials with
        D'.
        """
        return [(losses(federation.differing), membership.bits), (losses(federation.replacement), ~membership.bits)]

    def require_evaluable(self, federation: "LoadedFederation", epsilon_star: bool, membership: bool) -> None:
        """Raise `InputError` if D and D' have fewer than two common records, or the population sample fewer than two.

        The population sample holds records that no trial trains on. `epsilon_star` and `membership` say whether
        Epsilon* and the membership attack on losses are computed. If both are False, nothing is checked.
        """
        wanted_parts = [(epsilon_star, "Epsilon*", "epsilon-star"), (membership, "the membership attack", "membership")]
        for name, count in (
            ("D'", len(federation.common.labels)),
            ("the population sample", len(federation.population.labels)),
        ):
            for is_on, label, key in wanted_parts:
                enough = not is_on or count >= 2
                require(enough, f"{label} needs 2 records in {name}, there are {count}: use more, or {key} = false")

    def why_not_recomputed(self, federation: "Federation") -> str:
        """Return the reason why log-likelihood ratios cannot be recomputed; empty if they can.

        The only reason is that the run has no insider.
        """
        return "" if federation.with_insider else WITHOUT_INSIDER

    def in_question(self, federation: "Federation", chosen: str) -> str:
        """Return a phrase that says by which rule the neighbour D' was chosen, and which unit differs."""
        return neighbour_text(federation, chosen)
