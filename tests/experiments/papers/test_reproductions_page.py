"""The opening of a page of a reproduction, and the columns of its tables."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, table
from fl_audit.experiments.papers.page import _opening, differences_html, rows_html
from fl_audit.experiments.papers.papers import ReproductionOptions
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
    for shown in ("Setting", "Quantity", "Published", "Theory"):
        assert f">{shown}</th>" in html
    for left_out in ("Measured", "Low", "High", "Repetitions", "Note"):
        assert left_out not in html


def test_a_number_just_outside_shows_the_digits_that_tell_and_code_is_code() -> None:
    row = ItemRow("a", "epsilon", published=3.22, measured=3.21997, low=3.03521, high=3.21997)
    (line,) = result(row).outside_sentences("published")
    assert re.findall(r"[\d.]+", line) == ["3.22", "3.21997", "3.03521", "3.21997"]
    html = differences_html(replace(result(row), remarks=("see `x < 1`",)))
    assert "<code>x &lt; 1</code>" in html
