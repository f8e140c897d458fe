"""Crafted records: describe them in messages, and put them into a data set in place of other records."""

import base64
import binascii
from dataclasses import replace

import numpy as np

from fl_audit.adjacency import CraftedRecord
from fl_audit.array_types import Floats32
from fl_audit.data.records import Records
from fl_audit.errors import InputError


def encoded_record(features: Floats32, label: int) -> CraftedRecord:
    """Return a crafted record with its features as a base64 string for messages."""
    raw = np.ascontiguousarray(features, dtype="<f4").tobytes()
    return CraftedRecord(base64.b64encode(raw).decode("ascii"), label)


def with_crafted(records: Records, index: int, crafted: CraftedRecord | None) -> Records:
    """Return copied records in which a crafted record replaces the one at `index`.

    The crafted record keeps the owner and the user of the replaced one.

    `crafted`: Raises `InputError` if it does not fit the records. With None, no record is replaced.
    """
    if crafted is None:
        return records
    records.check_index(index)
    features = records.features.copy()
    labels = records.labels.copy()
    features[index], labels[index] = _features(crafted, records.shape), crafted.label
    return replace(records, features=features, labels=labels)


def single_record(crafted: CraftedRecord, like: Records) -> Records:
    """Return `Records` with a crafted record alone, which has no owner.

    `like`: `InputError` is raised if those of the crafted record differ.
    """
    features = _features(crafted, like.shape)[np.newaxis]
    return Records(features, np.array([crafted.label]), like.classes, graphs=like.graphs, inputs=like.inputs)


def _features(crafted: CraftedRecord, shape: tuple[int, ...]) -> Floats32:
    try:
        raw = base64.b64decode(crafted.features, validate=True)
        return np.frombuffer(raw, dtype="<f4").reshape(shape).astype(np.float32)
    except (binascii.Error, ValueError):
        raise InputError(f"a crafted record is damaged: accepted are features of shape {shape}") from None
