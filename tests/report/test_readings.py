"""Every number beside a guarantee says how it stands to it, alike wherever it is printed: under every verdict."""

import re
from dataclasses import replace
from html import unescape

import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.audits.identifiability.bernau_empirical_epsilons import EmpiricalEpsilonEstimate
from fl_audit.audits.identifiability.sections_insider import INSIDER, _exceedance_row, advantage_row
from fl_audit.audits.page.engineer_part import facts_of
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import report_contents, sections_with_findings
from fl_audit.cli.finished_run_commands import _MARKS
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.report.report_elements import ReportContents, ReportNumber
from fl_audit.runs.comparison.rows import ACCURACY, ADVANTAGE, SHOWN, STAR
from fl_audit.statistics.claim_comparisons import Reading, finding_text
from fl_audit.verdict.noise_estimate import estimate_noise
from fl_audit.verdict.noise_scale import SquareSum
from fl_audit.verdict.sections_noise import NOISE
from fl_audit.verdict.sections_verdict import banner, verdict_of
from fl_audit.verdict.verdict import Verdict
from tests.builders.pages import console_text, text_of

SHAPES = {
    "consistent": {"exact": False, "trials": 60, "seed": 8},
    "consistent, by luck": {"exact": False, "trials": 60, "seed": 11},
    "violated": {"exact": False, "trials": 60, "noise": 0.5, "seed": 8},
    "inconclusive": {"exact": False, "trials": 6, "rounds": 3, "seed": 5},
    "prior": {"exact": False, "trials": 60, "prior": 0.2, "seed": 4},
    "sampled": {
        "exact": False,
        "trials": 60,
        "sampling_rate": 0.3,
        "seed": 6,
        "adjacency": Adjacency.ADD_REMOVE_RECORD,
    },
}


def rows_of(contents: ReportContents) -> list[ReportNumber]:
    """Return every number of every section."""
    return [
        row for section, numbers in sections_with_findings(contents) for row in section.read_rows(numbers, contents)
    ]


def words_of(html: str) -> str:
    return " ".join(unescape(text_of(html)).split())


def line_of(html: str, name: str) -> str:
    """Return what stands beside a number in the tables, as text."""
    lines = [line for line in re.findall(r"<tr>.*?</tr>", html) if f'<th scope="row">{name}</th>' in unescape(line)]
    return words_of("".join(lines))


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_number_with_an_interval_beside_a_guarantee_says_how_it_stands(make_contents, shape):
    contents = make_contents(**shape)
    page, appendix = render_html(contents, []).split('<h2 id="appendix"')
    terminal = " ".join(console_text(contents).replace("│", "").split())
    findings = {entry["name"]: entry for entry in contents.summary["findings"]}
    assert {ADVANTAGE, SHOWN, STAR, ACCURACY} <= findings.keys(), "what a comparison reads"
    beside = [row for row in rows_of(contents) if row.limit is not None and row.low is not None]
    assert len(beside) >= 4
    for row in beside:
        assert (row.reading in (Reading.KEPT, Reading.ALONE)) == (row.comparison_in_brackets == "")
        expected = " ".join(row.reading_text.split())
        assert expected in line_of(appendix, row.name)
        if row.on_page:
            assert findings[row.name]["reading"] == row.reading
            assert " ".join(finding_text(findings[row.name]).split()) in terminal
            assert expected in line_of(page, row.name)
    assert set(_MARKS) == set(map(str, Reading)) - {str(Reading.KEPT)}


def test_readings_and_verdict_agree(make_contents):
    """Nothing is broken but under a verdict that says so, and nothing is kept under one that the guarantee was
    broken.
    """
    words = {}
    for shape in SHAPES.values():
        contents = make_contents(**shape)
        readings = {row.reading for row in rows_of(contents)}
        words.setdefault(verdict_of(contents).verdict, set()).update(readings)
    assert set(words) == {Verdict.CONSISTENT, Verdict.VIOLATED, Verdict.INCONCLUSIVE}
    assert Reading.BROKEN not in words[Verdict.CONSISTENT] | words[Verdict.INCONCLUSIVE]
    assert {Reading.KEPT, Reading.NO_CONTRADICTION, Reading.TOO_FEW} <= words[Verdict.CONSISTENT]
    assert {Reading.BROKEN, Reading.ALONE} <= words[Verdict.VIOLATED]
    assert Reading.KEPT not in words[Verdict.VIOLATED]


def test_a_broken_number_is_never_beside_a_consistent_verdict(make_contents):
    """An insider who is always right breaks the guarantee, whatever the tests of the noise say."""
    run = make_contents(**SHAPES["consistent"]).run
    trials = run.tables.trials.assign(won=True)
    contents = report_contents(replace(run, tables=replace(run.tables, trials=trials)))
    verdict = verdict_of(contents)
    assert verdict.judged.verdict is Verdict.CONSISTENT
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert contents.summary["verdict"] == "inconclusive"
    assert verdict.contradicted_by == ("Advantage of the insider",)
    assert "Advantage of the insider" in banner(contents).line
    assert "saw contradicts" not in words_of(render_html(contents, []))


@pytest.mark.parametrize("verdict", [Verdict.CONSISTENT, Verdict.VIOLATED, Verdict.INCONCLUSIVE])
def test_sentences_and_first_screen_say_it_at_the_number(make_contents, verdict):
    contents = make_contents(**SHAPES[str(verdict)])
    assert verdict_of(contents).verdict is verdict
    numbers = contents.summary["insider"]
    trials = numbers["trials"]
    insider = next(n for s, n in sections_with_findings(contents) if s is INSIDER)
    # So many wins that they lie above the guarantee, and so few that the interval still holds it.
    bound = contents.plan.guarantee.advantage_bound_exact
    lucky = replace(insider.estimate, wins=trials - 1, advantage=bound + 0.1, low=bound - 0.1, high=bound + 0.3)
    above = replace(
        contents.findings,
        by_type=dict(contents.findings.by_type)
        | {type(insider): replace(insider, estimate=lucky, belief_violations=1)},
    )
    changed = replace(contents, findings=above)
    note = advantage_row(changed.find(type(insider)).estimate, changed).comparison_in_brackets
    assert note
    sentence = INSIDER.sentence(changed.find(type(insider)), changed)
    assert f"{trials - 1:,} of {trials:,} trials{note}" in sentence
    assert _exceedance_row(changed.find(type(insider)), changed).comparison_in_brackets in sentence
    assert note in facts_of(changed)[1].note


def test_an_estimate_by_the_classic_formula_is_held_against_no_guarantee(make_contents):
    """Noise that is calibrated exactly leaves more than theorem 3 says: the estimate would refute honest runs."""
    contents = make_contents(**SHAPES["consistent"])
    [row] = [row for row in rows_of(contents) if row.name == "From the advantage (nats)"]
    assert (row.limit, row.reading) == (None, None)


def test_intervals_in_cells_say_it_too():
    def text(value: float, low: float, limit: float | None) -> str:
        return ReportNumber("Advantage", value, low=low, high=0.4, limit=limit, largest=1.0).text

    assert text(0.29, 0.05, 0.206).endswith(f"({Reading.NO_CONTRADICTION})")
    assert text(0.29, 0.25, 0.206).endswith(f"({Reading.BROKEN})")
    assert text(0.2, 0.05, 0.5) == text(0.2, 0.05, None)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.99, r"0\.99 \(0\.975 to 1\.006\) times .*good to 1\.6 %"),
        (0.5, r"0\.5 .*noise is missing"),
        (1.5, r"1\.5 .*at least as much"),
    ],
)
def test_the_sentence_of_the_noise_says_how_good_it_is_and_whether_that_fits(make_contents, ratio, words):
    contents = make_contents(**SHAPES["consistent"])
    numbers = next(n for s, n in sections_with_findings(contents) if s is NOISE)
    total = SquareSum(8_000 * ratio**2, 8_000, STANDARD_GAUSSIAN)
    text = NOISE.sentence(replace(numbers, estimate=estimate_noise(0.95, total)), contents)
    assert re.search(words, text.replace("\N{NO-BREAK SPACE}", " "))
    assert ("fits the claim" in text) == (ratio == 0.99)


def test_a_sentence_and_the_table_round_a_number_alike(make_contents):
    contents = make_contents(trials=3, rounds=4)
    section, numbers = next(pair for pair in sections_with_findings(contents) if pair[0].name == "membership")
    row = next(row for row in section.rows(numbers, contents) if row.name == "Membership advantage")
    assert f"scores {row.shown.value}{row.comparison_in_brackets} on a scale" in section.sentence(numbers, contents)


def test_what_no_trial_has_is_not_measured(make_contents):
    contents = make_contents(trials=1, rounds=4)
    section, numbers = next(pair for pair in sections_with_findings(contents) if pair[0].name == "innovations")
    (table,) = section.tables(numbers, contents)
    assert sorted(row[1] for row in table.rows) == [0, 4]
    assert all(all(cell is None for cell in row[2:]) == (row[1] == 0) for row in table.rows)


def test_ends_that_arithmetic_alone_tells_apart_have_few_digits(make_contents):
    contents = make_contents(trials=20, rounds=4)
    section, numbers = next(pair for pair in sections_with_findings(contents) if pair[0].name == "empirical-epsilon")
    estimate = EmpiricalEpsilonEstimate(2.19722457733622, 2.1972245773362196, 2.19722457733622, 1.0, "")
    rows = section.rows(replace(numbers, from_sensitivity=estimate), contents)
    assert next(row for row in rows if row.name.startswith("From sens")).shown.interval == "2.197 to 2.197"
