"""Loader of Labeled Faces in the Wild (Huang et al. 2007): grey photographs, each labelled with the person it shows."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_files import read_archive
from fl_audit.array_types import Integers
from fl_audit.data.data_files import locate_any
from fl_audit.data.encoding import build_records
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.errors import require
from fl_audit.words import name_list

LFW_FILES = ("lfw.npz", "lfw_min20_gray64.npz")  # accepted file names; the first one that is there is read
_KEYS = ("x", "y", "people")
_HIGHEST_PIXEL = np.float32(255)
_FEWEST_CLASSES = 2


def lfw(directory: Path | None, *, classes: int | None = None) -> LoadedDataset:
    """Return Labeled Faces in the Wild, restricted to the people with the most images, with pixels in [0, 1].

    Features have shape (1, height, width). Classes are people, ordered by falling number of images, and ties by their
    order in the file. Therefore a smaller number of people gives the first classes of a larger number. Bernau et al.
    2019 (section 4.4) use 20, 50 and 100 people. The available 64x64 images show the 62 people with at least 20 images:
    1,906 images of 20 people and 2,773 of 50, as many as in the paper. There is no official test split.

    Shapes: `directory` (n, height, width).

    `directory`: The file holds three arrays: `x`, images as bytes, shape (n, height, width); `y`, for each image the
    index of its person in `people`, shape (n,); and `people`, the names.
    """
    path = locate_any(directory, "lfw", LFW_FILES)
    images, person, people = _read(path)
    images_of_each = np.bincount(person, minlength=people)
    count = int(np.count_nonzero(images_of_each))
    chosen = count if classes is None else classes
    require(
        _FEWEST_CLASSES <= chosen <= count,
        f"classes is {chosen}: accepted are {_FEWEST_CLASSES} to {count}, the number of people in {path}",
    )
    # Position of every person when they are put in order of their number of images.
    rank = np.argsort(np.argsort(-images_of_each, kind="stable"), kind="stable")
    rows = np.flatnonzero(rank[person] < chosen)
    features = images[rows, np.newaxis].astype(np.float32) / _HIGHEST_PIXEL
    pool = build_records(features, rank[person[rows]].astype(np.int64), chosen, path)
    _, height, width = pool.shape
    description = f"Labeled Faces in the Wild, {len(pool):,} grey images of {height}x{width}, {chosen} people"
    return LoadedDataset("lfw", pool, None, description)


def _read(path: Path) -> tuple[NDArray[np.uint8], Integers, int]:
    """Return grey images (n, height, width) as bytes, the index of each one's person (n,), and the number of people."""
    arrays = read_archive(path, _KEYS)
    for key in _KEYS:
        require(key in arrays, f"{path} has no array {key}: accepted are {name_list(_KEYS)}")
    images, person, people = (arrays[key] for key in _KEYS)
    require(
        images.dtype == np.uint8 and images.ndim == 3,
        f"{path}: x has shape {images.shape} of {images.dtype}: accepted are grey images (n, height, width) of uint8",
    )
    is_known = person.dtype.kind in "iu" and bool(np.isin(person, np.arange(people.size)).all())
    require(is_known, f"{path}: y holds something else than positions in people: accepted are 0 to {people.size - 1}")
    require(
        person.shape == images.shape[:1],
        f"{path} has {len(images)} images and labels of shape {person.shape}: accepted is one label for each image",
    )
    return images.astype(np.uint8, copy=False), person.astype(np.int64), people.size
