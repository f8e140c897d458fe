"""Data sets that come with scikit-learn, so that a first run needs no files."""

from typing import Any

import numpy as np

from fl_audit.data.encoding import min_max
from fl_audit.data.records import Records, Source

_DIGITS_HIGHEST_PIXEL = 16.0


def load_digits() -> Source:
    """Return 1,797 handwritten digits, 8x8 pixels scaled to [0, 1], features of shape (64,), 10 classes.

    Source: UCI Optical Recognition of Handwritten Digits (test part), as scikit-learn ships it.
    """
    bunch = _bundled("load_digits")
    pool = Records(bunch.data / _DIGITS_HIGHEST_PIXEL, bunch.target, classes=10)
    description = "handwritten digits 8x8, 1,797 records, 64 features, 10 classes"
    return Source("digits", pool, None, description, flat_image=(8, 8))


def load_breast_cancer() -> Source:
    """Return 569 tumours with 30 measurements, each scaled to [0, 1], 2 classes.

    Source: UCI Breast Cancer Wisconsin (Diagnostic), as scikit-learn ships it.
    """
    bunch = _bundled("load_breast_cancer")
    scaled, _ = min_max(np.asarray(bunch.data, dtype=np.float64))
    pool = Records(scaled.astype(np.float32), bunch.target, classes=2)
    return Source("breast-cancer", pool, None, "tumour measurements, 569 records, 30 features, 2 classes")


def _bundled(name: str) -> Any:
    # scikit-learn takes a second to import, which every other command would pay for.
    import sklearn.datasets

    return getattr(sklearn.datasets, name)()
