"""Epsilon* that chance alone gives is told where it was measured, and of whom it is."""

import math

import pytest

from fl_audit.audits.common.findings_epsilon_star import EpsilonStarSummary
from fl_audit.audits.common.report_cautions import _few_users_text, chance_text


@pytest.mark.parametrize(
    ("level", "expected_level"), [(math.nan, None), (0.0, None), (1.2, "1.2"), (math.inf, "infinity")]
)
def test_chance_is_told_where_it_was_measured(level: float, expected_level: str | None) -> None:
    assert chance_text(level) == expected_level
    text = _few_users_text(9, 4, EpsilonStarSummary(2.5, 3.0, level, level, 1e-3))
    assert "2.5" in text
    assert ("chance alone" in text) is (expected_level is not None)
    assert expected_level is None or f" {expected_level} for " in text
