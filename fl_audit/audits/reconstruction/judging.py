"""The audit of reconstruction: one of several candidates is in, and an attacker who knows all else names it."""

import numpy as np

from fl_audit.arrays import Floats, Integers
from fl_audit.audits.reconstruction.reconstruction import judge_hits, ranks_of_truth
from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.verdict.of_run import noise_along, opened_of_targets
from fl_audit.verdict.verdict import Judgement, judged_with_opened


class ReconstructionJudging:
    """Exactly one of the targets is in."""

    def judge(self, run: FinishedRun) -> Judgement | None:
        """Return what first guesses that were right say, and the noise along the true candidate."""
        if (ranks := candidate_ranks(run)) is None:
            return None
        chance, hits = float(run.facts.federation.prior_of_candidates.max()), int((ranks == 1).sum())
        noise = noise_along(run, candidates_of(run)[1], of_all=False)
        found = judge_hits(hits, len(ranks), chance, run.facts.stated_guarantee, run.facts.confidence, noise)
        return judged_with_opened(found, opened_of_targets(run))

    def covers(self, facts: RunFacts) -> str:
        """Say of which candidates and seed a verdict is."""
        return (
            "A verdict covers these candidates and this seed (the challenger's secret) only; other candidates, other "
            "data and other seeds were not tried."
        )

    def not_compared(self, run: FinishedRun) -> str:
        """Return nothing: there is always one candidate that is in, and others that are not."""
        return ""


def candidate_ranks(run: FinishedRun) -> Integers | None:
    """Return the place of the truth among the candidates, (trials,); None outside this audit, or without insider."""
    return run.once(_ranks)


def _ranks(run: FinishedRun) -> Integers | None:
    table = run.tables.targets
    if table is None or "log_odds" not in table or not run.facts.federation.exactly_one:
        return None
    log_odds, truth = candidates_of(run)
    with np.errstate(divide="ignore"):
        prior = np.log(run.facts.federation.prior_of_candidates)
    return ranks_of_truth(log_odds + prior, truth)


def candidates_of(run: FinishedRun) -> tuple[Floats, Integers]:
    """Return the log-odds of each candidate against nobody, (trials, candidates), and the true one."""
    table, shape = run.tables.targets, (run.trials, -1)
    assert table is not None, "the audit of reconstruction has candidates"
    truth = table["is_in"].to_numpy(dtype=np.bool_).reshape(shape).argmax(axis=1)
    return table["log_odds"].to_numpy(dtype=np.float64).reshape(shape), truth.astype(np.int64)
