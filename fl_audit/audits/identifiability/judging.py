"""Planning and judging of the identifiability audit, which asks whether an insider can tell D from D'."""

from fl_audit.adjacency import Relation
from fl_audit.audits.audit import AuditJudging, ClaimedRun
from fl_audit.audits.common.planned_detection_limits import limit_of_signal, limits_of_noise
from fl_audit.audits.common.requirements import require_clients, require_weighable
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.verdict.noise_estimate import PlannedLimits
from fl_audit.verdict.signal_limit import SignalLimit
from fl_audit.verdict.stored_measurements import measured_in, opened_of_pair
from fl_audit.verdict.verdict import Judgement, judge, judge_scores, judged_with_opened


class IdentifiabilityJudging(AuditJudging):
    """Planning and judging where an insider has each release's likelihood ratio, or a score, for one differing unit."""

    def require_playable(self, public: Federation) -> None:
        """Refuse a federation in which an insider of a pair could not compute likelihood ratios or scores."""
        require_clients(public, 2)
        require_weighable(public)

    def judge(self, run: FinishedRun) -> Judgement | None:
        """Return the judgement by the family of tests, or by the bound of scores; None without an insider."""
        guarantee, scores, confidence = run.facts.stated_guarantee, run.insider_scores, run.facts.confidence
        if scores is not None:
            found = judge_scores(scores[run.bits], scores[~run.bits], guarantee, confidence)
            return judged_with_opened(found, opened_of_pair(run))
        return judge(measured_in(run), guarantee, confidence) if run.has_insider else None

    def covers(self, facts: RunFacts) -> str:
        """Return the pair and seed that a verdict covers, and the number of rounds of the differing client."""
        return pairs_covered("this pair", facts)

    def planned_noise(self, planned: ClaimedRun, parameters: int | None) -> PlannedLimits | None:
        """Return the insider's limit of detection for the noise, in all parameters or along the difference.

        Parameters
        ----------
        planned
            The run that is planned.
        parameters
            Number of parameters of the model; None where the noise in all of them cannot be measured.
        """
        return limits_of_noise(planned, parameters)

    def planned_signal(self, planned: ClaimedRun) -> SignalLimit | None:
        """Return the limit of detection for a unit that counts more than once; None without an exact LLR."""
        is_replaced = planned.public.mechanism.adjacency.relation is Relation.REPLACE
        return limit_of_signal(planned, is_replaced)


def pairs_covered(these: str, facts: RunFacts) -> str:
    """Return the coverage of a verdict about pairs of neighbouring training sets.

    Parameters
    ----------
    these
        Words for the pairs, such as `this pair`.
    facts
        The facts of the run.
    """
    return (
        f"A verdict covers {these} of neighbouring training sets ({facts.neighbour}) and this seed (the "
        "challenger's secret) only; other neighbours, other data and other seeds were not tried."
        f"{_cohort_text(facts)}"
    )


def _cohort_text(facts: RunFacts) -> str:
    """Return the number of rounds of the differing unit, where a public order decides it."""
    return facts.federation.mechanism.participation.turn_words(facts.federation.rounds)
