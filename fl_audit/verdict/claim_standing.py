"""Derive the standing of a claim from the verdict, so that no report states a refuted claim as a fact."""

from enum import StrEnum
from typing import assert_never

from fl_audit.report.report_elements import ReportContents
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict


class ClaimStanding(StrEnum):
    """Standing of a claimed guarantee after a run; the value is the phrase of a report.

    Five verdicts leave a claim in three standings, and every sentence that names a claim needs one of them.

    HELD: the run is consistent. REFUTED: it is violated. UNCONFIRMED: it has any other verdict, or none.
    """

    HELD = "not contradicted by this run"
    REFUTED = "claimed, and refuted by this run"
    UNCONFIRMED = "claimed, not confirmed by this run"


def standing_of_claim(contents: ReportContents) -> ClaimStanding:
    """Return the standing of the claim of a run, which follows from the verdict."""
    numbers = contents.find(VerdictFinding)
    verdict = None if numbers is None else numbers.verdict
    match verdict:
        case Verdict.CONSISTENT:
            return ClaimStanding.HELD
        case Verdict.VIOLATED:
            return ClaimStanding.REFUTED
        case Verdict.INCONCLUSIVE | Verdict.NOT_AUDITED | Verdict.NO_GUARANTEE | None:
            return ClaimStanding.UNCONFIRMED
        case _:
            assert_never(verdict)


def with_standing_in_brackets(text: str, standing: ClaimStanding) -> str:
    """Return a text that names the guarantee, followed by its standing in brackets unless the run holds the claim.

    Examples
    --------
    >>> with_standing_in_brackets("Nobody, by the guarantee", ClaimStanding.UNCONFIRMED)
    'Nobody, by the guarantee (claimed, not confirmed by this run)'
    """
    return text if standing is ClaimStanding.HELD else f"{text} ({standing})"
