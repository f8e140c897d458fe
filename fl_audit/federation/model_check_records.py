"""Choose records of a data set on which a user's model is tested before a run."""

from functools import lru_cache

import numpy as np
import torch

from fl_audit.array_types import Integers
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.multi_array_records import array_of
from fl_audit.data.records import Records
from fl_audit.learning.model_checks import ModelCheckRecords
from fl_audit.learning.named_inputs import MASK

_SPREAD = 16  # records from the first to the last
_MOST_COLUMNS = 128
"""Largest number of columns for which the records with the extreme values of each column are taken."""
_ENDS = 8  # number of records taken at each end, by their extreme value, where there are more columns


@lru_cache(maxsize=2)
def probe_records(dataset: LoadedDataset) -> ModelCheckRecords:
    """Return records of a data set on which a model is tested: evenly spaced ones, and ones with extreme values.

    Texts with the most and the least padding come first. Extreme values include the largest token id, which a model
    with an embedding must accept.
    """
    sources = [(dataset.pool, "record"), *([] if dataset.test is None else [(dataset.test, "test record")])]
    chosen = [(records, _chosen(records), label) for records, label in sources]
    features = np.concatenate([records.features[positions] for records, positions, _ in chosen])
    names = tuple(f"{label} {position} (from 0)" for _, positions, label in chosen for position in positions.tolist())
    return ModelCheckRecords(torch.from_numpy(features), names)


def _chosen(records: Records) -> Integers:
    spread = np.unique(np.linspace(0, len(records) - 1, _SPREAD).astype(np.int64))
    numbers = records.features.reshape(len(records), -1)
    if numbers.shape[1] <= _MOST_COLUMNS:
        extreme = np.concatenate([numbers.argmax(0), numbers.argmin(0)])
    else:
        extreme = np.concatenate([numbers.max(1).argsort()[-_ENDS:], numbers.min(1).argsort()[:_ENDS]])
    # A model that is tried on few records gets the first ones: the shortest and the longest text.
    first = _shortest_and_longest(records)
    remaining = np.setdiff1d(spread, first)
    return np.concatenate([first, remaining, np.setdiff1d(extreme, np.concatenate([first, remaining]))])


def _shortest_and_longest(records: Records) -> Integers:
    """Return the positions of the shortest and the longest record by attention mask; empty if there is no mask."""
    if not any(named_input.name == MASK for named_input in records.inputs):
        return np.empty(0, dtype=np.int64)
    lengths = array_of(records, MASK).reshape(len(records), -1).sum(axis=1)
    return np.unique([int(lengths.argmin()), int(lengths.argmax())])
