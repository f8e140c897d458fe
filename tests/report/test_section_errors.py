"""One section that raises an error loses neither the summary nor another section, and leaves the verdict open."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fl_audit.audits.page.drawn_pictures import draw_all
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import SECTIONS, VERDICT, report_contents
from fl_audit.report.report_elements import ReportContents, Section
from fl_audit.verdict import findings_verdict
from fl_audit.verdict.exact_questions import ExactAnswer, ExactQuestion
from fl_audit.verdict.sections_verdict import verdict_section
from fl_audit.verdict.verdict import Verdict
from tests.builders.pages import console_text

pytestmark = pytest.mark.section_errors
REASON = "a test has the p-value nan"
MakeContents = Callable[..., ReportContents]
NUMBERS = ("verdict", "findings", "look_at", "not_computed")  # parts of a summary that rest on several sections


def raise_error(*of: Any) -> Any:
    raise ValueError(REASON)


def with_error(contents: ReportContents, name: str, function_name: str) -> ReportContents:
    """Return the report of the same run, one section of which raises an error."""
    sections = (
        replace(section, **{function_name: raise_error}) if section.name == name else section for section in SECTIONS
    )
    return report_contents(contents.run, tuple(sections))


def rendered_text(contents: ReportContents) -> str:
    """Return what the page and the console show."""
    return render_html(contents, []) + console_text(contents)


def of_section(section: Section[Any], contents: ReportContents) -> set[str]:
    """Return the keys of a summary that come from a section."""
    numbers = contents.find(section.numbers)
    summary_keys = set() if numbers is None else {*numbers.to_json(), *section.said(numbers, contents.run)}
    return summary_keys | {*section.keys}


@pytest.mark.few_cases(8)
@pytest.mark.parametrize("function_name", ["measure", "said", "sentence", "rows", "tables"])
@pytest.mark.parametrize("section", SECTIONS, ids=[section.name for section in SECTIONS])
def test_all_other_sections_are_written(section: Section[Any], function_name: str, make_contents: MakeContents) -> None:
    honest = make_contents(exact=False)
    assert honest.summary["verdict"] == "consistent"
    contents = with_error(honest, section.name, function_name)
    if honest.find(section.numbers) is None and function_name != "measure":
        assert contents.errors == ()
        return
    assert section.title in [error.part for error in contents.errors]
    assert all(error.reason for error in contents.errors)
    assert contents.summary["verdict"] == "inconclusive"
    assert contents.summary["not_computed"][0]["reason"] == f"ValueError: {REASON}"
    lost = {key for key, value in honest.summary.items() if key not in NUMBERS and contents.summary[key] != value}
    assert lost <= of_section(section, honest) | {
        key for other_section in SECTIONS[1:] for key in other_section.keys if section is VERDICT
    }
    assert REASON in rendered_text(contents)


def test_a_violated_run_stays_violated(make_contents: MakeContents) -> None:
    violated = make_contents(exact=False, noise=0.5, trials=800)
    for name in ("noise", "guarantee", "beliefs"):
        contents = with_error(violated, name, "measure")
        assert contents.summary["verdict"] == "violated"
        assert REASON in rendered_text(contents)


def test_exact_questions_stand_without_the_tests_and_the_tests_without_them(
    make_contents: MakeContents, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ExactAnswer(ExactQuestion.SUM, 2.0, 1.0, is_kept=False, text="a sum is wrong")
    violated = make_contents(exact=False, noise=0.5, trials=800)
    honest = make_contents(exact=False)
    judged = verdict_section(raise_error, lambda facts: "It covers this run.", lambda run: "")
    sections = (judged, *SECTIONS[1:])
    monkeypatch.setattr(findings_verdict, "exact_answers", lambda run: (broken,))
    contents = report_contents(honest.run, sections)
    assert contents.summary["verdict"] == "violated"
    assert "sum is wrong" in rendered_text(contents)
    monkeypatch.setattr(findings_verdict, "exact_answers", lambda run: ())
    assert report_contents(honest.run, sections).summary["verdict"] == "inconclusive"
    monkeypatch.setattr(findings_verdict, "exact_answers", raise_error)
    assert report_contents(violated.run).summary["verdict"] == "violated"
    assert report_contents(honest.run).summary["verdict"] == "inconclusive"


def test_a_figure_that_cannot_be_drawn_leaves_its_reason(make_contents: MakeContents) -> None:
    honest = make_contents(exact=False)
    first = next(
        section
        for section in honest.sections
        if section.picture is not None and honest.find(section.numbers) is not None
    )
    assert first.picture is not None
    broken = replace(first, picture=replace(first.picture, draw=raise_error))
    contents = replace(honest, sections=tuple(broken if section is first else section for section in honest.sections))
    pictures = draw_all(contents)
    assert [picture.name for picture in pictures if not picture.png] == [first.name]
    assert f"could not be drawn because of an error (ValueError: {REASON})" in render_html(contents, pictures)
    assert Verdict(contents.summary["verdict"]) is Verdict.CONSISTENT
