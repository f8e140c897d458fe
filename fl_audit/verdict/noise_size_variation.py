"""Test whether the size of the noise varies between rounds as claimed, and whether some tensors get too little noise.

The size of the noise in a round is its sum of squares, which is chi-square distributed. Its normal score is the
standard normal quantile of its chi-square probability. Under the claim the scores are independent N(0, 1) over trials
and rounds. Two faults break this. If the noise of every round is scaled to the same length, all scores are almost
equal. If a round uses the shuffled noise of an earlier round, both rounds have the same score. An adversary who knows
of such a fault can infer the secret from the sizes.

Further tests look for single tensors, or a direction (the sum of the contributions that D and D' share), with too
little noise.
"""

import math

import numpy as np
from scipy.special import chdtr, chdtrc, chdtri, ndtri

from fl_audit.array_types import Floats, Integers
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult, bonferroni, only_if
from fl_audit.verdict.noise_scale import SquareSum, detectable_ratio, has_direction, least_of, why_no_direction
from fl_audit.verdict.null_distributions import along_previous, detectable_mean, student_p
from fl_audit.verdict.run_measurements import EVIDENT, NoiseMeasurements, of_family

_FEWEST = 8  # rounds, over all trials, whose sizes are compared
_FEWEST_FREEDOM = 30  # degrees of freedom from which cube roots of sizes are near enough to normal
_MOST_LAGS = 4
_LARGEST_SCORE = 37.0  # a normal score of a 64-bit float is no larger


def normal_scores(squares: Floats, freedom: Integers) -> Floats:
    """Return the normal scores of sums of squares.

    The normal score of a sum is Phi^-1(p), where p is the probability of a smaller or equal sum by the chi-square
    distribution. The scores are NaN where `freedom` is 0.

    Parameters
    ----------
    squares
        Sums of squares of the noise, divided by the claimed variance, any shape.
    freedom
        Number of degrees of freedom of every sum, from 0, in the shape of `squares`.
    """
    known = freedom > 0
    counts = np.where(known, freedom, 1)
    lower, upper = chdtr(counts, squares), chdtrc(counts, squares)
    smaller = np.maximum(np.minimum(lower, upper), 1e-300)
    scores = np.where(lower <= upper, 1.0, -1.0) * ndtri(smaller)
    return np.where(known, np.clip(scores, -_LARGEST_SCORE, _LARGEST_SCORE), np.nan)


def _is_off_scale(squares: Floats, freedom: Integers) -> bool:
    """Return whether the total amount of noise differs from the claim, at the level `EVIDENT`."""
    total, degrees = float(squares.sum()), int(freedom.sum())
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
    found = np.full(squares.shape, np.nan)
    if whole.any():
        logs = np.log(np.maximum(squares[whole] / freedom[whole], 1e-300))
        logs = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0, keepdims=True) + logs.mean()
        ranks = logs.reshape(-1).argsort().argsort().reshape(logs.shape)
        found[whole] = ndtri((ranks + 0.5) / ranks.size)
    return found


def _sizes(measured: NoiseMeasurements) -> dict[str, tuple[Floats, Integers]]:
    """Return, for each part of the model, the size of its noise and the degrees of freedom.

    The size is the sum of squares divided by the claimed variance; both arrays are (trials, rounds). The key is "" for
    the whole model, and text such as "tensor 'weight'" for one of several tensors.
    """
    only_if(has_direction(measured), why_no_direction(measured))
    noise, variance = measured.noise, measured.sigma**2
    found = {"": (np.maximum(0.0, noise.total / variance), noise.total_freedom)}
    if len(noise.tensors) > 1:
        squares = np.maximum(0.0, noise.squares / variance[..., None])
        each = enumerate(noise.tensors)
        found |= {f"tensor '{name}'": (squares[..., at], noise.freedom[..., at]) for at, name in each}
    return found


@of_family(TestName.EVEN_SIZES)
def even_sizes(measured: NoiseMeasurements) -> TestResult:
    """Test whether the size of the noise varies between rounds as much as it should.

    The size of the noise in a round is its sum of squares. Its normal score is the normal quantile of its chi-square
    probability. The variance of the normal scores is tested two-sided by chi-square, for all parameters together and
    for each tensor, with Bonferroni's correction. If the total noise differs significantly from the claim, the sizes
    are compared with their own mean. Then only too small a variance counts as evidence, because honest noise of several
    scales makes the variance too large.
    """
    found = []
    for place, (squares, freedom) in _sizes(measured).items():
        is_off = _is_off_scale(squares, freedom)
        known = freedom > 0
        if np.count_nonzero(known) < _FEWEST or (is_off and freedom[known].min() < _FEWEST_FREEDOM):
            continue
        scores = _over_own_scale(squares[known], freedom[known]) if is_off else normal_scores(squares, freedom)[known]
        spread, rest = float(np.sum(np.square(scores - scores.mean()))), scores.size - 1
        lower, upper = float(chdtr(rest, spread)), 1.0 if is_off else float(chdtrc(rest, spread))
        found.append((bonferroni(2, min(lower, upper)), spread / rest, place, rest))
    only_if(bool(found), NotTestedReason.TOO_FEW)
    p_value, ratio, place, rest = min(found)
    level = TestName.EVEN_SIZES.level / len(found)
    limit = 1 - float(chdtri(rest, 1 - level / 2) / chdtri(rest, 1 - DETECTION_POWER))
    more, p_value = {"places": len(found)}, bonferroni(len(found), p_value)
    return TestResult(TestName.EVEN_SIZES, ratio, p_value, ratio, 1.0, max(0.0, limit), place, more)


@of_family(TestName.CARRIED_SIZES)
def carried_sizes(measured: NoiseMeasurements) -> TestResult:
    """Test whether the size of the noise in a round depends on its size one to four rounds before, by Student's t.

    The size of noise is its sum of squares. No other test finds noise that is partly reused from the previous round
    after its coordinates were shuffled. The two-sided test is repeated for each tensor and for all parameters together,
    and for each of the four distances between rounds. Bonferroni's correction is over these repetitions. If the total
    noise differs significantly from the claim, the ranks of the sizes are tested instead, and only a positive
    dependence counts.
    """
    only_if(measured.rounds >= 2, NotTestedReason.ONE_ROUND)
    found = []
    for place, (squares, freedom) in _sizes(measured).items():
        is_off = _is_off_scale(squares, freedom)
        usable = _ranked(squares, freedom) if is_off else normal_scores(squares, freedom)
        usable = usable[~np.isnan(usable).any(axis=1)]
        for lag in range(1, min(_MOST_LAGS, measured.rounds - 1) + 1):
            before, after = usable[:, :-lag], usable[:, lag:]
            steps = along_previous(before, after)
            if steps.size >= _FEWEST:
                size, (t, p_value) = float(steps.mean()) / math.sqrt(before.shape[1]), student_p(steps)
                if is_off:  # subtracting the means makes sizes slightly negatively correlated
                    p_value = p_value / 2 if t > 0 else 1.0
                found.append((p_value, size, f"{lag} rounds later{place and f' on {place}'}", steps.size))
    only_if(bool(found), NotTestedReason.TOO_FEW)
    p_value, size, place, count = min(found)
    level = TestName.CARRIED_SIZES.level / len(found)
    limit = min(1.0, detectable_mean(count, level) / math.sqrt(measured.rounds - 1))
    more, p_value = {"looks": len(found)}, bonferroni(len(found), p_value)
    return TestResult(TestName.CARRIED_SIZES, size, p_value, size, 0.0, limit, place, more)


def _of_parts(measured: NoiseMeasurements) -> tuple[Floats, Integers]:
    """Return each tensor's sum of squares over the claimed variance, and its degrees of freedom.

    Both have the shape (trials, rounds, tensors). The measured sum of a tensor contains a little noise of the other
    tensors, which could hide that a small tensor has no noise. Therefore the sum is computed from the stored sample if
    the sample contains all coordinates of the tensor.
    """
    squares = np.maximum(0.0, measured.noise.squares / (measured.sigma**2)[..., None])
    freedom, trials = measured.noise.freedom.copy(), measured.sampled_trials
    for at, name in enumerate(measured.noise.tensors) if trials.any() else ():
        own = np.array([owner == name for owner in measured.tensor_of_coordinates], dtype=np.bool_)
        count = int(np.count_nonzero(own))
        if count >= max(1, int(freedom[..., at].max())):
            squares[trials, :, at] = np.square(measured.sample[..., own]).sum(axis=-1)
            freedom[trials, :, at] = count
    return squares, freedom


@of_family(TestName.NOISE_PART)
def noise_part(measured: NoiseMeasurements) -> TestResult:
    """Test whether the noise of any single tensor in any single round of a trial is too small.

    The smallest lower-tail chi-square p-value is corrected by Bonferroni.
    """
    only_if(has_direction(measured), why_no_direction(measured))
    noise, (squares, freedom) = measured.noise, _of_parts(measured)
    p_values = np.where(freedom > 0, chdtr(np.maximum(freedom, 1), squares), 1.0)
    trial, number, tensor = np.unravel_index(int(p_values.argmin()), p_values.shape)
    count, degrees = int(np.count_nonzero(freedom)), int(freedom[trial, number, tensor])
    ratio = math.sqrt(float(squares[trial, number, tensor]) / max(1, degrees))
    level = TestName.NOISE_PART.level / count
    limit = 1 - detectable_ratio(int(freedom[freedom > 0].min()), level)
    place = f"the tensor '{noise.tensors[tensor]}' in trial {trial} round {number + 1}"
    more = {"looks": count, "best_limit": 1 - detectable_ratio(int(freedom.max()), level)}
    p_value = bonferroni(count, float(p_values[trial, number, tensor]))
    return TestResult(TestName.NOISE_PART, ratio, p_value, ratio, 1.0, limit, place, more)


@of_family(TestName.NOISE_ALONG_GRADIENTS)
def noise_along_gradients(measured: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise along the sum of the contributions that D and D' share.

    The test is a lower-tail chi-square test over all rounds of all trials.
    """
    only_if(has_direction(measured), why_no_direction(measured))
    values = measured.noise.gradient / measured.sigma
    values = values[~np.isnan(values)]
    only_if(values.size > 0, NotTestedReason.NO_SHARED_SUM)
    return least_of(
        TestName.NOISE_ALONG_GRADIENTS,
        SquareSum(float(values @ values), int(values.size)),
        NotTestedReason.NO_SHARED_SUM,
    )
