"""The methods of lower bounds on epsilon, and the assumptions on the distribution of scores that they need."""

from enum import StrEnum
from typing import assert_never


class ScoreDistribution(StrEnum):
    """The knowledge about the distribution of the scores, which decides which bounds are valid.

    ANY: scores are independent, and identically distributed within each group; nothing else is known.
    GAUSSIAN_TRADEOFF: in addition, the trade-off function of the mechanism **is** that of a Gaussian mechanism.
    NORMAL_EQUAL_SPREAD: in addition, the scores are log-odds of this mechanism, or a linear function of them: normal,
    with the same standard deviation in both groups.

    A trade-off function that is merely bounded by that of a Gaussian mechanism is `ANY`. An example is a training run
    whose rounds have Gaussian noise and a signal-to-noise ratio that depends on earlier rounds (noise scaled to the
    global sensitivity). It keeps a guarantee of mu-GDP, but its epsilon at a given delta may be smaller than that of
    the Gaussian mechanism, and a bound by way of mu then exceeds it. Randomised response at epsilon 1 is another
    example: it is mu-GDP with mu = 1.23, and a Gaussian mechanism with this mu has epsilon 5.58 at delta 1e-5.
    """

    ANY = "any"
    GAUSSIAN_TRADEOFF = "gaussian-tradeoff"
    NORMAL_EQUAL_SPREAD = "normal-equal-spread"


class BoundMethod(StrEnum):
    """The method of a lower bound; `assumption` states its assumption.

    CLOPPER_PEARSON uses intervals of both error rates at one threshold. ORDER_STATISTIC uses the number of scores above
    an order statistic of the reference scores. GDP does the same under a Gaussian trade-off function. GAUSSIAN_SHIFT
    uses the difference of the means of normal scores over their estimated standard deviation. BAYES uses the joint beta
    posterior of both error rates.
    """

    CLOPPER_PEARSON = "clopper-pearson"
    ORDER_STATISTIC = "order-statistic"
    GDP = "gdp"
    GAUSSIAN_SHIFT = "gaussian-shift"
    BAYES = "bayes"

    @property
    def assumption(self) -> str:
        """Return the assumption of the bound, in words."""
        return _ASSUMPTIONS[self]

    @property
    def has_confidence(self) -> bool:
        """Return whether the bound has frequentist coverage; `bayes` has none, and is wrong more often than it says."""
        return self is not BoundMethod.BAYES

    @property
    def needs(self) -> ScoreDistribution:
        """Return the least knowledge about the distribution of the scores that the bound requires."""
        match self:
            case BoundMethod.GDP:
                return ScoreDistribution.GAUSSIAN_TRADEOFF
            case BoundMethod.GAUSSIAN_SHIFT:
                return ScoreDistribution.NORMAL_EQUAL_SPREAD
            case BoundMethod.CLOPPER_PEARSON | BoundMethod.ORDER_STATISTIC | BoundMethod.BAYES:
                return ScoreDistribution.ANY
            case _:
                assert_never(self)

    def is_valid_under(self, distribution: ScoreDistribution) -> bool:
        """Return whether the bound's assumption holds for scores with this known distribution."""
        return list(ScoreDistribution).index(distribution) >= list(ScoreDistribution).index(self.needs)


_INDEPENDENT = "Scores are independent, and alike within each group"
_NOT_FOR_OTHERS = (
    "Not valid for other mechanisms: randomised response or Laplace noise would be certified far above their epsilon"
)
_ASSUMPTIONS = {
    BoundMethod.CLOPPER_PEARSON: f"{_INDEPENDENT}; nothing else is assumed.",
    BoundMethod.ORDER_STATISTIC: (
        f"{_INDEPENDENT}; nothing else is assumed. Usually a larger bound than clopper-pearson, but a smaller one "
        "where the scores have few different values."
    ),
    BoundMethod.GDP: (
        f"{_INDEPENDENT}; the mechanism's trade-off function is that of a Gaussian mechanism, and not merely bounded "
        f"by one. {_NOT_FOR_OTHERS}."
    ),
    BoundMethod.GAUSSIAN_SHIFT: (
        f"{_INDEPENDENT}; they are the log-odds, or a linear function of them, of a Gaussian mechanism: normal with "
        "the same spread in both groups. The log-odds of a training run are exactly so only where the signal-to-noise "
        "ratio of every round is fixed beforehand, as with noise scaled to the local sensitivity. Not valid with noise "
        "scaled to the global sensitivity: up to 72 % of its certificates were found to be false there. "
        f"{_NOT_FOR_OTHERS}."
    ),
    BoundMethod.BAYES: (
        f"{_INDEPENDENT}; both error rates have Jeffreys priors. A credible bound: no coverage over repetitions is "
        "claimed."
    ),
}
