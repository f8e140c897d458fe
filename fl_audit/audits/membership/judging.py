"""Planning and judging of the membership audit, in which coins decide which of many targets are in."""

import numpy as np

from fl_audit.audits.audit import AuditJudging, ClaimedRun
from fl_audit.audits.common.planned_detection_limits import limit_of_signal, limits_of_noise
from fl_audit.audits.common.requirements import require_candidates, require_clients, require_targets, require_weighable
from fl_audit.audits.identifiability.judging import pairs_covered
from fl_audit.audits.membership.attack_results import OneTargetScores, one_target_scores
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.noise_estimate import PlannedDetectionLimits
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
from fl_audit.verdict.stored_measurements import noise_along, opened_of_targets
from fl_audit.verdict.verdict import Judgement, judge_scores, judged_with_opened


class MembershipJudging(AuditJudging):
    """Planning and judging of audits in which an independent coin decides for every target."""

    def require_playable(self, public: Federation) -> None:
        """Raise `InputError` if the membership audit cannot run on a federation, e.g. if it has too few clients."""
        require_clients(public, 2 if public.with_insider else 1)
        require_targets(public, "membership")
        require_candidates(public)
        require_weighable(public)

    def judge(self, run: FinishedRun) -> Judgement | None:
        """Return the judgement by log-odds of one target per trial and the noise along it; None without insiders."""
        drawn = target_scores(run)
        if drawn is None:
            return None
        guarantee, noise = run.facts.stated_guarantee, noise_along(run, drawn.targets)
        found = judge_scores(drawn.members, drawn.nonmembers, guarantee, run.facts.confidence, noise)
        return judged_with_opened(found, opened_of_targets(run))

    def covers(self, facts: RunFacts) -> str:
        """Return a sentence on the pairs and the seed that a verdict covers."""
        return pairs_covered("these pairs", facts)

    def not_compared(self, run: FinishedRun) -> str:
        """Return a sentence on why no attack was measured, for a report; empty if attacks can be measured."""
        if can_compare_targets(run):
            return ""
        why = "one trial is too few" if run.trials < 2 else "the coins of the targets fell alike in every trial"
        return f" No attack was measured, for {why}: play more trials, or choose more targets."

    def planned_noise(self, planned: ClaimedRun, parameters: int | None) -> PlannedDetectionLimits | None:
        """Return the insiders' limit of detection for the noise, along their targets alone.

        Parameters
        ----------
        planned
            The run that is planned.
        parameters
            Number of parameters of the model; None if the noise in all of them cannot be measured.
        """
        return limits_of_noise(planned, None)

    def planned_signal(self, planned: ClaimedRun) -> SignalDetectionLimit | None:
        """Return the limit of detection for a target that counts more than once; None without an exact LLR."""
        return limit_of_signal(planned, is_always_in=False)


def target_scores(run: FinishedRun) -> OneTargetScores | None:
    """Return the log-odds of one target of every trial; None outside this audit, or without insiders."""
    table = run.tables.targets
    if (
        table is None
        or "log_odds" not in table
        or run.facts.federation.membership_scheme is MembershipScheme.EXACTLY_ONE
    ):
        return None
    shape = (run.trials, -1)
    membership = TargetMembership(table["is_in"].to_numpy(dtype=np.bool_).reshape(shape))
    log_odds = table["log_odds"].to_numpy(dtype=np.float64).reshape(shape)
    return one_target_scores(log_odds, membership, generator(0, Purpose.TARGET_CHOICE, round=1))


def can_compare_targets(run: FinishedRun) -> bool:
    """Return whether attacks can be measured: at least two trials, one of them with both a member and a nonmember."""
    if (table := run.tables.targets) is None or run.trials < 2:
        return False
    inside = table.groupby("trial")["is_in"].agg(["any", "all"])
    return bool((inside["any"] & ~inside["all"]).any())
