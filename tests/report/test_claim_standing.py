"""Reports state a claim according to the verdict, and the tests made according to the judgement."""

import re
from dataclasses import replace

import pytest

from fl_audit.adjacency import Adjacency, Relation, Unit
from fl_audit.audits.common.sections_data_protection_officer import ANSWERED, OFFICER, UNKNOWN, Framework, answers_of
from fl_audit.audits.common.sections_guarantee import GuaranteeFinding, person_text
from fl_audit.audits.common.sections_privacy_units import UnitLevel, _follows
from fl_audit.audits.identifiability.sections_insider import InsiderFinding, advantage_row
from fl_audit.audits.page.engineer_part import next_step, warnings_of
from fl_audit.audits.page.first_screen import first_screen_of
from fl_audit.audits.page.report_page import SIGN_OFF_TITLES, render_html
from fl_audit.data.catalogue import DataSpec
from fl_audit.runs.exports.badge import badge
from fl_audit.statistics.claim_comparisons import Reading, compare_with_claim
from fl_audit.verdict.claim_standing import ClaimStanding, standing_of_claim
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.sections_verdict import WEAK, banner, verdict_of
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import one_in
from tests.report.conftest import KINDS

STANDINGS = {Verdict.CONSISTENT: ClaimStanding.HELD, Verdict.VIOLATED: ClaimStanding.REFUTED}
LIMITS = ("epsilon and delta", "gaussian mu", "surer than", "advantage over", "named right", "found as a member")
MECHANISM = "The mechanism and its implementation"


def annex(contents):
    return [table.rows for table in OFFICER.tables(contents.find(GuaranteeFinding), contents)]


@pytest.mark.parametrize("verdict", KINDS, ids=str)
def test_a_limit_stands_alone_only_in_a_consistent_run(make_contents, verdict):
    contents = make_contents(**KINDS[verdict])
    assert verdict_of(contents).verdict is verdict
    standing = standing_of_claim(contents)
    assert standing is STANDINGS.get(verdict, ClaimStanding.UNCONFIRMED)
    names = [row[0].lower() for row in annex(contents)[0] if any(limit in row[0].lower() for limit in LIMITS)]
    if verdict is Verdict.NO_GUARANTEE:
        assert names == ["epsilon and delta"]
        return
    assert len(names) == len(LIMITS)
    assert all((standing in name) == (standing is not ClaimStanding.HELD) for name in names)
    assert person_text(contents).startswith("Suppose") == (standing is ClaimStanding.HELD)
    answered = {
        row[1] for row in (*answers_of(Framework.NIST, contents)[::5], *answers_of(Framework.ANONYMOUS_DATA, contents))
    }
    assert any(answer_text.startswith(ANSWERED) for answer_text in answered) == (standing is ClaimStanding.HELD)


def test_the_belief_alone_fails_with_probability_delta(make_contents):
    contents = make_contents(**KINDS[Verdict.CONSISTENT])
    chance = one_in(contents.guarantee.delta)
    rows = [(name, value) for name, value in annex(contents)[0] if chance in value]
    assert ["surer" in name for name, _ in rows] == [True]
    assert chance in [fact.value for fact in first_screen_of(contents).facts]


def answers(contents):
    return {topic: (answer, where) for topic, answer, where in answers_of(Framework.NIST, contents)}


def with_tests(contents, *names):
    """Return contents as if these tests alone had been made."""
    numbers = verdict_of(contents)
    judged = replace(
        numbers.judged, not_offered=(), tests=tuple(test for test in numbers.judged.tests if test.name in names)
    )
    return replace(contents, findings=contents.findings.replaced(replace(numbers, judgement=judged)))


def test_an_answer_about_the_mechanism_follows_from_the_tests_that_were_made(make_contents):
    contents = make_contents(**KINDS[Verdict.CONSISTENT])
    test_names = {test.name for test in verdict_of(contents).judged.tests}
    mechanism, side = (answers(contents)[name] for name in (MECHANISM, "Side channels"))
    assert mechanism[0] == ANSWERED
    assert f"{len(test_names)} tests" in mechanism[1]
    assert "digits" in side[1]
    partial_answers = answers(with_tests(contents, TestName.NOISE_TOTAL))
    assert partial_answers[MECHANISM][0] not in (ANSWERED, UNKNOWN)
    assert "not tested" in partial_answers[MECHANISM][1]
    assert partial_answers["Side channels"][1].startswith("neither")


def test_a_run_without_tests_answers_nothing_about_the_mechanism(make_contents):
    for verdict in (Verdict.NOT_AUDITED, Verdict.NO_GUARANTEE):
        replies = answers(make_contents(**KINDS[verdict]))
        assert replies[MECHANISM][0] == UNKNOWN
        assert replies["Side channels"][1].startswith("neither")


def test_the_scope_of_the_annex_is_short_and_that_of_the_summary_whole(make_contents):
    contents = make_contents(**KINDS[Verdict.CONSISTENT])
    (scope,) = (value for name, value in annex(contents)[1] if "could not be seen" in name)
    assert len(scope.split("\n")) <= 8
    assert len(scope) < len(contents.summary["scope"])
    assert "trainings is found" not in scope


def test_whoever_signs_reads_first_that_it_is_a_simulation_and_signs_once(make_contents):
    contents = make_contents(**KINDS[Verdict.CONSISTENT])
    for with_appendix in (True, False):
        page = render_html(contents, [], True, with_appendix)
        body = page[page.index("<body") :]
        assert body.index("no secure release") < body.index('class="sign-off"')
        assert [body.count(title) for title in SIGN_OFF_TITLES[:2]] == [1, 1]
    assert "sign-off" not in re.sub(r"<style>.*?</style>", "", render_html(contents, []), flags=re.DOTALL)


def test_a_guarantee_that_excludes_no_belief_is_said_to_assure_next_to_nothing(make_contents):
    contents = make_contents(mu=9.0, trials=20)
    numbers = verdict_of(contents)
    contents = replace(
        contents, findings=contents.findings.replaced(VerdictFinding(Verdict.CONSISTENT, numbers.judgement))
    )
    assert WEAK in banner(contents).line
    assert any("next to nothing" in line for line in warnings_of(contents))
    assert "belief = 0.9" in next_step(contents)
    assert "%" not in person_text(contents)
    assert not any("surer" in row[0] for row in annex(contents)[0])
    assert not any(answer == ANSWERED for _, answer, _ in answers_of(Framework.ANONYMOUS_DATA, contents))
    assert advantage_row(contents.find(InsiderFinding).estimate, contents).limit < 1
    summary = {"verdict": "consistent", "guarantee": {"epsilon": 80.0, "belief_bound": 1.0}}
    assert badge(summary) != badge(summary | {"guarantee": {"epsilon": 80.0, "belief_bound": 0.9}})
    assert "#1a7f37" not in badge(summary)
    assert WEAK not in banner(make_contents(**KINDS[Verdict.CONSISTENT])).line


@pytest.mark.parametrize("claim", [1.0, 1 - 1e-12])
def test_a_limit_that_nothing_exceeds_is_not_kept(claim):
    for ends in ((-1.0, 1.0), (0.1, 0.2)):
        assert compare_with_claim(ends, claim, largest=1.0).reading is Reading.NO_LIMIT
    assert compare_with_claim((0.1, 0.2), 0.9, largest=1.0).reading is Reading.KEPT
    assert compare_with_claim((0.1, 0.2), 1.0).reading is Reading.KEPT
    assert compare_with_claim((1.1, 1.2), 1.0, is_least=True, largest=1.0).reading is Reading.KEPT


@pytest.mark.parametrize("relation", Relation)
def test_a_smaller_unit_says_why_its_epsilon_is_larger(relation):
    adjacency = next(
        candidate for candidate in Adjacency if candidate.unit is Unit.CLIENT and candidate.relation is relation
    )
    explanation = _follows(UnitLevel(Unit.RECORD, False, 2, 260.9, None), adjacency)
    assert ("weaker" in explanation) == (relation is Relation.ADD_REMOVE)


def test_titles_name_the_file_of_a_user_and_not_its_format():
    assert DataSpec("csv", options=(("label", "y"), ("path", "data/stays.csv"))).title == "stays.csv"
    assert DataSpec("npz", options=(("path", "a/train.npz"),)).title == "train.npz"
    assert [DataSpec(name).title for name in ("csv", "adult", "hf:a/b", "own.loaders:load")] == [
        "table",
        "adult",
        "hf:a/b",
        "load",
    ]


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("height", [40, 140])
def test_no_sheet_holds_the_line_to_sign_alone(make_contents, height):
    weasyprint = pytest.importorskip("weasyprint")
    page = render_html(make_contents(**KINDS[Verdict.CONSISTENT]), [], True, False)
    closing = '<div class="closing"'
    page = page.replace(closing, f'<div style="height: {height}mm"></div>{closing}')
    (sheet,) = [
        printed_page
        for printed_page in weasyprint.HTML(string=page).render().pages
        if "closing" in printed_page.anchors
    ]
    assert sheet.anchors["closing"][1] > 60  # some lines are above it, below the margin of 13 mm or 49 pixels
