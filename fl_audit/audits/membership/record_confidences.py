"""Compute log-probabilities and confidences of models on records.

Functions raise `InputError` if shapes do not match or numbers are out of range.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logsumexp

from fl_audit.array_types import Floats, Labels
from fl_audit.errors import require


def log_probabilities(logits: ArrayLike) -> Floats:
    """Return the logarithms of the softmax of logits over the last axis, in the shape of `logits`.

    `logits`: Log-probabilities are logits too, and are returned unchanged.
    """
    return np.asarray(log_softmax(_checked(logits), axis=-1), dtype=np.float64)


def label_scores(outputs: Floats, labels: Labels) -> dict[str, Floats]:
    """Return what membership attacks take from a model's outputs on records: `log_probability` and `confidence`.

    For classes these are `label_log_probability` and `scaled_confidence`. For quantities the first is the negative
    squared error, the log-density of a normal distribution up to scale and a constant; the second is the error with its
    sign, which is nearly normal over models.

    Shapes: `outputs` (..., n, classes), or (..., n, 1) of quantities; `labels` (n,).
    """
    if labels.dtype.kind == "f":
        errors = np.asarray(outputs[..., 0] - labels, dtype=np.float64)
        return {"log_probability": -(errors**2), "confidence": errors}
    return {"log_probability": label_log_probability(outputs, labels), "confidence": scaled_confidence(outputs, labels)}


def label_log_probability(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the log-probability of each record's label, log p_y, at most 0, shape (...).

    It is the negative cross-entropy.
    """
    values = log_probabilities(logits)
    return np.asarray(np.take_along_axis(values, _places(labels, values), axis=-1)[..., 0], dtype=np.float64)


def scaled_confidence(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the confidence in each record's label on the scale of log-odds, phi = log p_y - log(1 - p_y), shape (...).

    Source: Carlini et al. 2022, section VI-A. It is computed as z_y - log sum over k != y of e^(z_k) from the logits z,
    without softmax, because 1 - p_y would round to 0 for all records that are learned well.

    `labels`: The shape must broadcast to the shape of `logits` without the last axis.
    """
    values = _checked(logits)
    label_indices = _places(labels, values)
    other_values = values.copy()
    np.put_along_axis(other_values, label_indices, -np.inf, axis=-1)
    label_values = np.take_along_axis(values, label_indices, axis=-1)[..., 0]
    return np.asarray(label_values - logsumexp(other_values, axis=-1), dtype=np.float64)


def _checked(logits: ArrayLike) -> Floats:
    """Return logits as float64; raise `InputError` if they are not finite or have fewer than 2 classes."""
    values = np.asarray(logits, dtype=np.float64)
    accepted = values.ndim >= 1 and values.shape[-1] >= 2
    require(accepted, f"logits have shape {values.shape}: accepted are 2 or more classes on the last axis")
    require(bool(np.isfinite(values).all()), "logits contain NaN or infinity: accepted are finite numbers")
    return values


def _places(labels: ArrayLike, logits: Floats) -> NDArray[np.intp]:
    """Return the labels as indices of the last axis of logits, (..., 1); raise `InputError` if they do not fit."""
    array = np.asarray(labels)
    classes = logits.shape[-1]
    require(np.issubdtype(array.dtype, np.integer), f"labels are {array.dtype}: accepted are whole numbers")
    in_range = array.size == 0 or (array.min() >= 0 and array.max() < classes)
    require(in_range, f"labels lie outside 0 to {classes - 1}: accepted are the {classes} classes of the logits")
    try:
        wide = np.broadcast_to(array, logits.shape[:-1])
    except ValueError:
        require(False, f"labels have shape {array.shape}: accepted is {logits.shape[:-1]}, or what broadcasts to it")
    return np.asarray(wide[..., np.newaxis], dtype=np.intp)
