"""Noise that is correlated over rounds: strategy matrices of DP-FTRL and what they cost.

A strategy C is lower triangular (rounds x rounds) with ones on its diagonal. Round t releases r_t = g_t + (C^-1 z)_t,
g_t the sum of clipped contributions and z independent noise N(0, sigma^2 I) of every round. C r = C g + z is as
informative, so that all rounds together are one Gaussian release of C g, of sensitivity sens(C) times that of one
contribution (module `matrix_sensitivity`); it holds for contributions that are chosen adaptively (Denisov et al. 2022,
arXiv:2202.08312, theorem 2.1). The identity is independent noise. What C gains is the error of the prefix sums
g_1 + ... + g_t, on which the model of round t rests.

`tree` is the plain binary tree (Chan, Shi & Song 2011; Kairouz et al. 2021, arXiv:2103.00039, without Honaker's
estimate, which averages over more nodes). A prefix sum adds the noised nodes of its binary digits. The nodes that are
ever used are (t - l(t), t], l(t) the lowest set bit of t, one for each round: row t of C is 1 on that node, C r are the
noised nodes themselves.

`banded` is a Toeplitz strategy with a few bands (Choquette-Choo et al. 2023, arXiv:2306.08153): rounds that are as far
apart as there are bands do not overlap. Its coefficients are optimised ones where the file `banded_coefficients.json`
has them (experiments/studies/banded_matrices.py wrote it with jax-privacy), otherwise those of the banded square root.
"""

import json
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import assert_never

import numpy as np
from scipy.linalg import solve_triangular, toeplitz

from fl_audit.arrays import Floats
from fl_audit.errors import require
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent
from fl_audit.privacy.gaussian import require_noise_multiplier
from fl_audit.privacy.matrix_sensitivity import accounted_sensitivity


class StrategyKind(StrEnum):
    """Which strategy matrix correlates the noise."""

    TREE = "tree"
    BANDED = "banded"


def strategy_matrix(kind: StrategyKind, rounds: int, bands: int = 1) -> Floats:
    """Return the strategy C, with ones on the diagonal.

    Parameters
    ----------
    kind
        `tree` or `banded`.
    rounds
        k, from 1.
    bands
        Number of diagonals of `banded` that are not 0, from 1 (independent noise) to the number of rounds; `tree` does
        not depend on it.

    Returns
    -------
    NDArray
        Lower triangular, rounds x rounds, no entry negative.

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> strategy_matrix(StrategyKind.TREE, 4).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    """
    require(rounds >= 1 and int(rounds) == rounds, f"rounds is {rounds}: accepted are whole numbers from 1")
    match kind:
        case StrategyKind.TREE:
            return _tree(rounds)
        case StrategyKind.BANDED:
            coefficients = np.zeros(rounds)
            coefficients[:bands] = banded_coefficients(rounds, bands)
            return np.asarray(toeplitz(coefficients, np.zeros(rounds)), dtype=np.float64)
        case _:
            assert_never(kind)


def _tree(rounds: int) -> Floats:
    last, first = np.arange(1, rounds + 1)[:, None], np.arange(rounds)[None, :]
    return np.asarray((first >= last - (last & -last)) & (first < last), dtype=np.float64)


def square_root_coefficients(bands: int) -> Floats:
    """Return the first coefficients of the square root of the matrix of ones on and under the diagonal.

    c_j = binom(2j, j) / 4^j, cut after `bands` of them: the banded square root (Kalinin & Lampert 2024,
    arXiv:2405.13763). They fall from 1 and are positive.

    Examples
    --------
    >>> square_root_coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    j = np.arange(1, bands)
    return np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j)))


def banded_coefficients(rounds: int, bands: int) -> Floats:
    """Return the coefficients of the banded Toeplitz strategy, the first one being 1.

    Optimised for the mean squared error of prefix sums, where so many bands are in the file: for the smallest number of
    rounds there that is at least the asked one, or the largest. Any coefficients may be used over any number of rounds;
    they are best for the rounds that they were optimised for. Otherwise `square_root_coefficients`.

    Parameters
    ----------
    rounds
        k, from 1.
    bands
        From 1 to the number of rounds.

    Raises
    ------
    InputError
        If the number of bands is out of its range.
    """
    accepted = 1 <= bands <= rounds and int(bands) == bands
    require(accepted, f"bands is {bands}: accepted are whole numbers from 1 to the number of rounds, {rounds}")
    offered = {known: values for (known, width), values in _optimised().items() if width == bands}
    if not offered:
        return square_root_coefficients(bands)
    enough = [known for known in offered if known >= rounds]
    return np.array(offered[min(enough) if enough else max(offered)])


@lru_cache(maxsize=1)
def _optimised() -> dict[tuple[int, int], list[float]]:
    text = (files("fl_audit.privacy") / "banded_coefficients.json").read_text(encoding="utf-8")
    return {(entry["rounds"], entry["bands"]): entry["coefficients"] for entry in json.loads(text)}


def inverse(strategy: Floats) -> Floats:
    """Return C^-1: the noise of the releases is C^-1 z, and row t says which draws the noise of round t consists of."""
    return np.asarray(solve_triangular(strategy, np.eye(strategy.shape[0]), lower=True), dtype=np.float64)


def correlated_event(
    noise_multiplier: float, kind: StrategyKind, rounds: int, bands: int, separation: int, participations: int
) -> ReleaseEvent:
    """Return all rounds under correlated noise as the one release that they are to an accountant.

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the draws z over the sensitivity of one contribution (C or 2C of the clipping, by the
        relation); positive. The event's own noise multiplier is this one over sens(C).
    kind, rounds, bands
        As for `strategy_matrix`.
    separation
        Any two rounds of a unit lie at least so many rounds apart, from 1. With everybody in every round it is 1.
    participations
        In how many rounds a unit takes part at most, from 1. With everybody in every round it is the number of rounds.

    Returns
    -------
    ReleaseEvent
        Its sensitivity is exact, or an upper bound where `matrix_sensitivity.sensitivity` refuses (a tree with very
        many sets of rounds).

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> event = correlated_event(3.0, StrategyKind.TREE, 8, 1, 8, 1)
    >>> print(event)
    1 x Gaussian release (sensitivity 2, sigma 3)
    """
    require_noise_multiplier(noise_multiplier)
    strategy = strategy_matrix(kind, rounds, bands)
    return GaussianRelease(accounted_sensitivity(strategy, separation, participations), noise_multiplier)
