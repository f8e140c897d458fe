"""Define the methods of lower bounds on epsilon, and the assumptions on the distribution of scores that they need."""

from enum import StrEnum
from typing import assert_never


class ScoreDistribution(StrEnum):
    """Knowledge about the distribution of attack scores, which decides which lower bounds are valid.

    ANY: scores are independent, and identically distributed within each group; nothing else is known.
    GAUSSIAN_TRADEOFF: in addition, the trade-off function of the mechanism **is** that of a Gaussian mechanism.
    NORMAL_EQUAL_SPREAD: in addition, the scores are log-odds of this mechanism, or a linear function of them. So they
    are normal, with the same standard deviation in both groups.

    If a trade-off function is only bounded by that of a Gaussian mechanism, `ANY` applies. An example is a training
    whose rounds have Gaussian noise that is scaled to the global sensitivity, so that the signal-to-noise ratio depends
    on earlier rounds. This training is mu-GDP, but its epsilon may be smaller than the epsilon of the Gaussian
    mechanism with the same mu. A lower bound that is computed from mu may then exceed the true epsilon. Another example
    is randomised response. Randomised response at epsilon 1 is mu-GDP with mu = 1.23, and a Gaussian mechanism with
    this mu has epsilon 5.58 at delta 1e-5.
    """

    ANY = "any"
    GAUSSIAN_TRADEOFF = "gaussian-tradeoff"
    NORMAL_EQUAL_SPREAD = "normal-equal-spread"


class BoundMethod(StrEnum):
    """Method that computes a lower bound on epsilon from scores; `assumption` states what it assumes.

    CLOPPER_PEARSON uses intervals of both error rates at one threshold. ORDER_STATISTIC uses the number of scores above
    an order statistic of the other group's scores. GDP uses the same number, but assumes a Gaussian trade-off function.
    GAUSSIAN_SHIFT uses the difference of the means of normal scores, divided by their estimated standard deviation.
    """

    CLOPPER_PEARSON = "clopper-pearson"
    ORDER_STATISTIC = "order-statistic"
    GDP = "gdp"
    GAUSSIAN_SHIFT = "gaussian-shift"

    @property
    def assumption(self) -> str:
        """Assumption of the method on the scores, in words."""
        return _ASSUMPTIONS[self]

    @property
    def needs(self) -> ScoreDistribution:
        """Least knowledge about the distribution of the scores that the method requires."""
        match self:
            case BoundMethod.GDP:
                return ScoreDistribution.GAUSSIAN_TRADEOFF
            case BoundMethod.GAUSSIAN_SHIFT:
                return ScoreDistribution.NORMAL_EQUAL_SPREAD
            case BoundMethod.CLOPPER_PEARSON | BoundMethod.ORDER_STATISTIC:
                return ScoreDistribution.ANY
            case _:
                assert_never(self)

    def is_valid_under(self, distribution: ScoreDistribution) -> bool:
        """Return True if the method's assumption follows from what is known about the distribution of the scores."""
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
}
