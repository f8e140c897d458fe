"""Randomise grey images by pixelation with Laplace noise."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats, Floats32
from fl_audit.data.randomizers.record_shapes import record_axes, require_pair
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.privacy.events import LaplaceRelease, ReleaseEvent
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.value_checks import require_number

_FINEST_DIFFERENCE = 1e-6  # differences of block means are rounded up to multiples of it: few distinct releases remain
# Relative error up to which the largest difference counts as the last of the steps that it is divided into.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class LaplacePixelation:
    """Pixelation of grey images with Laplace noise (Fan 2018, used in section 2.2 of Bernau et al. 2019).

    An image is cut into blocks of b x b pixels, with b = `block`. The mean of each block gets Laplace noise, is clipped
    to [0, 1], and replaces all pixels of the block. With m = `neighbourhood`, the noise has the scale m / (b^2 epsilon)
    for pixels in [0, 1], which is 255 m / (b^2 epsilon) in grey levels. For images that differ in at most m pixels this
    is epsilon-differentially private. Clipping loses no evidence, because all values beyond one end of [0, 1] have the
    same log-odds. Raises `InputError` if a number is out of its range.

    Examples
    --------
    >>> LaplacePixelation(epsilon=2.0, neighbourhood=16, block=4).scale
    0.5
    """

    epsilon: float  # epsilon_i of m changed pixels, positive
    neighbourhood: int  # m, pixels in which neighbouring images may differ, from 1; 250 of 250 x 250 in the paper
    block: int = 1  # b, side of a block in pixels, from 1 (no coarsening, as in the paper)
    kind: Literal["pixelation"] = "pixelation"

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        require_number("epsilon is", self.epsilon, "positive finite numbers")
        for name, value in (("neighbourhood", self.neighbourhood), ("block", self.block)):
            require_number(f"{name} is", value, "whole numbers of pixels from 1")

    @property
    def scale(self) -> float:
        """Scale of the Laplace noise for pixels in [0, 1]: `neighbourhood` / (`block`^2 `epsilon`)."""
        return self.neighbourhood / (self.block**2 * self.epsilon)

    def require_records(self, records: Records) -> None:
        """Raise `InputError` unless `require_images` accepts the records, with `neighbourhood` or more pixels each."""
        shape = records.shape
        pixels = int(np.prod(records.shape))
        accepted = "grey images, (1, height, width)"
        setting_text = f"local-randomizer is '{self.kind}' and records are {records.kind_of_arrays}"
        require(not records.inputs, f"{setting_text}, which are no images: leave it out")
        is_grey = len(shape) == 3 and shape[0] == 1 and not records.graphs
        require(is_grey, f"local-randomizer is '{self.kind}' and records have shape {shape}: accepted are {accepted}")
        accepted = f"1 to {pixels}, those of an image"
        require(self.neighbourhood <= pixels, f"pixelation-pixels is {self.neighbourhood}: accepted are {accepted}")
        self.require_images(records.features)

    def perturb(self, features: NDArray[np.floating], generator: np.random.Generator) -> Floats32:
        """Return pixelated images with Laplace noise, in the shape of `features`."""
        self.require_images(features)
        means = self._block_means(features)
        noisy = np.clip(means + generator.laplace(scale=self.scale, size=means.shape), 0.0, 1.0).astype(np.float32)
        return noisy.repeat(self.block, axis=-2).repeat(self.block, axis=-1)

    def log_odds(self, observed: NDArray[Any], first: NDArray[np.floating], second: NDArray[np.floating]) -> Floats:
        """Return log p(observed | first) / p(observed | second), in nats, one number for each observed image.

        The result is the sum of (|o - m2| - |o - m1|) / scale over all blocks. Here o is the observed value of a block,
        and m1 and m2 are the means of this block in `first` and `second`. It also holds if o was clipped to 0 or 1,
        where both probabilities are tails of Laplace distributions. Raises `InputError` if shapes do not fit, or if
        `require_images` refuses an image.
        """
        require_pair(observed, first, second)
        for images in (observed, first, second):
            self.require_images(images)
        blocks_seen = observed[..., :: self.block, :: self.block].astype(np.float64)
        distances = np.abs(blocks_seen - self._block_means(second)) - np.abs(blocks_seen - self._block_means(first))
        return np.asarray(distances.sum(axis=record_axes(first)) / self.scale, dtype=np.float64)

    def counted_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return the releases by which Bernau et al. 2019 compute their guarantee.

        They count one release with `epsilon` for each block of an image. For 250 x 250 pixels and blocks of one pixel,
        the total is 62,500 `epsilon`. This guarantee is far too large. The noise of a single block already covers
        `neighbourhood` changed pixels, while a block has only `block`^2 pixels. See `events_of_opposite_records`.
        """
        return (LaplaceRelease(self.neighbourhood / self.block**2, self.scale, self._blocks(shape)),)

    def events_of_opposite_records(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return the releases for the two most different images of a shape, a black one and a white one.

        There is one release with Laplace noise for each block of pixels. The sum of their epsilons is `epsilon` times
        the number of pixels, divided by `neighbourhood`.
        """
        return (LaplaceRelease(1.0, self.scale, self._blocks(shape)),)

    def pair_events(
        self, first: NDArray[np.floating], second: NDArray[np.floating], most_events: int | None = None
    ) -> tuple[ReleaseEvent, ...]:
        """Return the releases that distinguish two given images: one for each block whose means differ.

        Shapes: `first` (1, height, width).

        `most_events`: The differences of block means are rounded up to multiples of the largest difference divided by
        this number. So the stated releases reveal a little more than the real ones. None rounds up to millionths.
        """
        require_pair(first, first, second)
        for images in (first, second):
            self.require_images(images)
        differences = np.abs(self._block_means(first) - self._block_means(second))
        width = _FINEST_DIFFERENCE
        if most_events is not None:
            width = max(width, float(differences.max()) / most_events * (1 + _ROUNDING))
        steps, counts = np.unique(np.ceil(differences / width), return_counts=True)
        step_counts = zip(steps.tolist(), counts.tolist(), strict=True)
        return tuple(LaplaceRelease(step * width, self.scale, count) for step, count in step_counts if step > 0)

    def require_images(self, images: NDArray[np.floating]) -> None:
        """Raise `InputError` unless images are grey, with pixels in [0, 1] and sides that are multiples of `block`."""
        one_channel = images.ndim in (2, 3) or (images.ndim > 3 and images.shape[-3] == 1)
        accepted = "accepted are grey ones, (n, 1, h, w)"
        require(one_channel and images.size > 0, f"images have shape {images.shape}: {accepted}")
        height, width = images.shape[-2:]
        accepted = f"accepted are multiples of the block's side, {self.block}"
        require(height % self.block == width % self.block == 0, f"images have {height}x{width} pixels: {accepted}")
        low = float(images.min())
        high = float(images.max())
        wrong = high if low >= 0 else low
        require(low >= 0 and high <= 1, f"a pixel is {wrong:g}: accepted are numbers from 0 to 1")

    def _blocks(self, shape: tuple[int, ...]) -> int:
        return int(np.prod(shape)) // self.block**2

    def _block_means(self, images: NDArray[np.floating]) -> Floats:
        *leading, height, width = images.shape
        cut = (*leading, height // self.block, self.block, width // self.block, self.block)
        return np.asarray(images.astype(np.float64).reshape(cut).mean(axis=(-3, -1)), dtype=np.float64)
