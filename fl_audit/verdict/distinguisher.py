"""Test by a learned classifier whether the noise differs between D and D' in a way for which no other test exists.

A trial is one repetition of the attack: a training with D or with D'. A linear classifier learns from features of some
trials whether D was used, and then ranks unseen trials by score. It is trained three times, on two, three and four
fifths of the trials, and each time tested on the next fifth. If the features do not depend on the secret, the ranks in
each fifth are random, whatever was learned. So the sum of the three Mann-Whitney statistics has an exact null
distribution, as in a permutation test.

`python -m tests.verdict.distinguisher_rates` measured false alarms and power. In 2,000 honest runs of 40 trials and
3 rounds, everything differed between D and D' that may differ in an honest run. The p-value was under .05 in 3.6 % of
these runs, under .01 in .85 % of them, and never under the significance level of the test. Power was measured with
breaches for which the features had not been designed, in 20 runs of 100 trials and 30 rounds each. The test found three
of the breaches in all 20 runs: noise centred over every tensor, sizes of the noise that follow the previous round's,
and distant coordinates that share their signs. It found one breach in none of the 20 runs: every third sign is the
product of the two before it, so only three coordinates together carry information.
"""

import math
import warnings
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult, bonferroni, only_if
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.verdict.trial_features import Features, direction_features, sample_features, seed_of

FEWEST_TRIALS = 20
"""Smallest number of trials with D, and of trials with D', with which the test is made."""

_PUBLIC_SEED = 0  # seed of the split of the trials and of the model, independent of the data
_ENDS = (0.4, 0.6, 0.8)  # shares of the trials on which the model is trained before each test
# Number of pairs in one fold up to which the exact distribution of the ranks is computed; beyond it a normal
# distribution with heavier tails is used.
_MOST_EXACT = 2500
_FAR = 3.0


def distinguisher(measurements: NoiseMeasurements) -> TestResult:
    """Test whether a learned classifier distinguishes trials with D from trials with D' by features of their noise.

    There are two linear classifiers. One uses features of the noise at a sample of the model's coordinates. The other
    one uses features of the noise along f(D) - f(D') and along the gradients (see `trial_features`). Each classifier
    gives an exact one-sided Mann-Whitney p-value, and the smaller one is corrected by Bonferroni.

    In the result, `measurements` is a share of all pairs of a trial with D and a trial with D': the pairs in which the
    trial with D has the higher score. `limit` is the smallest true share that is found with probability 0.9, or NaN if
    there are too few trials. `place` names the feature with the largest weight.

    Sources: Mann and Whitney 1947; for the variance under a breach, Hanley and McNeil 1982.
    """
    sampled = measurements.sampled_trials
    along = direction_features(measurements)
    sides = [(sample_features(measurements), measurements.members[sampled])] if sampled.any() else []
    sides += [(along, measurements.members)] if along else []
    only_if(bool(sides), NotTestedReason.NOT_MEASURED)
    usable = [look for look in sides if min(look[1].sum(), (~look[1]).sum()) >= FEWEST_TRIALS]
    one_side = measurements.members.all() or not measurements.members.any()
    only_if(bool(usable), NotTestedReason.ONE_SIDE if one_side else NotTestedReason.TOO_FEW)
    test_results = [
        _judged(features, members, TestName.DISTINGUISHER.level / len(usable)) for features, members in usable
    ]
    best = min(test_results, key=lambda test: test.p_value)
    return replace(
        best, p_value=bonferroni(len(test_results), best.p_value), more={**best.more, "models": len(test_results)}
    )


def _judged(features: Features, members: Flags, level: float) -> TestResult:
    """Test at significance `level` whether a classifier ranks unseen trials with D above unseen trials with D'.

    Trials are divided into folds. For each fold but the first, a classifier is trained on the earlier folds, and ranks
    the trials of this fold. `members` is True for trials with D.
    """
    table = np.stack(list(features.values()), axis=1)
    folds = _folds(members)
    right = 0.0
    sizes = []
    weights = np.zeros(len(features))
    for number in range(1, len(_ENDS) + 1):
        is_training = folds < number
        judged = folds == number
        score, weights = _learned(table[is_training], members[is_training])
        right += _right_pairs(score(table[judged]), members[judged], seed_of(members) ^ number)
        sizes.append((int(members[judged].sum()), int((~members[judged]).sum())))
    pairs = sum(first_size * second_size for first_size, second_size in sizes)
    tail = _upper_tail(sizes)
    critical = bisect_left(range(pairs + 1), True, key=lambda count: tail(count) <= level)
    limit = _limit(sizes, critical / pairs) if critical <= pairs else math.nan
    best = list(features)[int(weights.argmax())] if weights.any() else ""
    details = {"pairs": pairs, "features": len(features)}
    return TestResult(TestName.DISTINGUISHER, right, tail(right), right / pairs, 0.5, limit, best, details)


def _folds(members: Flags) -> Integers:
    """Return the number of each trial's fold: 0 for two fifths of the trials, and 1, 2 or 3 for one fifth each.

    Trials are shuffled with a public seed. Every fold has about the same share of trials with D.
    """
    rng = generator(_PUBLIC_SEED, Purpose.DISTINGUISHER)
    folds = np.zeros(members.size, dtype=np.int64)
    for side in (members, ~members):
        shuffled = rng.permutation(np.flatnonzero(side))
        ends = [round(share * shuffled.size) for share in _ENDS]
        for number, indices in enumerate(np.split(shuffled, ends)):
            folds[indices] = number
    return folds


def _learned(table: Floats, members: Flags) -> tuple[Callable[[Floats], Floats], Floats]:
    """Train a sparse linear SVM to distinguish trials with D from trials with D'.

    Returns the score function of the SVM and the weight of every feature. The inputs are the standardised features and
    their absolute values, so the SVM also learns changes of size. If no feature distinguishes the trials, the L1
    penalty gives most inputs the weight 0.
    """
    # scikit-learn takes a second to import, and most runs do not need it.
    from sklearn import exceptions, svm  # noqa: PLC0415

    centre = table.mean(axis=0)
    spread = table.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)

    def columns(values: Floats) -> Floats:
        standard = (values - centre) / spread
        return np.hstack([np.clip(standard, -_FAR * _FAR, _FAR * _FAR), np.minimum(np.abs(standard), _FAR) - 1])

    inputs = columns(table)
    penalty = 2 * math.sqrt(len(inputs) * math.log(2 * inputs.shape[1]))
    model = svm.LinearSVC(
        penalty="l1",
        dual=False,
        C=1 / penalty,
        class_weight="balanced",
        intercept_scaling=10,
        random_state=_PUBLIC_SEED,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        model.fit(inputs, members)
    weights = np.abs(model.coef_[0]).reshape(2, -1).sum(axis=0)
    return lambda values: np.asarray(model.decision_function(columns(values))), weights


def _right_pairs(scores: Floats, members: Flags, seed: int) -> float:
    """Return in how many pairs of a trial with D and a trial with D' the trial with D has the higher score.

    This is the Mann-Whitney statistic. Ties are broken at random with the seed.
    """
    tie_breakers = generator(seed, Purpose.DISTINGUISHER, round=1).random(scores.size)
    ranks = np.empty(scores.size)
    ranks[np.lexsort((tie_breakers, scores))] = np.arange(scores.size)
    count = int(members.sum())
    return float(ranks[members].sum()) - count * (count - 1) / 2


def _upper_tail(sizes: list[tuple[int, int]]) -> Callable[[float], float]:
    """Return the function x -> P(S >= x), where S is the sum of the folds' Mann-Whitney statistics under the null.

    `sizes` are (trials with D, trials with D') of each fold. For large folds a normal distribution gives P, which is
    never too small.
    """
    if max(first_size * second_size for first_size, second_size in sizes) <= _MOST_EXACT:
        shares = reduce(np.convolve, [_distribution(first_size, second_size) for first_size, second_size in sizes])
        tails = np.append(np.cumsum(shares[::-1])[::-1], 0.0)
        return lambda right: min(1.0, float(tails[round(right)]))
    mean = sum(first_size * second_size for first_size, second_size in sizes) / 2
    spread = math.sqrt(
        sum(first_size * second_size * (first_size + second_size + 1) / 12 for first_size, second_size in sizes)
    )
    return lambda right: float(ndtr(-(right - 0.5 - mean) / spread))


def _distribution(first_size: int, second_size: int) -> Floats:
    """Return the null probabilities that the Mann-Whitney statistic of two groups is 0, 1, ..., one * other."""
    ways: Floats = np.zeros((first_size + 1, first_size * second_size + 1))
    ways[0, 0] = 1.0
    for index in range(first_size + second_size):
        for with_d in range(min(index + 1, first_size), 0, -1):
            beaten = index - (with_d - 1)
            if beaten <= second_size:
                ways[with_d, beaten:] += ways[with_d - 1, : ways.shape[1] - beaten]
    return np.asarray(ways[first_size] / math.comb(first_size + second_size, first_size))


def _limit(sizes: list[tuple[int, int]], critical: float) -> float:
    """Return the limit of detection for a rule that ranks trials.

    It is the smallest probability of ranking a trial with D above a trial with D' that is detected with the power
    `DETECTION_POWER`. The test rejects if the observed share of rightly ranked pairs is at least `critical`. `sizes`
    are the numbers of trials with D and with D' in each fold.
    """
    pairs = sum(first_size * second_size for first_size, second_size in sizes)

    def short(share: float) -> float:
        first, second = share / (2 - share) - share**2, 2 * share**2 / (1 + share) - share**2
        alone = share * (1 - share)
        variance = sum(
            first_size * second_size * (alone + (first_size - 1) * first + (second_size - 1) * second)
            for first_size, second_size in sizes
        )
        return share - float(ndtri(DETECTION_POWER)) * math.sqrt(max(0.0, variance)) / pairs - critical

    return float(brentq(short, critical, 1.0)) if short(1.0) > 0 else 1.0
