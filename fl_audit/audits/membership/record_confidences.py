"""Losses and confidences of models on records, and variations of records for further queries.

A query is a record that the model has not seen, close to one that it may have seen. The queries are fixed and public:
images are mirrored and shifted, and in a row of a table some columns are replaced by those of public records.

Arrays whose shapes do not match, and numbers out of their range, raise `InputError`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logsumexp
from torch import Tensor

from fl_audit.array_types import Floats, Floats32
from fl_audit.data.records import ColumnPosition, LoadedDataset
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator


def log_probabilities(logits: ArrayLike) -> Floats:
    """Return the logarithms of the softmax of logits.

    Parameters
    ----------
    logits
        Logits of the records, finite, shape (..., classes) with 2 classes or more. Log-probabilities are logits too,
        and are returned unchanged.
    """
    return np.asarray(log_softmax(_checked(logits), axis=-1), dtype=np.float64)


def label_log_probability(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Return log p_y, the negative cross-entropy of each record, at most 0, shape (...).

    Parameters
    ----------
    logits
        Logits of the records, as for `scaled_confidence`.
    labels
        Class of each record, as for `scaled_confidence`.
    """
    values = log_probabilities(logits)
    return np.asarray(np.take_along_axis(values, _places(labels, values), axis=-1)[..., 0], dtype=np.float64)


def scaled_confidence(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Return phi = log p_y - log(1 - p_y), the confidence in the label on the scale of log-odds, shape (...).

    Source: Carlini et al. 2022, section VI-A. It is computed as z_y - log sum over k != y of e^(z_k), without softmax,
    because the rounding of 1 - p_y would make all records that are learned well look the same.

    Parameters
    ----------
    logits
        Logits of the records, shape (..., classes), as for `log_probabilities`.
    labels
        Class of each record, from 0, of a shape that broadcasts to that of the logits without its last axis.
    """
    values = _checked(logits)
    places, others = _places(labels, values), values.copy()
    np.put_along_axis(others, places, -np.inf, axis=-1)
    own = np.take_along_axis(values, places, axis=-1)[..., 0]
    return np.asarray(own - logsumexp(others, axis=-1), dtype=np.float64)


def _checked(logits: ArrayLike) -> Floats:
    """Return logits as float64, or raise `InputError`."""
    values = np.asarray(logits, dtype=np.float64)
    accepted = values.ndim >= 1 and values.shape[-1] >= 2
    require(accepted, f"logits have shape {values.shape}: accepted are 2 or more classes on the last axis")
    require(bool(np.isfinite(values).all()), "logits contain NaN or infinity: accepted are finite numbers")
    return values


def _places(labels: ArrayLike, logits: Floats) -> NDArray[np.intp]:
    """Return the labels as indices of the last axis of logits, shape (..., 1); `InputError` if they do not fit."""
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


_REACH = 2  # pixels by which an image is moved at most
_IMAGE_QUERIES = 2 * (2 * _REACH + 1) ** 2
_RESAMPLED = 0.05  # share of the columns of a row that a query takes from elsewhere


@dataclass(frozen=True)
class ShiftedImages:
    """Queries about images, which are shifted by up to two pixels up, down, left and right, and mirrored."""

    shape: tuple[int, ...]  # shape of one image, height and width last

    def asked(self, features: Tensor, number: int) -> Iterator[Tensor]:
        """Yield the images unchanged, then mirrored, and then shifted, smallest shifts first, each plain and mirrored.

        Parameters
        ----------
        features
            Features of the images, shape (n, features) or (n, *shape); the images that are yielded have the same shape.
            Pixels that move in are 0.
        number
            Number of queries for each image, from 1 to 50.
        """
        images, steps = features.reshape(len(features), *self.shape), range(-_REACH, _REACH + 1)
        ways = sorted(product(steps, steps), key=lambda way: (abs(way[0]) + abs(way[1]), way))
        for (down, right), is_mirrored in islice(product(ways, (False, True)), number):
            moved = _moved(_moved(images, down, -2), right, -1)
            yield (moved.flip(-1) if is_mirrored else moved).reshape(features.shape)


def _moved(images: Tensor, steps: int, axis: int) -> Tensor:
    """Return images moved along an axis, with zeros at the free edge."""
    if steps == 0:
        return images
    moved, size = images.roll(steps, axis), images.shape[axis]
    moved.narrow(axis, 0 if steps > 0 else size + steps, abs(steps)).zero_()
    return moved


@dataclass(frozen=True, eq=False)
class ResampledColumns:
    """Queries about rows of a table, in which 5 % of the columns, at least one, get the values of a public record."""

    columns: tuple[ColumnPosition, ...]  # the columns of the table
    donors: Floats32  # features of public records, shape (m, features)
    seed: int  # public seed, of which columns and donors are drawn

    def asked(self, features: Tensor, number: int) -> Iterator[Tensor]:
        """Yield the rows unchanged, and then with randomly chosen columns replaced, anew in every query.

        Parameters
        ----------
        features
            Features of the rows, shape (n, features).
        number
            Number of queries for each row, at least 1.
        """
        yield features
        few = max(1, round(_RESAMPLED * len(self.columns)))
        for query in range(1, number):
            draw = generator(self.seed, Purpose.TARGET_QUERIES, round=query)
            chosen = draw.permuted(np.tile(np.arange(len(self.columns)) < few, (len(features), 1)), axis=1)
            replaced = np.repeat(chosen, [column.width for column in self.columns], axis=1)
            donors = torch.from_numpy(self.donors[draw.integers(len(self.donors), size=len(features))])
            yield torch.where(torch.from_numpy(replaced).to(features.device), donors.to(features.device), features)


Queries = ShiftedImages | ResampledColumns


def queries_for(source: LoadedDataset, public: Floats32, seed: int, number: int) -> Queries:
    """Return the method by which records of a data set are varied for further queries.

    Raises `InputError` if records of this kind cannot be varied, or not in so many ways.

    Parameters
    ----------
    source
        The data set.
    public
        Features of at least one record on which no model is trained.
    seed
        Public seed of the values with which columns are filled.
    number
        Number of queries for each record.
    """
    if (shape := source.image_shape) is not None:
        accepted = f"accepted are 1 to {_IMAGE_QUERIES}: images are moved by up to {_REACH} pixels and mirrored"
        require(number <= _IMAGE_QUERIES, f"queries is {number}: {accepted}")
        return ShiftedImages(shape)
    found = f"queries is {number} and records of {source.name} are {source.kind}"
    require(source.is_table, f"{found}: accepted are images and tables; leave queries out")
    return ResampledColumns(source.table_columns, public, seed)
