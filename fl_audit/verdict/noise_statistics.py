"""Define the noise statistics of a round or a run: sums of squares, a few projections and a small fixed sample.

The insider, an adversary among the clients, measures them. To get the noise, the insider subtracts the sum under D or
under D' from the release. Some statistics depend on this choice, which is called the side. The insider measures every
side. After the secrets are opened, `NoiseStatistics.of_true_hypothesis` keeps the true side only.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fl_audit.array_types import Flags, Floats, Floats32, Integers
from fl_audit.errors import require

if TYPE_CHECKING:
    import pandas as pd

LOW_BITS_KINDS = ("noise", "standard-noise", "release")
"""Values that may have been rounded to half precision: the noise, its standard normal draws, or the release."""

SIGNAL_KINDS = ("difference", "contribution", "length")
"""The noise along f(D) - f(D'), the noise along the side's own contribution, and the length of that contribution."""

STRIDES = 31
"""Number of classes of coordinates whose squares are summed; see `stride_step` for the coordinates in them."""

_BY_SIDE = ("signal", "low_bits", "low_bits_count", "strides", "sample")
_COUNTED = ("total_freedom", "freedom", "low_bits_count")
_SINGLE_PRECISION = ("projections", "strides", "sample")
_SUMS = ("total", "squares", *_COUNTED)
_WITHOUT_SIDES = ("total", "total_freedom", "squares", "freedom", "projections", "gradient")

_MOST_IN_CLASSES = 2**14
"""Most coordinates to divide into classes: among more, one coordinate without noise would not show in its class."""


def stride_step(parameters: int) -> int:
    """Return the step n of the classes of coordinates: only every n-th coordinate of a model is in a class.

    A class is a set of coordinates whose squared noise is summed. Coordinate n * i belongs to class i modulo `STRIDES`.
    n is 1 for models with up to 2^14 parameters.
    """
    return -(-parameters // _MOST_IN_CLASSES)


def stride_sizes(parameters: int) -> Integers:
    """Return the number of coordinates in every class of coordinates (see `stride_step`), (STRIDES,)."""
    looked_at = -(-parameters // stride_step(parameters))
    return (looked_at - np.arange(STRIDES) + STRIDES - 1) // STRIDES


def stride_names(parameters: int) -> list[str]:
    """Return a phrase for each class of coordinates (see `stride_step`), such as "one coordinate in 31, from number 0".

    `parameters` is the number of parameters of the model.
    """
    step = stride_step(parameters)
    return [f"one coordinate in {STRIDES * step}, from number {first * step}" for first in range(STRIDES)]


@dataclass(frozen=True)
class NoiseStatisticsLayout:
    """Names and shapes of the columns in which the noise statistics of rounds are stored as a table."""

    tensors: tuple[str, ...]  # names of the model's parameter tensors
    directions: int  # number of public directions
    # Index of every sampled coordinate among all parameters, and the name of its tensor; ascending.
    places: tuple[tuple[int, str], ...]
    # Number of hypotheses that have columns of their own: D, D', and a third one if the differing contribution may be
    # absent under both; 1 once the true hypothesis is known.
    sides: int
    parameters: int  # P, number of scalars of the model

    def _entries(self) -> dict[str, tuple[str, ...] | None]:
        """Return the column names of each field under one hypothesis, by field; None for a field of one column."""
        return {
            "total": None,
            "total_freedom": None,
            "gradient": None,
            "grain": None,
            "squares": self.tensors,
            "freedom": self.tensors,
            "projections": tuple(f"{index:02d}" for index in range(self.directions)),
            "signal": SIGNAL_KINDS,
            "low_bits": LOW_BITS_KINDS,
            "low_bits_count": LOW_BITS_KINDS,
            "strides": tuple(f"{index:02d}:{self.parameters}" for index in range(STRIDES)),
            "sample": tuple(f"{number}:{tensor}" for number, tensor in self.places),
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every field of `NoiseStatistics`, keyed by field name in column order.

        The axes of trials and rounds are not included.
        """
        lengths = {field: () if entry is None else (len(entry),) for field, entry in self._entries().items()}
        return {field: (self.sides, *length) if field in _BY_SIDE else length for field, length in lengths.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Column names of the table in which noise statistics are stored, such as "total" or "squares:weight"."""
        names_of_columns: list[str] = []
        for field, field_entries in self._entries().items():
            sides = [f"{field}:{side}" for side in range(self.sides)] if field in _BY_SIDE else [field]
            names_of_columns += (
                sides if field_entries is None else [f"{side}:{entry}" for side in sides for entry in field_entries]
            )
        return tuple(names_of_columns)

    @staticmethod
    def of_names(names: tuple[str, ...]) -> "NoiseStatisticsLayout":
        """Return the layout of a table with the given column names; this is the inverse of `names`."""
        entries: dict[str, list[str]] = {}
        for name in names:
            field, _, entry = name.partition(":")
            entries.setdefault(field, []).append(entry)
        sizes = [int(entry.split(":")[2]) for entry in entries.get("strides", ())]
        sampled = [entry.split(":", 2) for entry in entries.get("sample", ())]
        return NoiseStatisticsLayout(
            tensors=tuple(entries.get("squares", ())),
            directions=len(entries.get("projections", ())),
            places=tuple((int(number), tensor) for side, number, tensor in sampled if side == "0"),
            sides=len(entries.get("low_bits", ())) // len(LOW_BITS_KINDS),
            parameters=max(sizes, default=0),
        )


@dataclass(frozen=True)
class NoiseStatistics:
    """The noise statistics of a round, with shapes (trials, ...), or of a run, with shapes (trials, rounds, ...).

    f(D) and f(D') are the sums of contributions under D and D'. The vector u is the unit vector of f(D) - f(D'), and w
    is the part of the noise that is orthogonal to u. A side is a hypothesis about the contribution in which D and D'
    differ: the release contains that of D, that of D', or neither.
    """

    tensors: tuple[str, ...]  # as in `NoiseStatisticsLayout`, like `places` and `parameters`
    places: tuple[tuple[int, str], ...]
    parameters: int
    total: Floats  # ||w||^2, float64 (...,)
    total_freedom: Integers  # P - 1, or P in a round in which D and D' do not differ; int64 (...,)
    squares: Floats  # the sum of squares of w in each tensor, standardised, float64 (..., tensors)
    freedom: Integers  # degrees of freedom of `squares`, int64 (..., tensors); a tensor of one scalar may have 0
    projections: Floats  # noise along fixed public directions, whitened against u, float64 (..., directions)
    # Noise along the sum of the contributions that D and D' share, orthogonal to u, float64 (...,); NaN where that sum
    # is 0.
    gradient: Floats
    # The largest step between neighbouring float32 numbers as large as the release or a sum at a sampled coordinate,
    # over sigma, float64 (...,): finer structure of the noise is lost in rounding. Infinite where releases were
    # recovered from models.
    grain: Floats
    # The release minus the sum of each side, over sigma, along f(D) - f(D') and along the side's contribution, NaN
    # where these are 0; and the length of the side's contribution over sigma. Float64 (..., sides, kinds), see
    # `SIGNAL_KINDS`.
    signal: Floats
    # Sum over coordinates of cos(2 pi phase) of the bits below half precision, float64 (..., sides, kinds); NaN where
    # it is not known.
    low_bits: Floats
    low_bits_count: Integers  # number of coordinates in the sum of `low_bits`, int64 (..., sides, kinds)
    # Sum of squares of the release minus the sum of each side, over sigma^2, in every class of coordinates; float64
    # (..., sides, STRIDES).
    strides: Floats
    sample: Floats  # release minus each side's sum, over sigma, at sampled coordinates; float64 (..., sides, places)

    @property
    def layout(self) -> NoiseStatisticsLayout:
        """Names and shapes of the columns in which these statistics are stored."""
        directions = self.projections.shape[-1]
        sides = self.low_bits.shape[-2]
        return NoiseStatisticsLayout(self.tensors, directions, self.places, sides, self.parameters)

    @property
    def sigma(self) -> Floats:
        """Measured standard deviation of the noise orthogonal to f(D) - f(D'), shape (...,); NaN if not measured."""
        nothing = np.full(self.total.shape, np.nan)
        return np.asarray(np.sqrt(np.divide(self.total, self.total_freedom, out=nothing, where=self.total_freedom > 0)))

    def of_true_hypothesis(self, side: Integers) -> "NoiseStatistics":
        """Return the statistics for the true hypothesis alone, after the secrets were revealed.

        `side`, shape (...,), is the true hypothesis of each trial and round: 0 for D, 1 for D', and 2 if the release
        contains neither of the differing contributions.
        """
        at = side[..., None, None]
        true: dict[str, Any] = {name: np.take_along_axis(getattr(self, name), at, axis=-2) for name in _BY_SIDE}
        return replace(self, **true)

    def with_sums_of_classes(self, sigma: Floats) -> "NoiseStatistics":
        """Return these statistics of the true side, with sums of squares over all coordinates of the classes.

        This is for noise whose sums of squares are known only once the secrets are opened. The sums take the place of
        `total`, which leaves out no direction then; a round whose noise is hidden has the sum 0 and no freedom.

        Shapes: `sigma` (...,), the claimed scale of the noise.
        """
        sums = self.strides[..., 0, :].sum(axis=-1)
        is_known = ~np.isnan(sums)
        freedom = np.where(is_known, int(stride_sizes(self.parameters).sum()), 0)
        return replace(self, total=np.where(is_known, sums, 0.0) * sigma**2, total_freedom=freedom)

    def of_recovered(self, blurred: Flags) -> "NoiseStatistics":
        """Return the statistics that remain valid if releases were computed from successive models.

        Such releases have rounding errors, so the low bits are removed. `blurred` (trials,) marks trials in which the
        errors hide the noise: their sums of squares and degrees of freedom become 0, and their other values NaN.
        """
        changes: dict[str, Any] = {"grain": np.full_like(self.grain, np.inf)}
        for name in (*_WITHOUT_SIDES, "signal", "strides", "sample"):
            values = getattr(self, name)
            is_kept = ~blurred.reshape(-1, *[1] * (values.ndim - 1))
            changes[name] = values * is_kept if name in _SUMS else np.where(is_kept, values, np.nan)
        return replace(self.without_low_bits(), **changes)

    def without_hypothesis_fields(self) -> "NoiseStatistics":
        """Return the statistics, with the fields removed that need to know that a release contains f(D) or f(D').

        This is for releases that may contain a third sum. In the removed fields, sums of squares and counts become 0,
        and all other values NaN.
        """
        return self._without(_WITHOUT_SIDES)

    def without_low_bits(self) -> "NoiseStatistics":
        """Return the statistics without the fields of low bits: their counts become 0, their sums NaN."""
        return self._without(("low_bits", "low_bits_count"))

    def _without(self, names: tuple[str, ...]) -> "NoiseStatistics":
        """Return the statistics with some fields emptied: sums of squares and counts are 0, other values NaN."""
        nothing = {name: 0 if name in _SUMS else np.nan for name in names}
        return replace(self, **{name: np.full_like(getattr(self, name), value) for name, value in nothing.items()})

    def as_array(self) -> Floats:
        """Return all statistics as one float64 array (..., columns), in the order of `layout.names`."""
        leading = self.total.shape
        blocks = [np.reshape(getattr(self, name), (*leading, -1)) for name in self.layout.shapes()]
        return np.concatenate([block.astype(np.float64) for block in blocks], axis=-1)

    @staticmethod
    def of_array(values: Floats, layout: NoiseStatisticsLayout) -> "NoiseStatistics":
        """Return the statistics stored in an array; this is the inverse of `as_array`.

        Parameters
        ----------
        values
            Array as returned by `as_array`, float64 (..., columns).
        layout
            Names and shapes of the fields that the columns contain.
        """
        shapes = layout.shapes()
        arrays = dict[str, Any]()
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
        for (name, shape), block in zip(shapes.items(), np.split(values, ends[:-1], axis=-1), strict=True):
            kind = np.int64 if name in _COUNTED else np.float64
            arrays[name] = block.reshape(values.shape[:-1] + shape).astype(kind)
        return NoiseStatistics(layout.tensors, layout.places, layout.parameters, **arrays)

    def columns(self) -> dict[str, Floats | Floats32]:
        """Return all statistics as columns by name, each of shape (...,); `of_table` reads them back."""
        single = tuple(f"{field}:" for field in _SINGLE_PRECISION)
        named_columns = zip(self.layout.names, np.moveaxis(self.as_array(), -1, 0), strict=True)
        return {
            name: values.astype(np.float32) if name.startswith(single) else values for name, values in named_columns
        }

    @staticmethod
    def of_table(table: "pd.DataFrame") -> "NoiseStatistics":
        """Return the statistics (trials, rounds, ...) stored in a table with one row for each trial and round.

        Raises `InputError` if a column is missing.
        """
        layout = NoiseStatisticsLayout.of_names(tuple(map(str, table)))
        missing = [name for name in layout.names if name not in table]
        is_whole = not missing and layout.sides > 0
        fault = f"lacks {', '.join(missing[:3]) or 'low_bits'}"
        accepted = "accepted is that of a run with the insider, by this version"
        require(is_whole, f"the table of residuals {fault}: {accepted}")
        values = table.sort_values(["trial", "round"])[list(layout.names)].to_numpy(dtype=np.float64)
        return NoiseStatistics.of_array(values.reshape(int(table["trial"].nunique()), -1, len(layout.names)), layout)


def join(statistics: list[NoiseStatistics], axis: int) -> NoiseStatistics:
    """Return statistics of several parts of a run as one, joined along trials or along rounds.

    Parameters
    ----------
    statistics
        Statistics of at least one part, all of the same model.
    axis
        0 to concatenate parts with different trials, 1 to stack single rounds of the same trials.
    """
    combine = np.concatenate if axis == 0 else np.stack
    first = statistics[0]
    arrays: dict[str, Any] = {
        name: combine([getattr(part_statistics, name) for part_statistics in statistics], axis=axis)
        for name in first.layout.shapes()
    }
    return replace(first, **arrays)
