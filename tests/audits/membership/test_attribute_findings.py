"""Inference of attributes beside what a guarantee allows: an attack that is known exactly."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

from fl_audit.audits.membership.sections_attribute_inference import (
    GUESSED,
    GUESSERS,
    TRUTH,
    AttributeFinding,
    measure_attributes,
)
from fl_audit.audits.membership.sections_membership_adversary import _mean_row
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.report.report_elements import ReportNumber
from fl_audit.statistics.advantage import mean_advantage
from fl_audit.statistics.claim_comparisons import Reading


def twins(mu: float, signal: float, trials: int) -> AttributeFinding:
    """Return what is found of two targets that push one release by mu either way, seen at a signal of `shown`."""
    draw = np.random.default_rng(8)
    is_in = draw.random((trials, 2)) < 0.5
    release = signal * (is_in[:, 0].astype(float) - is_in[:, 1]) + draw.standard_normal(trials)
    guesses = np.stack([release > 0, release > 0], axis=1).astype(int)
    table = pd.DataFrame({"trial": np.repeat(np.arange(trials), 2), "is_in": is_in.ravel(), TRUTH: [1, 0] * trials})
    table = table.assign(**dict.fromkeys(GUESSERS, guesses.ravel()))
    guarantee = derive_guarantee(Claim("add-remove-record", gaussian_rounds(1 / mu, 1), 1e-3))
    config = SimpleNamespace(audit=SimpleNamespace(attribute="sex"))
    plan = SimpleNamespace(guarantee=guarantee, confidence=0.999, config=config)
    run: Any = SimpleNamespace(tables=SimpleNamespace(targets=table), plan=plan, trials=trials)
    return cast(AttributeFinding, measure_attributes(run, cast(Any, None)))


def test_an_attribute_of_twins_is_within_the_limit_for_two_records_and_above_it_with_less_noise() -> None:
    """Twins reach the limit 2 Phi(mu) - 1 itself; at 99.9 % a false alarm in 2,000 seeds."""
    finding = twins(1.0, 1.0, 4000)
    estimate = finding.by_name[GUESSED].advantage
    largest = finding.largest
    assert largest == pytest.approx(2 * ndtr(1.0) - 1)
    row = ReportNumber("", estimate.advantage, "", estimate.low, estimate.high, confidence=0.999, limit=largest)
    assert row.reading in (Reading.KEPT, Reading.NO_CONTRADICTION)
    assert estimate.low > 2 * ndtr(0.5) - 1  # above the limit for one record
    broken = twins(1.0, 2.0, 4000)
    worse = broken.by_name[GUESSED].advantage
    row = ReportNumber("", worse.advantage, "", worse.low, worse.high, confidence=0.999, limit=broken.largest)
    assert row.reading is Reading.BROKEN


def test_the_advantage_of_membership_names_the_interval_that_it_has() -> None:
    numbers: Any = SimpleNamespace(over_trials=mean_advantage(np.zeros(4), 0.95), bounds=None)
    basis = _mean_row(numbers, cast(Any, None)).basis
    assert "betting interval" in basis
    assert "Student" not in basis
