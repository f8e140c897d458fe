"""Measure reconstructions: the similarity of reconstructed and true images."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from fl_audit.array_types import Flags, Floats, Floats32, finite
from fl_audit.audits.reconstruction.image_attacks import DescentSettings, PopulationImages, drawn_pictures
from fl_audit.audits.reconstruction.update_function import UpdateFunction
from fl_audit.data.dissimilarity import Dissimilarity, exact_block, prepare
from fl_audit.errors import require

_SSIM = Dissimilarity.SSIM
WORST = 0.01
"""Share of the images, those with the best reconstructions, whose mean similarity is reported in addition."""


@dataclass(frozen=True)
class ReconstructionQuality:
    """The similarity of each reconstructed image to the true image: PSNR, SSIM, and identification among candidates."""

    psnr: Floats  # peak signal-to-noise ratio in dB, for pixels from 0 to 1, (images,); infinite for equal images
    ssim: Floats  # structural similarity, at most 1, (images,)
    named: Flags  # whether the true image is the nearest candidate to the reconstruction, (images,)
    candidates: int  # number of candidates for each image, including the true image

    def worst(self, values: Floats) -> float:
        """Return the mean of `values` over the 1 % of images with the largest values, at least one image.

        `values` is `psnr` or `ssim`, so these are the best reconstructions, which is the worst case for privacy.
        """
        return float(np.sort(values)[-max(1, round(WORST * len(values))) :].mean())


@dataclass(frozen=True)
class NoiseLevelGuarantee:
    """A level of noise, with the largest probability of identifying the true candidate under it."""

    epsilon: float  # epsilon of the guarantee with this noise; infinite without noise
    mu: float  # norm of a clipped contribution over the noise, all rounds together; infinite without noise
    bound: float  # largest probability of identifying the true candidate, from 0 to 1

    @classmethod
    def gaussian(cls, epsilon: float, mu: float, chance: float) -> "NoiseLevelGuarantee":
        """Return the values of the guarantee at one level of Gaussian noise.

        The largest probability of identifying the true candidate is Phi(mu + Phi^-1(chance)).
        """
        return cls(epsilon, mu, float(ndtr(mu + ndtri(chance))))


@dataclass(frozen=True)
class NoiseLevelReconstructions:
    """The attacker's reconstructions of all images at one level of noise, with their similarity to the true images."""

    level: NoiseLevelGuarantee  # level of the noise
    pictures: Floats32  # the reconstructed images, float32 (images, *shape)
    likeness: ReconstructionQuality  # similarity of the reconstructed to the true images
    guesses: int = 1  # number of images that are reconstructed for each owner, each of which may be identified


@dataclass(frozen=True)
class TrueAndReconstructedImages:
    """The true images, and their reconstructions at each level of noise by an attacker who knows all other data."""

    true: Floats32  # the true images, float32 (images, *shape)
    drawings: tuple[NoiseLevelReconstructions, ...]  # one entry for each level of noise, from no noise to the most
    own: int  # index in `drawings` of the reconstructions at the run's own noise

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `pictures`, for `summary.json`.

        Its value is a list with one entry for each level of noise.
        """
        entries = [_entry(drawing) | {"own": number == self.own} for number, drawing in enumerate(self.drawings)]
        return {"pictures": entries}


def _entry(reconstructions: NoiseLevelReconstructions) -> dict[str, Any]:
    level = reconstructions.level
    quality = reconstructions.likeness
    return {
        "psnr": finite(float(quality.psnr.mean())),
        "psnr_worst": finite(quality.worst(quality.psnr)),
        "epsilon": finite(level.epsilon),
        "candidates": quality.candidates,
        "guesses": reconstructions.guesses,
        "bound": level.bound,
        "named": float(quality.named.mean()),
        "ssim": float(quality.ssim.mean()),
        "ssim_worst": quality.worst(quality.ssim),
    }


@dataclass(frozen=True)
class ImageTargets:
    """The images to be reconstructed, and other images as candidates among which each is to be identified."""

    pictures: Tensor  # the true images, float32 (owners, images, *shape)
    labels: Tensor  # classes of the true images, int64 (owners, images)
    candidates: Tensor  # other images, the same candidates for each true image, float32 (candidates, *shape)


def reconstructions_by_noise(
    update_function: UpdateFunction,
    targets: ImageTargets,
    images: PopulationImages,
    levels: Sequence[NoiseLevelGuarantee],
    draws: Callable[[int], np.random.Generator],
    descent: DescentSettings,
    on_step: Callable[[int], None],
) -> Iterator[NoiseLevelReconstructions]:
    """Yield, for each level of noise, the reconstructions by an attacker who knows all contributions but one.

    All rounds are computed at the same model parameters. So they carry the same signal, and their noise averages out.
    A server that sends the same parameters in every round is the strongest attacker that the guarantee covers.
    """
    updates = update_function.of_many(targets.pictures, targets.labels)
    images_per_update = targets.pictures.shape[1]
    true = targets.pictures.cpu().numpy()
    candidates = targets.candidates.cpu().numpy()
    for number, level in enumerate(levels):
        draw = draws(number)
        tensor = updates
        noise = 0.0
        if math.isfinite(level.mu):
            assert update_function.clipping_norm is not None, "noise has a clipping norm"
            noise = update_function.clipping_norm / level.mu
            normals = torch.from_numpy(draw.standard_normal(updates.shape, dtype=np.float32))
            tensor = updates + noise * normals.to(updates.device)
        reconstructed = (
            drawn_pictures(update_function, tensor, images_per_update, noise, images, draw, descent, on_step)
            .cpu()
            .numpy()
        )
        ordered = in_order_of_true_images(true, reconstructed).reshape(-1, *true.shape[2:])
        yield NoiseLevelReconstructions(
            level, ordered, image_similarity(true.reshape(ordered.shape), ordered, candidates), images_per_update
        )


def in_order_of_true_images(true: Floats32, reconstructed: Floats32) -> Floats32:
    """Return each owner's reconstructed images in the order of its true images, with the shape of `reconstructed`.

    An update does not reveal the order of its images. So each reconstruction is assigned to one true image, with the
    smallest sum of squared errors.

    Shapes: `true` (owners, images, *shape).
    """
    ordered = np.empty_like(reconstructed)
    for owner, (mine, theirs) in enumerate(zip(true, reconstructed, strict=True)):
        apart = np.square(mine[:, None] - theirs[None]).reshape(len(mine), len(theirs), -1).sum(axis=2)
        ordered[owner] = theirs[scipy.optimize.linear_sum_assignment(apart)[1]]
    return ordered


def image_similarity(true: Floats32, reconstructed: Floats32, population: Floats32) -> ReconstructionQuality:
    """Return the similarity of reconstructed to true images: PSNR, SSIM, and identification among candidates.

    Shapes: `true` (images, *shape), `population` (others, *shape).
    """
    shapes = {true.shape[1:], reconstructed.shape[1:], population.shape[1:]}
    alike = true.shape == reconstructed.shape and len(shapes) == 1
    shapes_text = f"{true.shape}, {reconstructed.shape} and {population.shape}"
    accepted = "drawings of each true picture, and others of their shape"
    require(alike, f"pictures have shapes {shapes_text}: accepted are {accepted}")
    error = np.square(true.astype(np.float64) - reconstructed).reshape(len(true), -1).mean(axis=1)
    with np.errstate(divide="ignore"):
        psnr = -10 * np.log10(error)
    pairs = [
        (prepare(first[None], _SSIM), prepare(second[None], _SSIM))
        for first, second in zip(true, reconstructed, strict=True)
    ]
    ssim = np.array([1 - exact_block(first, second, _SSIM)[0, 0] for first, second in pairs])
    # A reconstruction identifies its true image if no other image is nearer to it by squared error.
    flat, other_values = (array.reshape(len(array), -1).astype(np.float64) for array in (reconstructed, population))
    apart = np.square(flat).sum(1)[:, None] - 2 * flat @ other_values.T + np.square(other_values).sum(1)
    names = error * flat.shape[1] < apart.min(axis=1, initial=np.inf)
    return ReconstructionQuality(psnr, ssim, names, len(population) + 1)
