"""Queries of attackers: columns whose value is left open, and records varied in public ways."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fl_audit.audits.membership.varied_records import ResampledColumns, ShiftedImages, queries_for
from fl_audit.data.attribute_to_infer import choose_attribute
from fl_audit.data.builtin import load_breast_cancer, load_digits
from fl_audit.data.loaded_dataset import LoadedDataset, side_by_side
from fl_audit.data.records import Records
from fl_audit.errors import InputError


def table() -> LoadedDataset:
    """Age (a number), smokes (0.2 of 0/1), sex (two levels, half each) and town (three levels)."""
    draw = np.random.default_rng(0)
    age, smokes = draw.random(100), np.arange(100) % 5 == 0
    sex, town = np.eye(2)[np.arange(100) % 2], np.eye(3)[np.arange(100) % 3]
    features = np.concatenate([age[:, None], smokes[:, None], sex, town], axis=1).astype(np.float32)
    placed = side_by_side([("age", 1), ("smokes", 1), ("sex", 2), ("town", 3)])
    return LoadedDataset("people", Records(features, np.arange(100) % 2, classes=2), None, "people", placed=placed)


def test_the_attribute_left_open_is_the_most_even_column_of_two_values() -> None:
    source = table()
    chosen = choose_attribute(source, source.pool)
    assert (chosen.column.name, chosen.column.places, chosen.prior.tolist()) == ("sex", slice(2, 4), [0.5, 0.5])
    assert (chosen.values[chosen.codes(source.pool.features)] == source.pool.features[:, 2:4]).all()
    # Which column that is depends on the records that nobody trains on, and on them alone.
    men = source.pool.take(np.flatnonzero(np.arange(100) % 2 == 0))
    assert choose_attribute(source, men).column.name == "smokes"
    assert choose_attribute(source, source.pool, "3").prior.tolist() == [0.33, 0.33, 0.34]


@pytest.mark.parametrize(
    ("source", "named", "said"),
    [
        (load_digits(), None, r"digits .*images"),
        (load_breast_cancer(), None, "no column"),
        (load_breast_cancer(), "0", r"attribute 0 .*456 values: .*2 to 100"),
        (table(), "town ", r"attribute is town : .*people .*age, smokes, sex, town or "),
        (replace(table(), pool=replace(table().pool, graphs=True)), None, r"people .*graphs"),
    ],
)
def test_what_has_no_such_column_is_refused(source: LoadedDataset, named: str | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        choose_attribute(source, source.pool, named)


def test_images_are_asked_about_plain_mirrored_and_moved() -> None:
    images = torch.rand(3, 64)
    asked = list(ShiftedImages((8, 8)).variants(images, 50))
    assert torch.equal(asked[0], images)
    assert torch.equal(asked[1].reshape(3, 8, 8), images.reshape(3, 8, 8).flip(2))
    up = next(one for one in asked if torch.equal(one.reshape(3, 8, 8)[:, :-1], images.reshape(3, 8, 8)[:, 1:]))
    assert (up.reshape(3, 8, 8)[:, -1] == 0).all()
    assert len({one.numpy().tobytes() for one in asked}) == 50
    assert all(torch.equal(*pair) for pair in zip(ShiftedImages((8, 8)).variants(images, 3), asked, strict=False))
    with pytest.raises(InputError, match="queries is 51: accepted are 1 to 50"):
        queries_for(load_digits(), images.numpy(), 0, 51)


def test_rows_are_asked_about_with_whole_columns_of_public_records() -> None:
    source = table()
    ways = queries_for(source, source.pool.features[50:], 7, 5)
    assert isinstance(ways, ResampledColumns)
    rows = torch.from_numpy(source.pool.features[:50])
    first, *others = ways.variants(rows, 5)
    assert torch.equal(first, rows)
    changed = torch.stack(others) != rows
    # Only whole columns are taken, one of these four a row, and numbers are never equal by chance.
    by_column = torch.stack([changed[..., one.places].any(2) for one in source.table_columns], dim=2).sum(2)
    assert by_column.max() == 1
    assert 0.15 < changed[..., 0].float().mean() < 0.35  # of 200 rows a quarter; outside once in 900 seeds
    assert (torch.stack(others)[..., 2:4].sum(2) == 1).all(), "one level of each column of words"
    again = list(ways.variants(rows, 2))
    assert torch.equal(again[1], others[0]), "the same whatever is asked after it"
