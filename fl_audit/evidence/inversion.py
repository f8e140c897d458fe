"""How close drawn pictures come to the true ones: PSNR, SSIM, and how often the drawing names the true picture."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from fl_audit.arrays import Flags, Floats, Floats32
from fl_audit.data.structural import patches_of, structural_dissimilarity
from fl_audit.errors import require

WORST = 0.01
"""Share of the pictures that are told beside the mean: those that were drawn best."""


@dataclass(frozen=True)
class Likeness:
    """How close each picture was drawn.

    Parameters
    ----------
    psnr
        Peak signal-to-noise ratio in dB, over a range of 1, (pictures,); infinite where they are equal.
    ssim
        Structural similarity, at most 1, (pictures,).
    named
        Whether the nearest of the candidates is the true picture, (pictures,).
    candidates
        How many pictures the true one was among.
    """

    psnr: Floats
    ssim: Floats
    named: Flags
    candidates: int

    def worst(self, values: Floats) -> float:
        """Return the mean of the `WORST` share of pictures that were drawn best, of at least one: their owners' loss.

        Parameters
        ----------
        values
            Of each picture, larger for closer drawings.
        """
        return float(np.sort(values)[-max(1, round(WORST * len(values))) :].mean())


def matched(true: Floats32, drawn: Floats32) -> Floats32:
    """Return drawn pictures in the order of the true ones: an update says nothing of the order of its records.

    Parameters
    ----------
    true, drawn
        (owners, pictures, *shape); an owner's are assigned to each other by least squared error.
    """
    found = np.empty_like(drawn)
    for owner, (mine, theirs) in enumerate(zip(true, drawn, strict=True)):
        apart = np.square(mine[:, None] - theirs[None]).reshape(len(mine), len(theirs), -1).sum(axis=2)
        found[owner] = theirs[linear_sum_assignment(apart)[1]]
    return found


def likeness(true: Floats32, drawn: Floats32, population: Floats32) -> Likeness:
    """Return how close pictures were drawn.

    Parameters
    ----------
    true, drawn
        Pixels from 0 to 1, (pictures, *shape), the last two axes height and width.
    population
        Other pictures, (others, *shape), among which the true one is to be found.

    Raises
    ------
    InputError
        If shapes differ.
    """
    shapes = {true.shape[1:], drawn.shape[1:], population.shape[1:]}
    require(
        true.shape == drawn.shape and len(shapes) == 1,
        f"pictures have shapes {true.shape}, {drawn.shape} and {population.shape}: accepted are drawings of each true "
        "picture, and others of their shape",
    )
    error = np.square(true.astype(np.float64) - drawn).reshape(len(true), -1).mean(axis=1)
    with np.errstate(divide="ignore"):
        psnr = -10 * np.log10(error)
    ssim = np.array(
        [
            1 - structural_dissimilarity(patches_of(one[None]), patches_of(other[None]))[0, 0]
            for one, other in zip(true, drawn, strict=True)
        ]
    )
    return Likeness(psnr, ssim, _named(drawn, error, population), len(population) + 1)


def _named(drawn: Floats32, error: Floats, population: Floats32) -> Flags:
    """Return which drawings are nearer to their own picture than to every other one, by squared error."""
    flat, others = (np.float64(one.reshape(len(one), -1)) for one in (drawn, population))
    apart = np.square(flat).sum(1)[:, None] - 2 * flat @ others.T + np.square(others).sum(1)
    named: Flags = error * flat.shape[1] < apart.min(axis=1, initial=np.inf)
    return named
