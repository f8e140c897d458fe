"""Loaders of Purchases with 10, 20 or 50 classes and of Texas with 150, 200 or 300 classes (Bernau et al. 2019).

Each number of classes has a file of its own. The labels, and the features of Texas, cannot be derived from the
published files with 100 classes.
"""

from dataclasses import replace
from pathlib import Path

from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.shokri_tables import PURCHASE100, TEXAS100, BinaryTable, load_binary
from fl_audit.errors import require
from fl_audit.words import name_list

_PURCHASES = (10, 20, 50, 100)
_TEXAS = (100, 150, 200, 300)


def purchases(directory: Path | None, *, classes: int = 100) -> LoadedDataset:
    """Return the data set Purchases with 10, 20, 50 or 100 classes, read from its file."""
    return _load(directory, PURCHASE100, _PURCHASES, classes)


def texas(directory: Path | None, *, classes: int = 100) -> LoadedDataset:
    """Return the data set Texas with 100, 150, 200 or 300 classes, read from its file."""
    return _load(directory, TEXAS100, _TEXAS, classes)


def _load(directory: Path | None, published: BinaryTable, accepted: tuple[int, ...], classes: int) -> LoadedDataset:
    stem = published.name.removesuffix("100")
    title = published.title.removesuffix("100")
    require(classes in accepted, f"classes is {classes}: accepted are {name_list(accepted)}")
    table = replace(published, name=f"{stem}{classes}", title=f"{title}{classes}", classes=classes, archive=None)
    return load_binary(directory, published if classes == published.classes else table)
