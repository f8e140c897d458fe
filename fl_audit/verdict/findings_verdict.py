"""Define two results of the analysis of a run: the verdict on its guarantee, and the measured noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fl_audit.array_types import finite
from fl_audit.errors import in_a_line
from fl_audit.federation.findings import json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.report_elements import SectionError
from fl_audit.verdict.declared_tests import OF_OPENED, TestName
from fl_audit.verdict.exact_answers import exact_answers
from fl_audit.verdict.exact_questions import ExactAnswer, open_answers
from fl_audit.verdict.judging import without_noise, without_tests
from fl_audit.verdict.verdict import AuditKindPhrases, Verdict, VerdictDetails, with_doubt


@dataclass(frozen=True)
class VerdictFinding:
    """The verdict on an audited run together with the test results on which it rests."""

    verdict: Verdict  # verdict on the guarantee of the run
    judgement: VerdictDetails | None  # test results behind the verdict; None where nothing was tested
    # Duration of the trials that would be conclusive about noise and signal, at the speed of this run; None where its
    # speed was not recorded or no number of trials would do.
    seconds_needed: float | None = None
    claimed: float = math.inf  # the claimed epsilon; infinite where nothing was claimed
    # Share of the noise that would have been found in 9 of 10 runs if it were missing everywhere; None if not measured.
    missing_anywhere: float | None = None
    # Share of the noise that would have been found in 9 of 10 runs if it were missing only in the direction that hides
    # the differing unit; None if not measured.
    missing_at_unit: float | None = None
    # Names of findings that contradict the guarantee although no test does. The verdict on a run with such findings is
    # never consistent.
    contradicted_by: tuple[str, ...] = ()
    # Parts of the report that could not be computed. The verdict on a run with such parts is never consistent.
    errors: tuple[SectionError, ...] = ()

    @property
    def judged(self) -> VerdictDetails:
        """The test results behind the verdict; raises `AssertionError` if nothing was judged."""
        assert self.judgement is not None, "nothing was judged here"
        return self.judgement

    @property
    def judges_scores(self) -> bool:
        """True if the verdict rests on attack scores, because noise was not tested.

        The only tests are then the test of attack scores and the tests of values that the challenger revealed. The
        distribution of attack scores is unknown, unlike the distribution of noise.
        """
        return self.judgement is not None and [
            test.name for test in self.judgement.tests if test.name not in OF_OPENED
        ] == [TestName.SCORES]

    @property
    def is_unanswered(self) -> bool:
        """Whether a part of the report or a test could not be computed, or an exact question is open."""
        judged = self.judged
        return bool(self.errors or judged.not_computed or open_answers(judged.exact))

    @property
    def words(self) -> AuditKindPhrases:
        """Phrases with which a report of this kind of audit describes the tests and their result."""
        return AuditKindPhrases() if self.judgement is None else self.judgement.words

    def with_contradictions(self, broken: tuple[str, ...]) -> "VerdictFinding":
        """Return this verdict after taking into account other findings that contradict the guarantee.

        `broken` has the names of such findings. If there are any, a consistent verdict becomes inconclusive.
        """
        if not broken or self.verdict not in (Verdict.CONSISTENT, Verdict.INCONCLUSIVE):
            return self
        return replace(self, verdict=Verdict.INCONCLUSIVE, contradicted_by=broken)

    def with_errors(self, errors: tuple[SectionError, ...]) -> "VerdictFinding":
        """Return this verdict with the parts of the report that could not be computed.

        If there are any, a consistent verdict becomes inconclusive.
        """
        return replace(self, verdict=with_doubt(self.verdict, bool(errors)), errors=errors)

    def to_json(self) -> dict[str, Any]:
        """Return the entries `verdict`, `signal` and `exact` of `summary.json`; `signal` is None if not measured."""
        signal = None if self.judgement is None else self.judgement.signal
        exact = [] if self.judgement is None else [answer.to_json() for answer in self.judgement.exact]
        signal_json = None if signal is None else json_of(signal.to_json())
        return {"verdict": str(self.verdict), "signal": signal_json, "exact": exact}


def verdict_numbers(run: FinishedRun, judge: Callable[[FinishedRun], VerdictDetails | None]) -> VerdictFinding:
    """Judge a finished run and return its verdict together with the test results behind it.

    The verdict is NO_GUARANTEE if the run has no guarantee, and NOT_AUDITED if `judge` returns None. If the tests or
    the exact questions raise an error, it rests on the others and is never consistent.

    `judge`: It returns None if the run has nothing that can be tested.
    """
    if (guarantee := run.plan.guarantee) is None:
        return VerdictFinding(Verdict.NO_GUARANTEE, None)
    errors = list[SectionError]()
    exact = tuple[ExactAnswer, ...]()
    try:
        details = judge(run)
    except Exception as error:
        details = without_tests(run.plan.confidence)
        errors.append(SectionError("The tests of the guarantee", in_a_line(error)))
    if details is None:
        return VerdictFinding(Verdict.NOT_AUDITED, None)
    try:
        exact = exact_answers(run)
    except Exception as error:
        errors.append(SectionError("The exact questions", in_a_line(error)))
    if any(answer.hides_noise for answer in exact):
        details = without_noise(details)
    details = replace(details, exact=exact)
    speed = run.timing.trials_per_second
    trials = details.trials_for_conclusive_verdict
    needed = None
    if trials is not None and speed:
        needed = trials / speed + (run.timing.setup_seconds or 0.0)
    limits = {test.name: test.limit for test in details.tests}
    anywhere, at_unit = (finite(limits.get(name)) for name in (TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD))
    verdict = VerdictFinding(details.verdict, details, needed, guarantee.epsilon, anywhere, at_unit)
    return verdict.with_errors(tuple(errors))
