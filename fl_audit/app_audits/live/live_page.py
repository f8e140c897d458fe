"""Show the result of a live audit as lines for a terminal, and as an HTML page of one screen.

The sentences stand in the template `live.md`.
"""

import math
from pathlib import Path

from fl_audit.app_audits.live.live_audit import LiveFinding
from fl_audit.app_audits.live.live_checks import Inconsistency
from fl_audit.app_audits.live.stored_rounds import mismatches_text
from fl_audit.app_audits.page import write_result
from fl_audit.audits.canaries.canary_detection_limit import HIDDEN_BY_OTHERS
from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values
from fl_audit.report.page import Fact, facts_html, joined_html, page_table, paragraph_html
from fl_audit.report.template_files import template_texts
from fl_audit.statistics.claim_comparisons import Reading, compare_with_claim
from fl_audit.verdict.audit_result import AuditResult
from fl_audit.verdict.declared_tests import FAMILY_LEVEL
from fl_audit.verdict.noise_estimate import BREACH
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import capital, is_certainty, number_text, plural

_MOST_NUMBERED = 5  # largest number of rounds or canaries that are listed
_FACTS = ("training", "belief", "round", "needed")  # names of the texts that are shown in large letters


def live_headline(finding: LiveFinding) -> str:
    """Return the verdict of a live audit, how many rounds were seen, and the lower bound on epsilon."""
    texts = _texts(finding)
    return f"{capital(str(finding.verdict))}: {texts['progress']}. {texts['opening']}"


def live_lines(finding: LiveFinding) -> tuple[tuple[str, str], ...]:
    """Return the findings of a live audit, as pairs of a subject and a text: claim, lower bounds and next step."""
    texts = _texts(finding)
    facts = [(fact.name, f"{fact.value} ({fact.note})") for fact in _facts(texts)]
    claimed = guarantee_line(guarantee_values(finding.guarantee.epsilon, finding.guarantee.claims))
    return (("Claimed", claimed), *facts, ("Next", texts["next"]))


def write_live_page(result: AuditResult, finding: LiveFinding, directory: Path) -> Path:
    """Write the files of a live audit, and return the path of the page."""
    texts = _texts(finding)
    return write_result(
        result,
        directory,
        subtitle=f"One training as its own audit: {finding.guarantee.claim}",
        step=texts["next"],
        opening=texts["opening"],
        banner=texts["progress"],
        details=joined_html(facts_html(_facts(texts)), _table(finding, texts), paragraph_html(texts["assumption"])),
        is_listed=False,
    )


def _texts(finding: LiveFinding) -> dict[str, str]:
    guarantee = finding.guarantee
    smallest_weight = min(finding.weights)
    doubts = [str(kind) for kind in Inconsistency if kind in finding.doubts]
    return template_texts(
        "live.md",
        finding=finding,
        bounds=finding.bounds,
        guarantee=guarantee,
        verdict=finding.verdict,
        reading=_reading(finding),
        no_limit=Reading.NO_LIMIT if is_certainty(guarantee.belief_bound) else "",
        breach=BREACH,
        others_hide=HIDDEN_BY_OTHERS,
        misfits=mismatches_text(finding.misfits),
        doubt=doubts[0] if doubts else None,
        canary_weight=smallest_weight,
        lightest=finding.weights.index(smallest_weight),
        family_level=FAMILY_LEVEL,
        most_listed=_MOST_NUMBERED,
    )


def _reading(finding: LiveFinding) -> Reading:
    """Return how the lower bound on mu compares with the claimed mu.

    The page may be opened at any time, so the claim is "broken" only if the verdict from declared analyses is
    `violated`.
    """
    bounds = finding.bounds
    is_violated = finding.verdict is Verdict.VIOLATED
    wide = max((look.bounds.mu_lower for look in finding.looks), default=0.0) if is_violated else 0.0, math.inf
    return compare_with_claim(
        (bounds.mu_lower, math.inf), bounds.mu_claimed, wide=lambda _: wide, level=finding.level, sides=1
    ).reading


def _facts(texts: dict[str, str]) -> tuple[Fact, ...]:
    return tuple(Fact(texts[f"{name}-name"], texts[name], texts[f"{name}-note"]) for name in _FACTS)


def _table(finding: LiveFinding, texts: dict[str, str]) -> str:
    if not finding.looks:
        return paragraph_html(texts["no-looks"])
    rows = [
        (
            plural(look.rounds, "whole round"),
            number_text(look.bounds.mu_lower, 3),
            number_text(look.bounds.epsilon_lower, 3),
            "yes" if look.is_violated else "no",
        )
        for look in finding.looks
    ]
    columns = ("look after", "mu of a round, at least", "epsilon of the training, at least", "breaks the guarantee")
    return page_table(columns, rows, numbers=(1, 2), title=texts["looks-title"])
