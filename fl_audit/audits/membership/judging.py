"""Plan and judge membership audits, in which coins decide which of many targets are in."""

import numpy as np

from fl_audit.audits.audit import AuditJudging, ClaimedRun
from fl_audit.audits.common.planned_detection_limits import limit_of_signal, limits_of_noise
from fl_audit.audits.common.requirements import require_candidates, require_clients, require_targets, require_weighable
from fl_audit.audits.identifiability.judging import pairs_covered
from fl_audit.audits.membership.attack_results import OneTargetPerTrialScores, one_target_scores
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun, RunDescription
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.noise_estimate import PlannedDetectionLimits
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
from fl_audit.verdict.stored_measurements import noise_along, opened_of_targets
from fl_audit.verdict.verdict import VerdictDetails, judge_scores, judged_with_opened


class MembershipJudging(AuditJudging):
    """Planning and judging of the audit kind `membership`, in which an independent coin decides for each target."""

    def require_playable(self, public: Federation) -> None:
        """Raise `InputError` if the membership audit cannot run on a federation, e.g. if it has too few clients."""
        require_clients(public, 2 if public.with_insider else 1)
        require_targets(public, "membership")
        require_candidates(public)
        require_weighable(public)

    def judge(self, run: FinishedRun) -> VerdictDetails | None:
        """Return the judgement of the guarantee from one randomly drawn target of each trial.

        It uses the insider's log-odds for the target, and the noise along the target's contribution. A judgement has a
        verdict and a lower bound on epsilon. None without insiders.
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

    def planned_noise(self, planned: ClaimedRun, parameters: int | None) -> PlannedDetectionLimits | None:
        """Return how large a lack of noise a planned run would detect along its targets; None without insiders.

        Parameters
        ----------
        planned
            The planned run with its claimed guarantee.
        parameters
            Number of parameters of the model; not used, since the noise is measured only along the targets.
        """
        return limits_of_noise(planned, None)

    def planned_signal(self, planned: ClaimedRun) -> SignalDetectionLimit | None:
        """Return the factor by which the target must count too heavily for a planned run to detect it.

        The factor compares the effect on the released sums with the effect that the claim assumes. The result is None
        if the run has no insider, or if its mechanism has no exact LLR (log-likelihood ratio).
        """
        return limit_of_signal(planned, is_always_in=False)


def target_scores(run: FinishedRun) -> OneTargetPerTrialScores | None:
    """Return the insiders' log-odds for one randomly drawn target of each trial.

    None if the run is no membership audit, or without insiders.
    """
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
    """Return whether attacks can be measured: there are two trials or more, one of them with both kinds of target.

    The kinds are members and nonmembers.
    """
    if (table := run.tables.targets) is None or run.trials < 2:
        return False
    inside = table.groupby("trial")["is_in"].agg(["any", "all"])
    return bool((inside["any"] & ~inside["all"]).any())
