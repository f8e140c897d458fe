"""Losses of a model on examples, and the scores that normals are fitted to (Negoescu et al. 2023, appendix 8.1).

The losses are those of the paper's first footnote: the cross-entropy of a binary and of a multi-class classifier.
Computed from logits they stay finite and exact, however sure the model is. Computed from probabilities, the loss of a
true label with probability 0 is infinite; it is refused.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from fl_audit.arrays import Floats, Integers
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
    low, high
        Smallest and largest loss of members and population together, shape (...). Where they are equal every loss
        normalises to 0.
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
    member_losses, population_losses
        Losses as `checked_pair` returns them, shapes (..., m) and (..., p).
    shift
        As for `loss_scores`.
    """
    low = np.minimum(member_losses.min(axis=-1), population_losses.min(axis=-1))
    high = np.maximum(member_losses.max(axis=-1), population_losses.max(axis=-1))
    return loss_scores(member_losses, low, high, shift), loss_scores(population_losses, low, high, shift)


def binary_losses(outputs: ArrayLike, labels: ArrayLike, logits: bool = False) -> Floats:
    """Return the cross-entropy losses of a binary classifier: -log f for label 1, -log(1 - f) for label 0.

    Parameters
    ----------
    outputs
        Probabilities of label 1 in [0, 1], or their logits; shape (..., n).
    labels
        0 or 1, shape (..., n).
    logits
        Whether `outputs` are logits.

    Raises
    ------
    InputError
        If shapes differ, an output or label is out of its range, or a true label has probability 0.

    Examples
    --------
    >>> binary_losses([0.5, 0.75], [1, 0]).round(3)
    array([0.693, 1.386])
    """
    values, truth = np.asarray(outputs, dtype=np.float64), _labels(labels, 2)
    require(values.shape == truth.shape, f"labels have shape {truth.shape}: accepted is {values.shape}, the outputs'")
    _check_outputs(values, logits)
    if logits:
        return np.asarray(np.logaddexp(0.0, np.where(truth == 1, -values, values)), dtype=np.float64)
    with np.errstate(divide="ignore"):
        return _finite(np.where(truth == 1, -np.log(values), -np.log1p(-values)))


def class_losses(outputs: ArrayLike, labels: ArrayLike, logits: bool = False) -> Floats:
    """Return the cross-entropy losses of a multi-class classifier: -log of the probability of the true class.

    Parameters
    ----------
    outputs
        Probabilities in [0, 1] that sum to 1 over the last axis, or logits; shape (..., n, classes).
    labels
        Whole numbers from 0 to classes - 1, shape (..., n).
    logits
        Whether `outputs` are logits.

    Raises
    ------
    InputError
        If shapes do not fit, an output or label is out of its range, or a true class has probability 0.

    Examples
    --------
    >>> class_losses([[0.25, 0.75], [0.5, 0.5]], [0, 1]).round(3)
    array([1.386, 0.693])
    """
    values = np.asarray(outputs, dtype=np.float64)
    require(values.ndim >= 2 and values.shape[-1] >= 2, f"outputs have shape {values.shape}: accepted is (n, classes)")
    truth = _labels(labels, values.shape[-1])
    fits = values.shape[:-1] == truth.shape
    require(fits, f"labels have shape {truth.shape}: accepted is {values.shape[:-1]}, the outputs' without classes")
    _check_outputs(values, logits)
    if logits:
        logs = np.asarray(log_softmax(values, axis=-1), dtype=np.float64)
    else:
        sums = values.sum(axis=-1)
        whole = bool(np.all(np.abs(sums - 1) < 1e-4))
        require(whole, "probabilities of an example do not sum to 1: accepted are sums within 1e-4 of it")
        with np.errstate(divide="ignore"):
            logs = np.log(values)
    return _finite(-np.take_along_axis(logs, truth[..., None], axis=-1)[..., 0])


def _labels(labels: ArrayLike, classes: int) -> Integers:
    values = np.asarray(labels)
    accepted = f"accepted are whole numbers from 0 to {classes - 1}"
    require(values.dtype.kind in "iub", f"labels are of type {values.dtype}: {accepted}")
    wrong = values[(values < 0) | (values >= classes)] if values.dtype.kind != "b" else values[:0]
    require(wrong.size == 0, f"labels contain {wrong[:1]}: {accepted}")
    return values.astype(np.int64)


def _check_outputs(values: Floats, logits: bool) -> None:
    if logits:
        require(bool(np.all(np.isfinite(values))), "a logit is NaN or infinite: accepted are finite numbers")
    else:
        inside = bool(np.all((values >= 0) & (values <= 1)))
        require(inside, "an output is no probability: accepted are numbers from 0 to 1, or logits with logits=True")


def _finite(losses: Floats) -> Floats:
    certain = bool(np.all(np.isfinite(losses)))
    require(certain, "a true label has probability 0, its loss is infinite: accepted are positive ones, or logits")
    return np.asarray(losses + 0.0, dtype=np.float64)
