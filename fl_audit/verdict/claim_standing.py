"""Say what the verdict of a run makes of its claim, so that no report states a claim as a fact that the run refuted."""

from enum import StrEnum

from fl_audit.report.formatting import capital, uncapital
from fl_audit.report.report_elements import ReportContents
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict


class ClaimStanding(StrEnum):
    """What a run makes of the guarantee that is claimed for it; the value is the phrase of a report."""

    HELD = "not contradicted by this run"
    REFUTED = "claimed, and refuted by this run"
    UNCONFIRMED = "claimed, not confirmed by this run"


def standing_of_claim(contents: ReportContents) -> ClaimStanding:
    """Return what a run makes of its claim, which follows from the verdict.

    A consistent run holds the claim, and a violated one refutes it. All other runs, and those without a verdict, leave
    it unconfirmed.
    """
    numbers = contents.find(VerdictFinding)
    match None if numbers is None else numbers.verdict:
        case Verdict.CONSISTENT:
            return ClaimStanding.HELD
        case Verdict.VIOLATED:
            return ClaimStanding.REFUTED
        case _:
            return ClaimStanding.UNCONFIRMED


def name_with_standing(name: str, standing: ClaimStanding) -> str:
    """Return the name of a claimed limit, after words that say so unless the run holds the claim.

    Examples
    --------
    >>> name_with_standing("Epsilon and delta", ClaimStanding.REFUTED)
    'Claimed, and refuted by this run: epsilon and delta'
    >>> name_with_standing("Epsilon and delta", ClaimStanding.HELD)
    'Epsilon and delta'
    """
    return name if standing is ClaimStanding.HELD else f"{capital(standing)}: {uncapital(name)}"
