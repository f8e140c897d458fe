"""Test whether the target contributes exactly once, by the mean of the noise along its contribution.

After the run the secret bits are revealed, so the sum f(b) for a trial's bit b is known. Let r be a release. If the
claim holds, the residual r - f(b) along the target's contribution, divided by the claimed standard deviation, is N(0,
1) in every round and trial, given all earlier rounds. The drift is the mean of this residual. A target that counts k
times shifts the drift by (k - 1) times the length of its contribution divided by the noise. The drift is also shifted
by anything else that the target's client adds and that depends on the secret.

**Exact distributions.** The length of the contribution depends on earlier rounds, and so on their noise. If rounds were
weighted by length, the weights would depend on the noise. So rounds have equal weights. Within a round, trials are
weighted by length, which is known before the round's noise is drawn. The scale of the noise is estimated from the part
orthogonal to the drift, so more noise than claimed does not count as drift.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtr, chdtrc, fdtrc, stdtr

from fl_audit.array_types import Floats, Integers
from fl_audit.verdict.declared_tests import NotTestedReason, TestName, TestResult, bonferroni, if_known, only_if
from fl_audit.verdict.noise_scale import NoiseAlongTarget, detectable_ratio
from fl_audit.verdict.null_distributions import detectable_shift
from fl_audit.verdict.run_measurements import EVIDENT, NoiseMeasurements
from fl_audit.verdict.signal_detection_limit import NoiseSumAlongTarget, SignalDetectionLimit, limit_of, signal_limit

_OVER_ROUNDS = "the sums over all rounds"
_FEWEST = 3  # values from which a drift is tested


def drift_of_run(measurements: NoiseMeasurements) -> NoiseSumAlongTarget | None:
    """Return the drift along the target unit's contribution over a whole run, or None if the unit contributes nothing.

    The drift is the sum of the noise in this direction, which grows if the unit counts more than once.
    """
    noise = reduced_noise(measurements.own_noise / measurements.excess)
    length = measurements.own_length
    values, units = _standard_normal_by_round(noise, length)
    if not (used := int(np.count_nonzero(units))):
        return None
    value = float(values.sum()) / math.sqrt(used)
    unit = float(units.sum()) / math.sqrt(used)
    is_known = ~np.isnan(noise)
    claimed = None
    if measurements.claimed_length is not None:
        lengths = np.where(is_known, length, 0.0).sum(axis=0)
        shares = np.divide(lengths, units, out=np.zeros_like(units), where=units > 0)
        claimed = measurements.claimed_length * float(shares.sum()) / math.sqrt(used)
    squares = float(np.square(noise[is_known]).sum())
    return NoiseSumAlongTarget(value, max(0.0, squares - value**2), int(is_known.sum()) - 1, unit, claimed)


def drift_along(along: NoiseAlongTarget) -> NoiseSumAlongTarget | None:
    """Return the drift along the target units' contributions, from the noise in their direction summed over rounds.

    None if no target unit contributes or the sums were not measured.
    """
    is_included = along.members & (along.freedom > 0)
    if along.sums is None or along.lengths is None or not is_included.any():
        return None
    count = int(along.freedom[is_included].sum())
    value, unit = (float(of[is_included].sum()) / math.sqrt(count) for of in (along.sums, along.lengths))
    claimed = None if along.claimed_length is None else along.claimed_length * math.sqrt(count)
    return NoiseSumAlongTarget(
        value, max(0.0, float(along.squares[is_included].sum()) - value**2), count - 1, unit, claimed
    )


def limit_of_run(measurements: NoiseMeasurements) -> SignalDetectionLimit:
    """Return how many times the target unit must count in the released sums of a run for the tests to find it.

    An honest unit counts once. The result also has the number of trials that find a unit that counts 1.5 times.
    """
    length = measurements.own_length
    is_known = measurements.own_length > 0
    strength_of_trial = length.sum(axis=1) / np.sqrt(np.maximum(1, is_known.sum(axis=1)))
    return signal_limit(drift_of_run(measurements), strength_of_trial, measurements.trials)


def limit_along(along: NoiseAlongTarget) -> SignalDetectionLimit:
    """Return the limit of detection: how many times a target's contribution must count for the tests to find it.

    The limit is computed from each trial's sum of noise over rounds. The claim allows a contribution to count once. The
    result also has the number of trials that suffice to find a contribution that counts 1.5 times.
    """
    lengths = np.zeros(along.members.size) if along.lengths is None else along.lengths
    strength_of_trial = lengths / np.sqrt(np.maximum(1, along.freedom))
    return signal_limit(drift_along(along), strength_of_trial, along.members.size)


def _standard_normal_by_round(noise: Floats, length: Floats) -> tuple[Floats, Floats]:
    """Return, for each round, a number that is N(0, 1) under the claim, and a norm.

    The number is the sum of the round's noise over trials, weighted by `length` and divided by the norm of the weights.
    The second result is this norm. Both are 0 in rounds without weights.
    """
    is_known = ~np.isnan(noise)
    weights = np.where(is_known, length, 0.0)
    units = np.linalg.norm(weights, axis=0)
    sums = np.sum(weights * np.where(is_known, noise, 0.0), axis=0)
    return np.divide(sums, units, out=np.zeros_like(sums), where=units > 0), units


def reduced_noise(noise: Floats) -> Floats:
    """Return noise whose scale is reduced to the claimed one wherever it is significantly larger.

    The scales of single trials, of single rounds and of all noise are reduced one after the other. A scale is estimated
    from the deviations of the noise from its mean. NaN stays NaN.

    Shapes: `noise` (trials, rounds).
    """
    for axis in (1, 0, (0, 1)):
        counts = np.sum(~np.isnan(noise), axis=axis, keepdims=True) - 1
        freedom = np.maximum(counts, 1)
        means = np.nansum(noise, axis=axis, keepdims=True) / (freedom + 1)
        residual_squares = np.nansum(np.square(noise - means), axis=axis, keepdims=True)
        louder = (counts > 0) & (chdtrc(freedom, residual_squares) < EVIDENT / counts.size)
        if louder.any():
            noise = noise / np.where(louder, np.sqrt(residual_squares / freedom), 1.0)
    return noise


def signal(measurements: NoiseMeasurements) -> TestResult:
    """Test whether the released sums of a run contain the target unit's contribution more than once.

    The test is Student's t test, upper tail. In its result, `measurements` is the estimated number of times that the
    contribution is contained. `limit` is the smallest number of times that is found with probability 0.9.
    """
    return signal_of(drift_of_run(measurements))


def signal_of(noise_sum: NoiseSumAlongTarget | None) -> TestResult:
    """Test whether the target unit counts more than once in the released sums.

    `noise_sum` is the noise along the target's contribution, summed over the run; a unit that counts more than once
    makes it larger. Raises `TestNotApplicableError` if `noise_sum` is None, if the target contributes nothing, or if
    there are too few values.
    """
    noise_sum = if_known(noise_sum, NotTestedReason.NO_DIFFERENCE)
    only_if(noise_sum.unit != 0, NotTestedReason.NO_DIFFERENCE)
    only_if(noise_sum.freedom + 1 >= _FEWEST, NotTestedReason.TOO_FEW)
    t = noise_sum.student
    count = 1 + noise_sum.value / noise_sum.unit
    limit = limit_of(noise_sum, noise_sum.unit)
    return TestResult(TestName.SIGNAL, t, float(stdtr(noise_sum.freedom, -t)), count, 1.0, limit)


class _NormalDriftSums(NamedTuple):
    """Sums of noise, with their names.

    If the claim holds, every sum is normal with mean 0, and its standard deviation is the noise scale.
    """

    values: Floats  # value of every sum, (looks,)
    names: list[str]  # name of every sum, such as that of a round or a trial


def signal_round(measurements: NoiseMeasurements) -> TestResult:
    """Test whether the noise of any single round is shifted on average over the trials, by two-sided t-tests.

    The noise is measured along the target's contribution and, separately in trials with D and with D', along f(D) -
    f(D'). Its standard deviation is estimated from the deviations from the means of the rounds. The smallest p-value is
    corrected by Bonferroni.
    """
    only_if(measurements.trials > 1, NotTestedReason.ONE_TRIAL)
    noise = reduced_noise(measurements.own_noise / measurements.excess)
    values, units = _standard_normal_by_round(noise, measurements.own_length)
    along = reduced_noise(measurements.innovations / measurements.excess)
    means_by_side = [values[units > 0]]
    sides = measurements.members
    names = [f"round {at + 1}" for at in np.flatnonzero(units > 0)]
    for rows, side in ((sides, "D"), (~sides, "D'")):
        side_noise = along[rows]
        counts = np.sum(~np.isnan(side_noise), axis=0)
        means_by_side.append(np.nansum(side_noise, axis=0)[counts > 0] / np.sqrt(counts[counts > 0]))
        names += [f"round {at + 1} of the trials with {side}" for at in np.flatnonzero(counts)]
    residual_squares, freedom = _beside_rounds(along)
    only_if(bool(names), NotTestedReason.NO_DIFFERENCE)
    only_if(freedom >= _FEWEST, NotTestedReason.TOO_FEW)
    lengths = units[units > 0]
    shift = detectable_shift(freedom, TestName.SIGNAL_ROUND.level / 2 / len(names))
    limit = 1 + shift / float(lengths.min()) if lengths.size else math.inf
    return _test_of_largest_sum(
        TestName.SIGNAL_ROUND,
        _NormalDriftSums(np.concatenate(means_by_side), names),
        residual_squares / freedom,
        freedom,
        limit,
    )


def _beside_rounds(along: Floats) -> tuple[float, int]:
    """Return the sum of squared deviations of the noise from its mean in each round, and the degrees of freedom.

    `along` has the shape (trials, rounds); unknown values are NaN. A round's mean is taken over the trials.
    """
    counts = np.sum(~np.isnan(along), axis=0)
    means = np.nansum(along, axis=0) / np.maximum(counts, 1)
    return float(np.nansum(np.square(along - means))), int(np.maximum(counts - 1, 0).sum())


def _test_of_largest_sum(
    name: TestName, sums: _NormalDriftSums, variance: float, freedom: int, limit: float
) -> TestResult:
    """Return a two-sided t-test of that one of several sums of noise which is largest in absolute value.

    The p-value is corrected for the number of sums. `variance` is the measured variance of the noise, with `freedom`
    degrees of freedom. `limit` is the limit of detection that the result states.
    """
    scale = math.sqrt(variance)
    at = int(np.abs(sums.values).argmax())
    value = float(sums.values[at])
    t = value / scale if scale > 0 else (math.copysign(math.inf, value) if value else 0.0)
    p_value = bonferroni(2 * len(sums.names), float(stdtr(freedom, -abs(t))))
    return TestResult(name, t, p_value, t, 0.0, limit, sums.names[at], {"looks": len(sums.names)})


def signal_trial(measurements: NoiseMeasurements) -> TestResult:
    """Test whether the noise along the target is shifted in any single trial, and whether shifts vary between trials.

    T-tests of single trials detect a target whose contribution is counted many times in one trial. An F-test detects a
    target that is counted slightly more often in some trials. Bonferroni's correction is over both tests.
    """
    only_if(measurements.rounds > 1, NotTestedReason.ONE_ROUND)
    noise = reduced_noise(measurements.target_noise / measurements.excess)
    is_known = ~np.isnan(noise)
    sums = np.nansum(noise, axis=1)
    squares = np.nansum(np.square(noise), axis=1)
    own_lengths = np.nansum(np.where(np.isnan(measurements.own_noise), np.nan, measurements.own_length), axis=1)
    return signal_trial_of(
        NoiseAlongTarget(
            squares, is_known.sum(axis=1), measurements.members, sums, own_lengths, noise=measurements.noise_kind
        )
    )


def signal_trial_of(along: NoiseAlongTarget) -> TestResult:
    """Return the result of the test `signal_trial`, computed from each trial's sum of noise over its rounds.

    With several targets, the test also uses one sum of noise for each target, over all trials with this target.
    """
    used = along.freedom > 0
    sums = if_known(along.sums, NotTestedReason.NO_DIFFERENCE)
    lengths = if_known(along.lengths, NotTestedReason.NO_DIFFERENCE)
    only_if(bool(used.any()), NotTestedReason.NO_DIFFERENCE)
    counts = along.freedom[used]
    standardised = sums[used] / np.sqrt(counts)
    total = float(along.squares[used].sum())
    between = float(np.square(standardised).sum())
    freedom = int(counts.sum() - counts.size)
    within = max(0.0, total - between)
    only_if(freedom >= _FEWEST, NotTestedReason.TOO_FEW)
    names = [f"trial {at}" for at in np.flatnonzero(used)]
    values = standardised
    if along.of_targets is not None:
        values = np.append(values, along.of_targets)
        names += [f"all trials with target {number}" for number in range(along.of_targets.size)]
    shift = detectable_shift(freedom, TestName.SIGNAL_TRIAL.level / 4 / len(names))
    strength_of_trial = (lengths[used] / np.sqrt(counts))[lengths[used] > 0]
    limit = 1 + shift / float(np.median(strength_of_trial)) if strength_of_trial.size else math.inf
    largest = _test_of_largest_sum(
        TestName.SIGNAL_TRIAL, _NormalDriftSums(values, names), within / freedom, freedom, limit
    )
    ratio = between / counts.size / (within / freedom) if within > 0 else (math.inf if between > 0 else 1.0)
    spread = float(fdtrc(counts.size, freedom, ratio))
    p_value = bonferroni(2, min(largest.p_value, spread))
    location = largest.place
    details = {**largest.more, "spread": ratio, "trials": int(counts.size)}
    return TestResult(largest.name, largest.statistic, p_value, largest.measured, 0.0, limit, location, details)


def noise_along_record_trial(measurements: NoiseMeasurements) -> TestResult:
    """Test whether there is too little noise along the target unit's contribution: in a trial, a round, or over rounds.

    The smallest lower-tail chi-square p-value is corrected by Bonferroni. The sums over rounds find noise that has the
    claimed size in each round but cancels over the rounds.
    """
    noise = measurements.target_noise
    is_known = ~np.isnan(noise)
    squares = np.where(is_known, np.square(noise), 0.0)
    of_trials, of_rounds = ((squares.sum(axis=axis), is_known.sum(axis=axis)) for axis in (1, 0))
    of_sums = _over_rounds(np.nansum(noise, axis=1), of_trials[1])
    return _least([(*of_trials, "trial {}", 0), (*of_rounds, "round {} of all trials", 1), (*of_sums, _OVER_ROUNDS, 0)])


def _over_rounds(sums: Floats, counts: Integers) -> tuple[Floats, Integers]:
    """Return a chi-square statistic over trials, and its degrees of freedom, both of shape (1,).

    Each trial adds the square of its noise sum over rounds (`sums`), divided by its number of rounds (`counts`).
    Trials with fewer than two rounds are left out.
    """
    several = counts > 1
    square = float(np.sum(np.square(sums[several]) / counts[several]))
    return np.array([square]), np.array([int(several.sum())])


def noise_trial_of(along: NoiseAlongTarget) -> TestResult:
    """Test whether the noise along the target's contribution is too small in any trial, or over all rounds together.

    One p-value covers both questions. Unlike `noise_along_record_trial`, the test does not need the noise of single
    rounds: it uses each trial's sum of noise over the rounds, and its sum of squares.
    """
    of_sums = [] if along.sums is None else [(*_over_rounds(along.sums, along.freedom), _OVER_ROUNDS, 0)]
    return _least([(along.squares, along.freedom, "trial {}", 0), *of_sums])


def _least(sums: list[tuple[Floats, Integers, str, int]]) -> TestResult:
    """Test whether any of several sums of squared noise is too small, by chi-square tests with Bonferroni's correction.

    Each entry has an array of sums, their degrees of freedom, a format such as "trial {}" that names the place of a
    sum, and the number of the first sum.
    """
    looks = 0
    extremes = []
    for squares, freedom, name, first in sums:
        used = np.flatnonzero(freedom > 0)
        looks += used.size
        if used.size:
            p_values = chdtr(freedom[used], np.maximum(0.0, squares[used]))
            at = int(used[p_values.argmin()])
            extremes.append((float(p_values.min()), float(squares[at] / freedom[at]), name.format(at + first)))
    only_if(bool(extremes), NotTestedReason.NO_DIFFERENCE)
    smallest_p, variance, location = min(extremes)
    level = TestName.NOISE_TRIAL.level / looks
    counts = sums[0][1][sums[0][1] > 0]
    limits = {"looks": looks, "best_limit": 1 - detectable_ratio(int(counts.max()), level)}
    ratio = math.sqrt(max(0.0, variance))
    limit = 1 - detectable_ratio(int(counts.min()), level)
    return TestResult(TestName.NOISE_TRIAL, ratio, bonferroni(looks, smallest_p), ratio, 1.0, limit, location, limits)
