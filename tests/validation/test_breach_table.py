"""The table of breaches, its true epsilons, and the journal of campaigns."""

import math
from pathlib import Path

import pytest

from tests.builders.refusals import assert_refused
from tests.validation.breach_table import Line, page
from tests.validation.breach_truths import _UNKNOWN, _opened, _shifts, claimed, true_epsilon
from tests.validation.breaches import EVERY, synthetic_run
from tests.validation.journal import append, blocks, read

_BY_NAME = {known_breach.name: known_breach for known_breach in EVERY}


def test_every_truth_is_that_of_a_breach_and_none_is_below_a_claim_that_is_broken() -> None:
    assert {*_UNKNOWN, *_opened(), *_shifts(650)} <= set(_BY_NAME)
    below = [name for name, breach in _BY_NAME.items() if (true_epsilon(breach) or math.inf) < claimed(breach) - 1e-6]
    assert below == ["the sum divided by the wrong number"]


@pytest.mark.parametrize(
    ("name", "true"),
    [
        ("noise for add-remove under a replace claim", 3.55),
        ("the target counts twice", 84.58),
        ("samples of a fixed size, claimed as Poisson", 3.35),
        ("rounds that cancel in pairs", math.inf),
    ],
)
def test_true_epsilons(name: str, true: float) -> None:
    """Twice the shift of sqrt(30) / 8 and of sqrt(30); Gaussian rounds of which everybody sees who takes part; none."""
    assert true_epsilon(_BY_NAME[name]) == pytest.approx(true, abs=0.005)


def test_the_table_names_what_was_missed_and_what_found_the_others() -> None:
    detected_breach, missed = (
        _BY_NAME[name] for name in ("two clients draw from one seed", "noise of bits with a mean of .3")
    )
    lines = [
        Line(detected_breach, synthetic_run(detected_breach, 0), (3, 3), (1, 1), "share-pairs"),
        Line(missed, synthetic_run(missed, 0), (0, 3), (0, 0), ""),
    ]
    page_lines = page(lines, 46, "today")
    assert page_lines[0] == (
        "today, a family of 46 tests: 6 made-up runs of 2 kinds, 3 of a kind; 1 real runs of 1 kinds, 1 of each."
    )
    assert (
        "| two clients draw from one seed | 1.19 | 1.48 | violated | 3 of 3 | 1 of 1 | share-pairs |" in page_lines[-2]
    )
    assert "| 1.19 | 1.19 | inconclusive | 0 of 3 |" in page_lines[-1]


def test_a_journal_goes_on_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    append(path, {"number": 0, "tests": 46})
    with path.open("a", encoding="utf-8") as file:
        file.write('{"number": 1, "te')
    append(path, {"number": 2, "tests": 46})
    assert [row["number"] for row in read(path, tests=46)] == [0, 2]
    assert_refused("accepted is 47; begin another journal", read, path, tests=47)


def test_all_names_advance_together() -> None:
    assert list(blocks("ab", 3, 2)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2), ("b", 2)]
