"""Two hypotheses about a release, and what the release says for one of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning.portions import cached_rows


@dataclass(frozen=True)
class Hypotheses:
    """What a sum is made of under D and under D', world by world.

    The two sums differ in one contribution only, so their difference is formed from it and never from two large sums.

    Parameters
    ----------
    shared
        The part that both sums hold, float32 (worlds, parameters).
    present, absent
        What the differing unit adds under D, and what stands in its place under D'; float32 (worlds, parameters).
    weight
        Probability with which the differing contribution is in the sum, above 0 and up to 1. The observer knows who
        else takes part.

    Raises
    ------
    InputError
        If the weight is out of its range.
    """

    shared: Tensor
    present: Tensor
    absent: Tensor
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(
            0 < self.weight <= 1, f"participation weight is {self.weight}: accepted are numbers above 0 and up to 1"
        )

    @property
    def sensitivity(self) -> NDArray[np.float64]:
        """||f(D) - f(D')|| per world, float64 (worlds,)."""
        return local_sensitivity(self.present, self.absent)

    def against(self, release: Tensor) -> Iterator["Comparison"]:
        """Yield the hypotheses beside a release (worlds, parameters), in groups of worlds that stay in cache."""
        parts = (release, self.shared, self.present, self.absent)
        for rows in cached_rows(*self.shared.shape):
            yield Comparison(rows, *(part[rows].double() for part in parts))


@dataclass(frozen=True)
class Comparison:
    """Some worlds of a release beside both hypotheses, in float64.

    Parameters
    ----------
    rows
        Which worlds.
    release, shared, present, absent
        As in `Hypotheses`, (rows, parameters).
    """

    rows: slice
    release: Tensor
    shared: Tensor
    present: Tensor
    absent: Tensor

    @cached_property
    def residual(self) -> Tensor:
        """r - (f(D) + f(D'))/2: the noise, and half the difference towards the truth."""
        return self.release - (self.shared + (self.present + self.absent) / 2)

    @cached_property
    def difference(self) -> Tensor:
        """f(D) - f(D')."""
        return self.present - self.absent


def local_sensitivity(present: Tensor, absent: Tensor) -> NDArray[np.float64]:
    """Return ||f(D) - f(D')|| per world from the two contributions in which the sums differ.

    Parameters
    ----------
    present, absent
        Float32 tensors (worlds, parameters).

    Returns
    -------
    array
        Float64 (worlds,). Victim and insider both call this on equal tensors, so they agree to the last bit.
    """
    portions = cached_rows(len(present), present.shape[1])
    norms = [(present[rows].double() - absent[rows].double()).norm(dim=1) for rows in portions]
    found: NDArray[np.float64] = torch.cat(norms).cpu().numpy()
    return found


def gaussian_log_odds(comparison: Comparison, agreement: Tensor, sigma: Tensor, weight: float) -> Tensor:
    """Return the log-likelihood ratio of D against D' of releases with noise N(0, sigma^2 I).

    Parameters
    ----------
    comparison
        The releases and both hypotheses.
    agreement
        <residual, difference> per world, which `comparison` gives and its user has worked out, float64 (rows,).
    sigma
        Noise standard deviation of each world, float64 (rows,).
    weight
        Probability with which the differing contribution takes part.

    Returns
    -------
    Tensor
        Float64 (rows,). Where the contribution always takes part it is <r - (f(D) + f(D'))/2, f(D) - f(D')> / sigma^2
        (Bernau et al. 2021, Lemma 1). Otherwise each hypothesis is a mixture: log((1 - q) + q e^l) of x less that of
        x', l being the log-odds of the contribution's being in against its being out.
    """
    if weight == 1:
        return agreement / sigma.square()
    rest = comparison.release - comparison.shared
    one, other = (
        _mixture(((rest - part / 2) * part).sum(dim=1) / sigma.square(), weight)
        for part in (comparison.present, comparison.absent)
    )
    return one - other


def _mixture(log_odds: Tensor, weight: float) -> Tensor:
    """Return log((1 - q) + q e^l)."""
    return torch.logaddexp(torch.full_like(log_odds, math.log1p(-weight)), math.log(weight) + log_odds)
