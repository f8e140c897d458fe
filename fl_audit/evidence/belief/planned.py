"""What a run could find, before it is played: the limits of detection that its report will state."""

import math
from dataclasses import dataclass

from fl_audit.evidence.belief.family import DETECTION_POWER, TestName
from fl_audit.evidence.belief.noise_estimate import epsilon_limit_of
from fl_audit.evidence.belief.noise_scale import detectable_ratio
from fl_audit.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class PlannedLimits:
    """The smallest breach that a run would find with probability 0.9."""

    # The smallest true epsilon that would be called violated; infinite where scores of no known law are judged.
    epsilon: float
    # How much less noise than claimed, along the record, would be found, as a share; None where scores are judged.
    noise_short: float | None
    noise_short_in_all: float | None  # the same of the noise in all parameters together; None where it is not measured
    # Whether a breach of 1.5 times the promise would be found; otherwise the verdict can only be `inconclusive`, or
    # `violated` by another test.
    conclusive: bool
    worlds_needed: int | None  # worlds from which it is; None where no number suffices, or none is known to

    @property
    def power(self) -> float:
        """Probability of finding it."""
        return DETECTION_POWER


def planned_limits(promise: Guarantee, worlds: int, rounds: float, parameters: int | None) -> PlannedLimits:
    """Return what a run finds whose insider has the exact likelihood ratio.

    Parameters
    ----------
    promise
        What is promised.
    worlds
        How often the game is played.
    rounds
        Rounds of a world in which D and D' differ, on average.
    parameters
        Parameters of the model, where the noise in all of them is measured; else None.
    """
    count = max(1, round(worlds * rounds))
    level = TestName.NOISE_ALONG_RECORD.level
    limit = epsilon_limit_of(count, worlds, level, promise)
    in_all = None
    if parameters is not None and parameters > 1:
        in_all = 1 - detectable_ratio(count * (parameters - 1), TestName.NOISE_TOTAL.level)
    return PlannedLimits(
        limit.epsilon, 1 - detectable_ratio(count, level), in_all, limit.conclusive, limit.worlds_needed
    )


NOTHING_PLANNED = PlannedLimits(math.inf, None, None, conclusive=False, worlds_needed=None)
"""What a run finds for sure whose insider has scores of no known law."""
