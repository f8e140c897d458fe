"""Verdict on a claim from the tests of distinguishers and from the readings of the noise beside them."""

from collections.abc import Sequence

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import DistinguisherTest
from fl_audit.app_audits.claim_audit.gaussian_mu_estimate import broken_estimates
from fl_audit.verdict.verdict import Verdict, without_contradiction


def verdict_of(claim: StatedClaim, attempts: Sequence[DistinguisherTest]) -> Verdict:
    """Return the verdict on a claim from the tests of distinguishers.

    It is VIOLATED if a test refutes the claim. It is CONSISTENT if no test refutes the claim, at least one test would
    have refuted it if all guesses had been right, and no reading of Gaussian noise beside the tests contradicts the
    claim. Otherwise it is INCONCLUSIVE.
    """
    if any(attempt.is_broken for attempt in attempts):
        return Verdict.VIOLATED
    can_refute = any(attempt.ceiling > attempt.distinguisher.limit.epsilon for attempt in attempts)
    return without_broken_readings(Verdict.CONSISTENT if can_refute else Verdict.INCONCLUSIVE, claim, attempts)


def without_broken_readings(verdict: Verdict, claim: StatedClaim, attempts: Sequence[DistinguisherTest]) -> Verdict:
    """Return a verdict that agrees with the readings of Gaussian noise in tests: INCONCLUSIVE in place of CONSISTENT
    if one is broken.
    """
    return without_contradiction(verdict, [estimate.reading.reading for estimate in broken_estimates(claim, attempts)])
