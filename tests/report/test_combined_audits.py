"""Audits that a long run falls into: each is judged as a run of its trials alone, and a breach shows in them."""

from collections.abc import Callable

import pytest

from fl_audit.report.report_elements import ReportContents
from fl_audit.verdict.verdict import Verdict
from tests.validation.guarantee_settings import combinations
from tests.validation.guarantees import CombinationRow, _audits_of, verdict_of


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("noise", "violated"), [(1.0, range(1)), (0.5, range(10, 11))])
def test_a_run_falls_into_audits_of_its_trials(
    noise: float, violated: range, make_contents: Callable[..., ReportContents]
) -> None:
    run = make_contents(trials=205, noise=noise).run
    audits = list(_audits_of(run, 20))
    assert [len(audit.tables.trials) for audit in audits] == [20] * 10
    assert audits[3].tables.rounds["trial"].unique().tolist() == list(range(60, 80))
    verdicts = tuple(verdict_of(audit) for audit in audits)
    assert verdicts.count(Verdict.VIOLATED) in violated
    row = CombinationRow(next(combinations()), None, verdicts=verdicts)
    assert row.is_accused == (noise < 1)
