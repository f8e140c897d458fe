"""Load two small data sets that are part of scikit-learn, so a first run needs no files."""

from importlib.metadata import distribution

import numpy as np

from fl_audit.array_types import Floats, Integers
from fl_audit.data.encoding import min_max
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.records import Records

_DIGITS_HIGHEST_PIXEL = 16.0


def load_digits() -> LoadedDataset:
    """Return 1,797 handwritten digits of 8x8 pixels in [0, 1], as 64 features, with 10 classes.

    Source: UCI Optical Recognition of Handwritten Digits (test part), from scikit-learn.
    """
    pixels, target = _bundled("digits.csv.gz", skipped_lines=0)
    pool = Records((pixels / _DIGITS_HIGHEST_PIXEL).astype(np.float32), target, classes=10)
    description = "handwritten digits 8x8, 1,797 records, 64 features, 10 classes"
    return LoadedDataset("digits", pool, None, description, flat_image=(8, 8))


def load_breast_cancer() -> LoadedDataset:
    """Return 569 tumours with 30 measurements each, scaled to [0, 1], and 2 classes, benign and malignant.

    Source: UCI Breast Cancer Wisconsin (Diagnostic), from scikit-learn.
    """
    measured, target = _bundled("breast_cancer.csv", skipped_lines=1)
    scaled, _ = min_max(measured)
    pool = Records(scaled.astype(np.float32), target, classes=2)
    return LoadedDataset("breast-cancer", pool, None, "tumour measurements, 569 records, 30 features, 2 classes")


def _bundled(name: str, skipped_lines: int) -> tuple[Floats, Integers]:
    """Return features and labels of a table of scikit-learn, whose import would take two seconds."""
    path = distribution("scikit-learn").locate_file(f"sklearn/datasets/data/{name}")
    table = np.loadtxt(str(path), delimiter=",", skiprows=skipped_lines)
    return table[:, :-1], table[:, -1].astype(np.int64)
