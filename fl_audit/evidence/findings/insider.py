"""The insider: how often it was right, and how sure it became."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logit

from fl_audit.evidence.belief.advantage import AdvantageEstimate, clopper_pearson, empirical_advantage
from fl_audit.evidence.belief.laws import Floats
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class InsiderNumbers:
    """What the insider achieved.

    Parameters
    ----------
    estimate
        Games won, and the advantage that follows.
    max_belief
        Its largest belief in the dataset that was really used.
    belief_violations
        Worlds in which that belief passed its bound.
    """

    estimate: AdvantageEstimate
    max_belief: float
    belief_violations: int

    def to_json(self) -> dict[str, Any]:
        """Return the entry `insider`."""
        estimate = self.estimate
        return {
            "insider": {
                "worlds": estimate.worlds,
                "wins": estimate.wins,
                "advantage": estimate.advantage,
                "advantage_low": estimate.low,
                "advantage_high": estimate.high,
                "max_belief": self.max_belief,
                "belief_violations": self.belief_violations,
            }
        }


def measure_insider(run: FinishedRun, _: Findings) -> InsiderNumbers | None:
    """Return what the insider achieved; None without a promise or an insider."""
    promise = run.facts.guarantee
    if promise is None or not run.has_insider:
        return None
    # The promise bounds the log-odds; at a prior of 1/2 this counts the beliefs beyond the bound.
    limit = logit(promise.belief_bound) - logit(promise.prior)
    return InsiderNumbers(
        estimate=empirical_advantage(run.tables.worlds["won"].to_numpy(), run.facts.confidence),
        max_belief=float(run.tables.worlds["belief"].max()),
        belief_violations=int((run.towards_truth > limit).sum()),
    )


@dataclass(frozen=True)
class EvidenceTail:
    """How often the insider's evidence for the truth passed what the promise allows.

    Parameters
    ----------
    promise
        The promise.
    bound
        The evidence that the belief bound stands for, in nats without the prior; infinite of a bound of 1.
    passed, worlds
        Worlds in which it was passed, of how many.
    """

    promise: Guarantee
    bound: float
    passed: int
    worlds: int

    def to_json(self) -> dict[str, Any]:
        """Return no entry: the count stands in `insider`."""
        return {}


def measure_tail(run: FinishedRun, _: Findings) -> EvidenceTail | None:
    """Return how often the evidence passed the promise; None without a promise or an insider."""
    promise = run.facts.guarantee
    if promise is None or not run.has_insider:
        return None
    bound = float(logit(promise.belief_bound) - logit(promise.prior))
    return EvidenceTail(promise, bound, int((run.towards_truth > bound).sum()), run.worlds)


def passed_shares(evidence: Floats, thresholds: Floats, confidence: float) -> tuple[Floats, Floats, Floats]:
    """Return which share of the worlds passes each threshold, with the ends of its interval.

    Parameters
    ----------
    evidence
        Of each world, shape (worlds,).
    thresholds
        Shape (thresholds,).
    confidence
        Of the Clopper-Pearson interval at each threshold by itself, above 0 and below 1.

    Returns
    -------
    tuple
        Share, lower and upper end, each of shape (thresholds,).
    """
    counts = evidence.size - np.searchsorted(np.sort(evidence), thresholds, side="right")
    ends = {int(count): clopper_pearson(int(count), evidence.size, confidence) for count in np.unique(counts)}
    low, high = (np.array([ends[int(count)][side] for count in counts]) for side in (0, 1))
    return counts / evidence.size, low, high


def limit_of(promise: Guarantee, log_odds: Floats) -> Floats:
    """Return the largest probability with which a kept promise lets each threshold be passed, of the same shape."""
    profile, chosen = promise.claim.profile, promise.claim.sensitivities
    return np.array([profile.passing_probability(float(at), chosen) for at in log_odds])
