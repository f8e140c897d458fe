"""Skewed Purchases: generated shopping carts, whose test records have more noise than their training records.

Bernau et al. 2019, section 4.5, define this data set to imitate transfer learning: a model is trained on many carts of
poor quality and tested on carts from another distribution. The data set is not a file: records are generated with a
fixed seed.
"""

from functools import partial
from pathlib import Path

import numpy as np

from fl_audit.array_types import Flags, Integers
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator
from fl_audit.words import name_list

SKEWED_CLASSES = (10, 20, 50, 100)  # numbers of classes that the paper has
SKEWED_RECORDS = 200_000  # number of records that the paper has, half of them test records here
FEATURES = 600

_SEED = 0
_BLOCK = 1000  # records that are drawn at a time: a block's draws depend on its number alone
_TENTHS = 10
_INDICATOR, _NOISE_OF_POOL, _NOISE_OF_TEST = 8, 2, 5  # probabilities of a 1, in tenths


def skewed_purchases(
    _: Path | None = None, *, classes: int = SKEWED_CLASSES[0], generated_records: int = SKEWED_RECORDS
) -> LoadedDataset:
    """Return the generated data set Skewed Purchases: 600 binary features, and test records of another distribution.

    Each class has 600 / classes features as its indicator bits ("products frequently purchased together"). In a record,
    each indicator bit of its class is 1 with probability 0.8. All other features are noise bits: they are 1 with
    probability 0.2 in the pool, which provides training records, and 0.5 in the test records. All bits are independent.

    The paper does not say which features belong to which class, how labels are drawn and how records are split. Here
    the indicator bits of class c start at feature 600 c / classes, labels are uniform, and half of the records are test
    records.

    `generated_records`: With four bytes per feature, 200,000 records take 480 MB. A smaller data set consists of the
    first records of the largest data set's pool and test records.

    Examples
    --------
    >>> source = skewed_purchases(classes=20, generated_records=1000)
    >>> source.pool.features.shape, source.test.classes
    ((500, 600), 20)
    """
    require(
        classes in SKEWED_CLASSES,
        f"classes is {classes}: accepted for skewed-purchases are {name_list(SKEWED_CLASSES)}",
    )
    require(
        generated_records in range(4, SKEWED_RECORDS + 1, 2),
        f"generated-records is {generated_records}: accepted are even numbers from 4 to {SKEWED_RECORDS}, half of them "
        "for tests",
    )
    draw = partial(_drawn, generated_records // 2, classes)
    pool = draw(_NOISE_OF_POOL, 0)
    test = draw(_NOISE_OF_TEST, 1)
    description = (
        f"Skewed Purchases, {len(pool):,} records and {len(test):,} noisier test records, generated, "
        f"{FEATURES} binary features, {classes} classes"
    )
    return LoadedDataset("skewed-purchases", pool, test, description)


def _drawn(records: int, classes: int, noise: int, repetition: int) -> Records:
    features = np.empty((records, FEATURES), dtype=np.float32)
    labels = np.empty(records, dtype=np.int64)
    for start in range(0, records, _BLOCK):
        stop = min(start + _BLOCK, records)
        block, bits = _block(classes, noise, repetition, start // _BLOCK)
        labels[start:stop], features[start:stop] = block[: stop - start], bits[: stop - start]
    return Records(features, labels, classes)


def _block(classes: int, noise: int, partition: int, number: int) -> tuple[Integers, Flags]:
    draw = generator(_SEED, Purpose.SYNTHETIC_RECORDS, trial=classes, round=partition, client=number)
    labels = draw.integers(classes, size=_BLOCK)
    # Whole numbers from 0 to 9 make the probabilities exact, which no binary fraction is.
    coins = draw.integers(_TENTHS, size=(_BLOCK, FEATURES), dtype=np.uint8)
    owner = np.arange(FEATURES) * classes // FEATURES
    of_class = np.where(owner == np.arange(classes)[:, np.newaxis], np.uint8(_INDICATOR), np.uint8(noise))
    return labels, coins < of_class[labels]
