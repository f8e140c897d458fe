"""The smallest number of losses for which Epsilon* (privacy risk) is stated, and quantiles of Epsilon* without a leak.

Epsilon* of any sample is biased upwards, and more so with fewer losses. The table shows this for 2000 pairs of samples
from one distribution, whose true Epsilon* is 0. The first two numbers are the median parametric Epsilon* for normal and
for Gamma(2) losses. The number in brackets is the 95 % quantile for normal losses.

====================  ====================  ====================  ====================
losses in each set    delta 1e-2            delta 1e-3            delta 1e-5
====================  ====================  ====================  ====================
3                     10.5, 12.8 (203)      16.5, 20.3 (310)      28.5, 34.8 (518)
10                    2.3, 2.6 (11)         3.9, 4.6 (19)         7.3, 8.6 (35)
30                    0.9, 1.0 (3.3)        1.7, 2.0 (5.8)        3.3, 3.9 (11)
50                    0.6, 0.7 (2.0)        1.2, 1.4 (3.8)        2.4, 2.9 (7.7)
100                   0.3, 0.4 (1.1)        0.7, 0.9 (2.2)        1.5, 2.0 (4.5)
1000                  0.0, 0.0 (0.2)        0.2, 0.2 (0.5)        0.4, 0.5 (1.1)
====================  ====================  ====================  ====================

Therefore a value is stated if each set has at least 100 losses. This is the smallest tested size at which most values
without a leak are below 1, at a delta of 0.1 divided by the number of losses. For fewer losses only an interval is
stated, which is valid for any distributions. For more losses, a value at or below the 95 % quantile without a leak
comes with a warning.
"""

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.released_model.parametric_star import epsilon_star_gaussian

FEWEST = 100
"""Number of losses in a set below which no value of Epsilon* is stated."""
_PAIRS = 1000
_LEVEL = 0.95


def value_by_chance(sizes: tuple[int, int], delta: float, cut: float, rng: np.random.Generator) -> float:
    """Return the 95 % quantile of the parametric Epsilon* without a leak, for samples of given sizes.

    The scores are taken to be normal. For skewed distributions, such as those of most losses, the quantile is up to
    twice as large.

    `delta`: With delta and cut both 0 the value is infinite.
    """

    def fits(size: int) -> tuple[Floats, Floats]:
        # The mean and the standard deviation of a normal sample are independent, with known distributions.
        return rng.normal(0, size**-0.5, _PAIRS), np.sqrt(rng.chisquare(size - 1, _PAIRS) / size)

    values = epsilon_star_gaussian(*fits(sizes[0]), *fits(sizes[1]), delta, cut)
    return float(np.quantile(values, _LEVEL, method="inverted_cdf"))
