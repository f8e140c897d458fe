"""Pictures as numbers: one size, one number of channels, bytes scaled to [0, 1], the channel first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fl_audit.arrays import Floats32
from fl_audit.errors import require

if TYPE_CHECKING:
    from PIL.Image import Image

_HIGHEST_PIXEL = np.float32(255)
_GREY_MODES = ("1", "L", "LA", "I", "I;16", "F")


@dataclass(frozen=True)
class ImageSettings:
    """How pictures are read."""

    # Height and width in pixels that every picture is scaled to, at least 1; None keeps the size that all have.
    size: int | None = None
    grey: bool = False  # whether colours become grey; without it pictures keep three channels unless all are grey

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "ImageSettings":
        """Return the settings that options name: image-size, grey."""
        return cls(options.get("image-size"), bool(options.get("grey", False)))


def image_features(pictures: Iterable[tuple[str, "Image"]], settings: ImageSettings) -> Floats32:
    """Return pictures as numbers from 0 to 1, shape (n, channels, height, width): one channel for grey, else three.

    Parameters
    ----------
    pictures, settings
        Name, for messages, and picture, at least one; and how they are read.

    Raises
    ------
    InputError
        If there is none, or two differ in size and no size is set.
    """
    kept: list[NDArray[np.uint8]] = []
    first = ""
    for name, picture in pictures:
        kept.append(_pixels(picture, settings))
        first = first or name
        require(
            kept[-1].shape[1:] == kept[0].shape[1:],
            f"{name} has {_size(kept[-1])} pixels and {first} {_size(kept[0])}: accepted are pictures of one size, "
            "or image-size in [data], to which all are scaled",
        )
    require(len(kept) > 0, "there is no picture: at least 1 is needed")
    channels = max(len(each) for each in kept)
    # A grey picture among coloured ones is the same grey in every channel.
    stacked = np.stack([np.broadcast_to(each, (channels, *each.shape[1:])) for each in kept])
    features: Floats32 = stacked.astype(np.float32) / _HIGHEST_PIXEL
    return features


def described(features: Floats32, settings: ImageSettings) -> str:
    """Return what pictures became, in words.

    Parameters
    ----------
    features, settings
        The pictures, float32 (n, *shape), and how they were read.
    """
    channels, height, width = features.shape[1:]
    scaled = ", scaled to that size" if settings.size is not None else ""
    colour = "grey" if channels == 1 else "three colours"
    return f"{height}x{width} pixels{scaled}, {colour}, 0 to 1"


def _pixels(picture: "Image", settings: ImageSettings) -> NDArray[np.uint8]:
    """Return one picture as bytes, shape (channels, height, width)."""
    grey = settings.grey or picture.mode in _GREY_MODES
    picture = picture.convert("L" if grey else "RGB")
    if settings.size is not None:
        picture = picture.resize((settings.size, settings.size))
    values = np.asarray(picture, dtype=np.uint8)
    return values[np.newaxis] if grey else np.ascontiguousarray(values.transpose(2, 0, 1))


def _size(pixels: NDArray[np.uint8]) -> str:
    return f"{pixels.shape[1]}x{pixels.shape[2]}"
