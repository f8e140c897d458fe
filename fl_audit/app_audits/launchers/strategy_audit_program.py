"""Program that `fl-audit strategy` runs in a subprocess: it carries out the trials and sends back the results."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fl_audit.app_audits.black_box.later_rounds import LATER_ROUNDS
from fl_audit.app_audits.black_box.scenarios import FIXES, PROVISOS, WORDS
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim_audit_messages import claim_warning, opening_sentences, refusal_words
from fl_audit.app_audits.claim_audit.claim_audit_results import QUICK, ClaimAudit
from fl_audit.app_audits.claim_audit.findings import DistinguisherFinding, findings, result_json
from fl_audit.app_audits.launchers.isolated_process import answer
from fl_audit.app_audits.launchers.strategy_audit_launcher import StrategyOptions
from fl_audit.app_audits.launchers.strategy_claim import system_and_claim
from fl_audit.app_audits.page import write_result
from fl_audit.user_modules import search_last


def run_audit(asked: dict[str, Any], tell: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """Audit a strategy in this process, and return the result.

    The result is a dict: "result" holds JSON values, "lines" the lines for the console, and "report" the path of the
    page, or None.
    """
    wishes = StrategyOptions(**asked["wishes"])
    system, claim, source = system_and_claim(wishes)

    played = {"clients": system.clients, "claim_source": source}

    def values(result: ClaimAudit, out: str | None = None) -> dict[str, Any]:
        found, path = findings(result, WORDS, FIXES, PROVISOS), None
        if out is not None:
            path = str(write_result(result, found, wishes.factory, Path(out), played))
        lines = [*_lines(result, found), *([f"* The claim is the strategy's own: {source}."] if source else [])]
        return {"result": result_json(result, found) | played, "lines": lines, "report": path}

    result = audit_system(
        system,
        claim,
        budget=QUICK if wishes.is_quick else None,
        confidence=wishes.confidence,
        seed=wishes.seed,
        processes=wishes.processes,
        exclude=wishes.exclude,
        include=wishes.include,
        seconds=math.inf if wishes.seconds is None else wishes.seconds,
        keep=lambda so_far: tell(values(so_far)),
        later_rounds=LATER_ROUNDS if wishes.rounds is None else 0,
    )
    return values(result, asked["out"])


def _lines(result: ClaimAudit, found: tuple[DistinguisherFinding, ...]) -> list[str]:
    """Return lines for the console: the verdict, the findings, and the trials in which the strategy raised an error."""
    warning = claim_warning(result.claim)
    lines = [opening_sentences(result), *([] if warning is None else [f"warning: {warning}"])]
    for finding in found:
        if finding.attempt.is_broken:
            lines.append(f"* {finding.cause}")
        lines.append(f"* {finding.sentence}")
        if finding.noise is not None:
            lines.append(f"    {finding.noise.words}")
        if finding.attempt.is_broken:
            lines += [f"    {line}" for line in (*finding.attempt.lines, f"Usual fix: {finding.fix}")]
    return lines + [f"* {said}" for said in refusal_words(result.refusals)]


if __name__ == "__main__":
    # A strategy of one's own is looked for where the user stands.
    search_last(Path.cwd())
    answer(run_audit)
