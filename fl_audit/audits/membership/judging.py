"""Judge membership audits, in which coins decide which of many targets are in."""

from fl_audit.audits.common.targets_judging import TargetsJudging, log_odds_of_targets
from fl_audit.audits.identifiability.judging import pairs_covered
from fl_audit.audits.membership.attack_results import OneTargetPerTrialScores, one_target_scores
from fl_audit.federation.finished_run import FinishedRun, RunDescription
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.judging import judge_scores, judged_with_opened
from fl_audit.verdict.stored_measurements import noise_along, opened_of_targets
from fl_audit.verdict.verdict import VerdictDetails


class MembershipJudging(TargetsJudging):
    """Planning and judging of the audit kind `membership`, in which an independent coin decides for each target."""

    kind = "membership"
    is_always_in = False

    def judge(self, run: FinishedRun) -> VerdictDetails | None:
        """Return the judgement of the guarantee from one randomly drawn target of each trial.

        It uses the insider's log-odds for the target, and the noise along the target's contribution. None without
        insiders.
        """
        drawn = target_scores(run)
        if drawn is None:
            return None
        guarantee, noise = run.facts.stated_guarantee, noise_along(run, drawn.targets)
        found = judge_scores(drawn.members, drawn.nonmembers, guarantee, run.facts.confidence, noise)
        return judged_with_opened(found, opened_of_targets(run))

    def covers(self, facts: RunDescription) -> str:
        """Return a sentence on the pairs of training sets and the seed that a verdict covers."""
        return pairs_covered("these pairs", facts)

    def not_compared(self, run: FinishedRun) -> str:
        """Return a sentence, with a leading space, on why no attack was measured; empty if attacks can be measured."""
        if can_compare_targets(run):
            return ""
        why = "one trial is too few" if run.trials < 2 else "the coins of the targets fell alike in every trial"
        return f" No attack was measured, for {why}: play more trials, or choose more targets."


def target_scores(run: FinishedRun) -> OneTargetPerTrialScores | None:
    """Return the insiders' log-odds for one randomly drawn target of each trial.

    None if the run is no membership audit, or without insiders.
    """
    if (found := log_odds_of_targets(run, is_exactly_one=False)) is None:
        return None
    log_odds, is_in = found
    return one_target_scores(log_odds, TargetMembership(is_in), generator(0, Purpose.TARGET_CHOICE, round=1))


def can_compare_targets(run: FinishedRun) -> bool:
    """Return whether attacks can be measured on a run.

    They can if there are at least two trials, of which at least one has both members and nonmembers.
    """
    if (table := run.tables.targets) is None or run.trials < 2:
        return False
    inside = table.groupby("trial")["is_in"].agg(["any", "all"])
    return bool((inside["any"] & ~inside["all"]).any())
