"""The noise meter: what the insider sees of the noise itself, whatever the secret bit.

The insider knows both sums that a release can be made of, so all of the release but its part along their difference is
noise that it can measure. With e = r - (f(D) + f(D'))/2 and u the unit vector of f(D) - f(D'), the part
w = e - <e, u> u has the law N(0, sigma^2 (I - uu')) under either hypothesis. What is returned are sums and a few
projections, never vectors.

Formal guarantees. Where a release is the sum of D or of D' plus fresh N(0, sigma^2 I), given all that came before:

* `total` / sigma^2 is chi-square with `total_freedom` degrees;
* `squares` / sigma^2 of one tensor is chi-square with its `freedom` degrees. A tensor's part of w has one direction of
  smaller variance, 1 - ||u_g||^2, along u_g; it is brought to variance 1, or left out where u lies almost wholly in the
  tensor. Sums of different tensors are slightly dependent;
* `projections` / sigma are independent N(0, 1), over directions, rounds and worlds;
* `gradient` / sigma is N(0, 1), independent over rounds and worlds;
* `low_bits` of the true hypothesis has mean 0 and variance `low_bits_count` / 2.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning.layout import ParameterLayout
from fl_audit.mechanisms.weighing import Comparison

if TYPE_CHECKING:
    import pandas as pd

LOW_BITS_KINDS = ("noise", "standard-noise", "release")
"""What may have been rounded to half precision: the noise, its standard normal draws, or the release."""

_LEAST_VARIANCE = 0.01
"""Share of the variance that u must leave along u_g for that direction to be counted: below it rounding shows."""

_LOW_BITS_COORDINATES = 16
_SIGNIFICANT = 2.0**11
"""Half precision has 11 significant bits: with a mantissa in [1/2, 1), such numbers are whole multiples of 2^-11."""


@dataclass(frozen=True)
class Residuals:
    """What the insider measured, of one round (worlds, ...) or of a run (worlds, rounds, ...).

    Parameters
    ----------
    tensors
        Names of the model's parameter tensors.
    total
        ||w||^2, float64 (...,).
    total_freedom
        P - 1, or P in a round in which D and D' do not differ; int64 (...,).
    squares, freedom
        The same of each tensor, standardised, float64 and int64 (..., tensors). A tensor of one scalar may have 0.
    projections
        Noise along fixed public directions, whitened against u, float64 (..., directions).
    gradient
        Noise along the sum of the contributions that D and D' share, orthogonal to u, float64 (...,); NaN where that
        sum is 0.
    low_bits
        Sum of cos(2 pi phase) of the bits below half precision, float64 (..., 2, kinds): under D, then under D'. NaN
        where it is not offered.
    low_bits_count
        Coordinates in that sum, int64 (..., 2, kinds).
    """

    tensors: tuple[str, ...]
    total: NDArray[np.float64]
    total_freedom: NDArray[np.int64]
    squares: NDArray[np.float64]
    freedom: NDArray[np.int64]
    projections: NDArray[np.float64]
    gradient: NDArray[np.float64]
    low_bits: NDArray[np.float64]
    low_bits_count: NDArray[np.int64]

    @property
    def sigma(self) -> NDArray[np.float64]:
        """The measured noise standard deviation (...,); NaN where nothing could be measured."""
        variance: NDArray[np.float64] = np.full(self.total.shape, np.nan)
        np.divide(self.total, self.total_freedom, out=variance, where=self.total_freedom > 0)
        deviation: NDArray[np.float64] = np.sqrt(variance)
        return deviation

    def of_recovered(self, blurred: NDArray[np.bool_]) -> "Residuals":
        """Return what is left where releases were recovered from models: no low bits, and nothing of blurred worlds.

        Parameters
        ----------
        blurred
            Whether rounding hides the noise of a world, (worlds,): its sums of squares have no degree of freedom, its
            projections are NaN.
        """
        kept, column = ~blurred, ~blurred[:, None]
        return replace(
            self,
            total=self.total * kept,
            total_freedom=self.total_freedom * kept,
            squares=self.squares * column,
            freedom=self.freedom * column,
            projections=np.where(column, self.projections, np.nan),
            gradient=np.where(kept, self.gradient, np.nan),
            low_bits=np.full_like(self.low_bits, np.nan),
            low_bits_count=np.zeros_like(self.low_bits_count),
        )

    def as_array(self) -> NDArray[np.float64]:
        """Return everything as one array (..., columns), in the order of `column_names`."""
        leading = self.total.shape
        parts = [self.total, self.total_freedom, self.gradient, self.squares, self.freedom, self.projections]
        parts += [self.low_bits, self.low_bits_count]
        return np.concatenate([np.reshape(part, (*leading, -1)).astype(np.float64) for part in parts], axis=-1)

    @staticmethod
    def of_array(values: NDArray[np.float64], names: tuple[str, ...]) -> "Residuals":
        """Return what `as_array` wrote.

        Parameters
        ----------
        values
            Float64 (..., columns).
        names
            Names of the columns, as `column_names` gives them.
        """
        tensors = tuple(name.partition(":")[2] for name in names if name.startswith("squares:"))
        kinds = 2 * len(LOW_BITS_KINDS)
        sizes = (1, 1, 1, len(tensors), len(tensors), values.shape[-1] - 3 - 2 * len(tensors) - 2 * kinds, kinds, kinds)
        parts = np.split(values, np.cumsum(sizes)[:-1], axis=-1)
        total, total_freedom, gradient, squares, freedom, projections, low_bits, counted = parts
        table = (*values.shape[:-1], 2, len(LOW_BITS_KINDS))
        return Residuals(
            tensors=tensors,
            total=total[..., 0],
            total_freedom=total_freedom[..., 0].astype(np.int64),
            squares=squares,
            freedom=freedom.astype(np.int64),
            projections=projections,
            gradient=gradient[..., 0],
            low_bits=low_bits.reshape(table),
            low_bits_count=counted.reshape(table).astype(np.int64),
        )

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Return everything as named columns, each of the leading shape (...,); see `of_table`."""
        names, values = column_names(self.tensors, self.projections.shape[-1]), self.as_array()
        return {name: values[..., index] for index, name in enumerate(names)}

    @staticmethod
    def of_table(table: "pd.DataFrame") -> "Residuals":
        """Return the residuals (worlds, rounds, ...) that a table of a run holds, a row a world and round.

        Raises
        ------
        InputError
            If a column is missing.
        """
        tensors = tuple(name.partition(":")[2] for name in map(str, table) if name.startswith("squares:"))
        directions = sum(name.startswith("projection:") for name in map(str, table))
        names = column_names(tensors, directions)
        missing = [name for name in names if name not in table]
        require(not missing, f"the table of residuals lacks {', '.join(missing)}: it is that of a run with the insider")
        values = table.sort_values(["world", "round"])[list(names)].to_numpy(dtype=np.float64)
        return Residuals.of_array(values.reshape(int(table["world"].nunique()), -1, len(names)), names)


def column_names(tensors: tuple[str, ...], directions: int) -> tuple[str, ...]:
    """Return the names of the columns of residuals, for the parameter tensors and a number of directions."""
    sides = [f"{name}:{side}" for side in ("D", "D'") for name in LOW_BITS_KINDS]
    return (
        *("total", "total_freedom", "gradient"),
        *(f"squares:{name}" for name in tensors),
        *(f"freedom:{name}" for name in tensors),
        *(f"projection:{index:02d}" for index in range(directions)),
        *(f"low_bits:{side}" for side in sides),
        *(f"low_bits_count:{side}" for side in sides),
    )


def join(parts: list[Residuals], axis: int) -> Residuals:
    """Return residuals joined along worlds (`axis` 0), or rounds of the same worlds stacked (`axis` 1)."""
    combine = np.concatenate if axis == 0 else np.stack
    arrays = {
        field.name: combine([getattr(part, field.name) for part in parts], axis=axis)
        for field in fields(Residuals)
        if field.name != "tensors"
    }
    return Residuals(parts[0].tensors, **arrays)


@dataclass(frozen=True)
class Meter:
    """What noise is measured against.

    Parameters
    ----------
    layout
        Where the parameter tensors stand.
    directions
        Orthonormal public directions, float32 (coordinates, J), on coordinates that are evenly spread over the
        parameters.
    """

    layout: ParameterLayout
    directions: Tensor

    def measure(self, seen: Comparison, sigma: Tensor, distance: Tensor) -> Residuals:
        """Return the residuals of one round in some worlds.

        Parameters
        ----------
        seen
            The releases beside both hypotheses, float64 (worlds, parameters).
        sigma
            The noise standard deviation that the law names, float64 (worlds,).
        distance
            ||f(D) - f(D')||, float64 (worlds,); where it is 0 there is no direction u.
        """
        residual, difference = seen.residual, seen.difference
        inverse = torch.where(distance > 0, 1 / distance, 0.0)
        columns = self.layout.slices().values()
        # Each tensor's part of <e, e>, <e, u> and <u, u>, (worlds, tensors).
        power, towards, share = (
            torch.stack([_dot(one[:, part], other[:, part]) for part in columns], dim=1)
            for one, other in ((residual, residual), (residual, difference), (difference, difference))
        )
        towards, share = towards * inverse.unsqueeze(1), share * inverse.square().unsqueeze(1)
        along = towards.sum(dim=1)
        squares, freedom = self._by_tensor(power, towards, share, along)
        low_bits, counted = _low_bits(seen, sigma)
        differs = (distance > 0).long()
        found = {
            # Without any noise, rounding leaves less than nothing.
            "total": (power.sum(dim=1) - along.square()).clamp(min=0.0),
            "total_freedom": residual.shape[1] - differs,
            "squares": squares,
            "freedom": freedom,
            "projections": self._projections(residual, difference, along, inverse),
            "gradient": _along_shared(seen.shared, residual, difference, along, inverse),
            "low_bits": low_bits,
            "low_bits_count": counted,
        }
        return Residuals(self.layout.names, **{name: value.cpu().numpy() for name, value in found.items()})

    def _by_tensor(self, power: Tensor, towards: Tensor, share: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
        """Return the standardised sums of squares of each tensor, and their degrees of freedom, (worlds, tensors).

        Parameters
        ----------
        power, towards, share
            <e_g, e_g>, <e_g, u_g> and <u_g, u_g> of each tensor g, (worlds, tensors).
        along
            <e, u>, (worlds,).
        """
        sizes = torch.tensor([part.stop - part.start for part in self.layout.slices().values()], device=power.device)
        own = torch.where(share > 0, towards.square() / share, 0.0)
        left = 1 - share
        counts = (share > 0) & (left >= _LEAST_VARIANCE)
        missed = (own.sqrt() * towards.sign() - along.unsqueeze(1) * share.sqrt()).square() / left
        squares = (power - own).clamp(min=0.0) + torch.where(counts, missed, 0.0)
        return squares, sizes - ((share > 0) & ~counts).long()

    def _projections(self, residual: Tensor, difference: Tensor, along: Tensor, inverse: Tensor) -> Tensor:
        """Return V'w whitened, (worlds, J): its covariance is sigma^2 (I - bb'), b = V'u."""
        raw = self._spread(residual).float() @ self.directions
        towards = (self._spread(difference).float() @ self.directions).double() * inverse.unsqueeze(1)
        seen = raw.double() - along.unsqueeze(1) * towards
        stretch = (1 - _dot(towards, towards)).clamp(min=1e-12).rsqrt()
        # (I - bb')^(-1/2) = I + bb' t^2 / (1 + t), with t = (1 - b'b)^(-1/2)
        factor = _dot(towards, seen) * stretch.square() / (1 + stretch)
        return seen + factor.unsqueeze(1) * towards

    def _spread(self, vectors: Tensor) -> Tensor:
        """Return the coordinates on which the public directions live."""
        size, few = vectors.shape[1], len(self.directions)
        return (
            vectors if few == size else vectors[:, torch.arange(few, device=vectors.device) * (size - 1) // (few - 1)]
        )


def _along_shared(shared: Tensor, residual: Tensor, difference: Tensor, along: Tensor, inverse: Tensor) -> Tensor:
    """Return w along the part of the shared sum that is orthogonal to u, (worlds,)."""
    towards = _dot(shared, difference) * inverse
    size = _dot(shared, shared)
    left = size - towards.square()
    usable = left > 1e-6 * size
    value = (_dot(shared, residual) - towards * along) / left.clamp(min=1e-300).sqrt()
    return torch.where(usable, value, math.nan)


def _low_bits(seen: Comparison, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums of cos(2 pi phase) of the bits below half precision, and counts, both (worlds, 2, kinds).

    A coordinate counts where float32 rounding of sums and release leaves these bits alone, and where the noise is wide
    enough for them to be uniform; the limits stand at powers of two, so that no step of the grid is cut.
    """
    some = slice(None, None, max(1, seen.release.shape[1] // _LOW_BITS_COORDINATES))
    release, width = seen.release[:, some], sigma.unsqueeze(1)
    sums, counts = [], []
    for own in (seen.present, seen.absent):
        sum_of_clients = seen.shared[:, some] + own[:, some]
        noise = release - sum_of_clients
        largest = _exponent(torch.maximum(release.abs(), sum_of_clients.abs()))
        fine = (_exponent(noise) >= _exponent(width) - 6) & (_exponent(noise) > largest - 10)
        coarse = (_exponent(release) <= _exponent(width) + 8) & (release != 0)
        found = [_phases(noise, fine), _phases(noise / width, fine), _phases(release, coarse)]
        sums.append(torch.stack([total for total, _ in found], dim=1))
        counts.append(torch.stack([count for _, count in found], dim=1))
    return torch.stack(sums, dim=1), torch.stack(counts, dim=1)


def _phases(values: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of cos(2 pi m 2^11) over the mantissas m of the counted values, and their number."""
    steps = torch.frexp(values)[0] * _SIGNIFICANT
    waves = torch.cos(2 * math.pi * (steps - steps.round()).float()).double()
    return torch.where(counted, waves, 0.0).sum(dim=1), counted.sum(dim=1)


def _exponent(values: Tensor) -> Tensor:
    return torch.frexp(values)[1]


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """Return the inner product of each row, (worlds,)."""
    return torch.einsum("wp,wp->w", one, other)
