"""The findings on the guarantee: the verdict with the judgement behind it, and the measured noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fl_audit.array_types import finite
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.verdict.multiple_testing import OF_OPENED, TestName
from fl_audit.verdict.noise_estimate import NoiseEstimate
from fl_audit.verdict.verdict import Judgement, JudgementWords, Verdict


@dataclass(frozen=True)
class VerdictFinding:
    """The verdict on a run, with the judgement that it rests on."""

    verdict: Verdict  # the verdict
    judgement: Judgement | None  # the judgement behind the verdict; None where there was nothing to judge
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

    @property
    def judged(self) -> Judgement:
        """The judgement, asserted to exist."""
        assert self.judgement is not None, "nothing was judged here"
        return self.judgement

    @property
    def judges_scores(self) -> bool:
        """Whether only scores of unknown distribution were judged, apart from opened values.

        Then it is not known how large a breach would have been found.
        """
        return self.judgement is not None and [
            test.name for test in self.judgement.tests if test.name not in OF_OPENED
        ] == [TestName.SCORES]

    @property
    def words(self) -> JudgementWords:
        """The phrases with which this kind of audit describes its judgement."""
        return JudgementWords() if self.judgement is None else self.judgement.words

    def beside(self, broken: tuple[str, ...]) -> "VerdictFinding":
        """Return the verdict given the names of other findings that contradict the guarantee.

        If there are any, a consistent verdict becomes inconclusive; a violated one stays.
        """
        if not broken or self.verdict not in (Verdict.CONSISTENT, Verdict.INCONCLUSIVE):
            return self
        return replace(self, verdict=Verdict.INCONCLUSIVE, contradicted_by=broken)

    def to_json(self) -> dict[str, Any]:
        """Return the keys `verdict` and `signal` of `summary.json`; `signal` is None if it was not tested."""
        signal = None if self.judgement is None else self.judgement.signal
        return {"verdict": str(self.verdict), "signal": None if signal is None else json_of(signal.to_json())}


def verdict_numbers(run: FinishedRun, judge: Callable[[FinishedRun], Judgement | None]) -> VerdictFinding:
    """Return the verdict on a run, and the judgement on which it rests.

    Parameters
    ----------
    run
        A finished run.
    judge
        Function that judges a run that has a guarantee, and returns None where there is nothing to judge.
    """
    if (guarantee := run.facts.guarantee) is None:
        return VerdictFinding(Verdict.NO_GUARANTEE, None)
    if (found := judge(run)) is None:
        return VerdictFinding(Verdict.NOT_AUDITED, None)
    speed, trials, needed = run.timing.trials_per_second, found.trials_that_tell, None
    if trials is not None and speed:
        needed = trials / speed + (run.timing.setup_seconds or 0.0)
    limits = {test.name: test.limit for test in found.tests}
    anywhere, at_unit = (finite(limits.get(name)) for name in (TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD))
    return VerdictFinding(found.verdict, found, needed, guarantee.epsilon, anywhere, at_unit)


@dataclass(frozen=True)
class NoiseFinding:
    """The noise that the insider measured, relative to the claimed noise."""

    estimate: NoiseEstimate  # measured over claimed noise
    judgement: Judgement  # the tests of the guarantee

    def to_json(self) -> dict[str, Any]:
        """Return the key `noise` of `summary.json`; values that were not measured are None."""
        names = ("ratio", "low", "high", "confidence", "along_record", "along_low", "along_high")
        tensors = [dict(zip(("name", *names[:3]), part, strict=True)) for part in self.estimate.tensors]
        told = {name: getattr(self.estimate, name) for name in names}
        return {"noise": json_of(told | {"tensors": tensors, "level": self.judgement.level})}

    @property
    def main(self) -> tuple[float, float, float] | None:
        """The ratio of measured to claimed noise with its interval, (ratio, low, high); None if it was not measured.

        It is the ratio over all directions, or that along the unit's direction where only this was measured.
        """
        found = self.estimate
        if math.isfinite(found.ratio):
            return found.ratio, found.low, found.high
        if math.isfinite(found.along_record):
            return found.along_record, found.along_low, found.along_high
        return None


def measure_noise(_: FinishedRun, findings: Findings) -> NoiseFinding | None:
    """Return the noise that the insider measured, or None where nothing was judged."""
    verdict = findings.find(VerdictFinding)
    if verdict is None or verdict.judgement is None:
        return None
    return NoiseFinding(verdict.judgement.noise, verdict.judgement)
