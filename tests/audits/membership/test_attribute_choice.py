"""The column of a table whose value an attacker guesses: which one is chosen, and what has none."""

import numpy as np

from fl_audit.data.attribute_to_infer import choose_attribute
from fl_audit.data.loaded_dataset import LoadedDataset, side_by_side
from fl_audit.data.records import Records


def table() -> LoadedDataset:
    """Age (a number), smokes (0.2 of 0/1), sex (two levels, half each) and town (three levels)."""
    draw = np.random.default_rng(0)
    age = draw.random(100)
    smokes = np.arange(100) % 5 == 0
    sex = np.eye(2)[np.arange(100) % 2]
    town = np.eye(3)[np.arange(100) % 3]
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
