"""The insider's measurements of the noise in a round or a run: sums, a few projections and a small fixed sample.

Some of them depend on the hypothesis (the side), because the sum under D, or that under D', is subtracted from the
release. The insider computes them for every side; once the secrets are opened, `NoiseStatistics.opened` keeps those of
the true side.
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
    """Return n if every n-th coordinate of a model is in one of the classes; 1 unless the model is large.

    The class of the coordinate n i is i modulo `STRIDES`.
    """
    return -(-parameters // _MOST_IN_CLASSES)


def stride_sizes(parameters: int) -> Integers:
    """Return the number of coordinates of every class, (STRIDES,), of a model with the given number of parameters."""
    looked_at = -(-parameters // stride_step(parameters))
    return (looked_at - np.arange(STRIDES) + STRIDES - 1) // STRIDES


def stride_names(parameters: int) -> list[str]:
    """Return a description of the coordinates in every class, for reports."""
    step = stride_step(parameters)
    return [f"one coordinate in {STRIDES * step}, from number {first * step}" for first in range(STRIDES)]


@dataclass(frozen=True)
class NoiseStatisticsLayout:
    """Names and shapes of the columns in which noise statistics (residuals) are stored."""

    tensors: tuple[str, ...]  # names of the model's parameter tensors
    directions: int  # number of public directions
    # Index of every sampled coordinate among all parameters, and the name of its tensor; ascending.
    places: tuple[tuple[int, str], ...]
    # Number of hypotheses that have columns of their own: D, D', and neither contribution if it may be absent under
    # both; 1 once the truth is known.
    sides: int
    parameters: int  # P, number of scalars of the model

    def _entries(self) -> dict[str, tuple[str, ...] | None]:
        """Return the names of every field's entries, for one side, in column order; None if a field is one number."""
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
        """Return the shape of every field of `NoiseStatistics`, without trials and rounds, in column order."""
        lengths = {field: () if own is None else (len(own),) for field, own in self._entries().items()}
        return {field: (self.sides, *own) if field in _BY_SIDE else own for field, own in lengths.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns in the table of residuals."""
        found: list[str] = []
        for field, own in self._entries().items():
            sides = [f"{field}:{side}" for side in range(self.sides)] if field in _BY_SIDE else [field]
            found += sides if own is None else [f"{side}:{entry}" for side in sides for entry in own]
        return tuple(found)

    @staticmethod
    def of_names(names: tuple[str, ...]) -> "NoiseStatisticsLayout":
        """Return the layout whose columns have these names; inverse of `names`."""
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
    """The insider's measurements of one round (trials, ...) or of a run (trials, rounds, ...), also called residuals.

    The vectors w and u are those of `fl_audit.verdict.noise_measurement`. A side is a hypothesis, as in the layout.
    """

    tensors: tuple[str, ...]  # as in `NoiseStatisticsLayout`, as are the two fields below
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
    # The release less the sum of each side, over sigma, along the unit vectors of `SIGNAL_KINDS`, NaN where there is no
    # such direction; and the length of what the side contributes over sigma, 0 where that is nothing. Float64 (...,
    # sides, kinds).
    signal: Floats
    # Sum of cos(2 pi phase) of the bits below half precision, float64 (..., sides, kinds). NaN where it is not known.
    low_bits: Floats
    low_bits_count: Integers  # coordinates in that sum, int64 (..., sides, kinds)
    # Sum of squares of the release less the sum of each side, over sigma^2, in every class of coordinates; float64
    # (..., sides, STRIDES).
    strides: Floats
    sample: Floats  # the release less each side's sum, over sigma, at sampled coordinates; float64 (..., sides, places)

    @property
    def layout(self) -> NoiseStatisticsLayout:
        """Names and shapes of the columns of these residuals."""
        directions, sides = self.projections.shape[-1], self.low_bits.shape[-2]
        return NoiseStatisticsLayout(self.tensors, directions, self.places, sides, self.parameters)

    @property
    def sigma(self) -> Floats:
        """The measured noise standard deviation (...,); NaN where nothing could be measured."""
        nothing = np.full(self.total.shape, np.nan)
        return np.asarray(np.sqrt(np.divide(self.total, self.total_freedom, out=nothing, where=self.total_freedom > 0)))

    def opened(self, side: Integers) -> "NoiseStatistics":
        """Return the residuals of the true `side` (...,) alone: 0 for D, 1 for D', 2 for neither contribution."""
        at = side[..., None, None]
        true: dict[str, Any] = {name: np.take_along_axis(getattr(self, name), at, axis=-2) for name in _BY_SIDE}
        return replace(self, **true)

    def of_recovered(self, blurred: Flags) -> "NoiseStatistics":
        """Return the residuals for releases that were recovered from models: without low bits and blurred trials.

        `blurred` (trials,) marks the trials whose noise is hidden by the rounding of models. Their sums of squares are
        0 with no degrees of freedom, and their other values are NaN.
        """
        found: dict[str, Any] = {"grain": np.full_like(self.grain, np.inf)}
        for name in (*_WITHOUT_SIDES, "signal", "strides", "sample"):
            values = getattr(self, name)
            kept = ~blurred.reshape(-1, *[1] * (values.ndim - 1))
            found[name] = values * kept if name in _SUMS else np.where(kept, values, np.nan)
        return replace(self.without_low_bits(), **found)

    def of_sides(self) -> "NoiseStatistics":
        """Return the residuals without the fields that assume that a release is uncertain along u alone."""
        return self._without(_WITHOUT_SIDES)

    def without_low_bits(self) -> "NoiseStatistics":
        """Return the residuals with the fields of low bits emptied."""
        return self._without(("low_bits", "low_bits_count"))

    def _without(self, names: tuple[str, ...]) -> "NoiseStatistics":
        """Return the residuals with some fields emptied: 0 in sums of squares and counts, NaN in others."""
        nothing = {name: 0 if name in _SUMS else np.nan for name in names}
        return replace(self, **{name: np.full_like(getattr(self, name), value) for name, value in nothing.items()})

    def as_array(self) -> Floats:
        """Return all residuals as one array (..., columns), in the order of the layout's names."""
        leading = self.total.shape
        parts = [np.reshape(getattr(self, name), (*leading, -1)) for name in self.layout.shapes()]
        return np.concatenate([part.astype(np.float64) for part in parts], axis=-1)

    @staticmethod
    def of_array(values: Floats, layout: NoiseStatisticsLayout) -> "NoiseStatistics":
        """Return the residuals from an array; inverse of `as_array`.

        Parameters
        ----------
        values
            Values that `as_array` returned, float64 (..., columns).
        layout
            Names and shapes of the parts of the columns.
        """
        shapes, arrays = layout.shapes(), dict[str, Any]()
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
        for (name, shape), part in zip(shapes.items(), np.split(values, ends[:-1], axis=-1), strict=True):
            kind = np.int64 if name in _COUNTED else np.float64
            arrays[name] = part.reshape(values.shape[:-1] + shape).astype(kind)
        return NoiseStatistics(layout.tensors, layout.places, layout.parameters, **arrays)

    def columns(self) -> dict[str, Floats | Floats32]:
        """Return all residuals as named columns, each of the leading shape (...,); `of_table` reads them."""
        single = tuple(f"{field}:" for field in _SINGLE_PRECISION)
        named = zip(self.layout.names, np.moveaxis(self.as_array(), -1, 0), strict=True)
        return {name: values.astype(np.float32) if name.startswith(single) else values for name, values in named}

    @staticmethod
    def of_table(table: "pd.DataFrame") -> "NoiseStatistics":
        """Return the residuals (trials, rounds, ...) from a table of a run, which has one row per trial and round.

        `InputError` is raised if a column is missing.
        """
        layout = NoiseStatisticsLayout.of_names(tuple(map(str, table)))
        missing = [name for name in layout.names if name not in table]
        is_whole, found = not missing and layout.sides > 0, f"lacks {', '.join(missing[:3]) or 'low_bits'}"
        accepted = "accepted is that of a run with the insider, by this version"
        require(is_whole, f"the table of residuals {found}: {accepted}")
        values = table.sort_values(["trial", "round"])[list(layout.names)].to_numpy(dtype=np.float64)
        return NoiseStatistics.of_array(values.reshape(int(table["trial"].nunique()), -1, len(layout.names)), layout)


def join(parts: list[NoiseStatistics], axis: int) -> NoiseStatistics:
    """Return residuals joined along trials (`axis` 0), or rounds of the same trials stacked (`axis` 1).

    Parameters
    ----------
    parts
        At least one part, all of the same model.
    axis
        Axis along which the residuals are joined: 0 for trials, 1 for rounds.
    """
    combine, first = np.concatenate if axis == 0 else np.stack, parts[0]
    arrays: dict[str, Any] = {
        name: combine([getattr(part, name) for part in parts], axis=axis) for name in first.layout.shapes()
    }
    return replace(first, **arrays)
