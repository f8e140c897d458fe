"""Plan and judge reconstruction audits, in which an attacker guesses which candidate is in."""

import numpy as np

from fl_audit.array_types import Floats, Integers
from fl_audit.audits.audit import AuditJudging, ClaimedRun
from fl_audit.audits.common.planned_detection_limits import limit_of_signal, limits_of_noise
from fl_audit.audits.common.requirements import require_candidates, require_clients, require_targets, require_weighable
from fl_audit.audits.reconstruction.reconstruction_metrics import judge_hits, ranks_of_truth
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun, RunDescription
from fl_audit.federation.target_membership import MembershipScheme
from fl_audit.verdict.noise_estimate import PlannedDetectionLimits
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
from fl_audit.verdict.stored_measurements import noise_along, opened_of_targets
from fl_audit.verdict.verdict import VerdictDetails, judged_with_opened


class ReconstructionJudging(AuditJudging):
    """Planning and judging of the audit kind `reconstruction`, in which exactly one of the candidates is in."""

    def require_playable(self, public: Federation) -> None:
        """Raise `InputError` if the reconstruction audit cannot run on a federation, e.g. with too few clients."""
        require_clients(public, 2 if public.with_insider else 1)
        require_targets(public, "reconstruction")
        require_candidates(public)
        require_weighable(public)

    def judge(self, run: FinishedRun) -> VerdictDetails | None:
        """Judge the guarantee by the share of right first guesses, and by the noise along the true candidate.

        The judgement has a verdict on the guarantee and a lower bound on epsilon. It includes the tests of values that
        were revealed after the run, such as who took part. None without an insider.
        """
        if (ranks := candidate_ranks(run)) is None:
            return None
        chance, hits = float(run.facts.federation.prior_of_candidates.max()), int((ranks == 1).sum())
        noise = noise_along(run, candidates_of(run)[1], of_all=False)
        found = judge_hits(hits, len(ranks), chance, run.facts.stated_guarantee, run.facts.confidence, noise)
        return judged_with_opened(found, opened_of_targets(run))

    def covers(self, facts: RunDescription) -> str:
        """Return a sentence on the candidates and the seed that a verdict covers."""
        return (
            "A verdict covers these candidates and this seed (the challenger's secret) only; other candidates, other "
            "data and other seeds were not tried."
        )

    def planned_noise(self, planned: ClaimedRun, parameters: int | None) -> PlannedDetectionLimits | None:
        """Return how large a lack of noise a planned run would detect along the candidates; None if no insider.

        Parameters
        ----------
        planned
            The planned run with its claimed guarantee.
        parameters
            Number of parameters of the model; not used, since the noise is measured only along the candidates.
        """
        return limits_of_noise(planned, None)

    def planned_signal(self, planned: ClaimedRun) -> SignalDetectionLimit | None:
        """Return the factor by which a candidate must count too heavily for a planned run to detect it.

        The factor compares the effect on the released sums with the effect that the claim assumes. The result is None
        if the run has no insider, or if its mechanism has no exact LLR (log-likelihood ratio).
        """
        return limit_of_signal(planned, is_always_in=True)


def candidate_ranks(run: FinishedRun) -> Integers | None:
    """Return the rank of the true candidate among the attacker's guesses in each trial, 1 for the first, (trials,).

    None if the run is no reconstruction audit, or without an insider.
    """
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
    """Return the log-odds of each candidate, (trials, candidates), and the index of the true candidate, (trials,).

    The log-odds compare the candidate being in with no candidate being in.
    """
    table, shape = run.tables.targets, (run.trials, -1)
    assert table is not None, "the audit of reconstruction has candidates"
    truth = table["is_in"].to_numpy(dtype=np.bool_).reshape(shape).argmax(axis=1)
    return table["log_odds"].to_numpy(dtype=np.float64).reshape(shape), truth.astype(np.int64)
