"""Convert images to features, and load images from a folder with one subfolder per class: `path/CLASS/PICTURE.png`."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fl_audit.array_types import Floats32
from fl_audit.data import remedies
from fl_audit.data.column_encoding import described_names
from fl_audit.data.data_files import resolve
from fl_audit.data.encoding import build_records, encode_labels
from fl_audit.data.loaded_dataset import ColumnReadResult, ColumnRole, LoadedDataset
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import open_file
from fl_audit.value_checks import require_number
from fl_audit.words import name_list

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_HIGHEST_PIXEL = np.float32(255)
_LARGEST_SIDE = 4096
_MOST_NUMBERS = 2**32
"""Largest `image-size` in pixels, and largest number of values in all images together, which take 16 GiB."""
_GREY_MODES = ("1", "L", "LA", "I", "I;16", "F")


@dataclass(frozen=True)
class ImageSettings:
    """Settings for the conversion of images to features: their size and colours."""

    size: int | None = None  # height and width in pixels to which all images are scaled; None keeps their common size
    grey: bool = False  # whether images are converted to grey; otherwise they have three channels unless all are grey

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "ImageSettings":
        """Return the settings given by the options `image-size` and `grey`; raise `InputError` if one is invalid."""
        size = options.get("image-size")
        if size is not None:
            require_number("image-size in [data] is", size, f"whole numbers from 1 to {_LARGEST_SIDE}")
        return cls(options.get("image-size"), bool(options.get("grey", False)))


def image_features(pictures: Iterable[tuple[str, Image.Image]], settings: ImageSettings) -> tuple[Floats32, str]:
    """Return images as values in [0, 1], float32 (n, channels, height, width), and a text on their size and colours.

    `settings`: If no size is set, all images must have the same size.
    """
    pictures_kept: list[NDArray[np.uint8]] = []
    first = ""
    for name, picture in pictures:
        numbers = len(pictures_kept) * pictures_kept[0].size if pictures_kept else 0
        amount_text = (
            f"{len(pictures_kept):,} pictures of {_size(pictures_kept[0])} pixels are {numbers:,} numbers"
            if pictures_kept
            else ""
        )
        require(
            numbers <= _MOST_NUMBERS, f"{amount_text}: accepted are up to {_MOST_NUMBERS:,}; a smaller image-size helps"
        )
        pictures_kept.append(_pixels(picture, settings))
        first = first or name
        sizes = f"{name} has {_size(pictures_kept[-1])} pixels and {first} {_size(pictures_kept[0])}"
        remedy = remedies.image_size(min(*pictures_kept[-1].shape[1:], *pictures_kept[0].shape[1:]))
        accepted = f"accepted are pictures of one size; {remedy}, or another size, scales all to it"
        require(pictures_kept[-1].shape[1:] == pictures_kept[0].shape[1:], f"{sizes}: {accepted}", remedy)
    require(len(pictures_kept) > 0, "there is no picture: at least 1 is needed")
    channels = max(len(picture) for picture in pictures_kept)
    # A grey picture among coloured ones is the same grey in every channel.
    stacked = np.stack([np.broadcast_to(picture, (channels, *picture.shape[1:])) for picture in pictures_kept])
    features: Floats32 = stacked.astype(np.float32) / _HIGHEST_PIXEL
    scaled = ", scaled to that size" if settings.size is not None else ""
    colour = "grey" if channels == 1 else "three colours"
    return features, f"{_size(pictures_kept[0])} pixels{scaled}, {colour}, 0 to 1"


def _pixels(picture: Image.Image, settings: ImageSettings) -> NDArray[np.uint8]:
    """Return one image as uint8 (channels, height, width), with 1 channel if grey and otherwise 3."""
    grey = settings.grey or picture.mode in _GREY_MODES
    picture = picture.convert("L" if grey else "RGB")
    if settings.size is not None:
        picture = picture.resize((settings.size, settings.size))
    values = np.asarray(picture, dtype=np.uint8)
    return values[np.newaxis] if grey else np.ascontiguousarray(values.transpose(2, 0, 1))


def _size(pixels: NDArray[np.uint8]) -> str:
    return f"{pixels.shape[1]}x{pixels.shape[2]}"


def load_image_folder(
    directory: Path | None, path: str, test_path: str | None, settings: ImageSettings | None
) -> LoadedDataset:
    """Load the images of a folder that has one subfolder for each class.

    Classes are numbered in the order of their names. Raises `InputError` if a folder is missing or empty, if an image
    cannot be read, or if images differ in size and no size is set.
    """
    settings = settings or ImageSettings()
    paths = [resolve(directory, name, "folder") for name in (path, test_path) if name is not None]
    files_of_folders = [_pictures(path) for path in paths]
    names = [np.array([file.parent.name for file in files], dtype=np.str_) for files in files_of_folders]
    codes, test_codes, classes = encode_labels(names[0], names[1] if len(names) > 1 else None, paths[-1])
    # Together, so that training and test pictures have one size and one number of channels.
    features, became = image_features(_opened([file for files in files_of_folders for file in files]), settings)
    pool = build_records(features[: len(codes)], codes, classes, paths[0])
    test = None if test_codes is None else build_records(features[len(codes) :], test_codes, classes, paths[-1])
    pictures = ColumnReadResult("pictures", ColumnRole.IMAGE, became)
    uses = (pictures, described_names("folders", ColumnRole.LABEL, np.unique(names[0])))
    title = f"pictures of {paths[0].name}, {len(pool):,} records, {classes} classes"
    return LoadedDataset("images", pool, test, title, uses)


def _pictures(path: Path) -> list[Path]:
    """Return the paths of the images, by class and file name."""
    classes = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    require(len(classes) > 0, f"{path} has no folders: accepted is a folder with a folder of pictures for each class")
    files_found = []
    for folder in classes:
        files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
        require(len(files) > 0, f"{folder} has no pictures: accepted are {name_list(SUFFIXES)}")
        files_found += files
    return files_found


def _opened(files: list[Path]) -> Iterator[tuple[str, Image.Image]]:
    for file in files:
        try:
            with open_file(file) as content, Image.open(content) as picture:
                picture.load()
                yield os.fspath(file), picture
        except InputError:
            raise
        except Exception as error:  # decoders raise errors of many kinds at damaged pictures
            raise InputError(f"{file} is no picture that can be read ({type(error).__name__})") from error
