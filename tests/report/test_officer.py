"""The annex for a data-protection officer: facts of the run, and lines for the operator to fill in."""

from pathlib import Path

from fl_audit.audits.common.sections_data_protection_officer import ANSWERED, TO_FILL_IN, UNKNOWN, Framework, answers_of
from fl_audit.audits.page.report_page import render_html
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.report.template_files import template_table
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run
from fl_audit.verdict.claim_standing import ClaimStanding
from tests.builders.settings import small_settings

PUBLISHED = template_table("published_epsilons.md")


def test_the_annex_stands_on_page_and_paper_with_lines_to_fill_in() -> None:
    settings = small_settings(privacy={"sensitivity": "global"})
    contents = results_of_run(plan_run(parse_config(settings)))
    for page in (render_html(contents, []), render_html(contents, [], True, False)):
        assert page.count('id="officer"') == 1
        assert page.count(TO_FILL_IN) == 6
        assert "NIST SP 800-226" in page
        assert "replace-record" in page
        for phrase in ("three levels", "Gaussian mu", "What was checked", "A verdict covers"):
            assert phrase in page
        assert all(cell in page for row in PUBLISHED for cell in row)


def test_the_page_for_officers_has_the_published_epsilons_of_the_annex() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/data-protection-officer.md").read_text(encoding="utf-8")
    for row in PUBLISHED:
        assert f"| {' | '.join(row[:3])} |" in page


def test_the_configuration_stands_after_the_line_to_sign_on_paper(make_contents) -> None:
    paper = render_html(make_contents(exact=False), [], True, False)
    assert paper.index('id="officer"') < paper.index('class="sign-off"') < paper.index('id="configuration"')


def test_every_framework_has_answers_that_follow_from_the_run(make_contents) -> None:
    consistent_contents, broken, nothing = (
        make_contents(exact=False, **shape)
        for shape in ({}, {"noise": 0.5, "trials": 800}, {"with_insider": False, "with_guarantee": False, "trials": 5})
    )
    for framework in Framework:
        rows = {
            contents.summary["verdict"]: answers_of(framework, contents)
            for contents in (consistent_contents, broken, nothing)
        }
        assert all(len(row) == 3 and all(row) for table in rows.values() for row in table)
        assert len({tuple(row[0] for row in table) for table in rows.values()}) == 1, "the questions are the same"
        of_claim = {verdict: {row[1] for row in table} for verdict, table in rows.items()}
        assert any(answer.startswith(ANSWERED) for answer in of_claim["consistent"])
        assert ClaimStanding.REFUTED in of_claim["violated"]
        assert UNKNOWN in of_claim["no guarantee"]
    requirements = [row[0].split()[0] for row in answers_of(Framework.SATRE, consistent_contents)]
    assert requirements.count("3.3.07") >= 3
    assert {requirement[:4] for requirement in requirements} == {"3.3."}
