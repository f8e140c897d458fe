"""The claim on which a strategy is audited, and its clients: as options state them, or as the strategy names them."""

from dataclasses import replace

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.app_audits.black_box.audited_system import AuditedSystem, made_by, system_of
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.launchers.strategy_audit_launcher import StrategyOptions
from fl_audit.app_audits.review.claims import StatedAppClaim, stated_by
from fl_audit.errors import InputError

USUAL_CLIENTS = 4  # clients in a trial if neither options nor strategy name a number
_ACCEPTED = "accepted are --claim-epsilon, --claim-noise-multiplier, or a strategy that names its noise multiplier"


def system_and_claim(wishes: StrategyOptions) -> tuple[AuditedSystem, StatedClaim, str]:
    """Return the system to audit, its claim, and where the claim was read; "" if the options state it.

    Without a number of clients in the options, trials have as many as the strategy makes its noise for. A factory that
    returns an `AuditedSystem`, or takes the number of clients, names it itself. Raises `InputError` if there is no
    claim.
    """
    system = system_of(wishes.factory, wishes.clients or USUAL_CLIENTS, wishes.norm, wishes.is_clipped, wishes.observer)
    adjacency, claim = Adjacency(wishes.adjacency), wishes.claim()
    strategy = system.new_strategy(system.clients)
    about_clients = adjacency if adjacency.unit is Unit.CLIENT else None
    own = stated_by(strategy, list(system.mods), about_clients, wishes.claimed_rounds, wishes.delta)
    if not isinstance(made_by(wishes.factory, system.clients)[1], AuditedSystem):
        system = _with_numbers_of(own, system, wishes)
    if claim is not None:
        return system, claim, ""
    if own.claim is None:
        raise InputError(f"no claim is stated, and {own.source}: {_ACCEPTED}")
    if about_clients is None:
        raise InputError(
            f"--adjacency is {adjacency}, and what the strategy names is about clients ({own.source}): accepted are a "
            "claim about clients, or --claim-epsilon or --claim-noise-multiplier beside it"
        )
    return replace(system, observer=own.observer), own.claim, own.source


def _with_numbers_of(own: StatedAppClaim, system: AuditedSystem, wishes: StrategyOptions) -> AuditedSystem:
    """Return the system with the clipping norm and number of clients that the strategy names, unless options do."""
    if wishes.norm is None and own.clip is not None:
        system = replace(system, norm=own.clip)
    if wishes.clients is None and own.clients is not None and own.clients >= 2 and not system.takes_client_count:
        system = replace(system, clients=own.clients)
    return system
