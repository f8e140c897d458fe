"""The insider's trade-off: how many worlds with D it finds at how many false alarms, beside what is allowed."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fl_audit.arrays import Floats
from fl_audit.errors import InputError
from fl_audit.evidence.bounds.tradeoff_band import TradeoffBand, tradeoff_band
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.evidence.membership.limits import largest_tpr

FEWEST = 20  # a curve of fewer worlds of either kind has steps too large to say anything
_AT = 0.1  # share of false alarms at which numbers are told


@dataclass(frozen=True)
class TradeoffNumbers:
    """The trade-off at one share of false alarms."""

    false_alarms: float  # share of the worlds with D' that is taken for D
    # `found`, `low`, `high`: share of the worlds with D that is found at it, with its interval.
    found: float
    low: float
    high: float
    allowed: float  # the largest share that the promise allows

    def to_json(self) -> dict[str, Any]:
        """Return the entry `tradeoff`."""
        return {"tradeoff": asdict(self)}


def measure_tradeoff(run: FinishedRun, _: Findings) -> TradeoffNumbers | None:
    """Return the trade-off at one share of false alarms; None without a promise or an insider, or of few worlds."""
    promise = run.facts.guarantee
    if promise is None or not run.has_insider or min(run.bits.sum(), (~run.bits).sum()) < FEWEST:
        return None
    try:
        allowed = float(largest_tpr(promise.claim.profile, _AT))
    except InputError:  # so little noise that no grid holds the losses
        return None
    curve = curve_of(run, np.array([_AT]))
    return TradeoffNumbers(_AT, float(curve.found[0]), float(curve.low[0]), float(curve.high[0]), allowed)


def curve_of(run: FinishedRun, alarms: Floats) -> TradeoffBand:
    """Return the trade-off of a run with its band at some shares of false alarms, each of shape (points,).

    Parameters
    ----------
    run
        A finished run with an insider.
    alarms
        Shares of false alarms from 0 to 1, shape (points,).
    """
    return tradeoff_band(run.log_odds[run.bits], run.log_odds[~run.bits], alarms, run.facts.confidence)
