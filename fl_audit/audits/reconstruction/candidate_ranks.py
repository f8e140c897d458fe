"""Ranks of the true candidate among the attacker's guesses in a reconstruction audit."""

import numpy as np

from fl_audit.array_types import Integers
from fl_audit.audits.common.target_log_odds import log_odds_of_targets
from fl_audit.audits.reconstruction.candidate_hits import ranks_of_truth
from fl_audit.federation.finished_run import FinishedRun


def candidate_ranks(run: FinishedRun) -> Integers | None:
    """Return the rank of the true candidate among the attacker's guesses in each trial, 1 for the first, (trials,).

    The result is None if the run is no reconstruction audit, or if it has no insider.
    """
    return run.cached(_ranks)


def _ranks(run: FinishedRun) -> Integers | None:
    if (scores := log_odds_of_targets(run, is_exactly_one=True)) is None:
        return None
    with np.errstate(divide="ignore"):
        prior = np.log(run.plan.federation.prior_of_candidates)
    return ranks_of_truth(scores[0] + prior, true_candidates(run))


def true_candidates(run: FinishedRun) -> Integers:
    """Return which candidate is in the training set of each trial of a reconstruction audit, indices (trials,)."""
    table = run.tables.targets
    assert table is not None, "the audit of reconstruction has candidates"
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(run.trials, -1)
    return np.asarray(is_in.argmax(axis=1), dtype=np.int64)
