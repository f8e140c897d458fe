"""The annex for a data-protection officer: facts of the run, fields of the operator, and lines to fill in."""

from pathlib import Path

from small_audits import small_settings

from fl_audit.audits.common.sections_data_protection_officer import PUBLISHED, TO_FILL_IN
from fl_audit.audits.page.report_page import render_html
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run_identity import differences

DECLARED = {"controller": "Clinic <A>", "purpose": "readmission", "signer": "B. Officer"}


def test_declared_words_stand_in_page_paper_and_summary_and_the_rest_is_to_be_filled_in() -> None:
    settings = small_settings(privacy={"sensitivity": "global"})
    contents = results_of_run(plan_run(parse_config(settings | {"report": DECLARED})))
    assert contents.summary["declared"] == DECLARED
    for page in (render_html(contents, []), render_html(contents, [], True, False)):
        assert page.count('id="officer"') == 1
        assert "Clinic &lt;A&gt;" in page
        assert page.count(TO_FILL_IN) == 4  # on paper, role and signature are at the line to sign
        assert "NIST SP 800-226" in page
        assert "replace-record" in page
        for told in ("three levels", "Gaussian mu", "What was checked", "A verdict covers"):
            assert told in page
        assert all(cell in page for row in PUBLISHED for cell in row)


def test_words_of_the_report_decide_nothing_of_a_run() -> None:
    plain, told = (parse_config(small_settings() | more) for more in ({}, {"report": DECLARED}))
    assert "report" not in plain.as_dict()
    assert differences(plain.as_dict(), told.as_dict()) == []


def test_the_page_for_officers_has_the_published_epsilons_of_the_annex() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/data-protection-officer.md").read_text(encoding="utf-8")
    for row in PUBLISHED:
        assert f"| {' | '.join(row[:3])} |" in page
