"""Vary records for further queries about them.

A query is a record on which an attacker evaluates a model, close to the record in question. The queries are fixed and
public: images are mirrored and shifted, and in a table row some columns are replaced by those of public records.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Floats32
from fl_audit.data.loaded_dataset import ColumnPosition, LoadedDataset
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator

_REACH = 2  # largest number of pixels by which an image is shifted
_IMAGE_QUERIES = 2 * (2 * _REACH + 1) ** 2
_RESAMPLED = 0.05  # share of the columns of a table row that a query replaces


@dataclass(frozen=True)
class ShiftedImages:
    """Queries about variants of an image, which is mirrored and shifted by up to two pixels."""

    shape: tuple[int, ...]  # shape of one image, height and width last

    def variants(self, features: Tensor, number: int) -> Iterator[Tensor]:
        """Yield variants of all images: unchanged, mirrored, and then shifted, each shift plain and mirrored.

        Smaller shifts come first. Pixels that move in are 0.

        Shapes: `features` (n, features).

        `features`: Each variant has the same shape.
        """
        images, steps = features.reshape(len(features), *self.shape), range(-_REACH, _REACH + 1)
        ways = sorted(product(steps, steps), key=lambda way: (abs(way[0]) + abs(way[1]), way))
        for (down, right), is_mirrored in islice(product(ways, (False, True)), number):
            moved = _moved(_moved(images, down, -2), right, -1)
            yield (moved.flip(-1) if is_mirrored else moved).reshape(features.shape)


def _moved(images: Tensor, steps: int, axis: int) -> Tensor:
    """Return images shifted by `steps` pixels along an axis, with zeros at the free edge."""
    if steps == 0:
        return images
    moved, size = images.roll(steps, axis), images.shape[axis]
    moved.narrow(axis, 0 if steps > 0 else size + steps, abs(steps)).zero_()
    return moved


@dataclass(frozen=True, eq=False)
class ResampledColumns:
    """Queries about variants of table rows: in each variant, 5 % of the columns have values of a public record.

    At least one column is replaced.
    """

    columns: tuple[ColumnPosition, ...]  # the columns of the table
    donors: Floats32  # features of public records that provide the values, shape (m, features)
    seed: int  # public seed, from which the replaced columns and the public records are drawn

    def variants(self, features: Tensor, number: int) -> Iterator[Tensor]:
        """Yield variants of all rows: first unchanged, then with the values of some columns replaced.

        For each further variant and each row, the replaced columns and another record, which gives the values, are
        drawn.

        Shapes: `features` (n, features).

        `features`: Each variant has the same shape.
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
    """Return the rule by which records of a data set are varied for further queries to a model.

    Images are shifted and mirrored. In rows of a table, some columns are replaced by those of public records.

    Raises `InputError` if the records are neither images nor table rows, or if an image has fewer variants than
    `number`.

    Shapes: `public` (m, features).
    """
    if (shape := source.image_shape) is not None:
        accepted = f"accepted are 1 to {_IMAGE_QUERIES}: images are moved by up to {_REACH} pixels and mirrored"
        require(number <= _IMAGE_QUERIES, f"queries is {number}: {accepted}")
        return ShiftedImages(shape)
    found = f"queries is {number} and records of {source.name} are {source.kind}"
    require(source.is_table, f"{found}: accepted are images and tables; leave queries out")
    return ResampledColumns(source.table_columns, public, seed)
