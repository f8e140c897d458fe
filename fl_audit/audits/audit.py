"""The protocol of a kind of audit: what each of them answers for itself, so that nobody has to ask which one it is."""

from typing import Protocol

from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.verdict.verdict import Judgement


class AuditKind(Protocol):
    """One kind of audit."""

    def judge(self, run: FinishedRun) -> Judgement | None:
        """Return what the tests of a finished run say of its guarantee; None where there was nothing to judge.

        Parameters
        ----------
        run
            A finished run of this kind, with a guarantee.
        """

    def covers(self, facts: RunFacts) -> str:
        """Return in a sentence what a verdict of this audit covers, and what not."""

    def not_compared(self, run: FinishedRun) -> str:
        """Return why nothing was compared, in a sentence that begins with a space; empty where all was."""
