"""Noise that is correlated over rounds: strategy matrices of DP-FTRL and their sensitivities.

A strategy C is lower triangular (rounds x rounds) with ones on its diagonal. Round t releases r_t = g_t + (C^-1 z)_t,
g_t the sum of clipped contributions and z independent noise N(0, sigma^2 I) of every round. C r = C g + z is as
informative, so that all rounds together are one Gaussian release of C g, of sensitivity sens(C) times that of one
contribution (`sensitivity`); it holds for contributions that are chosen adaptively (Denisov et al. 2022,
arXiv:2202.08312, theorem 2.1). The identity is independent noise. What C gains is the error of the prefix sums
g_1 + ... + g_t, on which the model of round t rests.

`tree` is the plain binary tree (Chan, Shi & Song 2011; Kairouz et al. 2021, arXiv:2103.00039, without Honaker's
estimate, which averages over more nodes). A prefix sum adds the noised nodes of its binary digits. The nodes that are
ever used are (t - l(t), t], l(t) the lowest set bit of t, one for each round: row t of C is 1 on that node, C r are the
noised nodes themselves.

`banded` is a Toeplitz strategy with a few bands (Choquette-Choo et al. 2023, arXiv:2306.08153): rounds that are as far
apart as there are bands do not overlap. Its coefficients are optimised ones where the file `banded_coefficients.json`
has them (tests/validation/banded_matrices.py wrote it with jax-privacy), otherwise those of the banded square root.
Numbers out of their range raise `InputError`.
"""

import json
import math
from functools import lru_cache
from importlib.resources import files
from itertools import combinations, islice
from typing import assert_never

import numpy as np
from scipy.linalg import solve_triangular, toeplitz

from fl_audit.array_types import Floats
from fl_audit.errors import require, require_number
from fl_audit.privacy.events import GaussianRelease
from fl_audit.privacy.gaussian import require_noise_multiplier, require_whole
from fl_audit.privacy.names import StrategyMatrixKind as StrategyMatrixKind

_LARGEST_ENUMERATION = 100_000  # sets of rounds up to which a sensitivity is found by trying all of them
_CHUNK = 4096


def strategy_matrix(kind: StrategyMatrixKind, rounds: int, bands: int = 1) -> Floats:
    """Return the strategy C: lower triangular, rounds x rounds, with ones on the diagonal and no entry negative.

    Parameters
    ----------
    kind
        Kind of the strategy, `tree` or `banded`.
    rounds
        Number of rounds k, from 1.
    bands
        Number of diagonals of `banded` that are not 0, from 1 (independent noise) to the number of rounds; `tree` does
        not depend on it.
    """
    require_whole(rounds=rounds)
    match kind:
        case StrategyMatrixKind.TREE:
            last, first = np.arange(1, rounds + 1)[:, None], np.arange(rounds)[None, :]
            return np.asarray((first >= last - (last & -last)) & (first < last), dtype=np.float64)
        case StrategyMatrixKind.BANDED:
            coefficients = np.zeros(rounds)
            coefficients[:bands] = banded_coefficients(rounds, bands)
            return np.asarray(toeplitz(coefficients, np.zeros(rounds)), dtype=np.float64)
        case _:
            assert_never(kind)


def _square_root_coefficients(bands: int) -> Floats:
    """Return the first coefficients of the square root of the matrix of ones on and under the diagonal.

    c_j = binom(2j, j) / 4^j, cut after `bands` of them: the banded square root (Kalinin & Lampert 2024,
    arXiv:2405.13763). They fall from 1 and are positive.
    """
    j = np.arange(1, bands)
    return np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j)))


def banded_coefficients(rounds: int, bands: int) -> Floats:
    """Return the coefficients of the banded Toeplitz strategy, the first one being 1.

    Optimised for the mean squared error of prefix sums, where so many bands are in the file: for the smallest number of
    rounds there that is at least the asked one, or the largest; they may be used over any number of rounds. Otherwise
    those of the banded square root.

    Parameters
    ----------
    rounds
        Number of rounds k, from 1.
    bands
        Number of bands, from 1 to k.
    """
    require_number("bands is", bands, f"whole numbers from 1 to {rounds}, the number of rounds")
    offered = {known: values for (known, width), values in _optimised().items() if width == bands}
    if not offered:
        return _square_root_coefficients(bands)
    enough = [known for known in offered if known >= rounds]
    return np.array(offered[min(enough) if enough else max(offered)])


@lru_cache(maxsize=1)
def _optimised() -> dict[tuple[int, int], list[float]]:
    text = (files("fl_audit.privacy") / "banded_coefficients.json").read_text(encoding="utf-8")
    return {(entry["rounds"], entry["bands"]): entry["coefficients"] for entry in json.loads(text)}


def inverse(strategy: Floats) -> Floats:
    """Return C^-1: the noise of the releases is C^-1 z, so row t weights the draws in the noise of round t."""
    return np.asarray(solve_triangular(strategy, np.eye(strategy.shape[0]), lower=True), dtype=np.float64)


def correlated_event(
    noise_multiplier: float, kind: StrategyMatrixKind, rounds: int, bands: int, separation: int, participations: int
) -> GaussianRelease:
    """Return all rounds under correlated noise as the one release that an accountant needs.

    Its sensitivity is exact, or an upper bound for a tree with very many sets of rounds.

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the draws z over the sensitivity of one contribution (C or 2C of the clipping, by the
        relation); positive. The event's own noise multiplier is this one over sens(C).
    kind
        Kind of the strategy, as for `strategy_matrix`.
    rounds
        Number of rounds, from 1.
    bands
        Number of bands, as for `strategy_matrix`.
    separation
        Smallest distance between two rounds in which the same unit takes part, as for `sensitivity`; 1 where everybody
        takes part in every round.
    participations
        Largest number of rounds in which a unit takes part, as for `sensitivity`; the number of rounds where everybody
        takes part in every round.
    """
    require_noise_multiplier(noise_multiplier)
    strategy = strategy_matrix(kind, rounds, bands)
    return GaussianRelease(sensitivity(strategy, separation, participations), noise_multiplier)


def sensitivity(strategy: Floats, separation: int, participations: int) -> float:
    """Return the L2 sensitivity of a strategy to a unit whose contribution to a round has norm at most 1.

    A unit that takes part in the rounds of a set S moves C g by at most (sum over s, t in S of |(C'C)_st|)^(1/2), which
    is attained where no entry of C'C is negative, by equal contributions in all rounds. The sensitivity is the largest
    such value over all sets S that the participation allows (Choquette-Choo et al. 2023, arXiv:2306.08153, Eq. (5)).

    It is exact where no entry of C'C is negative, as for all matrices here, and where rounds that are `separation`
    apart do not overlap; otherwise it is an upper bound, never too small. It is found, in this order, by

    * the sum over all rounds, where a unit may take part in every one;
    * a dynamic programme over squared column norms, where the columns of rounds that are `separation` apart are
      orthogonal: above all for a banded strategy with at most `separation` bands;
    * the set {1, 1 + separation, 1 + 2 separation, ...}, which is the worst where C is Toeplitz and its coefficients
      are not negative and never increase (Kalinin & Lampert 2024, arXiv:2405.13763, theorem 2);
    * trying all sets, up to 100,000 of them; of more, by two dynamic programmes, an upper bound.

    Parameters
    ----------
    strategy
        The strategy C, a square matrix.
    separation
        Smallest distance between two rounds in which the same unit takes part, from 1.
    participations
        Largest number of rounds in which a unit takes part, from 1; more than fit into the rounds are as many as fit.
    """
    most = _require_pattern(strategy, separation, participations)
    gram, rounds = np.abs(strategy.T @ strategy), strategy.shape[0]
    if separation == 1 and most == rounds:
        return math.sqrt(float(gram.sum()))
    if most == 1 or not np.any(np.tril(gram, -separation)):
        return math.sqrt(float(_largest_sum(np.diag(gram), separation, most)))
    if _is_decreasing_toeplitz(strategy):
        return float(np.linalg.norm(strategy[:, : most * separation : separation].sum(axis=1)))
    count = sum(math.comb(rounds - (taken - 1) * (separation - 1), taken) for taken in range(1, most + 1))
    if count > _LARGEST_ENUMERATION:
        return _sensitivity_upper_bound(strategy, separation, participations)
    return math.sqrt(max(_largest_enumerated(gram, separation, taken) for taken in range(1, most + 1)))


def _sensitivity_upper_bound(strategy: Floats, separation: int, participations: int) -> float:
    """Return an upper bound on `sensitivity` for any strategy and participation.

    It takes for every round s the largest sum of |(C'C)_st| over an allowed set of rounds t, then the largest sum of
    these over an allowed set of rounds s: two dynamic programmes that need not agree on the set (Choquette-Choo et al.
    2023, arXiv:2306.08153, algorithm 4).
    """
    most = _require_pattern(strategy, separation, participations)
    rows = _largest_sum(np.abs(strategy.T @ strategy), separation, most)
    return math.sqrt(float(_largest_sum(rows, separation, most)))


def _require_pattern(strategy: Floats, separation: int, participations: int) -> int:
    """Return the largest number of rounds of a unit; raise `InputError` for arguments out of their range."""
    square = strategy.ndim == 2 and strategy.shape[0] == strategy.shape[1] > 0
    require(square, f"strategy has shape {strategy.shape}: accepted are square matrices of at least one round")
    require(bool(np.all(np.isfinite(strategy))), "strategy has entries that are no finite numbers: accepted are none")
    require_whole(separation=separation, participations=participations)
    return min(int(participations), -(-int(strategy.shape[0]) // int(separation)))


def _largest_sum(weights: Floats, separation: int, most: int) -> Floats:
    """Return the largest sum of weights, none negative, over allowed sets of positions along the last axis.

    After j steps best[i] is the largest sum from position i on with at most j positions: either i counts and the next
    is `separation` later, or the answer is that of a later i.
    """
    best = np.zeros((*weights.shape[:-1], weights.shape[-1] + separation))
    for _ in range(most):
        taken = weights + best[..., separation:]
        best[..., : weights.shape[-1]] = np.maximum.accumulate(taken[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(best[..., 0], dtype=np.float64)


def _is_decreasing_toeplitz(strategy: Floats) -> bool:
    coefficients = strategy[:, 0]
    falling = bool(np.all(np.diff(coefficients) <= 0)) and bool(coefficients[-1] >= 0)
    return falling and np.array_equal(strategy, toeplitz(coefficients, np.zeros_like(coefficients)))


def _largest_enumerated(gram: Floats, separation: int, taken: int) -> float:
    """Return the largest sum of the Gram matrix over sets of exactly the given number of rounds."""
    free = gram.shape[0] - (taken - 1) * (separation - 1)
    sets, largest = combinations(range(free), taken), 0.0
    while chunk := list(islice(sets, _CHUNK)):
        rounds = np.array(chunk) + (separation - 1) * np.arange(taken)
        sums = gram[rounds[:, :, None], rounds[:, None, :]].sum(axis=(1, 2))
        largest = max(largest, float(sums.max()))
    return largest
