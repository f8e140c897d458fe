"""The study of readings: a few honest runs of each kind, and what it finds where a word is not earned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.report.report_elements import ReportNumber
from fl_audit.statistics.claim_comparisons import Reading
from tests.validation.readings import contradicts, honest_readings, problems_of


@pytest.mark.long
def test_honest_runs_say_what_their_intervals_say(tmp_path: Path) -> None:
    """Two trials, eight records, attackers, canaries and distributions: runs 0 to 11."""
    problems = {kind: problems_of(results_of_run(plan)) for kind, plan in honest_readings(12, tmp_path)}
    assert len(problems) == 12
    assert not any(problems.values()), problems


@pytest.mark.parametrize(
    ("changes", "is_wrong"),
    [
        ({}, False),
        ({"reading": str(Reading.KEPT)}, True),
        ({"reading": str(Reading.BROKEN)}, True),
        ({"high": 0.19}, True),
        ({"high": 0.19, "reading": str(Reading.KEPT)}, False),
        ({"low": 0.21, "wide": {"low": 0.15, "high": 0.45, "confidence": 0.99999}}, False),
        ({"low": 0.21, "wide": {"low": 0.205, "high": 0.45, "confidence": 0.99999}}, True),
        ({"confidence": None, "value": 0.1}, False),
        ({"confidence": None, "value": 0.1, "reading": str(Reading.KEPT)}, True),
    ],
)
def test_the_study_finds_words_that_the_printed_interval_does_not_support(
    changes: dict[str, Any], is_wrong: bool
) -> None:
    row = ReportNumber("share", 0.25, "", 0.1, 0.39, 0.95, 0.2, largest=1.0)
    assert row.reading is Reading.NO_CONTRADICTION
    assert bool(contradicts(row.to_json() | changes)) is is_wrong


def test_the_study_finds_words_of_earlier_versions_and_broken_numbers(
    make_contents: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = make_contents(exact=False, trials=60, seed=8)
    assert problems_of(honest) == []
    assert any(
        problem.startswith("broken: ") for problem in problems_of(make_contents(exact=False, trials=60, noise=0.5))
    )
    for entry in honest.summary["findings"][:1]:
        monkeypatch.setitem(entry, "reading", "not as claimed, within chance")
    assert any(problem.startswith("summary: ") for problem in problems_of(honest))
