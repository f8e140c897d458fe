"""Every kind of guarantee against exact theory, in a quick form (tests.validation.guarantees has the full one).

Seeds are fixed once. A sound federation is called wrong with a probability of 1 % over all combinations together, and
less knowledge is called better with one of 0.1 % a comparison at most.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.validation.adversary_knowledge import compare, comparisons
from tests.validation.guarantee_evidence import Evidence, Scored, ShownLoss
from tests.validation.guarantee_settings import COLUMNS, write_records
from tests.validation.guarantees import QUICK, CombinationRow, guarantee_table, holm, problems, study

# One worker plays what all tests of this file share.
pytestmark = [pytest.mark.xdist_group("guarantees"), pytest.mark.long]
TRIALS, PRIVATE_TRIALS = 200, 24


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[CombinationRow, ...]:
    records = tmp_path_factory.mktemp("guarantees") / "records.npz"
    write_records(records)
    studied_rows = [
        study(combination, records, PRIVATE_TRIALS if combination.strategy == "dp-sgd-clients" else TRIALS, seed=number)
        for number, combination in enumerate(QUICK)
    ]
    return tuple(row for row in studied_rows if row is not None)


def test_combinations_of_every_kind_agree_with_exact_theory(rows: tuple[CombinationRow, ...]) -> None:
    assert problems(rows) == []
    assert len(rows) == len(QUICK)
    used = [set(values) for values in zip(*(combination.parts() for combination in QUICK), strict=True)]
    for column, values, every in zip(COLUMNS, used, COLUMNS.values(), strict=True):
        # One optimizer is enough for each view, and one of them is refused.
        assert values == set(every) or column == "shown, optimizer", column
    weighed = [row.found for row in rows if isinstance(row.found, ShownLoss)]
    # Nothing is compared with nothing: the log-odds of nearly all have a distribution that is known.
    assert sum(loss.distribution_p is not None for loss in weighed) >= len(weighed) - 1
    assert len(weighed) == len(rows) - 1


def test_wrong_numbers_are_called_wrong(rows: tuple[CombinationRow, ...]) -> None:
    shown_loss = rows[0].found
    assert isinstance(shown_loss, ShownLoss)
    for change in (
        {"scores_p": 1e-5},
        {"distribution_p": 1e-5},
        {"noise_p": 1e-5},
        {"advantage": 0.9},
        {"lower_bound": 1.5},
    ):
        _assert_called_wrong(rows, 0, replace(shown_loss, **change))  # type: ignore[arg-type]


def test_scores_and_accountants_that_contradict_the_guarantee_are_called_wrong(
    rows: tuple[CombinationRow, ...],
) -> None:
    scored_evidence = rows[-1].found
    assert isinstance(scored_evidence, Scored)
    assert scored_evidence.advantage_low <= scored_evidence.advantage <= scored_evidence.advantage_high
    assert len(scored_evidence.epsilon_opacus) > 1
    off = tuple(epsilon * (1 + 1e-6) for epsilon in scored_evidence.epsilon_opacus)
    for change in (
        {"advantage_p": 1e-5},
        {"lower_bound": scored_evidence.epsilon + 0.01},
        {"epsilon_opacus": off},
        {"epsilon_of_clients": scored_evidence.epsilon + 0.01},
    ):
        _assert_called_wrong(rows, -1, replace(scored_evidence, **change))


def _assert_called_wrong(rows: tuple[CombinationRow, ...], index: int, evidence: Evidence) -> None:
    spoiled = list(rows)
    spoiled[index] = replace(rows[index], found=evidence)
    assert len(problems(spoiled)) == 1, evidence


def test_the_table_shows_what_there_is(rows: tuple[CombinationRow, ...]) -> None:
    table = guarantee_table(rows)
    cells = {str(column.header): list(column.cells) for column in table.columns}
    assert table.row_count == len(rows)
    assert [values[-1] for values in cells.values()].count("no likelihood ratio") == 4
    assert cells["trials"][-1] == str(PRIVATE_TRIALS)


def test_more_knowledge_helps() -> None:
    for comparison in comparisons(is_quick=True):
        outcome = compare(comparison, TRIALS)
        assert outcome.problems() == []
        assert outcome.more > outcome.less, comparison.name


def test_holm_corrects_for_the_number_of_tests() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, 0.5, 0.02, 0.02])), [0.04, 0.5, 0.06, 0.06])
