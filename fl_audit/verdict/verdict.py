"""Define the verdict on whether the measurements of a run contradict its claim, and the results on which it rests."""

import math
from dataclasses import dataclass
from enum import StrEnum

from fl_audit.verdict import noise_estimate as estimates
from fl_audit.verdict.declared_tests import FAMILY_LEVEL, NotTestedReason, TestName, TestResult
from fl_audit.verdict.exact_questions import ExactAnswer, broken_answers, open_answers
from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit


class Verdict(StrEnum):
    """Verdict on the guarantee of a run.

    CONSISTENT: no test refutes the guarantee. VIOLATED: an exact question, or a test at `FAMILY_LEVEL`, refutes it.
    INCONCLUSIVE: nothing refutes it, but even a breach of 1.5 times the claimed epsilon might not have been found.
    NOT_AUDITED: there was a guarantee, but no insider to test it. NO_GUARANTEE: the run had no guarantee.
    """

    CONSISTENT = "consistent"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"
    NOT_AUDITED = "not audited"
    NO_GUARANTEE = "no guarantee"


@dataclass(frozen=True)
class AuditKindPhrases:
    """Phrases with which the reports of one kind of audit describe its tests.

    If a field is None, the report uses the phrase for audits of a pair D, D'.
    """

    shown_by: str = "scores"  # name of the values from which a lower bound on epsilon was computed
    blind: str | None = None  # sentence for a run in which no breach could have been found
    to_find_more: str | None = None  # sentence on how smaller breaches are found
    next_step: str | None = None  # sentence on the next step after a consistent verdict
    lists_questions: bool = True  # whether the report lists the tests beside those of the amount of noise


@dataclass(frozen=True)
class VerdictDetails:
    """The results of all tests of a run's guarantee, with estimates, limits of detection and the verdict.

    Kinds of audits make it in different ways; `VerdictFinding` holds it where anything was tested, with what follows.
    """

    tests: tuple[TestResult, ...]  # every test that was made, in the order of their declaration
    # The tests that could not be made on this run, each with the reason.
    not_offered: tuple[tuple[TestName, NotTestedReason], ...]
    noise: estimates.NoiseRatioEstimate  # ratios of the measured to the claimed noise
    epsilon_lower_bound: float  # a lower bound at the guarantee's delta that holds with `confidence` under `assumption`
    # A lower bound at the guarantee's delta that holds with 1 - `level` under `assumption`.
    epsilon_lower_bound_at_level: float
    confidence: float  # confidence of the intervals and of `epsilon_lower_bound`, as configured
    method: str  # method of the lower bound, in plain English
    assumption: str  # assumption of the lower bound, in plain English
    # Smallest true epsilon, at the guarantee's delta, at which a test fails with probability 0.9. The test is the one
    # that the lower bound comes from; in the membership audit it is the test of the noise along the targets. Infinite
    # where the trials cannot tell, and where only scores of unknown distribution are judged.
    limit_of_detection: float = math.inf
    # Number of trials that would find a breach of 1.5 times the guarantee. None where no number would, because D and D'
    # never differed, and where the number is unknown, because only scores are judged.
    trials_needed: int | None = None
    conclusive: bool = False  # whether a breach of 1.5 times the guarantee would have been found in this run
    # Limit of detection for a target that counts more than once in the sum, and the estimate of how often it counts;
    # None where no test was made of it.
    signal: SignalDetectionLimit | None = None
    words: AuditKindPhrases = AuditKindPhrases()
    exact: tuple[ExactAnswer, ...] = ()  # answers to the exact questions, which no chance affects

    @property
    def level(self) -> float:
        """Significance level of the whole family of tests."""
        return FAMILY_LEVEL

    @property
    def broken(self) -> tuple[TestResult, ...]:
        """Results of the tests that refute the guarantee."""
        return tuple(test for test in self.tests if test.violated)

    @property
    def not_computed(self) -> tuple[TestName, ...]:
        """Names of the tests that could not be computed, so that the verdict is not consistent."""
        return tuple(name for name, reason in self.not_offered if reason is NotTestedReason.NOT_COMPUTED)

    @property
    def verdict(self) -> Verdict:
        """Verdict that follows from the tests: violated, consistent or inconclusive."""
        is_conclusive = self.conclusive and (self.signal is None or self.signal.conclusive)
        is_answered = not self.not_computed and not open_answers(self.exact)
        return verdict_on(bool(self.broken or broken_answers(self.exact)), is_conclusive and is_answered)

    @property
    def trials_for_conclusive_verdict(self) -> int | None:
        """Number of trials with which a run would be conclusive; None if no number is enough, or if it is unknown.

        A conclusive run would detect an epsilon of 1.5 times the claimed one, and a target that counts 1.5 times. The
        number for the target has a reserve, since it is an estimate.
        """
        needed = [self.trials_needed]
        if self.signal is not None:
            needed.append(self.signal.trials_with_reserve or self.signal.trials_needed)
        numbers = [number for number in needed if number is not None]
        return max(numbers) if len(numbers) == len(needed) else None

    @property
    def level_of_limit(self) -> float:
        """Significance level of the test from which `limit_of_detection` was computed.

        If that test is not in `tests`, it is the level of the whole family.
        """
        return next((test.level for test in self.tests if test.name == self.method), self.level)


def depends_on_secret(details: VerdictDetails) -> bool:
    """Return True if a test found that the noise depends on the secret.

    In this case, noise above the claim is not harmless, because its size can reveal the secret.
    """
    return any(test.name.is_about_secret for test in details.broken)


def has_open_shares(details: VerdictDetails) -> bool:
    """Return True if the clients' shares of the noise are known to be independent, or if clients add no shares.

    Shares count as independent if they were revealed after the run and no test found copies among them. If clients send
    copies of one share, the sum has more noise than claimed. But an insider that knows its own share can then subtract
    much of this noise. So excess noise is harmless only if the result is True.
    """
    name = TestName.SHARE_PAIRS
    is_unopened = (name, NotTestedReason.UNOPENED_SHARES) in details.not_offered
    return not is_unopened and not any(test.name is name for test in details.broken)


def with_doubt(verdict: Verdict, is_doubted: bool) -> Verdict:
    """Return a verdict that takes a doubt beside its tests into account: a consistent one becomes inconclusive.

    Parameters
    ----------
    verdict
        Verdict by the tests.
    is_doubted
        Whether something beside the tests leaves the guarantee in doubt.
    """
    return Verdict.INCONCLUSIVE if is_doubted and verdict is Verdict.CONSISTENT else verdict


def verdict_on(is_broken: bool, is_conclusive: bool) -> Verdict:
    """Return the verdict: violated if a test refuted the guarantee, otherwise consistent or inconclusive.

    Parameters
    ----------
    is_broken
        Whether at least one test refuted the guarantee.
    is_conclusive
        Whether the tests could have found a breach, by the measure of their audit, and nothing is in doubt. If so, a
        guarantee that no test refuted is consistent, otherwise the verdict is inconclusive.
    """
    if is_broken:
        return Verdict.VIOLATED
    return Verdict.CONSISTENT if is_conclusive else Verdict.INCONCLUSIVE
