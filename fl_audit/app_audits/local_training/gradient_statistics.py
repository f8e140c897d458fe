"""Noise scales of gradients, and the effect of a record, from the same steps with other noise or another record.

Everything here is of gradients as an optimizer applied them: sums or means, in whatever unit.

Noise that is drawn in a space of few dimensions and multiplied out (factors of a gradient, projections) is not
independent at the coordinates: its size there says little of its size along the effect of a record, and is not used.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import polygamma, psi
from scipy.stats import chi2, gamma, kstest, kurtosistest, norm

from fl_audit.app_audits.local_training.pitfalls import LEVEL
from fl_audit.array_types import Flags, Floats, Floats32

ROUNDING = 1e-6
"""Difference of two gradients, over the largest number in them, that the rounding of float32 explains."""
_BALL_STEPS = 2000  # most steps towards the smallest ball that holds some points


def noise_samples(redraws: Sequence[Sequence[Floats32]]) -> list[list[Floats]]:
    """Return independent samples of the noise of each step: Helmert contrasts of gradients whose noise alone differs.

    If gradients are a fixed vector plus noise of N(0, sigma^2) at each coordinate, so are the samples without it.

    Parameters
    ----------
    redraws
        Gradients of each step of each training, (parameters,). Later trainings may have fewer steps.

    Returns
    -------
    list
        Noise of each step, for each training but the first one.
    """
    means = [values.astype(np.float64) for values in redraws[0]]
    samples = list[list[Floats]]()
    for number, gradients in enumerate(redraws[1:], 1):
        differences = [values - mean for values, mean in zip(gradients, means, strict=False)]
        samples.append([difference * math.sqrt(number / (number + 1)) for difference in differences])
        for step, difference in enumerate(differences):
            means[step] += difference / (number + 1)
    return samples


@dataclass(frozen=True)
class NoiseScales:
    """Standard deviations of the noise of each tensor in each step."""

    scales: Floats  # (steps, tensors); 0 without noise
    degrees: int  # fewest degrees of freedom of an estimate

    @property
    def largest_factor(self) -> float:
        """By which factor the true standard deviation may exceed an estimate, at the level of one test."""
        return math.sqrt(self.degrees / float(chi2.ppf(LEVEL, self.degrees))) if self.degrees else 1.0


def noise_scales(
    samples: Sequence[Sequence[Floats]], sizes: Sequence[int], gradients: Sequence[Floats32]
) -> NoiseScales:
    """Return the noise scale of each tensor in each step, pooled over what chance does not tell apart.

    Parameters
    ----------
    samples
        Samples of the noise of each step, (parameters,), as `noise_samples` returns them.
    sizes
        Number of coordinates of each tensor.
    gradients
        Gradients of each step, (parameters,): what their rounding explains is no noise.
    """
    ends = np.cumsum(sizes)[:-1]
    squares, counts = np.zeros((2, len(gradients), len(sizes)))
    for sample in samples:
        for step, noise in enumerate(sample):
            squares[step] += [float(np.sum(tensor_noise**2)) for tensor_noise in np.split(noise, ends)]
            counts[step] += sizes
    largest = np.array(
        [
            [np.abs(tensor_values).max(initial=0.0) for tensor_values in np.split(gradient, ends)]
            for gradient in gradients
        ]
    )
    is_bare = squares <= counts * (ROUNDING * largest) ** 2
    for axes in ((0, 1), (0,), ()):
        pooled_squares, pooled_counts = (
            np.where(is_bare, 0.0, sums).sum(axes, keepdims=True) for sums in (squares, counts)
        )
        variances = np.where(is_bare, 0.0, pooled_squares / np.maximum(pooled_counts, 1.0))
        if not _is_told_apart(squares, counts, variances, is_bare):
            break
    known_counts = np.broadcast_to(pooled_counts, is_bare.shape)[~is_bare]
    return NoiseScales(np.sqrt(variances), int(known_counts.min(initial=np.inf)) if known_counts.size else 0)


def _is_told_apart(squares: Floats, counts: Floats, variances: Floats, is_bare: Flags) -> bool:
    """Return True if the noise of some tensor in some step has another scale than that of those it is pooled with."""
    noisy = ~is_bare
    if not noisy.any():
        return False
    ratios = squares[noisy] / variances[noisy]
    lower, upper = chi2.cdf(ratios, counts[noisy]), chi2.sf(ratios, counts[noisy])
    return bool(np.minimum(lower, upper).min() < LEVEL / 2)


def lengths(difference: Floats | Floats32, sizes: Sequence[int]) -> Floats:
    """Return the length of each tensor of a difference of gradients, (tensors,)."""
    tensors = np.split(difference.astype(np.float64), np.cumsum(sizes)[:-1])
    return np.array([float(np.linalg.norm(tensor)) for tensor in tensors])


def is_moved(first: Floats32, second: Floats32) -> bool:
    """Return True if two gradients differ by more than rounding explains."""
    largest = max(float(np.abs(first).max(initial=0.0)), float(np.abs(second).max(initial=0.0)))
    return float(np.abs(first.astype(np.float64) - second).max(initial=0.0)) > ROUNDING * largest


def smallest_ball_radius(points: Floats) -> float:
    """Return a lower bound on the radius of the smallest ball that holds all points, close to the radius.

    For any weights w that add up to 1, sum of w |x|^2 less |sum of w x|^2 is at most the square of the radius. The
    weights are improved by steps towards the farthest point (Badoiu and Clarkson 2003, as the algorithm of Frank and
    Wolfe with exact steps).

    Parameters
    ----------
    points
        Points, (points, dimensions).
    """
    centred = points - points.mean(axis=0)
    products = centred @ centred.T
    squares = np.diag(products).copy()
    weights = np.full(len(points), 1 / len(points))
    for _ in range(_BALL_STEPS):
        slope = squares - 2 * products @ weights
        farthest = int(np.argmax(slope))
        step = -weights.copy()
        step[farthest] += 1
        gain, bend = float(slope @ step), float(step @ products @ step)
        if gain <= 1e-12 * max(float(squares.max(initial=0.0)), 1e-300) or bend <= 0:
            break
        weights = weights + min(1.0, gain / (2 * bend)) * step
    return float(np.sqrt(max(0.0, float(weights @ squares) - float(weights @ products @ weights))))


# Level of all tests of a training's noise together: a rejection leaves the verdict open, and accuses nobody.
_DEPENDENCE_LEVEL = 1e-4
_MOST_CORRELATED = 6  # steps whose noise is compared, from the first
_FEWEST_VALUES = 50  # values of noise whose distribution is tested
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
        if smallest * 3 * len(shapes) < _DEPENDENCE_LEVEL:
            p_values[number] = smallest * 3 * len(shapes)
    return p_values


def unit_noise(samples: Sequence[Sequence[Floats]], scales: Floats, sizes: Sequence[int]) -> list[list[Floats]]:
    """Return samples of noise over its scale, and zeros where there is none.

    Shapes: `samples` (redraws,) of (steps,) of (parameters,), `scales` (steps, tensors).
    """
    widths = np.repeat(scales, sizes, axis=1)
    return [
        [
            np.divide(noise, width, out=np.zeros_like(noise), where=width > 0)
            for noise, width in zip(sample, widths, strict=False)
        ]
        for sample in samples
    ]


def step_correlation(samples: Sequence[Sequence[Floats]]) -> tuple[int, int, float] | None:
    """Return two of the first steps whose noise is correlated, and the correlation; None if none is significant.

    Shapes: `samples` (redraws,) of (steps,) of (parameters,), as `unit_noise` returns them.
    """
    count = min(_MOST_CORRELATED, max(map(len, samples), default=0))
    whole = [np.array([sample[step] for step in range(count)]) for sample in samples if len(sample) >= count]
    if count < 2 or not whole:
        return None
    noise = np.concatenate(whole, axis=1)
    products = noise @ noise.T
    # For independent noise that is symmetric around zero, an inner product over this root has mean 0 and variance 1.
    roots = np.sqrt(noise**2 @ (noise**2).T)
    pairs = [(first, second) for first, second in combinations(range(count), 2) if roots[first, second] > 0]
    strongest = max(pairs, key=lambda pair: abs(products[pair] / roots[pair]), default=None)
    if strongest is None or 2 * norm.sf(abs(products[strongest] / roots[strongest])) * len(pairs) > _DEPENDENCE_LEVEL:
        return None
    first, second = strongest
    return first, second, float(products[strongest] / np.sqrt(products[first, first] * products[second, second]))


def is_normal(samples: Sequence[Sequence[Floats]]) -> bool:
    """Return True if noise over its scale may be normal, by its distribution and its fourth moment.

    Shapes: `samples` (redraws,) of (steps,) of (parameters,), as `unit_noise` returns them.
    """
    values = np.concatenate([np.zeros(0), *(noise[noise != 0] for sample in samples for noise in sample)])
    if len(values) < _FEWEST_VALUES:
        return True
    p_values = float(kstest(values, "norm").pvalue), float(kurtosistest(values).pvalue)
    return 2 * min(p_values) > _DEPENDENCE_LEVEL


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
