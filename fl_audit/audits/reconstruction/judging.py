"""Judge reconstruction audits, in which an attacker guesses which candidate is in."""

import numpy as np

from fl_audit.array_types import Integers
from fl_audit.audits.common.targets_judging import TargetsJudging, log_odds_of_targets
from fl_audit.audits.reconstruction.reconstruction_metrics import judge_hits, ranks_of_truth
from fl_audit.federation.finished_run import FinishedRun, RunDescription
from fl_audit.verdict.judging import judged_with_opened
from fl_audit.verdict.stored_measurements import noise_along, opened_of_targets
from fl_audit.verdict.verdict import VerdictDetails


class ReconstructionJudging(TargetsJudging):
    """Planning and judging of the audit kind `reconstruction`, in which exactly one of the candidates is in."""

    kind = "reconstruction"
    is_always_in = True

    def judge(self, run: FinishedRun) -> VerdictDetails | None:
        """Judge the guarantee by the share of right first guesses, and by the noise along the true candidate.

        Values that the challenger revealed after the run, such as who took part, are tested too. None without an
        insider.
        """
        if (ranks := candidate_ranks(run)) is None:
            return None
        chance, hits = float(run.facts.federation.prior_of_candidates.max()), int((ranks == 1).sum())
        noise = noise_along(run, true_candidates(run), of_all=False)
        found = judge_hits(hits, len(ranks), chance, run.facts.stated_guarantee, run.facts.confidence, noise)
        return judged_with_opened(found, opened_of_targets(run))

    def covers(self, facts: RunDescription) -> str:
        """Return a sentence which says that a verdict covers only the run's candidates and its seed."""
        return (
            "A verdict covers these candidates and this seed (the challenger's secret) only; other candidates, other "
            "data and other seeds were not tried."
        )


def candidate_ranks(run: FinishedRun) -> Integers | None:
    """Return the rank of the true candidate among the attacker's guesses in each trial, 1 for the first, (trials,).

    None if the run is no reconstruction audit, or without an insider.
    """
    return run.once(_ranks)


def _ranks(run: FinishedRun) -> Integers | None:
    if (found := log_odds_of_targets(run, is_exactly_one=True)) is None:
        return None
    with np.errstate(divide="ignore"):
        prior = np.log(run.facts.federation.prior_of_candidates)
    return ranks_of_truth(found[0] + prior, true_candidates(run))


def true_candidates(run: FinishedRun) -> Integers:
    """Return the index of the candidate that is in, for each trial of a reconstruction audit, shape (trials,)."""
    table = run.tables.targets
    assert table is not None, "the audit of reconstruction has candidates"
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(run.trials, -1)
    return np.asarray(is_in.argmax(axis=1), dtype=np.int64)
