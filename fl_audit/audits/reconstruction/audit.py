"""The audit kind `reconstruction`: one of several candidates is in the training data, and an attacker guesses it.

The attacker knows everything else about the training data.
"""

from typing import TYPE_CHECKING

from fl_audit.audits.audit import GuaranteeTests, ReleaseQueryKind
from fl_audit.audits.common.targets_audit import TargetsAudit
from fl_audit.federation.target_membership import MembershipScheme

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation


class ReconstructionAudit(TargetsAudit):
    """The audit kind `reconstruction`, in which exactly one of the targets, called candidates, is in each trial."""

    own_settings = ("candidates",)
    counted = "candidates"
    scheme = MembershipScheme.EXACTLY_ONE

    @property
    def guarantee_tests(self) -> GuaranteeTests:
        """The tests of the guarantee of this kind."""
        from fl_audit.audits.reconstruction.guarantee_tests import RECONSTRUCTION_TESTS  # noqa: PLC0415

        return RECONSTRUCTION_TESTS

    def column_of_candidates(self, attribute: str | int | None) -> str | None:
        """Return the name of the column in which the candidates differ; None if the candidates are different units."""
        return None if attribute is None else str(attribute)

    def in_question(self, federation: "Federation", chosen: str) -> str:
        """Return a phrase that says how many candidates there are, and whether they are units or values of a column.

        `chosen`, the name of the rule that chose the neighbour D', is used only if the candidates are units.
        """
        if federation.candidate_column is None:
            return super().in_question(federation, chosen)
        values = f"{federation.targets} values of {federation.candidate_column}"
        return f"record {federation.pair.index} with one of {values} in each trial"

    def query(self, federation: "Federation") -> ReleaseQueryKind:
        """Return CANDIDATES, which asks the insider for the log-odds of each candidate; NOTHING without an insider."""
        return ReleaseQueryKind.CANDIDATES if federation.with_insider else ReleaseQueryKind.NOTHING
