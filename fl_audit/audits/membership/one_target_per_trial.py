"""Scores of one target of each trial in a membership audit, and whether attacks on targets can be measured."""

from fl_audit.audits.common.target_log_odds import log_odds_of_targets
from fl_audit.audits.membership.attack_results import OneTargetPerTrialScores, one_target_scores
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.randomness import Purpose, generator


def target_scores(run: FinishedRun) -> OneTargetPerTrialScores | None:
    """Return the insiders' log-odds for one randomly drawn target of each trial.

    The result is None if the run is no membership audit, or if it has no insiders.
    """
    if (results := log_odds_of_targets(run, is_exactly_one=False)) is None:
        return None
    log_odds, is_in = results
    return one_target_scores(log_odds, TargetMembership(is_in), generator(0, Purpose.TARGET_CHOICE, round=1))


def can_compare_targets(run: FinishedRun) -> bool:
    """Return whether attacks can be measured on a run.

    They can if there are at least two trials, of which at least one has both members and nonmembers.
    """
    if (table := run.tables.targets) is None or run.trials < 2:
        return False
    inside = table.groupby("trial")["is_in"].agg(["any", "all"])
    return bool((inside["any"] & ~inside["all"]).any())
