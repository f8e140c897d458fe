"""Tests of the guarantee by membership audits, in which coins decide which of many targets are in."""

from fl_audit.audits.common.targets_guarantee_tests import TargetsGuaranteeTests
from fl_audit.audits.identifiability.guarantee_tests import pairs_covered
from fl_audit.audits.membership.attack_results import can_compare_targets, target_scores
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.verdict.judging import judge_scores, judged_with_opened
from fl_audit.verdict.stored_measurements import noise_along, opened_of_targets
from fl_audit.verdict.verdict import VerdictDetails


class MembershipGuaranteeTests(TargetsGuaranteeTests):
    """Tests of the guarantee in the audit kind `membership`, in which a coin decides whether each target is in."""

    kind = "membership"
    is_always_in = False

    def judge(self, run: FinishedRun) -> VerdictDetails | None:
        """Return the judgement of the guarantee from one randomly drawn target of each trial.

        It uses the insider's log-odds for the target, and the noise along the target's contribution. None without
        insiders.
        """
        scores = target_scores(run)
        if scores is None:
            return None
        guarantee = run.plan.stated_guarantee
        noise = noise_along(run, scores.targets)
        details = judge_scores(scores.members, scores.nonmembers, guarantee, run.plan.confidence, noise)
        return judged_with_opened(details, opened_of_targets(run))

    def covers(self, plan: RunPlan) -> str:
        """Return a sentence on the pairs of training sets and the seed that a verdict covers."""
        return pairs_covered("these pairs", plan)

    def why_not_compared(self, run: FinishedRun) -> str:
        """Return a sentence, with a leading space, on why no attack was measured; empty if attacks can be measured."""
        if can_compare_targets(run):
            return ""
        why = "one trial is too few" if run.trials < 2 else "the coins of the targets fell alike in every trial"
        return f" No attack was measured, for {why}: play more trials, or choose more targets."
