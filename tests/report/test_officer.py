"""The annex for a data-protection officer: facts of the run, and lines for the operator to fill in."""

from pathlib import Path

from small_audits import small_settings

from fl_audit.audits.common.sections_data_protection_officer import PUBLISHED, TO_FILL_IN
from fl_audit.audits.page.report_page import render_html
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run


def test_the_annex_stands_on_page_and_paper_with_lines_to_fill_in() -> None:
    settings = small_settings(privacy={"sensitivity": "global"})
    contents = results_of_run(plan_run(parse_config(settings)))
    for page in (render_html(contents, []), render_html(contents, [], True, False)):
        assert page.count('id="officer"') == 1
        assert page.count(TO_FILL_IN) == 6
        assert "NIST SP 800-226" in page
        assert "replace-record" in page
        for told in ("three levels", "Gaussian mu", "What was checked", "A verdict covers"):
            assert told in page
        assert all(cell in page for row in PUBLISHED for cell in row)


def test_the_page_for_officers_has_the_published_epsilons_of_the_annex() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/data-protection-officer.md").read_text(encoding="utf-8")
    for row in PUBLISHED:
        assert f"| {' | '.join(row[:3])} |" in page
