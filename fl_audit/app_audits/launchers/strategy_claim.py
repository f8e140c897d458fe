"""The claim on which a strategy is audited, and its clients: as options state them, or as the strategy names them."""

from dataclasses import replace

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.app_audits.black_box.audited_system import AuditedSystem, made_by, system_of
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.launchers.strategy_audit_launcher import StrategyOptions
from fl_audit.app_audits.review.claims import StatedAppClaim, stated_by
from fl_audit.errors import InputError, require
from fl_audit.words import name_list

USUAL_CLIENTS = 4  # clients in a trial if neither options nor strategy name a number
_ACCEPTED = "accepted are --claim-epsilon, --claim-noise-multiplier, or a strategy that names its noise multiplier"


def system_and_claim(options: StrategyOptions) -> tuple[AuditedSystem, StatedClaim, str]:
    """Return the system to audit, its claim, and where the claim was read; "" if the options state it.

    Without a number of clients in the options, trials have as many as the strategy makes its noise for. A factory that
    returns an `AuditedSystem`, or takes the number of clients, names it itself. Raises `InputError` if there is no
    claim.
    """
    system = system_of(
        options.factory, options.clients or USUAL_CLIENTS, options.norm, options.is_clipped, options.observer
    )
    adjacency = Adjacency(options.adjacency)
    claim = options.claim()
    strategy = system.new_strategy(system.clients)
    about_clients = adjacency if adjacency.unit is Unit.CLIENT else None
    stated_claim = stated_by(strategy, list(system.mods), about_clients, options.claimed_rounds, options.delta)
    if isinstance(made_by(options.factory, system.clients)[1], AuditedSystem):
        _require_no_settings_of_system(options)
    else:
        system = _with_numbers_of(stated_claim, system, options)
    if claim is not None:
        return system, claim, ""
    if stated_claim.claim is None:
        raise InputError(f"no claim is stated, and {stated_claim.source}: {_ACCEPTED}")
    if about_clients is None:
        raise InputError(
            f"--adjacency is {adjacency}, and what the strategy names is about clients ({stated_claim.source}): "
            "accepted are a "
            "claim about clients, or --claim-epsilon or --claim-noise-multiplier beside it"
        )
    return replace(system, observer=stated_claim.observer), stated_claim.claim, stated_claim.source


def _require_no_settings_of_system(options: StrategyOptions) -> None:
    """Raise `InputError` if an option sets what an `AuditedSystem` sets."""
    usual = StrategyOptions(options.factory, options.adjacency)
    settings = {
        "clients": options.clients is not None,
        "clipping-norm": options.norm is not None,
        "trust-client-clipping": options.is_clipped is not usual.is_clipped,
        "observer": options.observer != usual.observer,
    }
    names = [name for name, is_set in settings.items() if is_set]
    require(
        not names,
        f"{name_list(names)} set beside {options.factory}, which returns an AuditedSystem: accepted is to set it there",
    )


def _with_numbers_of(claim: StatedAppClaim, system: AuditedSystem, options: StrategyOptions) -> AuditedSystem:
    """Return the system with the clipping norm and number of clients that the strategy names, unless options do."""
    if options.norm is None and claim.clip is not None:
        system = replace(system, norm=claim.clip)
    if options.clients is None and claim.clients is not None and claim.clients >= 2 and not system.takes_client_count:
        system = replace(system, clients=claim.clients)
    return system
