"""Test whether the noise of a tensor is independent at its coordinates.

Noise that is drawn in a space of few dimensions and multiplied out (factors of a gradient, projections) is not: its
size at the coordinates says little of its size along the effect of a record.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import polygamma, psi
from scipy.stats import gamma

from fl_audit.array_types import Floats

_LEVEL = 1e-4  # level of all tests of a training's noise together: a rejection leaves the verdict open, accuses nobody
_ITERATIONS = 20  # of the search for a direction: one that is not the best costs power and no level
_MOST_COORDINATES = 256  # of a matrix of correlations


def dependent_tensors(samples: Sequence[Sequence[Floats]], shapes: Sequence[tuple[int, ...]]) -> dict[int, float]:
    """Return the tensors whose noise is not independent at the coordinates, by their numbers from 0.

    Of each tensor, three kinds of vectors are compared: its rows, its columns, and its redraws as a whole.

    Parameters
    ----------
    samples
        Samples of the noise of each step, (parameters,), as `noise_samples` returns them.
    shapes
        Shape of each tensor.

    Returns
    -------
    dict
        By which factor the noise of a tensor is larger along one direction than independent coordinates give.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    step_count = max(map(len, samples), default=0)
    noise_by_step = [[sample[step] for sample in samples if step < len(sample)] for step in range(step_count)]
    tensors_by_step = [[np.split(noise, ends) for noise in noises] for noises in noise_by_step]
    factors = dict[int, float]()
    for number, shape in enumerate(shapes):
        draws = [np.array([tensors[number] for tensors in tensors_by_draw]) for tensors_by_draw in tensors_by_step]
        for vectors_by_step in _arrangements(draws, shape):
            if dependence_p_value(vectors_by_step) < _LEVEL / (3 * len(shapes)):
                factors[number] = max(factors.get(number, 1.0), factor_along_direction(vectors_by_step))
    return factors


def _arrangements(draws: Sequence[Floats], shape: tuple[int, ...]) -> Iterator[list[Floats]]:
    """Yield the noise of a tensor in each step as vectors of coordinates: whole redraws, its rows, and its columns.

    `draws`: Noise of the tensor in each step, (redraws, coordinates).
    """
    yield list(draws)
    if len(shape) > 1:
        matrices = [draw.reshape(len(draw), shape[0], -1) for draw in draws]
        yield [matrix.reshape(-1, matrix.shape[2]) for matrix in matrices]
        yield [matrix.transpose(0, 2, 1).reshape(-1, shape[0]) for matrix in matrices]


def dependence_p_value(vectors_by_step: Sequence[Floats]) -> float:
    """Return the p-value of the test that coordinates of noise vectors around zero are independent in each step.

    Where vectors are more than coordinates, it is the likelihood-ratio test, which sees every dependence. Else it is
    tested whether vectors are longer along a direction than independent coordinates give.

    Shapes: `vectors_by_step` (steps,) of (vectors, coordinates).
    """
    noisy_vectors = [_without_zeros(vectors) for vectors in vectors_by_step]
    tested_vectors = [vectors for vectors in noisy_vectors if vectors.shape[1] > 1]
    is_tall = all(vectors.shape[1] <= min(_MOST_COORDINATES, len(vectors) - 1) for vectors in tested_vectors)
    if tested_vectors and is_tall:
        return _determinant_p_value(tested_vectors)
    return _direction_p_value(np.concatenate([np.zeros(0), *map(squares_along_direction, tested_vectors)]))


def _without_zeros(vectors: Floats) -> Floats:
    """Return vectors without those that are zero, and without coordinates that are zero in all of them."""
    is_noisy = vectors != 0
    return vectors[np.ix_(is_noisy.any(axis=1), is_noisy.any(axis=0))]


def _determinant_p_value(vectors_by_step: Sequence[Floats]) -> float:
    """Return the p-value of the determinants of correlation matrices.

    For independent normal coordinates, the determinant is a product of independent beta numbers with parameters
    (n - i) / 2 and i / 2 for n vectors, i from 1 to the number of coordinates minus 1 (Wilks 1932). A gamma
    distribution with the mean and the variance of minus its logarithm takes the place of the exact one.
    """
    statistic = mean = variance = 0.0
    for vectors in vectors_by_step:
        unit = vectors / np.sqrt((vectors**2).sum(axis=0))
        sign, log_determinant = np.linalg.slogdet(unit.T @ unit)
        statistic -= float(log_determinant) if sign > 0 else -math.inf
        halves = (len(vectors) - np.arange(1, vectors.shape[1])) / 2
        mean += float(np.sum(psi(len(vectors) / 2) - psi(halves)))
        variance += float(np.sum(polygamma(1, halves) - polygamma(1, len(vectors) / 2)))
    return float(gamma.sf(statistic, mean**2 / variance, scale=variance / mean))


def factor_along_direction(vectors_by_step: Sequence[Floats]) -> float:
    """Return by which factor noise vectors are larger along a direction than independent coordinates give."""
    squares = np.concatenate([np.zeros(0), *map(squares_along_direction, vectors_by_step)])
    return math.sqrt(float(squares.mean())) if squares.size else 1.0


def squares_along_direction(vectors: Floats) -> Floats:
    """Return the squares of noise vectors along a direction, over what independent coordinates give on average.

    The direction is the one along which every second vector is longest; the squares are those of the other vectors.

    Shapes: `vectors` (vectors, coordinates). Returned (at most half of the vectors,).
    """
    if len(vectors) < 2:
        return np.zeros(0)
    direction = _longest_direction(vectors[::2])
    tested_vectors = vectors[1::2]
    expected = (tested_vectors**2) @ direction**2
    is_noisy = expected > 0
    return (tested_vectors[is_noisy] @ direction) ** 2 / expected[is_noisy]


def _longest_direction(vectors: Floats) -> Floats:
    """Return the direction along which vectors are about longest, by the power method; zero if all of them are."""
    direction = vectors[np.argmax((vectors**2).sum(axis=1))]
    for _ in range(_ITERATIONS):
        length = float(np.linalg.norm(direction))
        if length <= 0:
            break
        direction = (vectors @ (direction / length)) @ vectors
    return direction / (float(np.linalg.norm(direction)) or 1.0)


def _direction_p_value(squares: Floats) -> float:
    """Return an upper bound on the p-value of so large squares along a direction.

    If coordinates are independent and symmetric around zero, the root of each square is a sum of fixed numbers with
    random signs, whose squares sum to 1. Its exponential moments are at most those of a standard normal number
    (Khintchine), so Chernoff's bound on the sum of squares is that of a chi-square number.
    """
    count, total = len(squares), float(squares.sum())
    if not count or total <= count:
        return 1.0
    return math.exp(-(total - count - count * math.log(total / count)) / 2)
