"""Program that `fl-audit strategy` runs in a subprocess: it carries out the trials and sends back the results."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fl_audit.app_audits.black_box.later_rounds import LATER_ROUNDS
from fl_audit.app_audits.black_box.scenarios import FIXES, PROVISOS, WORDS
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim_audit_results import QUICK, ClaimAudit
from fl_audit.app_audits.claim_audit.findings import DistinguisherFinding, findings
from fl_audit.app_audits.claim_audit.trial_results import strategy_result
from fl_audit.app_audits.launchers.isolated_process import answer
from fl_audit.app_audits.launchers.strategy_audit_launcher import StrategyOptions
from fl_audit.app_audits.launchers.strategy_claim import system_and_claim
from fl_audit.app_audits.page import write_strategy_page
from fl_audit.user_modules import search_last
from fl_audit.verdict.audit_result import AuditResult


def run_audit(request: dict[str, Any], tell: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """Audit a strategy in this process, and return the result as JSON values, with the path of the page as `report`."""
    wishes = StrategyOptions(**request["wishes"])
    system, claim, source = system_and_claim(wishes)

    def findings_of(audit: ClaimAudit) -> tuple[DistinguisherFinding, ...]:
        return findings(audit, WORDS, FIXES, PROVISOS)

    def result_of(audit: ClaimAudit, audit_findings: tuple[DistinguisherFinding, ...]) -> AuditResult:
        return strategy_result(wishes.factory, audit, audit_findings, wishes.rounds, system.clients, source)

    audit = audit_system(
        system,
        claim,
        budget=QUICK if wishes.is_quick else None,
        confidence=wishes.confidence,
        seed=wishes.seed,
        processes=wishes.processes,
        exclude=wishes.exclude,
        include=wishes.include,
        seconds=math.inf if wishes.seconds is None else wishes.seconds,
        keep=lambda so_far: tell(result_of(so_far, findings_of(so_far)).to_json()),
        later_rounds=LATER_ROUNDS if wishes.rounds is None else 0,
    )
    audit_findings = findings_of(audit)
    result = result_of(audit, audit_findings)
    if not request["out"]:
        return result.to_json()
    page = write_strategy_page(result, audit, audit_findings, Path(request["out"]))
    return result.to_json() | {"report": str(page)}


if __name__ == "__main__":
    # A strategy of one's own is looked for where the user stands.
    search_last(Path.cwd())
    answer(run_audit)
