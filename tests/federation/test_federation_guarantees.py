"""Every kind of guarantee against exact theory, in a quick form (experiments.studies.guarantees has the full one).

Seeds are fixed once. A sound federation is called wrong with a probability of 1 % over all combinations together, and
less knowledge is called better with one of 0.1 % a comparison at most.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.studies.guarantee_settings import (
    CLIPPING,
    NOISE,
    PARTICIPATION,
    Combination,
    combinations,
    plan_of,
    write_records,
)
from experiments.studies.guarantees import QUICK, Row, holm, problems, reasons, study
from experiments.studies.knowledge import compare, comparisons
from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError

WORLDS = 300


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guarantees") / "records.npz"
    write_records(path)
    return path


@pytest.fixture(scope="module")
def rows(records: Path) -> tuple[Row, ...]:
    return tuple(study(one, records, WORLDS, seed=number) for number, one in enumerate(QUICK))


def test_combinations_of_every_kind_agree_with_exact_theory(rows: tuple[Row, ...]) -> None:
    assert problems(rows) == []
    assert all(row.found is not None for row in rows)
    assert {one.adjacency for one in QUICK} == set(Adjacency)
    assert {one.clipping for one in QUICK} == set(CLIPPING)
    assert {one.participation for one in QUICK} == set(PARTICIPATION)
    # Nothing is compared with nothing: the log-odds of nearly all have a law that is known.
    assert sum(row.found.law_p is not None for row in rows if row.found) >= len(rows) - 1


def test_wrong_numbers_are_called_wrong(rows: tuple[Row, ...]) -> None:
    found = rows[0].found
    assert found is not None
    for change in ({"scores_p": 1e-5}, {"law_p": 1e-5}, {"meter_p": 1e-5}, {"advantage": 0.9}, {"lower_bound": 1.5}):
        spoiled = replace(rows[0], found=replace(found, **change))  # type: ignore[arg-type]
        assert len(problems((spoiled, *rows[1:]))) == 1, change


def _refused(records: Path) -> Iterator[tuple[Combination, str]]:
    for one in combinations():
        try:
            plan_of(one, records, 10, 0, {"noise-multiplier": 1.0})
        except InputError as error:
            yield one, str(error)


def test_whatever_cannot_be_accounted_or_weighed_is_refused_with_its_reason(records: Path) -> None:
    refused = dict(_refused(records))
    everything = list(combinations())
    assert len(everything) == len(Adjacency) * len(CLIPPING) * len(PARTICIPATION) * len(NOISE)
    assert len(everything) - len(refused) == 50
    assert all("accepted" in reason or "needs" in reason for reason in refused.values())
    listed = [Row(one, None, reason) for one, reason in refused.items()]
    assert len(reasons(listed)) == len(set(refused.values())) == 8


def test_more_knowledge_helps() -> None:
    for one in comparisons(is_quick=True):
        found = compare(one, WORLDS)
        assert found.problems() == []
        assert found.more > found.less, one.name


def test_holm_corrects_for_the_number_of_tests() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, 0.5, 0.02, 0.02])), [0.04, 0.5, 0.06, 0.06])
