"""Crafted records in the place of records of a data set."""

import base64
import binascii
from dataclasses import replace

import numpy as np

from fl_audit.adjacency import CraftedRecord
from fl_audit.arrays import Floats32
from fl_audit.data.records import Records
from fl_audit.errors import InputError


def told_record(features: Floats32, label: int) -> CraftedRecord:
    """Return a record as it is told to the parties.

    Parameters
    ----------
    features, label
        Shape (*shape), and its class, from 0.
    """
    raw = np.ascontiguousarray(features, dtype="<f4").tobytes()
    return CraftedRecord(base64.b64encode(raw).decode("ascii"), label)


def with_crafted(records: Records, index: int, crafted: CraftedRecord | None) -> Records:
    """Return records with a crafted one in the place of one of them, whose owner it keeps.

    Parameters
    ----------
    records, index
        The records, and the place, from 0.
    crafted
        What stands there, of the shape and the classes of the others, or `InputError`; None leaves all as it is.
    """
    if crafted is None:
        return records
    records.check_index(index)
    features, labels = records.features.copy(), records.labels.copy()
    features[index], labels[index] = _features(crafted, records.shape), crafted.label
    return replace(records, features=features, labels=labels)


def alone(crafted: CraftedRecord, like: Records) -> Records:
    """Return a crafted record by itself, of nobody.

    Parameters
    ----------
    crafted, like
        The record, and records of the same shape and classes; `InputError` if it is of another one.
    """
    features = _features(crafted, like.shape)[np.newaxis]
    return Records(features, np.array([crafted.label]), like.classes, graphs=like.graphs)


def _features(crafted: CraftedRecord, shape: tuple[int, ...]) -> Floats32:
    try:
        raw = base64.b64decode(crafted.features, validate=True)
        return np.frombuffer(raw, dtype="<f4").reshape(shape).astype(np.float32)
    except (binascii.Error, ValueError):
        raise InputError(f"a crafted record is damaged: accepted are features of shape {shape}") from None
