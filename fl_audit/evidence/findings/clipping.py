"""Adaptive clipping: where the norm went, and what the two releases of a round cost."""

from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.evidence.run_tables import NORM_COLUMN
from fl_audit.mechanisms.clipping import AdaptiveClipping


@dataclass(frozen=True)
class ClippingNumbers:
    """What adaptive clipping did."""

    # `first`, `last`: the clipping norm of the first round, and the median over worlds of that of the last one.
    first: float
    last: float
    # `sum_multiplier`, `count_multiplier`, `together`: noise multipliers of the sum of updates, of the count of those
    # within the norm, and of both releases together.
    sum_multiplier: float
    count_multiplier: float
    together: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `clipping`."""
        return {
            "clipping": {
                "first_norm": self.first,
                "last_norm": self.last,
                "sum_noise_multiplier": self.sum_multiplier,
                "count_noise_multiplier": self.count_multiplier,
                "noise_multiplier": self.together,
            }
        }


def measure_clipping(run: FinishedRun, _: Findings) -> ClippingNumbers | None:
    """Return what adaptive clipping did; None where the norm is fixed."""
    law, rounds = run.facts.game.law, run.tables.rounds
    if not isinstance(law.clipping, AdaptiveClipping) or NORM_COLUMN not in rounds:
        return None
    last = rounds.loc[rounds["round"] == rounds["round"].max(), NORM_COLUMN]
    z, standpoint = run.facts.faced_multiplier, run.facts.game.standpoint
    return ClippingNumbers(
        first=law.clipping_norm,
        last=float(last.median()),
        sum_multiplier=z,
        count_multiplier=z * law.clipping.bit_noise,
        together=law.promised_multiplier(standpoint),
    )
