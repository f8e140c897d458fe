"""Lower bounds on epsilon from the scores and coins of the canaries of one run, by several methods."""

import math
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats, finite
from fl_audit.audits.canaries import guessing_bounds
from fl_audit.audits.canaries.epsilon_from_cosines import from_final_model
from fl_audit.audits.canaries.guessing_bounds import Guesses
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.errors import InputError, require
from fl_audit.html_tables import html_table
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.statistics.shift_bound import detectable_shift, gaussian_shift
from fl_audit.value_checks import as_floats, choice, require_number

_SHARE_GUESSED = 0.2
"""Default share of the coins to be guessed."""


@dataclass(frozen=True)
class OneRunBound:
    """A lower confidence bound on epsilon from one run, with its limit of detection and the counts behind it."""

    method: OneRunMethod  # method of the bound
    epsilon: float  # lower bound on epsilon at `delta`, at least 0; a bound of 0 proves nothing
    # Lower bound on the mu of Gaussian DP, at least 0; None for the method `steinke`.
    mu: float | None
    delta: float  # the delta for which epsilon is bounded
    confidence: float  # probability, at least, with which the bound holds if the assumption of the method holds
    # The bound if every guess had been right. For `shift` and `cosines`, which do not guess, it is the smallest true
    # epsilon that would be certified to exceed 0 with probability 0.9.
    limit_of_detection: float
    guesses: Guesses  # counts of coins and guesses; `shift` and `cosines` guess no coin
    estimate: float | None = None  # a point estimate of epsilon at `delta` for `cosines`; None for other methods

    @property
    def limit_meaning(self) -> str:
        """A phrase that says what `limit_of_detection` means for the method of this bound."""
        if self.method.guesses:
            return "the bound if every guess had been right"
        return "the smallest true epsilon that would be certified to exceed 0 with probability 0.9"

    def __str__(self) -> str:
        return (
            f"epsilon at least {self.epsilon:.4g} at delta {self.delta:g} with confidence {self.confidence:g}, by "
            f"{self.method} from {self.guesses.coins:,} coins; limit of detection {self.limit_of_detection:.4g}"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("epsilon at least", f"{self.epsilon:.4g}"),
            ("at delta", f"{self.delta:g}"),
            ("confidence", f"{self.confidence:g}"),
            ("limit of detection", f"{self.limit_of_detection:.4g}"),
            ("canaries", f"{self.guesses.coins:,}"),
        ]
        return html_table(rows, f"Lower bound on epsilon from one run, {self.method}", (self.method.assumption,))

    def to_json(self) -> dict[str, Any]:
        """Return the bound as a dict of JSON values; numbers that are not finite become None."""
        return {
            "epsilon": finite(self.epsilon),
            "delta": self.delta,
            "method": str(self.method),
            "confidence": self.confidence,
            "limit_of_detection": finite(self.limit_of_detection),
            "limit_meaning": self.limit_meaning,
            "mu": finite(self.mu),
            "estimate": finite(self.estimate),
            "assumption": self.method.assumption,
            "coins": self.guesses.coins,
            "guessed": self.guesses.guessed,
            "right": self.guesses.right,
        }


def bound_of_guesses(
    guesses: Guesses, delta: float, confidence: float = 0.95, method: OneRunMethod = OneRunMethod.TRADE_OFF
) -> OneRunBound:
    """Return the lower bound on epsilon that follows from the number of right guesses of the canaries' coins.

    Parameters
    ----------
    guesses
        Counts of coins, guesses and right guesses. The number of guesses must have been fixed before the scores were
        seen.
    method
        `trade-off` or `steinke`, the methods that need only counts and no scores.
    delta
        The delta for which epsilon is bounded, at least 0 and below 1.
    confidence
        Confidence of the bound, above 0.5 and below 1.

    Raises
    ------
    InputError
        If a number is out of its range, or the method needs scores.

    Examples
    --------
    >>> round(bound_of_guesses(Guesses(1000, 100, 100), 1e-5, method=OneRunMethod.STEINKE).epsilon, 3)
    3.465
    """
    _require_confidence(confidence)
    perfect = Guesses(guesses.coins, guesses.guessed, guesses.guessed)
    (epsilon, mu), (ceiling, _) = (
        _epsilon_and_mu(guesses, delta, 1 - confidence, method) for guesses in (guesses, perfect)
    )
    return OneRunBound(method, epsilon, mu, delta, confidence, ceiling, guesses)


def one_run_bound(
    scores: ArrayLike,
    coins: ArrayLike,
    delta: float,
    confidence: float = 0.95,
    method: OneRunMethod | str = OneRunMethod.TRADE_OFF,
    guessed: int | None = None,
    decoys: ArrayLike = (),
    dimension: int | None = None,
) -> OneRunBound:
    """Return a lower confidence bound on epsilon from the scores and coins of the canaries of one run.

    Parameters
    ----------
    scores
        Scores of the canaries, no NaN, any shape; a higher score indicates that the canary was in. Several trainings
        count as one run.
    coins
        Whether each canary was in, decided by independent fair coins; bool or 0 and 1, of the shape of `scores`.
    delta
        The delta for which epsilon is bounded, at least 0 and below 1; above 0 for all methods but `trade-off` and
        `steinke`.
    confidence
        Confidence of the bound, above 0.5 and below 1.
    method
        `trade-off` and `steinke` are valid for any mechanism. The other methods assume independence, which fails for a
        mechanism that leaks several coins together.
    guessed
        Number of coins to guess, half of them as `in`, from 2 to the number of coins; None is a fifth of the coins. The
        number must be fixed before the scores are seen.
    decoys
        Scores of random directions that nobody sent, for the method `shift` only. They are used in the same way as the
        scores of canaries that were out.
    dimension
        Number of parameters of the release, at least 1000, for the method `cosines` only.

    Raises
    ------
    InputError
        If shapes do not match, a number is out of its range, or the method is unknown.

    Examples
    --------
    >>> in_order = np.arange(1000.0)
    >>> bound = one_run_bound(in_order, in_order >= 500, 1e-5)
    >>> round(bound.epsilon, 2), bound.guesses.right
    (4.19, 200)
    """
    method = choice(OneRunMethod, "method", method)
    values, tossed = guessing_bounds.checked_scores(as_floats("scores", scores), coins)
    require_number("delta is", delta)
    _require_confidence(confidence)
    shift = OneRunMethod.SHIFT
    cosines = OneRunMethod.COSINES
    require(method is shift or np.size(decoys) == 0, f"decoys with {method}: accepted with {shift} alone")
    require(method is cosines or dimension is None, f"dimension with {method}: accepted with {cosines} alone")
    if not method.guesses:
        require(guessed is None, f"guesses are {guessed}: {method} counts none")
        _require_positive(delta, method)
        if method is cosines:
            return _by_cosines(values[tossed], dimension, delta, confidence)
        return _by_shift(values[tossed], np.append(values[~tossed], np.ravel(decoys)), values.size, delta, confidence)
    number = max(2, round(_SHARE_GUESSED * values.size)) if guessed is None else guessed
    accepted = 2 <= number <= values.size
    require(accepted, f"guesses are {number} about {values.size} coins: accepted are numbers from 2 to the coins")
    guesses = guessing_bounds.guesses_of_scores(values, tossed, (number + 1) // 2, number // 2)
    return bound_of_guesses(guesses, delta, confidence, method)


def _by_shift(members: Floats, nonmembers: Floats, coins: int, delta: float, confidence: float) -> OneRunBound:
    low = gaussian_shift(members, nonmembers, confidence).low
    shift = detectable_shift(members.size, nonmembers.size, 0.0, 1 - confidence)
    limit = math.inf if math.isinf(shift) else gdp_epsilon(delta, shift)
    none = Guesses(coins, 0, 0)
    return OneRunBound(OneRunMethod.SHIFT, gdp_epsilon(delta, low), low, delta, confidence, limit, none)


def _by_cosines(sent: Floats, dimension: int | None, delta: float, confidence: float) -> OneRunBound:
    if dimension is None:
        raise InputError("cosines need the dimension of the release: accepted are whole numbers from 1000")
    estimate, epsilon, mu = from_final_model(sent, dimension, delta, confidence)
    # The distribution of cosines with unsent directions is known, as if there were very many unsent canaries.
    limit = gdp_epsilon(delta, detectable_shift(sent.size, 1000 * sent.size, 0.0, 1 - confidence))
    none = Guesses(sent.size, 0, 0)
    return OneRunBound(OneRunMethod.COSINES, epsilon, mu, delta, confidence, limit, none, estimate=estimate)


def _epsilon_and_mu(guesses: Guesses, delta: float, level: float, method: OneRunMethod) -> tuple[float, float | None]:
    match method:
        case OneRunMethod.STEINKE:
            return guessing_bounds.steinke_epsilon(guesses, delta, level), None
        case OneRunMethod.TRADE_OFF:
            return guessing_bounds.tradeoff_epsilon(guesses, delta, level), guessing_bounds.tradeoff_mu(guesses, level)
        case OneRunMethod.SHIFT | OneRunMethod.COSINES:
            raise InputError(f"{method} needs scores: accepted for guesses are trade-off, steinke")
        case _:
            assert_never(method)


def _require_confidence(confidence: float) -> None:
    require_number("confidence is", confidence, "numbers above 0.5 and below 1")


def _require_positive(delta: float, method: OneRunMethod) -> None:
    accepted = f"accepted for {method} are numbers above 0 and below 1, since no Gaussian mechanism keeps delta 0"
    require(0 < delta < 1, f"delta is {delta}: {accepted}")
