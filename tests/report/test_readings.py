"""A number beyond the promise says, wherever it is printed, whether that is within chance: under every verdict."""

import io
import re
from dataclasses import replace
from html import unescape

import pytest
from rich.console import Console

from experiments.cli.compare import _MARKS
from experiments.comparisons.rows import ACCURACY, ADVANTAGE, SHOWN, STAR
from fl_audit.adjacency import Adjacency
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.report.finding import Row, RunContents
from fl_audit.report.page.first_screen import facts_of, summary_table
from fl_audit.report.page.html import render_html
from fl_audit.report.sections.insider import INSIDER, _surer_row, advantage_row
from fl_audit.report.sections.registry import measured
from fl_audit.report.sections.verdict import verdict_of
from fl_audit.report.wording import Reading, finding_text

SHAPES = {
    "consistent": {"exact": False, "worlds": 60, "seed": 8},
    "consistent, by luck": {"exact": False, "worlds": 60, "seed": 11},
    "violated": {"exact": False, "worlds": 60, "noise": 0.5, "seed": 8},
    "inconclusive": {"exact": False, "worlds": 6, "rounds": 3, "seed": 5},
    "insiders": {"exact": False, "worlds": 40, "insiders": 3, "seed": 2},
    "prior": {"exact": False, "worlds": 60, "prior": 0.2, "seed": 4},
    "sampled": {
        "exact": False,
        "worlds": 60,
        "sampling_rate": 0.3,
        "seed": 6,
        "adjacency": Adjacency.ADD_REMOVE_RECORD,
    },
}


def rows_of(contents: RunContents) -> list[Row]:
    """Return every number of every section."""
    return [row for section, numbers in measured(contents) for row in section.rows(numbers, contents)]


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def line_of(html: str, name: str) -> str:
    """Return what stands beside a number in the tables, as text."""
    lines = [line for line in re.findall(r"<tr>.*?</tr>", html) if f'<th scope="row">{name}</th>' in unescape(line)]
    return text_of("".join(lines))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_number_with_an_interval_beside_a_promise_says_how_it_stands(make_contents, shape):
    contents = make_contents(**shape)
    page, appendix = render_html(contents, []).split('<h2 id="appendix"')
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary_table(contents))
    terminal = " ".join(console.export_text().replace("│", "").split())
    told = {entry["name"]: entry for entry in contents.summary["findings"]}
    assert {ADVANTAGE, SHOWN, STAR, ACCURACY} <= told.keys(), "what a comparison reads"
    beside = [row for row in rows_of(contents) if row.limit is not None and row.low is not None]
    assert len(beside) >= 4
    for row in beside:
        expected = row.reading
        assert (expected is Reading.WITHIN) == (row.aside == "")
        if row.aside:
            assert str(expected) in line_of(appendix, row.name)
        if row.on_page:
            assert told[row.name]["reading"] == expected
            assert " ".join(finding_text(told[row.name]).split()) in terminal
        if row.on_page and row.aside:
            assert str(expected) in line_of(page, row.name)
    assert set(_MARKS) == {str(Reading.BY_CHANCE), str(Reading.BEYOND)}


def test_the_shapes_hold_numbers_above_the_promise_under_several_verdicts(make_contents):
    found = {
        verdict_of(contents).verdict: {row.name for row in rows_of(contents) if row.reading is Reading.BY_CHANCE}
        for contents in (make_contents(**shape) for shape in SHAPES.values())
    }
    assert all(found[verdict] for verdict in (Verdict.CONSISTENT, Verdict.VIOLATED, Verdict.INCONCLUSIVE))


@pytest.mark.parametrize("verdict", [Verdict.CONSISTENT, Verdict.VIOLATED, Verdict.INCONCLUSIVE])
def test_sentences_and_first_screen_say_it_at_the_number(make_contents, verdict):
    contents = make_contents(**SHAPES[str(verdict)])
    assert verdict_of(contents).verdict is verdict
    numbers = contents.summary["insider"]
    worlds, insider = numbers["worlds"], next(n for s, n in measured(contents) if s is INSIDER)
    # So many wins that they lie above the promise, and so few that the interval still holds it.
    bound = contents.facts.guarantee.advantage_bound_exact
    lucky = replace(insider.estimate, wins=worlds - 1, advantage=bound + 0.1, low=bound - 0.1, high=bound + 0.3)
    above = replace(contents.findings, by_type=dict(contents.findings.by_type) | {
        type(insider): replace(insider, estimate=lucky, belief_violations=1)
    })  # fmt: skip
    changed = replace(contents, findings=above)
    note = f" ({Reading.BY_CHANCE})"
    assert advantage_row(changed.find(type(insider)).estimate, changed).aside == note
    sentence = INSIDER.sentence(changed.find(type(insider)), changed)
    assert f"{worlds - 1:,} of {worlds:,} trials{note}" in sentence
    assert _surer_row(changed.find(type(insider)), changed).aside in sentence
    assert note in facts_of(changed)[1].note
    assert INSIDER.sentence(insider, contents).count("(not") <= 2


def test_an_estimate_by_the_classic_formula_is_held_against_no_promise(make_contents):
    """Noise that is calibrated exactly leaves more than theorem 3 says: the estimate would refute honest runs."""
    contents = make_contents(**SHAPES["consistent"])
    [row] = [row for row in rows_of(contents) if row.name == "From the advantage (nats)"]
    assert (row.limit, row.reading) == (None, None)


def test_intervals_in_cells_say_it_too():
    def text(value: float, low: float, limit: float | None) -> str:
        return Row("Advantage", value, low=low, high=0.48, limit=limit).text

    assert text(0.29, 0.05, 0.206).endswith(str(Reading.BY_CHANCE) + ")")
    assert text(0.29, 0.25, 0.206).endswith(str(Reading.BEYOND) + ")")
    assert text(0.2, 0.05, 0.206) == text(0.2, 0.05, None)
