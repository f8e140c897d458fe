"""How far one unit can move the releases of a strategy matrix when it takes part in several rounds.

A strategy C (rounds x rounds, lower triangular) turns the contributions g_1, ..., g_k of the rounds into C g, to which
independent noise is added. A unit that takes part in the rounds of a set S with contributions of norm at most 1 moves
C g by at most (sum over s, t in S of |(C'C)_st|)^(1/2), which is attained where no entry of C'C is negative, by equal
contributions in all rounds. The sensitivity is the largest such value over all sets S that the participation allows:
at most `participations` rounds, any two of them at least `separation` apart (Choquette-Choo et al. 2023, "(Amplified)
banded matrix factorization", arXiv:2306.08153, Eq. (5)). Everybody in every round is separation 1.
"""

import math
from itertools import combinations, islice

import numpy as np
from scipy.linalg import toeplitz

from fl_audit.arrays import Floats
from fl_audit.errors import InputError, require

LARGEST_ENUMERATION = 100_000  # sets of rounds up to which a sensitivity is found by trying all of them

_CHUNK = 4096


def sensitivity(strategy: Floats, separation: int, participations: int) -> float:
    """Return the L2 sensitivity of a strategy to a unit whose contribution to a round has norm at most 1.

    It is exact where no entry of C'C is negative, as for all matrices of `matrices`, and where rounds that are
    `separation` apart do not overlap; otherwise it is an upper bound. It is found, in this order, by

    * the sum over all rounds, where a unit may take part in every one;
    * a dynamic programme over squared column norms, where the columns of rounds that are `separation` apart are
      orthogonal: above all for a banded strategy with at most `separation` bands;
    * the set {1, 1 + separation, 1 + 2 separation, ...}, which is the worst where C is Toeplitz and its coefficients
      are not negative and never increase (Kalinin & Lampert 2024, arXiv:2405.13763, theorem 2);
    * trying all sets, up to `LARGEST_ENUMERATION` of them.

    Parameters
    ----------
    strategy
        C, square.
    separation
        Smallest distance between two rounds in which the same unit takes part, from 1.
    participations
        Largest number of rounds in which a unit takes part, from 1; more than fit into the rounds are as many as fit.

    Returns
    -------
    float
        In units of the norm of one contribution.

    Raises
    ------
    InputError
        If a number is out of its range, or none of the four ways leads to the answer.

    Examples
    --------
    >>> round(sensitivity(np.tri(4), 1, 4), 4)  # 1 + 4 + 9 + 16
    5.4772
    """
    most = _require_pattern(strategy, separation, participations)
    gram, rounds = np.abs(strategy.T @ strategy), strategy.shape[0]
    if separation == 1 and most == rounds:
        return math.sqrt(float(gram.sum()))
    if most == 1 or not np.any(np.tril(gram, -separation)):
        return math.sqrt(float(_largest_sum(np.diag(gram), separation, most)))
    if _is_decreasing_toeplitz(strategy):
        return float(np.linalg.norm(strategy[:, : most * separation : separation].sum(axis=1)))
    count = sum(_pattern_count(rounds, separation, taken) for taken in range(1, most + 1))
    require(
        count <= LARGEST_ENUMERATION,
        f"sets of rounds are {count}: accepted for an exact sensitivity of this strategy are up to "
        f"{LARGEST_ENUMERATION}; sensitivity_upper_bound takes more",
    )
    return math.sqrt(max(_largest_enumerated(gram, separation, taken) for taken in range(1, most + 1)))


def sensitivity_upper_bound(strategy: Floats, separation: int, participations: int) -> float:
    """Return an upper bound on `sensitivity` for any strategy and participation.

    For every round s the largest sum of |(C'C)_st| over an allowed set of rounds t, then the largest sum of these over
    an allowed set of rounds s: two dynamic programmes that need not agree on the set (Choquette-Choo et al. 2023,
    arXiv:2306.08153, algorithm 4). Parameters and refusals are those of `sensitivity`.

    Parameters
    ----------
    strategy, separation, participations
        As for `sensitivity`.

    Examples
    --------
    >>> round(sensitivity_upper_bound(np.tri(4), 1, 4), 4)
    5.4772
    """
    most = _require_pattern(strategy, separation, participations)
    rows = _largest_sum(np.abs(strategy.T @ strategy), separation, most)
    return math.sqrt(float(_largest_sum(rows, separation, most)))


def accounted_sensitivity(strategy: Floats, separation: int, participations: int) -> float:
    """Return `sensitivity`, or `sensitivity_upper_bound` where the sets of rounds are too many: never too small.

    Parameters
    ----------
    strategy, separation, participations
        As for `sensitivity`.
    """
    try:
        return sensitivity(strategy, separation, participations)
    except InputError:
        return sensitivity_upper_bound(strategy, separation, participations)


def _require_pattern(strategy: Floats, separation: int, participations: int) -> int:
    """Refuse what is out of range and return how many rounds a unit can take part in."""
    square = strategy.ndim == 2 and strategy.shape[0] == strategy.shape[1] > 0
    require(square, f"strategy has shape {strategy.shape}: accepted are square matrices of at least one round")
    require(bool(np.all(np.isfinite(strategy))), "strategy has entries that are no finite numbers: accepted are none")
    for name, value in (("separation", separation), ("participations", participations)):
        require(value >= 1 and int(value) == value, f"{name} is {value}: accepted are whole numbers from 1")
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


def _pattern_count(rounds: int, separation: int, taken: int) -> int:
    return math.comb(rounds - (taken - 1) * (separation - 1), taken)


def _largest_enumerated(gram: Floats, separation: int, taken: int) -> float:
    """Return the largest sum of the Gram matrix over sets of exactly so many rounds."""
    free = gram.shape[0] - (taken - 1) * (separation - 1)
    sets, largest = combinations(range(free), taken), 0.0
    while chunk := list(islice(sets, _CHUNK)):
        rounds = np.array(chunk) + (separation - 1) * np.arange(taken)
        sums = gram[rounds[:, :, None], rounds[:, None, :]].sum(axis=(1, 2))
        largest = max(largest, float(sums.max()))
    return largest
