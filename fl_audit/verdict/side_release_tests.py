"""Test values that are released besides the noised sum: clients' shares of the noise, quantile bits, and model steps.

Clients may add shares of the noise, and adaptive clipping releases noised quantile bits. If the claim holds, the shares
and the noise of the bits are independent draws of N(0, 1). The steps of the model and of the clipping norm are not
random, so they are compared bit by bit with the public rule.
"""

import math

import numpy as np
from scipy.special import chdtr, ndtr

from fl_audit.array_types import Floats
from fl_audit.statistics.exact_counts import binomial_p
from fl_audit.verdict.declared_tests import NotTestedReason, TestName, TestResult, bonferroni, if_known, only_if
from fl_audit.verdict.noise_scale import detectable_ratio
from fl_audit.verdict.null_distributions import (
    cosine_tail,
    detectable_cosine,
    detectable_mean,
    f_test_p,
    largest_p,
    normal_distance,
    student_p,
)
from fl_audit.verdict.opened_secrets import RESIDUAL, OpenedSecrets

_FEWEST = 20  # smallest number of noised bits whose noise is tested
_TAIL = 3.0  # deviations beyond which draws are counted
_TAIL_SHARE = float(2 * ndtr(-_TAIL))
_CLOSE = 1e-9  # two draws of continuous noise are as close as this with a probability below 1e-9


def share_pairs(opened: OpenedSecrets) -> TestResult:
    """Test whether any two clients' shares of the noise are correlated, by the largest absolute correlation.

    If the insider knows only some shares, the total noise minus these shares is compared with each of them, too. It is
    not compared with the other shares, because it contains them. The p-value is that of cosines of independent normal
    vectors, corrected by Bonferroni for the number of pairs.
    """
    only_if(opened.has_shares, NotTestedReason.NO_SHARES)
    products = if_known(opened.shares, NotTestedReason.UNOPENED_SHARES)
    only_if(products.draws >= 2, NotTestedReason.UNOPENED_SHARES)
    sizes = np.sqrt(np.maximum(np.diag(products.products), 1e-300))
    cosines = np.abs(products.products / sizes / sizes[:, None])
    is_known = np.isin(products.clients, products.known)
    is_rest = products.clients == RESIDUAL
    compared = np.triu(~is_rest[:, None] & ~is_rest | is_rest[:, None] & is_known, k=1)
    only_if(bool(compared.any()), NotTestedReason.TOO_FEW)
    first, second = np.unravel_index(int(np.where(compared, cosines, -1.0).argmax()), cosines.shape)
    largest = min(1.0, float(cosines[first, second]))
    pairs = int(compared.sum())
    tail = cosine_tail(largest, products.draws)
    limit = detectable_cosine(TestName.SHARE_PAIRS.level / pairs, products.draws)
    first_client, second_client = (int(products.clients[at]) for at in (first, second))
    location = (
        f"clients {first_client} and {second_client}"
        if first_client != RESIDUAL
        else f"client {second_client} and the rest of the noise"
    )
    details = {"pairs": pairs, "draws": products.draws}
    p_value = bonferroni(pairs, tail)
    return TestResult(TestName.SHARE_PAIRS, largest, p_value, largest, 0.0, limit, location, details)


def bit_noise(opened: OpenedSecrets) -> TestResult:
    """Test whether the noise on the quantile bits of adaptive clipping consists of independent N(0, 1) draws.

    Size, mean, repeated values, shape, and a difference in size between D and D' are tested, by exact or limiting
    distributions. The smallest p-value is corrected by Bonferroni.
    """
    only_if(opened.is_adaptive, NotTestedReason.NO_BITS)
    bits = if_known(opened.bits, NotTestedReason.NOT_OPENED)
    values = bits.reshape(-1)
    count = bits.size
    only_if(count >= _FEWEST, NotTestedReason.TOO_FEW)
    squares = float(values @ values)
    beyond = int(np.count_nonzero(np.abs(values) > _TAIL))
    largest = float(np.abs(values).max())
    shapes = (normal_distance(values)[1], float(binomial_p(beyond, count, _TAIL_SHARE)), largest_p(largest, count))
    looks = {
        "its size": float(chdtr(count, squares)),
        "its mean": student_p(values)[1],
        "its repeats": _repeat_p(values),
        "its shape": bonferroni(len(shapes), min(shapes)),
        "its size by side": _side_p(bits[opened.members], bits[~opened.members]),
    }
    location = min(looks, key=lambda name: looks[name])
    level = TestName.BIT_NOISE.level / len(looks)
    p_value = bonferroni(len(looks), looks[location])
    size = math.sqrt(squares / count)
    details = {"shift": float(values.mean()), "shift_limit": detectable_mean(count, level)}
    limit = 1 - detectable_ratio(count, level)
    return TestResult(TestName.BIT_NOISE, size, p_value, size, 1.0, limit, location, details)


def _repeat_p(values: Floats) -> float:
    """Return an upper bound on the p-value of the smallest gap between absolute values of independent N(0, 1) draws.

    A small gap suggests repeated values. The result is 1 if the gap exceeds `_CLOSE`.
    """
    pairs = values.size * (values.size - 1) / 2
    # The difference of two has density 1 / (2 sqrt(pi)) at 0; sizes are compared, so the sign makes it twice that.
    gap = float(np.diff(np.sort(np.abs(values))).min())
    return 1.0 if gap > _CLOSE else min(1.0, pairs * 2 * max(gap, 1e-15) / math.sqrt(math.pi))


def _side_p(first: Floats, second: Floats) -> float:
    sums = [float(np.square(side).sum()) for side in (first, second)]
    if min(first.size, second.size) == 0 or min(sums) == 0:
        return 0.0 if first.size and second.size and max(sums) > 0 else 1.0
    ratio = sums[0] / first.size / (sums[1] / second.size)
    return f_test_p(ratio, first.size, second.size)


def exact_steps(opened: OpenedSecrets) -> TestResult:
    """Test whether models and clipping norms are, bit by bit, what the public rules compute from public messages.

    The result is not random: the p-value is 1 if all agree, otherwise 0. `location` names the first trial and round
    that differ.
    """
    wrong_steps = if_known(opened.wrong_steps, NotTestedReason.NOT_OPENED)
    steps_by_kind = {"model": wrong_steps, "clipping norm": opened.wrong_norms}
    wrong = {name: values for name, values in steps_by_kind.items() if values is not None and np.nansum(values) > 0}
    details = {"rounds": float(wrong_steps.size)}
    if not wrong:
        return TestResult(TestName.EXACT_STEPS, 0.0, 1.0, 0.0, 0.0, 1.0, "", details)
    firsts = {name: _first(values) for name, values in wrong.items()}
    name = min(firsts, key=lambda first: firsts[first])
    trial, number = firsts[name]
    count = float(np.count_nonzero(np.nan_to_num(wrong[name])))
    location = f"the {name}, first in trial {trial} round {number + 1}"
    return TestResult(TestName.EXACT_STEPS, count, 0.0, count, 0.0, 1.0, location, details)


def _first(values: Floats) -> tuple[int, int]:
    trial, number = divmod(int(np.flatnonzero(np.nan_to_num(values).reshape(-1))[0]), values.shape[1])
    return trial, number
