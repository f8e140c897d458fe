"""Large models in few numbers: what was released, along what differs and along public directions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fl_audit.arrays import Floats, Integers
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator

_PARTS = 12  # most tensors that are looked at by themselves; where there are more, neighbours are taken together
_PUBLIC = 16  # public random directions, which add up what lies in none of the other columns
_SHOWN = 64  # released values that are kept as they are: their low bits may tell


@dataclass(frozen=True)
class Sketch:
    """From vectors of all parameters to some forty numbers.

    The columns are, for every tensor, the part along the known difference; for every tensor, the sum of its values;
    and sums over random disjoint sets of parameters with random signs, each over the root of the number of its
    parameters. The first ones keep all that a Gaussian mechanism with a known difference tells.
    """

    parts: tuple[tuple[str, slice], ...]  # name and slice of every tensor, or of neighbouring ones together
    # `sets`, `signs`: to which set a parameter belongs and with which sign, shape (parameters,).
    sets: Integers
    signs: Floats
    shown: Integers  # places of the values that are kept, shape (at most 64,)

    @property
    def columns(self) -> tuple[tuple[str, slice], ...]:
        """Names and slices of the columns, as `Games.tensors`."""
        count = len(self.parts)
        along = [
            (f"{name}, along the difference", slice(place, place + 1)) for place, (name, _) in enumerate(self.parts)
        ]
        sums = ("the sums of its tensors", slice(count, 2 * count))
        return (*along, sums, ("its sums along public random directions", slice(2 * count, 2 * count + _PUBLIC)))

    def of_vectors(self, vectors: Floats, difference: Floats) -> Floats:
        """Return the sketch of vectors, shape (rounds, columns).

        Parameters
        ----------
        vectors, difference
            Shape (rounds, parameters), and what differs between D and D', likewise; zeros where it is not known.
        """
        products = [np.sum(vectors[:, part] * difference[:, part], axis=1) for _, part in self.parts]
        along = [
            np.divide(product, length, out=np.zeros(len(vectors)), where=length > 0)
            for product, length in zip(products, self._lengths(difference), strict=True)
        ]
        sums = [vectors[:, part].sum(axis=1) for _, part in self.parts]
        counts = np.maximum(np.bincount(self.sets, minlength=_PUBLIC), 1)
        public = [np.bincount(self.sets, self.signs * row, _PUBLIC) / np.sqrt(counts) for row in vectors]
        return np.concatenate([np.stack([*along, *sums], axis=1), np.stack(public)], axis=1)

    def of_difference(self, difference: Floats) -> Floats:
        """Return the difference in the coordinates of the sketch: its lengths in the columns that lie along it.

        So the product of a sketched vector with this one is the product of the vectors, (rounds, parameters).
        """
        found = np.zeros((len(difference), 2 * len(self.parts) + _PUBLIC))
        found[:, : len(self.parts)] = np.stack(self._lengths(difference), axis=1)
        return found

    def _lengths(self, difference: Floats) -> list[Floats]:
        return [np.linalg.norm(difference[:, part], axis=1) for _, part in self.parts]


def sketch(shapes: Mapping[str, tuple[int, ...]]) -> Sketch:
    """Return the sketch of models with such tensors; it is the same in every process.

    The tensors stand in the order in which they are flattened; there is at least one.

    Raises
    ------
    InputError
        If there is no parameter.
    """
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    require(sum(sizes) > 0, "a model without parameters cannot be watched: accepted is at least one")
    stops = np.cumsum(sizes)
    groups = np.array_split(np.arange(len(sizes)), min(_PARTS, len(sizes)))
    names = list(shapes)
    parts = tuple(
        (
            names[group[0]] if len(group) == 1 else f"{names[group[0]]} to {names[group[-1]]}",
            slice(int(stops[group[0]] - sizes[group[0]]), int(stops[group[-1]])),
        )
        for group in groups
    )
    total = int(stops[-1])
    draws = generator(0, Purpose.PUBLIC_DIRECTIONS, client=total)
    sets = draws.integers(_PUBLIC, size=total)
    signs = draws.choice([-1.0, 1.0], size=total)
    shown = np.sort(draws.choice(total, size=min(total, _SHOWN), replace=False))
    return Sketch(parts, sets, signs, shown)
