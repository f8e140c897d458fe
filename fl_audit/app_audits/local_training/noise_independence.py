"""Test whether the noise of a tensor is independent at its coordinates.

Noise that is drawn in a space of few dimensions and multiplied out (factors of a gradient, projections) is not: its
size at the coordinates says little of its size along the effect of a record.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import polygamma, psi
from scipy.stats import chi2, gamma

from fl_audit.array_types import Floats

_LEVEL = 1e-4  # level of all tests of a training's noise together: a rejection leaves the verdict open, accuses nobody
_MOST_VECTORS = 256  # vectors or coordinates of a matrix of correlations


def dependent_tensors(samples: Sequence[Sequence[Floats]], shapes: Sequence[tuple[int, ...]]) -> dict[int, float]:
    """Return the tensors whose noise is not independent at the coordinates, by their numbers from 0.

    Of each tensor, three kinds of vectors are tested: its rows, its columns, and its redraws as a whole.

    Parameters
    ----------
    samples
        Samples of the noise of each step, (parameters,), as `noise_samples` returns them.
    shapes
        Shape of each tensor.

    Returns
    -------
    dict
        p-value of each of these tensors, times the number of all tests.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    step_count = max(map(len, samples), default=0)
    noise_by_step = [[sample[step] for sample in samples if step < len(sample)] for step in range(step_count)]
    tensors_by_step = [[np.split(noise, ends) for noise in noises] for noises in noise_by_step]
    p_values = dict[int, float]()
    for number, shape in enumerate(shapes):
        draws = [np.array([tensors[number] for tensors in tensors_by_draw]) for tensors_by_draw in tensors_by_step]
        smallest = min(map(dependence_p_value, _arrangements(draws, shape)))
        if smallest * 3 * len(shapes) < _LEVEL:
            p_values[number] = smallest * 3 * len(shapes)
    return p_values


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

    Where vectors are more than coordinates, it is the likelihood-ratio test, which sees every dependence. Else the
    inner products of vectors are tested, which are larger where vectors lie in few dimensions.

    Shapes: `vectors_by_step` (steps,) of (vectors, coordinates).
    """
    noisy_vectors = [_without_zeros(vectors) for vectors in vectors_by_step]
    tested_vectors = [vectors for vectors in noisy_vectors if vectors.shape[1] > 1]
    is_tall = all(vectors.shape[1] <= min(_MOST_VECTORS, len(vectors) - 1) for vectors in tested_vectors)
    if not tested_vectors:
        return 1.0
    return _determinant_p_value(tested_vectors) if is_tall else _product_p_value(tested_vectors)


def _without_zeros(vectors: Floats) -> Floats:
    """Return vectors without those that are zero, and without coordinates that are zero in all of them."""
    is_noisy = vectors != 0
    return vectors[np.ix_(is_noisy.any(axis=1), is_noisy.any(axis=0))]


def _determinant_p_value(vectors_by_step: Sequence[Floats]) -> float:
    """Return the p-value of the determinants of the correlations of coordinates.

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


def _product_p_value(vectors_by_step: Sequence[Floats]) -> float:
    """Return the p-value of the inner products of vectors.

    For independent coordinates that are symmetric around zero, an inner product over the root of the sum of its squared
    terms has mean 0 and variance 1 whatever the scales of the coordinates are, and different ones are uncorrelated. The
    sum of their squares is taken for a chi-square number (Schott 2005, for equal scales).
    """
    total, count = 0.0, 0
    for vectors in vectors_by_step:
        compared_vectors = vectors[:: -(-len(vectors) // _MOST_VECTORS)]
        products, squares = compared_vectors @ compared_vectors.T, compared_vectors**2 @ (compared_vectors**2).T
        pairs = np.triu_indices(len(compared_vectors), 1)
        is_noisy = squares[pairs] > 0
        total += float((products[pairs][is_noisy] ** 2 / squares[pairs][is_noisy]).sum())
        count += int(is_noisy.sum())
    return float(chi2.sf(total, count)) if count else 1.0
