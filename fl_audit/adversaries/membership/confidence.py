"""What a model's outputs say of a record: its loss, and its confidence in the label on a near-normal scale.

Arrays whose shapes do not fit, and numbers out of their range, raise `InputError`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logsumexp

from fl_audit.arrays import Floats
from fl_audit.errors import require


def log_probabilities(logits: ArrayLike) -> Floats:
    """Return the logarithms of the softmax of logits.

    Parameters
    ----------
    logits
        Finite, shape (..., classes) with 2 classes or more. Log-probabilities are logits, too, and come back as they
        are.
    """
    return np.asarray(log_softmax(_checked(logits), axis=-1), dtype=np.float64)


def label_log_probability(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Return log p_y, the negative cross-entropy of each record, at most 0, shape (...).

    Parameters
    ----------
    logits, labels
        As for `scaled_confidence`.
    """
    values = log_probabilities(logits)
    return np.asarray(np.take_along_axis(values, _places(labels, values), axis=-1)[..., 0], dtype=np.float64)


def scaled_confidence(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Return phi = log p_y - log(1 - p_y), the confidence in the label on the scale of log-odds, shape (...).

    Source: Carlini et al. 2022, section VI-A. The sum over the other classes is taken in place of 1 - p_y, whose
    rounding would make every well learned record look the same: z_y - log sum over k != y of e^(z_k), which needs no
    softmax.

    Parameters
    ----------
    logits, labels
        As for `log_probabilities`; classes from 0, of a shape that broadcasts to that of the logits without its last
        axis.
    """
    values = _checked(logits)
    places = _places(labels, values)
    own = np.take_along_axis(values, places, axis=-1)
    others = values.copy()
    np.put_along_axis(others, places, -np.inf, axis=-1)
    return np.asarray(own[..., 0] - logsumexp(others, axis=-1), dtype=np.float64)


def _checked(logits: ArrayLike) -> Floats:
    """Return logits as float64, or refuse them."""
    values = np.asarray(logits, dtype=np.float64)
    accepted = values.ndim >= 1 and values.shape[-1] >= 2
    require(accepted, f"logits have shape {values.shape}: accepted are 2 or more classes on the last axis")
    require(bool(np.isfinite(values).all()), "logits contain NaN or infinity: accepted are finite numbers")
    return values


def _places(labels: ArrayLike, logits: Floats) -> NDArray[np.intp]:
    """Return the labels as indices of the last axis of logits, shape (..., 1), or refuse them."""
    found = np.asarray(labels)
    classes = logits.shape[-1]
    require(np.issubdtype(found.dtype, np.integer), f"labels are {found.dtype}: accepted are whole numbers")
    in_range = found.size == 0 or (found.min() >= 0 and found.max() < classes)
    require(in_range, f"labels lie outside 0 to {classes - 1}: accepted are the {classes} classes of the logits")
    try:
        wide = np.broadcast_to(found, logits.shape[:-1])
    except ValueError:
        require(False, f"labels have shape {found.shape}: accepted is {logits.shape[:-1]}, or what broadcasts to it")
    return np.asarray(wide[..., np.newaxis], dtype=np.intp)
