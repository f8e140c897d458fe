"""Test whether noise repeats the magnitudes of other noise, and draws only the signs anew.

Such noise is uncorrelated with the noise that it copies. An adversary who knows the copied noise lacks only the signs.
So the tests for copied noise are applied to the magnitudes, after each is converted to a normal score. The normal score
of a magnitude is the normal quantile of the probability that a magnitude is smaller. If the noise is N(0, 1), the
scores are N(0, 1) too.
"""

import math

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from fl_audit.array_types import Floats
from fl_audit.verdict.declared_tests import NotTestedReason, TestName, TestResult, bonferroni, only_if
from fl_audit.verdict.noise_copies import _FEWEST_DRAWS, _likest_pair
from fl_audit.verdict.null_distributions import cosine_tail, detectable_cosine
from fl_audit.verdict.run_measurements import NoiseMeasurements, of_family

_MOST_PLACES = 64
_FEWEST_PLACES = 16
_MOST_ROUNDS = 4096
"""Largest number of rounds, over all trials, that are compared; if there are more, evenly spaced ones are taken."""


def magnitude_scores(values: Floats) -> Floats:
    """Return Phi^-1(2 Phi(|v|) - 1) for each value v; the results are N(0, 1) if the values v are N(0, 1).

    Parameters
    ----------
    values
        Noise divided by the claimed standard deviation, any shape. The result has the same shape.
    """
    # Of magnitude m, 1 - 2 ndtr(-m) is uniform: its smaller tail is 2 ndtr(-m) from the median on.
    tail = math.log(2) + log_ndtr(-np.abs(values))
    upper = -ndtri_exp(np.minimum(tail, -1e-300))
    return np.asarray(np.where(tail > math.log(0.5), ndtri_exp(np.log(-np.expm1(np.minimum(tail, -1e-300)))), upper))


@of_family(TestName.COPIED_SIZES)
def copied_sizes(measured: NoiseMeasurements) -> TestResult:
    """Test whether magnitudes of the noise are copied between coordinates or between rounds, by their correlations.

    Three correlations of magnitudes are tested, with Bonferroni's correction: the largest between two coordinates, the
    largest between two rounds, and one correlation of rounds with their next rounds. The last is computed from all
    trials and coordinates together.
    """
    scores = magnitude_scores(measured.even_sample)
    _, rounds, places = scores.shape
    looks: list[tuple[float, float, str, float]] = []
    # If the noise has another size, which other tests find, all scores are shifted alike; their mean is subtracted.
    by_place = (scores - scores.mean(axis=(0, 1))).reshape(-1, places).T
    if places >= 2 and by_place.shape[1] >= _FEWEST_DRAWS:
        found, names = _likest_pair(by_place), [number for number, _ in measured.noise.places]
        place = f"coordinates {names[found.first]} and {names[found.second]}"
        looks.append(_look(found.cosine, found.pairs, by_place.shape[1] - 1, place))
    some = np.unique(np.linspace(0, places - 1, min(_MOST_PLACES, places)).astype(np.int64))
    by_round = scores.reshape(-1, places)[:, some]
    step = -(-len(by_round) // _MOST_ROUNDS)
    by_round = by_round[::step]
    by_round = by_round - by_round.mean(axis=1, keepdims=True)
    if some.size >= _FEWEST_PLACES and len(by_round) >= 2:
        found = _likest_pair(by_round)
        (one, at), (other, later) = (divmod(step * number, rounds) for number in (found.first, found.second))
        place = f"trial {one} round {at + 1} and trial {other} round {later + 1}"
        looks.append(_look(found.cosine, found.pairs, some.size - 1, place))
    if rounds >= 2 and scores[:, 1:].size >= 100:
        even = scores - scores.mean()  # means by coordinate would make its few rounds negatively correlated
        before, after = even[:, :-1].reshape(-1), even[:, 1:].reshape(-1)
        # Given the earlier round, the product with the later one is normal.
        cosine = abs(float(before @ after)) / math.sqrt(float(before @ before) * float(after @ after))
        looks.append(_look(min(1.0, cosine), 1, before.size, "rounds in a row"))
    only_if(bool(looks), NotTestedReason.TOO_FEW)
    p_value, cosine, place, limit = min(looks)
    more = {"looks": len(looks)}
    name, p_value = TestName.COPIED_SIZES, bonferroni(len(looks), p_value)
    return TestResult(name, cosine, p_value, cosine, 0.0, limit, place, more)


def _look(cosine: float, pairs: int, dimensions: int, place: str) -> tuple[float, float, str, float]:
    level = TestName.COPIED_SIZES.level / 3
    p_value = bonferroni(pairs, cosine_tail(cosine, dimensions))
    return p_value, cosine, place, detectable_cosine(level / pairs, dimensions)
