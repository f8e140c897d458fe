"""Losses of a model on examples, and the scores that normals are fitted to (Negoescu et al. 2023, appendix 8.1)."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.arrays import Floats
from fl_audit.errors import require

DEFAULT_SHIFT = 1.0
"""Added to the normalised losses. The published text is damaged where it names the constant: only "(=1)" is left."""


def _checked_losses(losses: ArrayLike, what: str, at_least: int = 2) -> Floats:
    """Return losses as float64, or refuse them."""
    values = np.asarray(losses, dtype=np.float64)
    enough = values.ndim >= 1 and values.shape[-1] >= at_least
    require(enough, f"{what} have shape {values.shape}: accepted are {at_least} or more losses")
    if values.size and not (values.min() >= 0 and values.max() < math.inf):
        wrong = values[~((values >= 0) & (values < math.inf))][0]
        require(False, f"{what} contain {wrong}: accepted are finite numbers from 0")
    return values


def checked_pair(member_losses: ArrayLike, population_losses: ArrayLike, at_least: int = 2) -> tuple[Floats, Floats]:
    """Return both sets of losses, shapes (..., m) and (..., p), or refuse them as `_checked_losses` does.

    Parameters
    ----------
    member_losses, population_losses
        One loss a record along the last axis.
    at_least
        How many losses each set must have.

    Raises
    ------
    InputError
        If a set is refused or the leading axes differ.
    """
    members = _checked_losses(member_losses, "member losses", at_least)
    population = _checked_losses(population_losses, "population losses", at_least)
    require(
        members.shape[:-1] == population.shape[:-1],
        f"member losses have leading axes {members.shape[:-1]}: accepted are {population.shape[:-1]}, the population's",
    )
    return members, population


def loss_scores(losses: ArrayLike, low: ArrayLike, high: ArrayLike, shift: float = DEFAULT_SHIFT) -> Floats:
    """Return the scores that normals are fitted to: logit(exp(-(normalised loss + shift))), appendix 8.1.

    Parameters
    ----------
    losses
        At least 0, finite, shape (..., n).
    low
        Smallest loss of members and population together, shape (...). Where it equals `high` every loss normalises to
        0.
    high
        Largest loss of members and population together, shape (...).
    shift
        Positive; it keeps the exponential below 1, where the logit would be infinite.

    Returns
    -------
    array
        Scores -log(exp(y) - 1) of y = normalised loss + shift, shape (..., n). Smaller losses have larger scores.

    Raises
    ------
    InputError
        If a loss is negative, not finite or outside low to high, or the shift is not positive.
    """
    require(shift > 0 and math.isfinite(shift), f"shift is {shift}: accepted are positive finite numbers")
    values = _checked_losses(losses, "losses")
    bottom, top = np.asarray(low, dtype=np.float64)[..., None], np.asarray(high, dtype=np.float64)[..., None]
    within = bool(np.all((values >= bottom) & (values <= top)))
    require(within, "a loss lies outside low to high: accepted are losses within")
    span = top - bottom
    shifted = (values - bottom) / np.where(span > 0, span, 1.0) + shift
    return np.asarray(-(shifted + np.log(-np.expm1(-shifted))), dtype=np.float64)


def scores_of_pair(
    member_losses: Floats, population_losses: Floats, shift: float = DEFAULT_SHIFT
) -> tuple[Floats, Floats]:
    """Return the scores of both sets, normalised by the extremes of both together.

    Parameters
    ----------
    member_losses
        Losses on training records as `checked_pair` returns them, shape (..., m).
    population_losses
        Losses on a sample of the population as `checked_pair` returns them, shape (..., p).
    shift
        As for `loss_scores`.
    """
    low = np.minimum(member_losses.min(axis=-1), population_losses.min(axis=-1))
    high = np.maximum(member_losses.max(axis=-1), population_losses.max(axis=-1))
    return loss_scores(member_losses, low, high, shift), loss_scores(population_losses, low, high, shift)
