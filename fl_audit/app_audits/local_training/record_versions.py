"""Versions of a record for the steps of a training: with larger features, and with other labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fl_audit.app_audits.local_training.edited_datasets import (
    crafted_record,
    jittered_record,
    label_of,
    length_of,
    record_at,
    with_label,
)
from fl_audit.app_audits.local_training.gradient_statistics import is_moved
from fl_audit.array_types import Floats32

FACTORS = (100.0, 1e4, 1e6)
"""Factors by which features are multiplied: a gradient that is clipped ends to grow, and one that is not does not."""
_MOST_LABELS = 10
_LOOKED_AT = 200  # records whose labels are looked at


@dataclass(frozen=True, eq=False)
class RecordVersion:
    """A version of a record."""

    factor: float  # factor of its features
    label: int  # number of its label, from 0
    item: Any
    is_jittered: bool = False  # whether its features differ a little from those of the version with this factor


ABSENT = RecordVersion(0.0, -1, None)
"""The version of a record that is left out of every mini-batch."""


def record_versions(dataset: Any, index: int) -> list[RecordVersion]:
    """Return versions of a record with features of several factors and with several labels.

    Those with a factor of 10,000 are there twice, the second time with features that differ a little.
    """
    item = record_at(dataset, index)
    versions = list[RecordVersion]()
    for factor in FACTORS:
        larger = crafted_record(item, factor)
        for number, label in enumerate(_labels(dataset, label_of(item), factor)):
            labelled = with_label(larger, label)
            versions.append(RecordVersion(factor, number, labelled))
            if factor == FACTORS[1]:
                versions.append(RecordVersion(factor, number, jittered_record(labelled), is_jittered=True))
    return versions


def _labels(dataset: Any, label_of_record: Any, factor: float) -> list[Any]:
    """Return labels of the data set, that of the record first; for quantities, labels far above and below it."""
    if label_of_record is None:
        return [None]
    labels = {_key(label_of_record): label_of_record}
    count = length_of(dataset)
    for index in np.linspace(0, count - 1, min(count, _LOOKED_AT)).astype(int):
        label = label_of(record_at(dataset, int(index)))
        labels.setdefault(_key(label), label)
    is_quantity = len(labels) > _MOST_LABELS and _is_floating(label_of_record)
    return (
        [label_of_record, label_of_record + factor, label_of_record - factor]
        if is_quantity
        else list(labels.values())[:_MOST_LABELS]
    )


def _is_floating(label: Any) -> bool:
    if isinstance(label, Tensor):
        return label.is_floating_point()
    return isinstance(label, float) or (isinstance(label, (np.ndarray, np.generic)) and label.dtype.kind == "f")


def _key(label: Any) -> object:
    return tuple(np.asarray(label).reshape(-1).tolist()) if not isinstance(label, str) else label


def located(has_effect: Callable[[Sequence[int]], bool], positions: Sequence[int]) -> int | None:
    """Return one of some positions whose record has an effect, by halving them; None if they have none together."""
    if not positions or not has_effect(positions):
        return None
    while len(positions) > 1:
        half = positions[: len(positions) // 2]
        positions = half if has_effect(half) else positions[len(positions) // 2 :]
    return positions[0]


def version_without_effect(gradients: Mapping[RecordVersion, Floats32]) -> RecordVersion | None:
    """Return a version of a record that has no effect on a step; None if there is none.

    It is the absent record, or one whose features do not matter: where a loss is saturated, the gradient of a record
    with the label that is predicted is zero, whatever its features.

    `gradients`: Gradients of the step with each version, (parameters,).
    """
    if ABSENT in gradients:
        return ABSENT
    steady, has_moved = list[RecordVersion](), False
    for version, values in gradients.items():
        again = next(
            (gradient for gradient in gradients if gradient.is_jittered and gradient.label == version.label), None
        )
        if version.factor != FACTORS[1] or version.is_jittered or again is None:
            continue
        if is_moved(values, gradients[again]):
            has_moved = True
        else:
            steady.append(version)
    return steady[0] if steady and has_moved else None
