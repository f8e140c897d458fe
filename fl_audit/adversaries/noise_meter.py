"""The noise meter: what the insider sees of the noise itself, whatever the secret bit is."""

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

LOW_BITS_KINDS = ("noise", "standard-noise", "release")

_PER_TENSOR = ("squares", "freedom")
_PER_HYPOTHESIS = ("low_bits", "low_bits_count")


@dataclass(frozen=True)
class Residuals:
    """Sums of the residual noise, of shape (worlds,) for one round or (worlds, rounds) for a run, written (...) below.

    With e = r - (f(D) + f(D'))/2 and u the unit vector of f(D) - f(D'), w = e - <e, u> u is noise whatever the bit.

    Parameters
    ----------
    tensors
        Names of the model's parameter tensors.
    total
        ||w||^2, float64 (...).
    total_freedom
        Its degrees of freedom, int64 (...).
    squares, freedom
        The same per parameter tensor, standardised to an exact chi-square, (..., tensors).
    projections
        w along J fixed public directions, whitened against u, float64 (..., J).
    gradient
        e along the sum of the gradients that D and D' share, orthogonal to u, float64 (...); NaN where that sum is 0.
    low_bits, low_bits_count
        Sum of cos(2 pi phase) of the low bits under D (index 0) and D' (index 1), and coordinates in it, (..., 2,
        kinds); NaN where not offered.
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

    def frame(self, first_world: int = 0) -> pd.DataFrame:
        """Return one row a world and round, the worlds numbered from `first_world` and the rounds from 1."""
        worlds, rounds = self.total.shape
        columns: dict[str, NDArray[np.generic]] = {
            "world": np.repeat(np.arange(first_world, first_world + worlds), rounds),
            "round": np.tile(np.arange(1, rounds + 1), worlds),
        }
        for field in fields(self)[1:]:
            values = getattr(self, field.name)
            flat = values.reshape(worlds * rounds, -1)
            columns |= {f"{field.name}:{label}": flat[:, at] for at, label in enumerate(self._labels(field.name))}
        return pd.DataFrame(columns)

    def _labels(self, name: str) -> list[str]:
        if name in _PER_TENSOR:
            return list(self.tensors)
        if name in _PER_HYPOTHESIS:
            return [f"{hypothesis}:{kind}" for hypothesis in ("D", "D'") for kind in LOW_BITS_KINDS]
        return [str(at) for at in range(self.projections.shape[-1])] if name == "projections" else [""]

    @classmethod
    def of_table(cls, frame: pd.DataFrame) -> "Residuals":
        """Return what `frame` wrote."""
        ordered = frame.sort_values(["world", "round"], kind="stable")
        shape = (ordered["world"].nunique(), ordered["round"].nunique())
        tensors = tuple(str(name).partition(":")[2] for name in ordered if str(name).startswith("squares:"))
        parts: dict[str, NDArray[np.generic]] = {}
        for field in fields(cls)[1:]:
            names = [name for name in ordered if str(name).startswith(f"{field.name}:")]
            rest: tuple[int, ...] = () if names == [f"{field.name}:"] else (len(names),)
            rest = (2, len(LOW_BITS_KINDS)) if field.name in _PER_HYPOTHESIS else rest
            kind = np.int64 if field.name.endswith(("freedom", "count")) else np.float64
            parts[field.name] = ordered[names].to_numpy(dtype=kind).reshape(*shape, *rest)
        return cls(tensors, **parts)  # type: ignore[arg-type]
