"""Test whether the size of the noise varies from round to round as that of independent noise does.

The size of the noise in a round is its sum of squares, which is chi-square distributed under the claim. Two faults show
in the sizes alone. If the noise of every round is scaled to one length, all sizes are equal: an adversary computes the
length of the noise under D and under D', and only one of the two is right. If a round uses the noise of an earlier one
in another order, both have the same size. More noise than claimed makes sizes vary more, and is no breach.
"""

import math

import numpy as np
from scipy.special import chdtr, chdtrc, chdtri, ndtri

from fl_audit.array_types import Floats, Integers
from fl_audit.verdict.declared_tests import DETECTION_POWER, Look, NotTestedReason, bonferroni, only_if
from fl_audit.verdict.noise_scale import has_direction, why_no_direction
from fl_audit.verdict.null_distributions import along_previous, detectable_mean, student_p
from fl_audit.verdict.run_measurements import EVIDENT, NoiseMeasurements

_FEWEST = 8  # rounds, over all trials, whose sizes are compared
_FEWEST_FREEDOM = 30  # degrees of freedom from which cube roots of sizes are near enough to normal
_MOST_LAGS = 4
_LARGEST_SCORE = 37.0  # a normal score of a 64-bit float is no larger


def even_sizes(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether the size of the noise varies less between rounds than it should.

    The normal score of a size is the normal quantile of its chi-square probability. The variance of the scores is
    tested by chi-square, lower tail, for all parameters together and for each tensor, with Bonferroni's correction. If
    the total noise differs significantly from the claim, the sizes are compared with their own mean.
    """
    spreads = []
    for location, (squares, freedom) in _sizes(measurements).items():
        is_off = _is_off_scale(squares, freedom)
        reference = freedom > 0
        if np.count_nonzero(reference) < _FEWEST or (is_off and freedom[reference].min() < _FEWEST_FREEDOM):
            continue
        scores = (
            _over_own_scale(squares[reference], freedom[reference])
            if is_off
            else normal_scores(squares, freedom)[reference]
        )
        spread = float(np.sum(np.square(scores - scores.mean())))
        remaining = scores.size - 1
        spreads.append((float(chdtr(remaining, spread)), spread / remaining, location, remaining))
    only_if(bool(spreads), NotTestedReason.TOO_FEW)
    p_value, ratio, location, remaining = min(spreads)
    limit = 1 - float(chdtri(remaining, 1 - level / len(spreads)) / chdtri(remaining, 1 - DETECTION_POWER))
    details = {"places": len(spreads)}
    return Look("even-sizes", ratio, bonferroni(len(spreads), p_value), ratio, 1.0, max(0.0, limit), location, details)


def carried_sizes(measurements: NoiseMeasurements, level: float) -> Look:
    """Test whether the size of the noise in a round depends on its size one to four rounds before, by Student's t.

    The two-sided test is repeated for all parameters together, for each tensor, and for each of the four distances
    between rounds, with Bonferroni's correction. If the total noise differs significantly from the claim, the ranks of
    the sizes are tested instead, and only a positive dependence counts.
    """
    only_if(measurements.rounds >= 2, NotTestedReason.ONE_ROUND)
    correlations = []
    for location, (squares, freedom) in _sizes(measurements).items():
        is_off = _is_off_scale(squares, freedom)
        usable = _ranked(squares, freedom) if is_off else normal_scores(squares, freedom)
        usable = usable[~np.isnan(usable).any(axis=1)]
        for lag in range(1, min(_MOST_LAGS, measurements.rounds - 1) + 1):
            before, after = usable[:, :-lag], usable[:, lag:]
            steps = along_previous(before, after)
            if steps.size < _FEWEST:
                continue
            size = float(steps.mean()) / math.sqrt(before.shape[1])
            t, p_value = student_p(steps)
            if is_off:  # subtracting the means makes sizes slightly negatively correlated
                p_value = p_value / 2 if t > 0 else 1.0
            correlations.append((p_value, size, f"{lag} rounds later{location and f' on the {location}'}", steps.size))
    only_if(bool(correlations), NotTestedReason.TOO_FEW)
    p_value, size, location, count = min(correlations)
    limit = min(1.0, detectable_mean(count, level / len(correlations)) / math.sqrt(measurements.rounds - 1))
    return Look("carried-sizes", size, bonferroni(len(correlations), p_value), size, 0.0, limit, location)


def normal_scores(squares: Floats, freedom: Integers) -> Floats:
    """Return the normal scores of sums of squares over the claimed variance; NaN where `freedom` is 0."""
    is_known = freedom > 0
    counts = np.where(is_known, freedom, 1)
    lower, upper = chdtr(counts, squares), chdtrc(counts, squares)
    smaller = np.maximum(np.minimum(lower, upper), 1e-300)
    scores = np.where(lower <= upper, 1.0, -1.0) * ndtri(smaller)
    return np.where(is_known, np.clip(scores, -_LARGEST_SCORE, _LARGEST_SCORE), np.nan)


def _is_off_scale(squares: Floats, freedom: Integers) -> bool:
    """Return whether the total amount of noise differs from the claim, at the level `EVIDENT`."""
    total = float(squares.sum())
    degrees = int(freedom.sum())
    return bool(min(chdtr(degrees, total), chdtrc(degrees, total)) < EVIDENT)


def _over_own_scale(squares: Floats, freedom: Integers) -> Floats:
    """Return approximate N(0, 1) scores that show how far each sum of squares is from the mean over all of them.

    Scores are computed from cube roots of sums of squares, which are nearly normal (Wilson and Hilferty 1931).
    """
    mean = max(1e-300, float(squares.sum() / freedom.sum()))
    spread = 2 / (9 * freedom)
    return np.asarray((np.cbrt(squares / freedom / mean) - 1 + spread) / np.sqrt(spread), dtype=np.float64)


def _ranked(squares: Floats, freedom: Integers) -> Floats:
    """Rank the sizes of the noise of all rounds and trials, and return the ranks' normal scores, (trials, rounds).

    Before, each trial's mean and each round's mean are subtracted from the log sizes. If a trial has a round without a
    measured size, all its scores are NaN.
    """
    whole = (freedom > 0).all(axis=1)
    spreads = np.full(squares.shape, np.nan)
    if whole.any():
        logs = np.log(np.maximum(squares[whole] / freedom[whole], 1e-300))
        logs = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0, keepdims=True) + logs.mean()
        ranks = logs.reshape(-1).argsort().argsort().reshape(logs.shape)
        spreads[whole] = ndtri((ranks + 0.5) / ranks.size)
    return spreads


def _sizes(measurements: NoiseMeasurements) -> dict[str, tuple[Floats, Integers]]:
    """Return, for each part of the model, the size of its noise and the degrees of freedom, both (trials, rounds).

    The size is the sum of squares divided by the claimed variance. The key is "" for the whole model, and text such as
    "tensor 'weight'" for one of several tensors.
    """
    only_if(has_direction(measurements), why_no_direction(measurements))
    noise = measurements.noise
    variance = measurements.sigma**2
    sizes_by_tensor = {"": (np.maximum(0.0, noise.total / variance), noise.total_freedom)}
    if len(noise.tensors) > 1:
        squares = np.maximum(0.0, noise.squares / variance[..., None])
        tensors = enumerate(noise.tensors)
        by_tensor = {f"tensor '{name}'": (squares[..., at], noise.freedom[..., at]) for at, name in tensors}
        sizes_by_tensor |= {name: sizes for name, sizes in by_tensor.items() if sizes[1].any()}
    return sizes_by_tensor
