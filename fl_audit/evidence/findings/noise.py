"""The noise that is really added, as the insider measured it, over the promised noise; a report begins with it."""

import math
from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.belief.noise_estimate import NoiseEstimate
from fl_audit.evidence.belief.verdict import Judgement
from fl_audit.evidence.findings.found import Findings, finite
from fl_audit.evidence.findings.verdict import VerdictNumbers
from fl_audit.evidence.finished_run import FinishedRun


@dataclass(frozen=True)
class NoiseNumbers:
    """What the insider measured of the noise."""

    estimate: NoiseEstimate  # measured over promised noise
    judgement: Judgement  # the tests of the promise

    def to_json(self) -> dict[str, Any]:
        """Return the entry `noise`; what was not measured is None."""
        found, judgement = self.estimate, self.judgement
        return {
            "noise": {
                "ratio": finite(found.ratio),
                "low": finite(found.low),
                "high": finite(found.high),
                "confidence": found.confidence,
                "along_record": finite(found.along_record),
                "along_low": finite(found.along_low),
                "along_high": finite(found.along_high),
                "tensors": [dict(zip(("name", "ratio", "low", "high"), part, strict=True)) for part in found.tensors],
                "level": judgement.level,
            }
        }

    @property
    def main(self) -> tuple[float, float, float] | None:
        """Ratio and interval over all directions, or along the unit's where nothing else was measured."""
        found = self.estimate
        if math.isfinite(found.ratio):
            return found.ratio, found.low, found.high
        if math.isfinite(found.along_record):
            return found.along_record, found.along_low, found.along_high
        return None


def measure_noise(_: FinishedRun, findings: Findings) -> NoiseNumbers | None:
    """Return what the insider measured of the noise; None where nothing was judged."""
    verdict = findings.find(VerdictNumbers)
    if verdict is None or verdict.judgement is None:
        return None
    return NoiseNumbers(verdict.judgement.noise, verdict.judgement)
