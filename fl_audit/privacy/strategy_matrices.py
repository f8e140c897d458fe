"""Strategy matrices of noise that is correlated over rounds (DP-FTRL), and their sensitivities.

A strategy matrix C is lower triangular (rounds x rounds) with ones on its diagonal. Round t releases r_t = g_t + (C^-1
z)_t, where g_t is the sum of clipped contributions and z has independent rows N(0, sigma^2 I). C r = C g + z has the
same information. So all rounds together are one Gaussian release of C g. Its sensitivity is sens(C) (function
`sensitivity`) times the sensitivity of one contribution. This also holds for adaptively chosen contributions (Denisov
et al. 2022, arXiv:2202.08312, theorem 2.1). The identity matrix gives independent noise. Other matrices reduce the
error of the prefix sums g_1 + ... + g_t, from which the model after round t is computed.

`tree` is the binary tree (Chan, Shi & Song 2011; Kairouz et al. 2021, arXiv:2103.00039) without Honaker's estimator,
which averages over more nodes. The binary digits of t tell which noised nodes of the tree sum to the prefix sum of
round t. Round t uses one new node, (t - l(t), t], where l(t) is the lowest set bit of t. Row t of C is 1 on the rounds
of this node, so C r consists of the noised nodes.

`banded` is a Toeplitz matrix with a few bands (Choquette-Choo et al. 2023, arXiv:2306.08153); its columns of rounds at
least `bands` apart are orthogonal. Its coefficients are read from `banded_coefficients.json`, which
tests/validation/banded_matrices.py wrote with coefficients optimised by jax-privacy. Numbers of bands that the file
lacks get the coefficients of the banded square root. Functions raise `InputError` for numbers out of range.
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
from fl_audit.errors import require
from fl_audit.privacy.accounting_enums import StrategyMatrixKind as StrategyMatrixKind
from fl_audit.privacy.events import GaussianRelease
from fl_audit.privacy.gaussian import require_noise_multiplier, require_whole
from fl_audit.value_checks import require_number

_LARGEST_ENUMERATION = 100_000  # largest number of sets of rounds that `sensitivity` enumerates
_CHUNK = 4096


def strategy_matrix(kind: StrategyMatrixKind, rounds: int, bands: int = 1) -> Floats:
    """Return the strategy matrix C, float64 (rounds, rounds): lower triangular, non-negative, ones on the diagonal.

    C defines noise that is correlated over rounds: the noise of all rounds is C^-1 times independent draws.
    """
    require_whole(rounds=rounds)
    match kind:
        case StrategyMatrixKind.TREE:
            last = np.arange(1, rounds + 1)[:, None]
            first = np.arange(rounds)[None, :]
            return np.asarray((first >= last - (last & -last)) & (first < last), dtype=np.float64)
        case StrategyMatrixKind.BANDED:
            coefficients = np.zeros(rounds)
            coefficients[:bands] = banded_coefficients(rounds, bands)
            return np.asarray(toeplitz(coefficients, np.zeros(rounds)), dtype=np.float64)
        case _:
            assert_never(kind)


def _square_root_coefficients(bands: int) -> Floats:
    """Return the coefficients of the banded square root: binom(2j, j) / 4^j for j from 0 to `bands` - 1.

    The square root of the lower-triangular matrix of ones has these coefficients on its first diagonals (Kalinin &
    Lampert 2024, arXiv:2405.13763).
    """
    j = np.arange(1, bands)
    return np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j)))


def banded_coefficients(rounds: int, bands: int) -> Floats:
    """Return the coefficients of the banded Toeplitz matrix, float64 (bands,); the first one is 1.

    The file `banded_coefficients.json` has coefficients that minimise the mean squared error of prefix sums, for some
    numbers of bands and rounds. If the given number of bands is in the file, the coefficients are taken from the file.
    The entry is the one with the smallest number of rounds that is at least `rounds`, or, if all are smaller, with the
    largest number of rounds. If the number of bands is not in the file, the coefficients of the banded square root are
    returned.
    """
    require_number("bands is", bands, f"whole numbers from 1 to {rounds}, the number of rounds")
    offered = {matrix_rounds: values for (matrix_rounds, width), values in _optimised().items() if width == bands}
    if not offered:
        return _square_root_coefficients(bands)
    long_enough = [matrix_rounds for matrix_rounds in offered if matrix_rounds >= rounds]
    return np.array(offered[min(long_enough) if long_enough else max(offered)])


@lru_cache(maxsize=1)
def _optimised() -> dict[tuple[int, int], list[float]]:
    text = (files("fl_audit.privacy") / "banded_coefficients.json").read_text(encoding="utf-8")
    return {(entry["rounds"], entry["bands"]): entry["coefficients"] for entry in json.loads(text)}


def inverse(strategy: Floats) -> Floats:
    """Return the inverse C^-1 of a strategy matrix C, float64 (rounds, rounds).

    Let z be the independent draws of all rounds. The noise of round t is row t of C^-1 z.
    """
    return np.asarray(solve_triangular(strategy, np.eye(strategy.shape[0]), lower=True), dtype=np.float64)


def correlated_event(
    noise_multiplier: float, strategy: Floats, separation: int, participations: int
) -> GaussianRelease:
    """Return one Gaussian release event that represents all rounds with correlated noise.

    The event has the sensitivity sens(C) of the strategy matrix C to one unit. This sensitivity is exact, with one
    exception: for a tree it is an upper bound if a unit can participate in more than 100,000 different sets of rounds.

    The first t rounds of a longer training are represented by the leading t x t block of its matrix: C is lower
    triangular, so the noise of these rounds is the inverse of this block times their own draws.

    `noise_multiplier`: The noise multiplier of the event is this number divided by sens(C).
    """
    require_noise_multiplier(noise_multiplier)
    return GaussianRelease(sensitivity(strategy, separation, participations), noise_multiplier)


def sensitivity(strategy: Floats, separation: int, participations: int) -> float:
    """Return sens(C): the L2 sensitivity of C g to a unit whose contribution to each round has a norm of at most 1.

    C is the strategy matrix, and row t of g is the sum of contributions of round t. A unit that participates in the
    rounds of a set S changes C g by at most (sum over s, t in S of |(C'C)_st|)^(1/2). The sensitivity is the maximum
    over all sets S that the participation pattern allows (Choquette-Choo et al. 2023, arXiv:2306.08153, Eq. (5)).

    The result is exact if C'C has no negative entry, as for all matrices of this module, or if the columns of rounds at
    least `separation` apart are orthogonal; otherwise it is an upper bound. The function uses the first of these
    methods that applies:

    * the sum over all rounds, if a unit may participate in every round;
    * a dynamic programme over squared column norms, if the columns of rounds at least `separation` apart are
      orthogonal, as for a banded matrix with at most `separation` bands;
    * the set {1, 1 + separation, 1 + 2 separation, ...}, if C is Toeplitz with non-negative and non-increasing
      coefficients (Kalinin & Lampert 2024, arXiv:2405.13763, theorem 2);
    * enumeration of all sets, if they are at most 100,000, and otherwise an upper bound.

    `participations`: If `separation` allows only fewer rounds, the largest allowed number is used.
    """
    limit = _require_pattern(strategy, separation, participations)
    gram = np.abs(strategy.T @ strategy)
    rounds = strategy.shape[0]
    if separation == 1 and limit == rounds:
        return math.sqrt(float(gram.sum()))
    if limit == 1 or not np.any(np.tril(gram, -separation)):
        return math.sqrt(float(_largest_sum(np.diag(gram), separation, limit)))
    if _is_decreasing_toeplitz(strategy):
        return float(np.linalg.norm(strategy[:, : limit * separation : separation].sum(axis=1)))
    count = sum(math.comb(rounds - (times - 1) * (separation - 1), times) for times in range(1, limit + 1))
    if count > _LARGEST_ENUMERATION:
        return _sensitivity_upper_bound(strategy, separation, participations)
    return math.sqrt(max(_largest_enumerated(gram, separation, times) for times in range(1, limit + 1)))


def _sensitivity_upper_bound(strategy: Floats, separation: int, participations: int) -> float:
    """Return an upper bound on `sensitivity` for any strategy matrix C and participation pattern.

    A pattern allows sets of at most `participations` rounds that are at least `separation` apart. The square of the
    bound is the largest sum of |(C'C)_st| over s in one allowed set and t in another (arXiv:2306.08153, algorithm 4).
    """
    limit = _require_pattern(strategy, separation, participations)
    rows = _largest_sum(np.abs(strategy.T @ strategy), separation, limit)
    return math.sqrt(float(_largest_sum(rows, separation, limit)))


def _require_pattern(strategy: Floats, separation: int, participations: int) -> int:
    """Check the arguments of `sensitivity` and return the largest number of rounds in which a unit can participate."""
    square = strategy.ndim == 2 and strategy.shape[0] == strategy.shape[1] > 0
    require(square, f"strategy has shape {strategy.shape}: accepted are square matrices of at least one round")
    require(bool(np.all(np.isfinite(strategy))), "strategy has entries that are no finite numbers: accepted are none")
    require_whole(separation=separation, participations=participations)
    return min(int(participations), -(-int(strategy.shape[0]) // int(separation)))


def _largest_sum(weights: Floats, separation: int, limit: int) -> Floats:
    """Return the largest sum along the last axis over at most `limit` positions that are at least `separation` apart.

    A dynamic programme: after j steps, best[i] is the largest sum over at most j positions from i on.
    """
    best = np.zeros((*weights.shape[:-1], weights.shape[-1] + separation))
    for _ in range(limit):
        totals = weights + best[..., separation:]
        best[..., : weights.shape[-1]] = np.maximum.accumulate(totals[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(best[..., 0], dtype=np.float64)


def _is_decreasing_toeplitz(strategy: Floats) -> bool:
    coefficients = strategy[:, 0]
    falling = bool(np.all(np.diff(coefficients) <= 0)) and bool(coefficients[-1] >= 0)
    return falling and np.array_equal(strategy, toeplitz(coefficients, np.zeros_like(coefficients)))


def _largest_enumerated(gram: Floats, separation: int, times: int) -> float:
    """Return the largest sum of `gram` over all pairs of rounds in a set.

    All sets of `times` rounds that are at least `separation` apart are tried.
    """
    free = gram.shape[0] - (times - 1) * (separation - 1)
    sets = combinations(range(free), times)
    largest = 0.0
    while chunk := list(islice(sets, _CHUNK)):
        rounds = np.array(chunk) + (separation - 1) * np.arange(times)
        sums = gram[rounds[:, :, None], rounds[:, None, :]].sum(axis=(1, 2))
        largest = max(largest, float(sums.max()))
    return largest
