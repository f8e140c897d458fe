"""The audit of one run: canaries take part in every round by coins, and an observer reads them off the releases."""

from fl_audit.audits.canaries.findings_one_run import judge_canaries
from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.verdict.verdict import Judgement


class CanaryJudging:
    """Every canary is in by a coin of its own in every round."""

    def judge(self, run: FinishedRun) -> Judgement | None:
        """Return what the canaries of all trainings together say."""
        return judge_canaries(run)

    def covers(self, facts: RunFacts) -> str:
        """Say of which training and seed a verdict is, and what canaries do not see."""
        return (
            "A verdict covers this training and this seed (the challenger's secret) only, and what canaries see: how "
            "much noise hides one of them in a round. Noise that depends on anybody's data was not looked for."
        )

    def not_compared(self, run: FinishedRun) -> str:
        """Return nothing: decoys and canaries that are out stand beside those that are in."""
        return ""
