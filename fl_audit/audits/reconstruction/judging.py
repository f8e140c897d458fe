"""The audit of reconstruction: one of several candidates is in, and an attacker who knows all else names it."""

import numpy as np

from fl_audit.arrays import Floats, Integers
from fl_audit.audits.audit import ClaimedRun
from fl_audit.audits.common.planned import limit_of_signal, limits_of_noise
from fl_audit.audits.common.requirements import require_candidates, require_clients, require_targets, require_weighable
from fl_audit.audits.reconstruction.reconstruction import judge_hits, ranks_of_truth
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.federation.membership import MembershipScheme
from fl_audit.verdict.noise_estimate import PlannedLimits
from fl_audit.verdict.of_run import noise_along, opened_of_targets
from fl_audit.verdict.signal_limit import SignalLimit
from fl_audit.verdict.verdict import Judgement, judged_with_opened


class ReconstructionJudging:
    """Exactly one of the targets is in."""

    def require_playable(self, public: Federation) -> None:
        """Refuse what candidates cannot be played with."""
        require_clients(public, 2 if public.with_insider else 1)
        require_targets(public, "reconstruction")
        require_candidates(public)
        require_weighable(public)

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

    def planned_noise(self, planned: ClaimedRun, parameters: int | None) -> PlannedLimits | None:
        """Return what the insider finds of the noise, along the candidates alone.

        Parameters
        ----------
        planned, parameters
            The run, and how many parameters its model has, where the noise in all of them could be measured.
        """
        return limits_of_noise(planned, None)

    def planned_signal(self, planned: ClaimedRun) -> SignalLimit | None:
        """Return how often a candidate could count: one is in in every trial."""
        return limit_of_signal(planned, is_always_in=True)


def candidate_ranks(run: FinishedRun) -> Integers | None:
    """Return the place of the truth among the candidates, (trials,); None outside this audit, or without insider."""
    return run.once(_ranks)


def _ranks(run: FinishedRun) -> Integers | None:
    table = run.tables.targets
    if (
        table is None
        or "log_odds" not in table
        or run.facts.federation.membership_scheme is not MembershipScheme.EXACTLY_ONE
    ):
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
