"""Test values that are released besides the noised sum: clients' shares of the noise, quantile bits, and model steps.

Clients may add shares of the noise, and adaptive clipping releases noised quantile bits. If the claim holds, the shares
and the noise of the bits are independent draws of N(0, 1). The steps of the model and of the clipping norm are not
random, so they are compared bit by bit with the public rule. A further test compares the last bits of released floats
in trials with D with those in trials with D'.
"""

import math

import numpy as np
from scipy.special import betainc, chdtr, fdtr, fdtrc, ndtri, stdtr

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.statistics.exact_counts import table_p
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult, of_looks, only_if
from fl_audit.verdict.noise_copies import _cosine_at
from fl_audit.verdict.noise_moments import _detectable_mean, _student_p
from fl_audit.verdict.noise_scale import detectable_ratio
from fl_audit.verdict.noise_shape import _TAIL, _TAIL_SHARE, _binomial_p, _distance, _largest_p
from fl_audit.verdict.opened_secrets import RESIDUAL, OpenedSecrets
from fl_audit.verdict.run_measurements import of_opened

_FEWEST = 20  # smallest number of noised bits whose noise is tested
_CLOSE = 1e-9  # two draws of continuous noise are as close as this with a probability below 1e-9


@of_opened(TestName.SHARE_PAIRS)
def share_pairs(opened: OpenedSecrets) -> TestResult:
    """Test whether any two clients' shares of the noise are correlated, by the largest absolute correlation.

    If the insider, an adversary among the clients, knows some shares, one more vector is tested: the total noise minus
    these known shares. It is compared only with the known shares, because it contains the shares of all other clients.
    The p-value is that of cosines of independent normal vectors, corrected by Bonferroni for the number of pairs.
    """
    only_if(opened.has_shares, NotTestedReason.NO_SHARES)
    only_if(opened.shares is not None and opened.shares.draws >= 2, NotTestedReason.UNOPENED_SHARES)
    assert opened.shares is not None
    found, sizes = opened.shares, np.sqrt(np.maximum(np.diag(opened.shares.products), 1e-300))
    cosines = np.abs(found.products / sizes / sizes[:, None])
    is_known = np.isin(found.clients, found.known)
    rest = found.clients == RESIDUAL
    compared = np.triu(~rest[:, None] & ~rest | rest[:, None] & is_known, k=1)
    only_if(bool(compared.any()), NotTestedReason.TOO_FEW)
    first, second = np.unravel_index(int(np.where(compared, cosines, -1.0).argmax()), cosines.shape)
    largest, pairs = min(1.0, float(cosines[first, second])), int(compared.sum())
    tail = float(betainc((found.draws - 1) / 2, 0.5, (1 - largest) * (1 + largest)))
    limit = min(1.0, _cosine_at(TestName.SHARE_PAIRS.level / pairs, found.draws) + 1.2816 / math.sqrt(found.draws))
    one, other = (int(found.clients[at]) for at in (first, second))
    place = f"clients {one} and {other}" if one != RESIDUAL else f"client {other} and the rest of the noise"
    more, p_value = {"pairs": pairs, "draws": found.draws}, of_looks(pairs, tail)
    return TestResult(TestName.SHARE_PAIRS, largest, p_value, largest, 0.0, limit, place, more)


@of_opened(TestName.BIT_NOISE)
def bit_noise(opened: OpenedSecrets) -> TestResult:
    """Test whether the noise of the quantile bits consists of independent draws of N(0, 1).

    Five properties are tested: size, mean, repeated values, shape, and whether the size differs between trials with D
    and trials with D'. All five have exact or limiting distributions. The smallest p-value is corrected by Bonferroni.
    """
    only_if(opened.is_adaptive, NotTestedReason.NO_BITS)
    only_if(opened.bits is not None, NotTestedReason.NOT_OPENED)
    assert opened.bits is not None
    values, count = opened.bits.reshape(-1), opened.bits.size
    only_if(count >= _FEWEST, NotTestedReason.TOO_FEW)
    squares = float(values @ values)
    beyond, largest = int(np.count_nonzero(np.abs(values) > _TAIL)), float(np.abs(values).max())
    shapes = (_distance(values)[1], _binomial_p(beyond, count, _TAIL_SHARE), _largest_p(largest, count))
    looks = {
        "its size": float(chdtr(count, squares)),
        "its mean": _student_p(values)[1],
        "its repeats": _repeat_p(values),
        "its shape": of_looks(len(shapes), min(shapes)),
        "its size by side": _side_p(opened.bits[opened.members], opened.bits[~opened.members]),
    }
    place, level = min(looks, key=lambda name: looks[name]), TestName.BIT_NOISE.level / len(looks)
    p_value, size = of_looks(len(looks), looks[place]), math.sqrt(squares / count)
    more = {"shift": float(values.mean()), "shift_limit": _detectable_mean(count, level)}
    limit = 1 - detectable_ratio(count, level)
    return TestResult(TestName.BIT_NOISE, size, p_value, size, 1.0, limit, place, more)


def _repeat_p(values: Floats) -> float:
    """Return an upper bound on the probability that two of n N(0, 1) draws are as close as the closest two values.

    n is the number of values. Absolute values are compared. The bound is a union bound, and 1 if the closest two values
    differ by more than `_CLOSE`.
    """
    pairs = values.size * (values.size - 1) / 2
    # The difference of two has density 1 / (2 sqrt(pi)) at 0; sizes are compared, so the sign makes it twice that.
    gap = float(np.diff(np.sort(np.abs(values))).min())
    return 1.0 if gap > _CLOSE else min(1.0, pairs * 2 * max(gap, 1e-15) / math.sqrt(math.pi))


def _side_p(one: Floats, other: Floats) -> float:
    sums = [float(np.square(side).sum()) for side in (one, other)]
    if min(one.size, other.size) == 0 or min(sums) == 0:
        return 0.0 if one.size and other.size and max(sums) > 0 else 1.0
    ratio = sums[0] / one.size / (sums[1] / other.size)
    return of_looks(2, min(float(fdtr(one.size, other.size, ratio)), float(fdtrc(one.size, other.size, ratio))))


@of_opened(TestName.EXACT_STEPS)
def exact_steps(opened: OpenedSecrets) -> TestResult:
    """Test whether models and clipping norms are, bit by bit, what the public rules compute from public messages.

    The result is not random: the p-value is 1 if all agree, otherwise 0. `place` names the first trial and round that
    differ.
    """
    only_if(opened.wrong_steps is not None, NotTestedReason.NOT_OPENED)
    assert opened.wrong_steps is not None
    parts = {"model": opened.wrong_steps, "clipping norm": opened.wrong_norms}
    wrong = {name: values for name, values in parts.items() if values is not None and np.nansum(values) > 0}
    held = {"rounds": float(opened.wrong_steps.size)}
    if not wrong:
        return TestResult(TestName.EXACT_STEPS, 0.0, 1.0, 0.0, 0.0, 1.0, "", held)
    firsts = {name: _first(values) for name, values in wrong.items()}
    name = min(firsts, key=lambda one: firsts[one])
    trial, number = firsts[name]
    count = float(np.count_nonzero(np.nan_to_num(wrong[name])))
    place = f"the {name}, first in trial {trial} round {number + 1}"
    return TestResult(TestName.EXACT_STEPS, count, 0.0, count, 0.0, 1.0, place, held)


def _first(values: Floats) -> tuple[int, int]:
    trial, number = divmod(int(np.flatnonzero(np.nan_to_num(values).reshape(-1))[0]), values.shape[1])
    return trial, number


@of_opened(TestName.SECRET_LAST_BITS)
def secret_last_bits(opened: OpenedSecrets) -> TestResult:
    """Test whether the last bits of releases are 1 equally often with D and with D'.

    Over all coordinates, the share of ones in trials with D is compared with that in trials with D' by Student's t.
    Last bits of one release may depend on each other and need not be fair. At each sampled coordinate, the number of
    ones with D is hypergeometric, given the number with D and D' together. The smallest p-value is corrected by
    Bonferroni.
    """
    only_if(opened.last_bits is not None and opened.odd is not None, NotTestedReason.NOT_OPENED)
    assert opened.last_bits is not None
    assert opened.odd is not None
    found = opened.last_bits
    only_if(bool(found.of_places.min() > 0), NotTestedReason.ONE_SIDE)
    looks = [(_gap_of_trials(opened.odd, opened.members), "all coordinates", found.odd / found.of)]
    looks += [
        _last_bit(f"coordinate {place}", counts, found.of_places)
        for place, counts in zip(found.places, found.odd_places, strict=True)
    ]
    p_value, place, shares = min(looks, key=lambda one: one[0])
    gap, more, p_value = float(abs(shares[0] - shares[1])), {"looks": len(looks)}, of_looks(len(looks), p_value)
    level = TestName.SECRET_LAST_BITS.level / len(looks)
    reach = float(ndtri(DETECTION_POWER) - ndtri(level / 2))
    limit = min(1.0, reach * math.sqrt(float(np.sum(0.25 / found.of_places))))
    return TestResult(TestName.SECRET_LAST_BITS, gap, p_value, gap, 0.0, limit, place, more)


def _gap_of_trials(odd: Floats, members: Flags) -> float:
    """Return the p-value of Student's two-sided t-test of `odd`, comparing trials with D to trials with D'.

    `odd` (trials, rounds) is the standardised share of released numbers with the last bit 1. The test compares the
    means of the trials over their rounds. `members` is true for trials with D, (trials,). The p-value is 1 if all means
    are equal, or if there are too few trials.
    """
    means = odd.mean(axis=1)
    sides = means[members], means[~members]
    freedom = means.size - 2
    if freedom < 1 or min(side.size for side in sides) == 0:
        return 1.0
    squares = sum(float(np.square(side - side.mean()).sum()) for side in sides)
    gap = float(sides[0].mean() - sides[1].mean())
    if squares == 0:
        return 1.0 if gap == 0 else 0.0
    error = math.sqrt(squares / freedom * sum(1 / side.size for side in sides))
    return 2 * float(stdtr(freedom, -abs(gap / error)))


def _last_bit(place: str, odd: Integers, of: Integers) -> tuple[float, str, Floats]:
    return table_p(int(odd[0]), int(odd.sum()), int(of[0]), int(of[1])), place, odd / of
