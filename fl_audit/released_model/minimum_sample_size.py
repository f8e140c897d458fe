"""Epsilon* of few losses: the number of losses from which a value is stated, and the values that chance alone gives.

Epsilon* of any sample is above 0, and the fewer losses there are, the farther: two sets from one distribution, whose
Epsilon* is 0, gave these values of the parametric form (medians of 2000 pairs, of normal and of Gamma(2) losses; in
brackets the value that 5 % of the pairs of normal losses exceed).

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

So a value is stated from 100 losses in each set on: of the sizes that were tried it is the first at which most values
are below 1 where nothing leaks, at a delta of a tenth of one over the number of losses. With fewer losses what is
stated is the interval that holds for any distributions. With more, a value that chance alone reaches in one of twenty
cases is said to be such.
"""

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.released_model.epsilon_star import epsilon_star_gaussian

FEWEST = 100
"""Number of losses in a set below which no value of Epsilon* is stated."""
_PAIRS = 1000
_LEVEL = 0.95


def value_by_chance(sizes: tuple[int, int], delta: float, cut: float, rng: np.random.Generator) -> float:
    """Return the 95 % quantile of the parametric form if members and population share one normal distribution.

    For skewed distributions, such as those of most losses, it is up to twice as much.

    Parameters
    ----------
    sizes
        Number of losses of members and of the population, each at least 2.
    rng
        Generator of the samples.
    delta
        Delta of Epsilon*, as for `epsilon_star_gaussian`. With delta and cut both 0 the value is infinite.
    cut
        Stability cut, as for `epsilon_star_gaussian`.
    """

    def fits(size: int) -> tuple[Floats, Floats]:
        # Mean and standard deviation of normal samples are independent, and their distributions are known.
        return rng.normal(0, size**-0.5, _PAIRS), np.sqrt(rng.chisquare(size - 1, _PAIRS) / size)

    found = epsilon_star_gaussian(*fits(sizes[0]), *fits(sizes[1]), delta, cut)
    return float(np.quantile(found, _LEVEL, method="inverted_cdf"))
