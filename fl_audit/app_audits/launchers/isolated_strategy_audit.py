"""Audit of a strategy in the subprocess that makes it: its claim, its trials, and the page on the results.

The claim and the number of clients are those that options state, or that the strategy names.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.app_audits.black_box.audited_system import AuditedSystem, made_by, system_of
from fl_audit.app_audits.black_box.later_rounds import LATER_ROUNDS
from fl_audit.app_audits.black_box.scenario_texts import scenario_texts
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import QUICK, ClaimAudit
from fl_audit.app_audits.claim_audit.trial_results import DistinguisherFinding, findings, strategy_result
from fl_audit.app_audits.launchers.isolated_process import Tell
from fl_audit.app_audits.page import write_strategy_page
from fl_audit.app_audits.review.claims import StatedAppClaim, stated_by
from fl_audit.app_audits.trial_options import StrategyOptions
from fl_audit.errors import InputError, require
from fl_audit.user_modules import search_last
from fl_audit.verdict.audit_result import AuditResult
from fl_audit.words import name_list

USUAL_CLIENTS = 4  # clients in a trial if neither options nor strategy name a number
_ACCEPTED = "accepted are --claim-epsilon, --claim-noise-multiplier, or a strategy that names its noise multiplier"


def audit_users_strategy(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Audit a strategy whose module is looked for where the user stands; see `audit_strategy`."""
    search_last(Path.cwd())
    return audit_strategy(request, tell)


def audit_strategy(request: dict[str, Any], tell: Tell = lambda _: None) -> dict[str, Any]:
    """Audit a strategy in this process, and return the result as JSON values, with the path of the page as `report`."""
    options = StrategyOptions(**request["options"])
    system, claim, source = system_and_claim(options)

    def findings_of(audit: ClaimAudit) -> tuple[DistinguisherFinding, ...]:
        return findings(audit, scenario_texts())

    def result_of(audit: ClaimAudit, audit_findings: tuple[DistinguisherFinding, ...]) -> AuditResult:
        return strategy_result(options.factory, audit, audit_findings, options.rounds, system.clients, source)

    audit = audit_system(
        system,
        claim,
        budget=QUICK if options.is_quick else None,
        confidence=options.confidence,
        seed=options.seed,
        processes=options.processes,
        exclude=options.exclude,
        include=options.include,
        seconds=math.inf if options.seconds is None else options.seconds,
        keep=lambda so_far: tell(result_of(so_far, findings_of(so_far)).to_json()),
        later_rounds=LATER_ROUNDS if options.rounds is None else 0,
    )
    audit_findings = findings_of(audit)
    result = result_of(audit, audit_findings)
    if not request["out"]:
        return result.to_json()
    page = write_strategy_page(result, audit, audit_findings, Path(request["out"]))
    return result.to_json() | {"report": str(page)}


def system_and_claim(options: StrategyOptions) -> tuple[AuditedSystem, StatedClaim, str]:
    """Return the system to audit, its claim, and where the claim was read; "" if the options state it.

    Without a number of clients in the options, trials have as many as the strategy makes its noise for. A factory that
    returns an `AuditedSystem`, or takes the number of clients, names it itself. Raises `InputError` if there is no
    claim.
    """
    clients = options.clients or USUAL_CLIENTS
    system = system_of(
        options.factory, clients, options.clipping_norm, not options.trust_client_clipping, options.observer
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
    settings = ("clients", "clipping_norm", "trust_client_clipping", "observer")
    names = [name.replace("_", "-") for name in settings if getattr(options, name) != getattr(usual, name)]
    require(
        not names,
        f"{name_list(names)} set beside {options.factory}, which returns an AuditedSystem: accepted is to set it there",
    )


def _with_numbers_of(claim: StatedAppClaim, system: AuditedSystem, options: StrategyOptions) -> AuditedSystem:
    """Return the system with the clipping norm and number of clients that the strategy names, unless options do."""
    if options.clipping_norm is None and claim.clip is not None:
        system = replace(system, norm=claim.clip)
    if options.clients is None and claim.clients is not None and claim.clients >= 2 and not system.takes_client_count:
        system = replace(system, clients=claim.clients)
    return system
