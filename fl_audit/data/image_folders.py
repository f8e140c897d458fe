"""Pictures in folders, one folder for each class: `path/CLASS/PICTURE.png`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fl_audit.data.columns import describe_label
from fl_audit.data.encoding import build_records, encode_labels
from fl_audit.data.files import resolve
from fl_audit.data.images import ImageSettings, described, image_features
from fl_audit.data.records import ColumnKind, ColumnUse, Source
from fl_audit.errors import InputError, require

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def load_image_folder(
    directory: Path | None, path: str, test_path: str | None = None, settings: ImageSettings | None = None
) -> Source:
    """Return the pictures of a folder whose folders are the classes, in the order of their names.

    Parameters
    ----------
    directory
        Where relative paths that are not in the working directory are looked for, or None.
    path, test_path
        Folder with a folder of pictures for each class, at least two; and one of official test records, or None.
    settings
        How pictures are read; None is `ImageSettings()`.

    Raises
    ------
    InputError
        If a folder is missing or empty, a picture cannot be read, or pictures differ in size and no size is set.
    """
    settings = settings or ImageSettings()
    places = [resolve(directory, name, "folder") for name in (path, test_path) if name is not None]
    found = [_pictures(place) for place in places]
    names = [np.array([file.parent.name for file in files], dtype=np.str_) for files in found]
    codes, test_codes, classes = encode_labels(names[0], names[1] if len(names) > 1 else None, places[-1])
    # Together, so that training and test pictures have one size and one number of channels.
    features = image_features(_opened([file for files in found for file in files]), settings)
    pool = build_records(features[: len(codes)], codes, classes, places[0])
    test = None if test_codes is None else build_records(features[len(codes) :], test_codes, classes, places[-1])
    uses = (ColumnUse("pictures", ColumnKind.IMAGE, described(features, settings)), describe_label("folders", names[0]))
    title = f"pictures of {places[0].name}, {len(pool):,} records, {classes} classes"
    return Source("images", pool, test, title, uses)


def _pictures(place: Path) -> list[Path]:
    """Return the pictures of all classes in the order of their names, which no file system guarantees."""
    classes = sorted(entry for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    require(len(classes) > 0, f"{place} has no folders: accepted is a folder with a folder of pictures for each class")
    found = []
    for folder in classes:
        files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
        require(len(files) > 0, f"{folder} has no pictures: accepted are {', '.join(SUFFIXES)}")
        found += files
    return found


def _opened(files: list[Path]) -> Iterator[tuple[str, "Image"]]:
    from PIL import Image, UnidentifiedImageError

    for file in files:
        try:
            with Image.open(file) as picture:
                yield os.fspath(file), picture
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise InputError(f"{file} is no picture that can be read ({type(error).__name__})") from error
