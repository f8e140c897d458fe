"""One-run bounds on mechanisms whose privacy is known, with the rate of false certificates.

Some mechanisms tell of each coin by itself, others leak coins together. What the release tells of a single coin, on
average over all that is random, is known as a trade-off curve: it gives epsilon at a delta, and the smallest mu of
Gaussian DP.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtrc, expit, logit, ndtr, ndtri
from scipy.stats import binom

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.canaries import guessing_bounds
from fl_audit.audits.canaries.guessing_bounds import Guesses
from fl_audit.statistics.shift_bound import gaussian_shift
from tests.validation.membership_releases import gaussian_mean, randomised_response

COINS = 1000
DELTA = 1e-5
LEVEL = 0.05
ALARM = 1e-3  # probability, at most, with which the study may raise a false alarm over all lines
_SHARES = np.exp(np.linspace(np.log(LEVEL * 1.001), 0.0, 120))
_RATES = np.exp(np.linspace(np.log(1e-12), np.log(0.5), 4000))
_CURVE_RATES = np.exp(np.linspace(np.log(1e-14), np.log(0.5), 20_000))
"""False positive rates at which curves are searched; rates beyond one half describe the other side."""
_SURE = 1 - 1e-12

IsFalse = Callable[[Floats, Flags], bool]


@dataclass(frozen=True)
class OneRunMechanism:
    """A mechanism that releases information on the coins of one run."""

    name: str  # for people
    # Draws a score for each coin from coins of shape (runs, coins), as telling as the release allows.
    tell: Callable[[np.random.Generator, Flags], Floats]
    tpr: Callable[[Floats], Floats]  # the largest TPR at each FPR, about one coin, in the direction that tells more
    is_gaussian: bool = False  # whether it is the Gaussian mechanism itself
    # The mu that the curve only reaches in the limit of small rates; None where a search finds it.
    limit_mu: float | None = None

    @property
    def mu(self) -> float:
        """The smallest mu of Gaussian DP that the mechanism keeps."""
        if self.limit_mu is not None:
            return self.limit_mu
        return float(np.max(ndtri(self.tpr(_CURVE_RATES)) - ndtri(_CURVE_RATES)))

    def epsilon(self, delta: float) -> float:
        """Return the exact epsilon at delta, above 0."""
        tpr = self.tpr(_CURVE_RATES)
        above = tpr > delta
        return max(0.0, float(np.max(np.log((tpr[above] - delta) / _CURVE_RATES[above]))))


def mechanisms() -> list[OneRunMechanism]:
    """Return all mechanisms of the study, those that leak coins together last."""
    ideal = gaussian_mean(1.0)
    response = randomised_response(1.0)
    return [
        OneRunMechanism(ideal.name, ideal.tell, ideal.tpr, is_gaussian=True, limit_mu=1.0),
        OneRunMechanism(
            "Laplace, epsilon = 1", lambda draw, is_in: is_in + draw.laplace(size=is_in.shape), _laplace_tpr
        ),
        OneRunMechanism(response.name, response.tell, response.tpr),
        # The curve is that of adding the record; that of removing it lies below where rates are small.
        OneRunMechanism(
            "Gaussian mean 2, sampled at 0.3",
            lambda draw, is_in: 2.0 * (is_in & (draw.random(is_in.shape) < 0.3)) + draw.normal(size=is_in.shape),
            lambda rate: 0.7 * rate + 0.3 * np.asarray(ndtr(ndtri(rate) + 2.0)),
            limit_mu=2.0,
        ),
        _leak(
            "a leak of 1 % of the records, by randomised response at 4",
            0.01,
            4.0,
            lambda draw, is_in: draw.random(is_in.shape) < 0.01,
        ),
        _leak(
            "all records or none (one run in ten), by randomised response at 2",
            0.1,
            2.0,
            lambda draw, is_in: draw.random((len(is_in), 1)) < 0.1,
        ),
        _leak(
            "each half of the records or none (one in ten), by randomised response at 3",
            0.1,
            3.0,
            lambda draw, is_in: np.repeat(draw.random((len(is_in), 2)) < 0.1, is_in.shape[1] // 2, axis=1),
        ),
    ]


def _leak(
    name: str, share: float, epsilon: float, leaks: Callable[[np.random.Generator, Flags], Flags]
) -> OneRunMechanism:
    """Return a mechanism with +-1 for the coins that leak, as in randomised response, and noise near 0 for others."""

    def tell(draw: np.random.Generator, is_in: Flags) -> Floats:
        leaked = leaks(draw, is_in)
        answers = is_in ^ (draw.random(is_in.shape) >= expit(epsilon))
        return np.where(leaked, 2.0 * answers - 1, 0.0) + 1e-3 * draw.normal(size=is_in.shape)

    return OneRunMechanism(name, tell, lambda rate: _leak_tpr(rate, share, epsilon))


def _leak_tpr(rate: Floats, share: float, epsilon: float) -> Floats:
    """Return the largest TPR on a coin that randomised response reveals with a probability, and not otherwise."""
    up = np.exp(epsilon)
    return np.minimum(np.minimum(up * rate, rate + share * np.tanh(epsilon / 2)), 1 - (1 - rate) / up)


def _laplace_tpr(rate: Floats) -> Floats:
    """Return the curve at epsilon = 1 (Dong, Roth & Su 2022, section 2.3)."""
    up = np.e
    return np.where(rate < 0.5 / up, up * rate, np.where(rate < 0.5, 1 - 1 / (4 * up * rate), 1 - (1 - rate) / up))


class CertificateLine(NamedTuple):
    """The rate of false certificates of one kind on one mechanism."""

    mechanism: str  # name of the mechanism
    certificate: str  # name of the certificate
    truth: float  # the value that must not be certified to be exceeded
    holds: bool  # whether the method's assumption holds for the mechanism
    runs: int  # number of runs
    false: int  # number of runs with a false certificate


def false_certificates(mechanism: OneRunMechanism, runs: int, seed: int) -> list[CertificateLine]:
    """Return the rate of false certificates of each kind on a mechanism."""
    draw = np.random.default_rng((seed, 26))
    tests = _tests(mechanism.mu, mechanism.epsilon(DELTA))
    false = dict.fromkeys(tests, 0)
    for _ in range(runs):
        coins = draw.random((1, COINS)) < 0.5
        scores = mechanism.tell(draw, coins)
        for name, (_, _, is_false) in tests.items():
            false[name] += is_false(scores[0], coins[0])
    holds = {"any": True, "gaussian": mechanism.is_gaussian}
    return [
        CertificateLine(mechanism.name, name, truth, holds[needs], runs, false[name])
        for name, (truth, needs, _) in tests.items()
    ]


def _tests(mu: float, epsilon: float) -> dict[str, tuple[float, str, IsFalse]]:
    """Return for each certificate the truth, its requirement, and a function that tells whether it exceeds the truth.

    A bound lies above the truth exactly where the truth itself is rejected, which is much faster to compute.
    """
    of_epsilon = guessing_bounds.approximate_inverse(epsilon, DELTA)
    of_mu = guessing_bounds.gaussian_inverse(mu)

    def counted(number: int, decide: Callable[[Guesses], bool]) -> IsFalse:
        decided = cache(decide)
        return lambda scores, coins: decided(guessing_bounds.guesses_of_scores(scores, coins, number, number))

    def by_shift(scores: Floats, coins: Flags) -> bool:
        return gaussian_shift(scores[coins], scores[~coins], 1 - LEVEL).low > mu

    guess_count = COINS // 10
    return {
        "steinke, epsilon": (
            epsilon,
            "any",
            counted(guess_count, lambda guesses: guessing_bounds.one_run_p_value(guesses, epsilon, DELTA) < LEVEL),
        ),
        "trade-off, epsilon": (
            epsilon,
            "any",
            counted(guess_count, lambda guesses: not guessing_bounds.is_possible(guesses, LEVEL, of_epsilon)),
        ),
        "trade-off, mu": (
            mu,
            "any",
            counted(guess_count, lambda guesses: not guessing_bounds.is_possible(guesses, LEVEL, of_mu)),
        ),
        "shift, mu": (mu, "gaussian", by_shift),
    }


def problems(lines: list[CertificateLine]) -> list[str]:
    """Return the contradictions to the claims."""
    allowed = binom.ppf(1 - ALARM / max(1, len(lines)), lines[0].runs, LEVEL)
    return [
        f"{line.certificate} on {line.mechanism}: {line.false} of {line.runs} are false, {allowed:g} allowed"
        for line in lines
        if line.holds and line.false > allowed
    ]


def limit_under_dependence(guesses: Guesses) -> float:
    """Return an upper limit on mu for all bounds from these counts that hold for coins that leak together.

    A mechanism that with probability p tells, by randomised response, of r of the m coins chosen at random, and
    otherwise of none, is mu-GDP with a mu in closed form; where p times the probability of v right guesses of r is at
    least the level, a bound above that mu would be false too often.
    """
    return min(_mu_of_a_leak(guesses, float(share)) for share in _SHARES)


def _mu_of_a_leak(guesses: Guesses, share: float) -> float:
    """Return the mu at which a leak with probability `share` exceeds the count with the level's probability."""
    r = guesses.guessed
    needed = LEVEL / share

    def missing(right: float) -> float:
        return float(bdtrc(guesses.right - 1, r, right)) - needed

    if missing(_SURE) < 0:
        return np.inf
    epsilon = float(logit(brentq(missing, 0.5, _SURE)))
    return float(np.max(ndtri(_leak_tpr(_RATES, share * r / guesses.coins, epsilon)) - ndtri(_RATES)))
