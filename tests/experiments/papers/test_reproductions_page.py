"""Pages of one reproduction, and the published page of a paper."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, table
from fl_audit.experiments.papers.page import _opening, differences_html, rows_html
from fl_audit.experiments.papers.papers import ReproductionOptions
from fl_audit.experiments.papers.published_page import TITLE, origins, with_shared_notes, with_shared_sentences
from fl_audit.experiments.papers.reproduce import reproduce


def result(*rows: ItemRow) -> ItemResult:
    return ItemResult(table(rows), Figure(), "caption")


MEASURED = ItemRow("a", "advantage", published=0.24, theory=0.5, measured=0.2, low=0.1, high=0.3, repetitions=100)
COMPUTED = ItemRow("a", "epsilon", published=2.2, theory=2.197)
WRONG = ItemRow("b", "epsilon", published=2.2, theory=2.27)


def test_a_page_opens_with_what_agrees_and_counts_misses_against_theory_too() -> None:
    text = _opening([result(MEASURED, COMPUTED), result(WRONG)])
    assert re.findall(r"\d+ of \d+", text) == ["1 of 1", "1 of 2", "0 of 1"]
    (line,) = result(MEASURED).outside_sentences("theory")
    assert re.findall(r"[\d.]+", line) == ["0.5", "0.2", "0.1", "0.3"]
    assert not re.search(r"\d", _opening([result(ItemRow("a", "x", measured=1.0))]))


def test_printed_numbers_that_theory_does_not_give_are_named() -> None:
    count, (line,) = result(COMPUTED, WRONG).computed
    assert count == 2
    assert re.findall(r"[\d.]+", line) == ["2.2", "2.27"]
    assert "1 of 2" in differences_html(result(COMPUTED, WRONG))
    assert differences_html(result(MEASURED)).count("outside our interval") == 2


@pytest.mark.long
def test_a_page_of_one_table_of_closed_forms_opens_with_its_own_counts(tmp_path: Path) -> None:
    page = reproduce("bernau2019-table2", ReproductionOptions(tmp_path))[2].read_text(encoding="utf-8")
    assert '<p class="opening">9 of 10 printed numbers' in page
    assert "central DP" not in page.partition("<h2>")[0]


def test_a_column_without_a_number_is_left_out() -> None:
    html = rows_html(result(COMPUTED, WRONG).frame, 2, "table3.csv")
    for heading in ("Setting", "Quantity", "Published", "Theory"):
        assert f">{heading}</th>" in html
    for left_out in ("Measured", "Low", "High", "Repetitions", "Note"):
        assert left_out not in html


def test_a_number_just_outside_shows_the_digits_that_tell_and_code_is_code() -> None:
    row = ItemRow("a", "epsilon", published=3.22, measured=3.21997, low=3.03521, high=3.21997)
    (line,) = result(row).outside_sentences("published")
    assert re.findall(r"[\d.]+", line) == ["3.22", "3.21997", "3.03521", "3.21997"]
    html = differences_html(replace(result(row), remarks=("see `x < 1`",)))
    assert "<code>x &lt; 1</code>" in html


def _section(title: str, *notes: str) -> str:
    listed = "".join(f"<li>{note}</li>" for note in notes)
    block = "<details><summary>Why</summary>\n<p>1 of 2:</p><ul><li>one number</li></ul>\n"
    return f"## {title}\n\n{block}<ul>{listed}</ul></details>"


SHARED = ("Records: the paper&#x27;s are others.", "Noise: drawn twice.")
SECTIONS = {
    "A": _section("Table 1. Noise", SHARED[0], SHARED[1], "Only here."),
    "B": _section("Table 2. Records", "Records: of another paper.", SHARED[1], "Alone: too.", SHARED[0]),
    "C": _section("C"),
}


def test_a_note_of_two_sections_stands_once() -> None:
    first, second, third, last = with_shared_notes(list(SECTIONS.values()))
    page = "\n\n".join((first, second, third, last))
    assert [page.count(note.partition(":")[2]) for note in SHARED] == [1, 1]
    assert "<ul><li>Only here.</li></ul></details>" in first
    assert "Records: of another paper." in second
    assert third == SECTIONS["C"].replace("<ul></ul>", "")
    assert last.startswith(f"## {TITLE}\n")
    assert "<li><strong>Records</strong>: the paper&#x27;s are others. (Tables 1, 2)</li>" in last


def test_a_page_without_shared_notes_stays_as_it_is() -> None:
    alone = [SECTIONS["A"], SECTIONS["C"]]
    assert with_shared_notes(alone) == alone


def test_a_section_whose_only_notes_are_shared_loses_its_empty_list() -> None:
    first, second, _ = with_shared_notes([_section("Table 1", SHARED[0]), _section("Figure 2", SHARED[0])])
    assert first.endswith("<li>one number</li></ul>\n</details>")
    assert "<ul></ul>" not in first + second


def test_a_sentence_of_two_captions_stands_in_the_first() -> None:
    first = "## Figure 1. A\n\n![Figure 1](a.svg)\n\nDots: ours. Grey: guessing. [All rows](a.csv).\n\nFive runs."
    second = "## Figure 2. B\n\n![Figure 2](b.svg)\n\nBars: ours. Grey: guessing. [All rows](b.csv).\n\nFive runs."
    first_section, later = with_shared_sentences([first, second])
    assert first_section == first
    assert "Bars: ours. Otherwise as in Figure 1. [All rows](b.csv)." in later
    assert later.endswith("\n\nAs in Figure 1.")
    assert later.count("Grey") == 0


def test_the_commit_of_most_results_is_named_once_and_others_beside_their_results() -> None:
    def record(title: str, commit: str) -> dict[str, object]:
        return {"title": title, "extent": "full", "run_commits": [], "commit": commit}

    records = [record("Table 1. A", "abc"), record("Table 2. B", "def"), record("Figure 1. C", "def")]
    assert origins(records) == "*Full form, commit def. Table 1: full form, commit abc.*"
