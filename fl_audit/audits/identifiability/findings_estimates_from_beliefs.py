"""Findings on the audited pair D and D': estimates of advantage, epsilon and delta from the insider's beliefs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_audit.array_types import finite
from fl_audit.audits.identifiability import estimates_from_beliefs
from fl_audit.audits.identifiability.calibration import Calibration, calibration
from fl_audit.audits.identifiability.findings_insider import InsiderFinding
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.statistics.advantage import AdvantageFromWins, MeanInterval
from fl_audit.statistics.interval_estimates import EstimateWithConfidence

CURVE_POINTS = 9  # number of epsilons at which delta is estimated
FEWEST_TRIALS = 20  # smallest number of trials from which the curve delta(epsilon) is estimated


@dataclass(frozen=True)
class DeltaEstimatesAtEpsilon:
    """Two estimates of delta at one epsilon for the audited pair D and D', each with its interval."""

    epsilon: float
    delta: float  # estimate of delta from beliefs
    low: float  # lower end of the confidence interval of `delta`
    high: float  # upper end of the confidence interval of `delta`
    counted: float  # estimate of delta by counting trials
    counted_low: float  # lower end of the confidence interval of `counted`
    counted_high: float  # upper end of the confidence interval of `counted`


@dataclass(frozen=True)
class EstimatesFromBeliefsFinding:
    """The insider's advantage and the curve delta(epsilon) for the audited pair D and D', estimated from beliefs."""

    advantage: MeanInterval  # the insider's expected advantage, from its beliefs
    counted: AdvantageFromWins  # the insider's advantage, from its number of right guesses
    # Epsilon of the pair at the claimed delta; None without trials with D or with D'.
    epsilon: EstimateWithConfidence | None
    # delta(epsilon) of the pair; empty without trials with D or with D', or with fewer than 20 trials.
    curve: tuple[DeltaEstimatesAtEpsilon, ...]
    calibration: Calibration  # test whether the beliefs are calibrated

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `pair`, for `summary.json`."""
        found, beliefs = self.advantage, json_of(self.calibration)
        beliefs.pop("confidence")
        error = finite(found.standard_error)
        told = {"advantage": _interval_json(found.mean, found), "advantage_standard_error": error}
        told |= {"epsilon": None if self.epsilon is None else _interval_json(self.epsilon.value, self.epsilon)}
        return {"pair": told | {"delta_of_epsilon": json_of(self.curve), "calibration": beliefs}}


def _interval_json(value: float, found: MeanInterval | EstimateWithConfidence) -> dict[str, Any]:
    numbers: dict[str, Any] = json_of({"value": value, "low": found.low, "high": found.high})
    return numbers | {"confidence": found.confidence}


def measure_pair(run: FinishedRun, findings: Findings) -> EstimatesFromBeliefsFinding | None:
    """Return the estimates for the audited pair D and D' from the insider's beliefs.

    None without a guarantee, an insider or an exact log-likelihood ratio.
    """
    guarantee, insider = run.plan.guarantee, findings.find(InsiderFinding)
    # Only beliefs from the exact likelihood ratio give estimates for the pair.
    if guarantee is None or insider is None or not run.plan.federation.mechanism.has_exact_llr:
        return None
    prior, confidence, odds, bits = run.plan.prior, run.plan.confidence, run.log_odds, run.bits
    advantage = estimates_from_beliefs.advantage_from_beliefs(odds, confidence, prior)
    epsilon = (
        estimates_from_beliefs.epsilon_from_beliefs(odds, bits, guarantee.delta, confidence)
        if run.has_both_bits
        else None
    )
    curve = _curve(run, guarantee.epsilon) if run.has_both_bits and run.trials >= FEWEST_TRIALS else ()
    return EstimatesFromBeliefsFinding(
        advantage, insider.estimate, epsilon, curve, calibration(odds, bits, confidence, prior)
    )


def advantage_of_beliefs(run: FinishedRun, confidence: float) -> tuple[float, float]:
    """Return the ends of the confidence interval of the insider's advantage, from its beliefs."""
    found = estimates_from_beliefs.advantage_from_beliefs(run.log_odds, confidence, run.plan.prior)
    return found.low, found.high


def epsilon_of_beliefs(run: FinishedRun, confidence: float) -> tuple[float, float]:
    """Return a confidence interval (low, high) for the epsilon of the pair D, D' at the claimed delta, from beliefs.

    `run`: Its insider must have exact log-likelihood ratios, which give its beliefs.
    """
    assert run.plan.guarantee is not None, "only a guarantee names a delta"
    found = estimates_from_beliefs.epsilon_from_beliefs(run.log_odds, run.bits, run.plan.guarantee.delta, confidence)
    return found.low, found.high


def _curve(run: FinishedRun, claimed: float) -> tuple[DeltaEstimatesAtEpsilon, ...]:
    """Return estimates of delta at nine equally spaced epsilons, from 0 to `claimed`.

    If the 90 % quantile of the absolute log-odds is below `claimed`, the epsilons end at this quantile.
    """
    odds, bits, confidence, points = run.log_odds, run.bits, run.plan.confidence, []
    seen = float(np.quantile(np.abs(odds), 0.9))
    for epsilon in np.linspace(0.0, min(claimed, seen) or 1.0, CURVE_POINTS).tolist():
        told = estimates_from_beliefs.delta_from_beliefs(odds, bits, epsilon, confidence)
        counted = estimates_from_beliefs.counted_delta(odds, bits, epsilon, confidence)
        points.append(
            DeltaEstimatesAtEpsilon(epsilon, told.value, told.low, told.high, counted.value, counted.low, counted.high)
        )
    return tuple(points)
