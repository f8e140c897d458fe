"""Purchases with 10, 20 or 50 classes and Texas with 150, 200 or 300, as in Bernau et al. 2019.

They are read from files of their own: neither their labels nor, for Texas, their features follow from the files with
100 classes, and it is not published which records the smaller ones hold.
"""

from dataclasses import replace
from pathlib import Path

from fl_audit.data.records import LoadedDataset
from fl_audit.data.shokri_tables import PURCHASE100, TEXAS100, BinaryTable, load_binary
from fl_audit.errors import require

_PURCHASES, _TEXAS = (10, 20, 50, 100), (100, 150, 200, 300)


def purchases(directory: Path | None, *, classes: int = 100) -> LoadedDataset:
    """Return Purchases with 10, 20, 50 or 100 classes, from the files of `load_binary`.

    Parameters
    ----------
    directory
        Directory with `purchase10.npz` and so on, or with the published archive for 100 classes.
    classes
        Number of classes: 10, 20, 50 or 100.

    Raises
    ------
    InputError
        As in `load_binary`, or if classes is another number.
    """
    return _load(directory, PURCHASE100, _PURCHASES, classes)


def texas(directory: Path | None, *, classes: int = 100) -> LoadedDataset:
    """Return Texas with 100, 150, 200 or 300 classes, from the files of `load_binary`.

    Parameters
    ----------
    directory
        Directory with `texas150.npz` and so on, or with the published archive for 100 classes.
    classes
        Number of classes: 100, 150, 200 or 300.

    Raises
    ------
    InputError
        As in `load_binary`, or if classes is another number.
    """
    return _load(directory, TEXAS100, _TEXAS, classes)


def _load(directory: Path | None, published: BinaryTable, accepted: tuple[int, ...], classes: int) -> LoadedDataset:
    stem, title = published.name.removesuffix("100"), published.title.removesuffix("100")
    require(classes in accepted, f"classes is {classes}: accepted are {', '.join(map(str, accepted))}")
    own = replace(published, name=f"{stem}{classes}", title=f"{title}{classes}", classes=classes, archive=None)
    return load_binary(directory, published if classes == published.classes else own)
