"""Simulated runs whose truth is known, for bounds from scores: of attacks, canaries, guesses and losses."""

import math
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
from scipy.special import expit, ndtr, ndtri

from fl_audit.app_audits.claim_audit.gaussian_mu_estimate import strength
from fl_audit.array_types import Flags, Floats
from fl_audit.audits.canaries.bounds import bound_of_guesses, one_run_bound
from fl_audit.audits.canaries.epsilon_from_cosines import from_final_model
from fl_audit.audits.canaries.guessing_bounds import guesses_of_scores
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.audits.common.sections_record_guarantee import measured_advantage
from fl_audit.audits.membership.attack_results import epsilon_of_one_target
from fl_audit.audits.membership.roc_metrics import SMALL_RATES, membership_rates
from fl_audit.audits.reconstruction.candidate_hits import epsilon_of_hits
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.released_model.mechanism_star import mechanism_lower_bound
from fl_audit.released_model.star_estimate import estimate_epsilon_star
from fl_audit.released_model.star_intervals import empirical_interval
from fl_audit.released_model.star_methods import StarMethod
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import epsilon_lower_bound
from fl_audit.statistics.roc import area_under_curve, tradeoff_band
from fl_audit.statistics.shift_bound import gaussian_slope
from tests.validation import known_mechanisms as known
from tests.validation import membership_releases as releases
from tests.validation.coverage_distributions import CONFIDENCE, Plays, PrintedStatement, at_least, over

_TARGETS = 10
_ATTACK = "LiRA, shared variance"
_Sizes = tuple[int, int]
_Distribution = tuple[releases.CoinMechanism, float, float]  # a mechanism, the number that is bounded, and delta


def _coarse(mechanism: known.KnownMechanism, step: float) -> known.KnownMechanism:
    """Return a mechanism whose scores are rounded: they reveal no more, and have few values."""

    def draw(rng: np.random.Generator, size: int) -> tuple[Floats, Floats]:
        member_scores, nonmember_scores = mechanism.draw(rng, size)
        return step * np.round(member_scores / step), step * np.round(nonmember_scores / step)

    return replace(mechanism, name=f"{mechanism.name}, rounded to {step:g}", draw=draw)


@lru_cache(maxsize=10_000)
def _bound(members: bytes, nonmembers: bytes, delta: float, method: BoundMethod) -> float:
    """Return a bound, which follows from the scores alone: scores with few values often repeat."""
    return epsilon_lower_bound(np.frombuffer(members), np.frombuffer(nonmembers), delta, CONFIDENCE, method).epsilon


def lower_bounds(method: BoundMethod) -> Plays:
    """Return plays of a lower bound on epsilon from the scores of any mechanism for which its assumption holds."""
    deltas: tuple[float, ...] = (1e-5,)
    if method is BoundMethod.GAUSSIAN_SHIFT or method is BoundMethod.GDP:
        distributions = [known.noise(), *(known.gaussian(mu) for mu in (0.3, 1.0, 3.0))]
        deltas = (1e-5, 1e-2)
    else:
        responses = [known.randomised_response(e) for e in (0.2, 1.0, 1.9, 2.5, 3.0)]
        other_mechanisms = [known.noise(), known.laplace(1.0), known.subsampled_gaussian(0.25, 0.5)]
        distributions = [*responses, *other_mechanisms, _coarse(known.noise(), 1.5), _coarse(known.laplace(2.0), 0.7)]
    label = "{sizes[0]} + {sizes[1]} scores, {distribution}, delta {delta:g}"
    sizes = ((4, 4), (20, 20), (40, 40), (10, 120), (250, 250))

    @over(label, sizes=sizes, distribution={item.name: item for item in distributions}, delta=deltas)
    def play(
        draw: np.random.Generator, distribution: known.KnownMechanism, sizes: _Sizes, delta: float
    ) -> PrintedStatement:
        item, zero = (
            np.sort(item[:size]) for item, size in zip(distribution.draw(draw, max(sizes)), sizes, strict=True)
        )
        return at_least(_bound(item.tobytes(), zero.tobytes(), delta, method), distribution.epsilon(delta))

    return play()


@over("{size} + {size} trials, mu {mu:g}", size=(10, 50, 500), mu=(0.0, 0.1, 1.0))
def readings_of_noise(draw: np.random.Generator, size: int, mu: float) -> PrintedStatement:
    """Play the shift over spread that a black-box audit estimates where the noise looks Gaussian."""
    return at_least(strength(draw.normal(mu, 1, size), draw.normal(0, 1, size), CONFIDENCE).low, mu)


@over(
    "{sizes[0]} + {sizes[1]} {coins}, mu {mu:g}",
    mu=(0.0, 1.0, 3.0),
    sizes=((1, 1), (3, 40), (60, 60)),
    coins={"scores": False, "coins": True},
)
def areas(draw: np.random.Generator, mu: float, sizes: _Sizes, coins: bool) -> PrintedStatement:
    """Play the area under the curve, of continuous scores and of ones and zeros."""
    members: Floats = draw.normal(mu, 1, sizes[0])
    nonmembers: Floats = draw.normal(0, 1, sizes[1])
    truth = float(ndtr(mu / math.sqrt(2)))
    if coins:
        members = (members > 1.5).astype(np.float64)
        nonmembers = (nonmembers > 1.5).astype(np.float64)
        truth = 0.5 + float(ndtr(mu - 1.5) - ndtr(-1.5)) / 2
    interval = area_under_curve(members, nonmembers, CONFIDENCE)
    return PrintedStatement(interval.low, interval.high, truth)


@over(
    "{sizes[0]} + {sizes[1]} trials, mu {mu:g}, at {at:g}",
    mu=(0.0, 0.52, 1.0, 3.0),
    sizes=((20, 20), (30, 300), (300, 30), (500, 500)),
    at=(0.002, 0.01, 0.1, 0.9),
)
def tradeoffs(draw: np.random.Generator, mu: float, sizes: _Sizes, at: float) -> PrintedStatement:
    """Play the band of the insider's trade-off at one share of false alarms."""
    band = tradeoff_band(draw.normal(mu, 1, sizes[0]), draw.normal(0, 1, sizes[1]), np.array([at]), CONFIDENCE)
    return PrintedStatement(float(band.low[0]), float(band.high[0]), float(ndtr(ndtri(at) + mu)))


@over(
    "{trials} trials, rates {rates[0]:g} and {rates[1]:g}",
    trials=(1, 10, 100, 1000),
    rates=((0.5, 0.5), (0.99, 0.01), (0.01, 0.005), (0.7, 0.3)),
)
def randomised_records(draw: np.random.Generator, trials: int, rates: tuple[float, float]) -> PrintedStatement:
    """Play the advantage on one randomised record."""
    first_signs, second_signs = (np.where(draw.random(trials) < rate, 1.0, -1.0) for rate in rates)
    interval = measured_advantage(first_signs, second_signs, CONFIDENCE)
    return PrintedStatement(interval.low, interval.high, rates[0] - rates[1])


@over("{canaries} canaries, mu {mu:g}", canaries=(2, 20, 500), mu=(0.0, 1.0, 3.0))
def cosines(draw: np.random.Generator, canaries: int, mu: float, dimension: int = 20_000) -> PrintedStatement:
    """Play the bound from cosines of canaries with one release, whose distribution is normal."""
    cosine_values = np.clip(draw.normal(mu, 1, canaries) / math.sqrt(dimension), -1, 1)
    _, lower, _ = from_final_model(cosine_values, dimension, 1e-5, CONFIDENCE)
    return at_least(lower, gdp_epsilon(1e-5, mu))


def single_runs(method: OneRunMethod, kind: str) -> Plays:
    """Return plays of a one-run bound where the assumption of its method holds.

    `kind` is the bounded number, "epsilon" or "mu".
    """
    distributions = [
        (releases.gaussian_mean(mu), mu if kind == "mu" else gdp_epsilon(1e-3, mu), 1e-3) for mu in (0.5, 1.0)
    ]
    of_any_distribution = method in (OneRunMethod.STEINKE, OneRunMethod.TRADE_OFF)
    distributions.append((releases.gaussian_mean(0.0), 0.0, 0.0 if of_any_distribution else 1e-3))
    if kind != "mu" and of_any_distribution:
        distributions += [(releases.randomised_response(e), e, 0.0) for e in (0.5, 1.0, 2.0)]
        distributions += [(releases.leaky_response(e, d), e, d) for e, d in ((1.0, 1e-3), (0.0, 0.05))]
    sizes = {f"{coins} coins, {2 * side} guessed": (coins, side) for coins, side in ((20, 10), (200, 20), (400, 200))}

    @over("{sizes}, {distribution}", distribution={entry[0].name: entry for entry in distributions}, sizes=sizes)
    def play(draw: np.random.Generator, distribution: _Distribution, sizes: _Sizes) -> PrintedStatement:
        (mechanism, truth, delta), (coins, side) = distribution, sizes
        is_in = draw.random((1, coins)) < 0.5
        scores = mechanism.tell(draw, is_in)
        if method is OneRunMethod.SHIFT:
            bound_result = one_run_bound(scores[0], is_in[0], delta, CONFIDENCE, method)
        else:
            bound_result = bound_of_guesses(guesses_of_scores(scores, is_in, side, side), delta, CONFIDENCE, method)
        return at_least(
            bound_result.epsilon if kind == "epsilon" or bound_result.mu is None else bound_result.mu, truth
        )

    return play()


@over(
    "{size} scores, mu {mu:g}, {is_graded}",
    size=(20, 100, 1000),
    mu=(0.0, 0.1, 1.0, 3.0),
    is_graded={"in or out": False, "graded": True},
)
def slopes(draw: np.random.Generator, size: int, mu: float, is_graded: bool) -> PrintedStatement:
    """Play the lower bound on how far normal scores grow with a known part of each."""
    canary_shares = draw.random(size) * (draw.random(size) < 0.5) if is_graded else (draw.random(size) < 0.5) * 1.0
    scores = mu * canary_shares + draw.standard_normal(size)
    return at_least(gaussian_slope(np.asarray(canary_shares, dtype=np.float64), scores, CONFIDENCE).low, mu)


_GRID = product((2, 20, 1000), (0.0, 0.5, 3.0), (0.0, 1e-3))
_DISTRIBUTIONS = {
    f"{m} candidates, epsilon {e:g}, delta {d:g}": (m, e, d) for m, e, d in _GRID if math.exp(e) / m + d <= 1
}


@over("{trials} trials, {distribution}", trials=(10, 100, 1000), distribution=_DISTRIBUTIONS)
def first_guesses(draw: np.random.Generator, trials: int, distribution: tuple[int, float, float]) -> PrintedStatement:
    """Play the epsilon from first guesses among candidates, as often right as (epsilon, delta)-DP allows."""
    candidates, epsilon, delta = distribution
    hits = int(draw.binomial(trials, min(1.0, math.exp(epsilon) / candidates + delta)))
    return at_least(epsilon_of_hits(hits, trials, 1 / candidates, delta, CONFIDENCE), epsilon)


_SINGLE = [
    *((releases.randomised_response(e), e, 0.0) for e in (0.5, 1.9, 3.0)),
    (releases.leaky_response(1.0, 1e-2), 1.0, 1e-2),
    *((releases.gaussian_mean(mu), gdp_epsilon(1e-3, mu), 1e-3) for mu in (0.3, 1.0)),
]


@over(
    "{sizes}, {distribution}",
    distribution={entry[0].name: entry for entry in _SINGLE},
    sizes={"10 trials": (10, 0), "40 trials": (40, 0), "80 trials": (80, 0), "60 trials by LiRA": (60, 40)},
)
def single_targets(draw: np.random.Generator, distribution: _Distribution, sizes: _Sizes) -> PrintedStatement:
    """Play the bound from one target of every trial: of the release itself, or attacked with shadows."""
    (mechanism, truth, delta), (trials, shadows) = distribution, sizes
    apart = np.arange(shadows + trials) < shadows
    release = mechanism.release(draw, apart.size, _TARGETS, shared=0.3)
    is_in = release.membership.is_in
    scores = releases.ATTACKS[_ATTACK](release, apart) if shadows else mechanism.tell(draw, is_in)
    bound = epsilon_of_one_target(scores[~apart], TargetMembership(is_in[~apart]), delta, draw, CONFIDENCE)
    return at_least(0.0 if bound is None else bound.epsilon, truth)


def _coins(draw: np.random.Generator, trials: int, targets: int) -> Flags:
    """Toss the coins of a membership audit, in which one target is always in, and one never."""
    is_in = draw.random((trials, targets)) < 0.5
    is_in[:, :2] = [True, False]
    return is_in


@over(
    "{trials} trials of {targets}, mu {mu:g}, {shared:.0%} of the noise shared",
    trials=(10, 30, 100),
    targets=(4, 40),
    mu=(0.3, 1.5, 3.0),
    shared=(0.0, 1.0),
)
def rates_of_insiders(
    draw: np.random.Generator, trials: int, targets: int, mu: float, shared: float
) -> PrintedStatement:
    """Play the AUC of insiders over trials, whose interval is one of four that hold together."""
    is_in = _coins(draw, trials, targets)
    own_noise = draw.normal(size=is_in.shape)
    alike = draw.normal(size=(trials, 1))
    noise = math.sqrt(1 - shared) * own_noise + math.sqrt(shared) * alike
    log_odds = np.where(is_in, 1, -1) * mu**2 / 2 + mu * noise
    interval = membership_rates(log_odds, TargetMembership(is_in), draw, CONFIDENCE, 100, False, of_insiders=True).auc
    return PrintedStatement(interval.low, interval.high, float(ndtr(mu / math.sqrt(2))))


@over(
    "{trials} trials of {targets}, mu {leak[0]:g} in {leak[1]:.0%} of them",
    trials=(2, 5, 24),
    targets=(4, 40),
    leak=((0.0, 1.0), (1.0, 1.0), (4.0, 0.05), (4.0, 0.5)),
)
def rates_of_members(
    draw: np.random.Generator, trials: int, targets: int, leak: tuple[float, float]
) -> PrintedStatement:
    """Play the AUC of a membership attack, whose interval is one of four that hold together."""
    (mu, share), is_in = leak, _coins(draw, trials, targets)
    leaks = draw.random((trials, 1)) < share
    scores = mu * leaks * is_in + draw.normal(size=is_in.shape) + draw.normal(size=(trials, 1))
    interval = membership_rates(scores, TargetMembership(is_in), draw, CONFIDENCE, 400, False).auc
    return PrintedStatement(interval.low, interval.high, 0.5 + share * (float(ndtr(mu / math.sqrt(2))) - 0.5))


@over(
    "{trial}",
    trial={f"{item[0]}, shadows {'apart' if item[1] else 'each other'}": item for item in releases.MADE_UP_AUDITS},
)
def rates_without_leak(draw: np.random.Generator, trial: tuple[str, bool], is_all: bool) -> PrintedStatement:
    """Play every membership attack without a leak: its AUC, or all four figures together.

    The four intervals hold together with the confidence, so that of the AUC errs by itself four times as rarely. An
    attack that says yes or no has no FPR as small as the two smallest, and its TPR is 0 there.
    """
    rates = releases.rates_without_leak(*trial, 100 if is_all else 10, CONFIDENCE, draw)
    small = [0.0 if trial[0] in releases.YES_OR_NO else rate for rate in SMALL_RATES]
    figures = (rates.auc, rates.balanced_accuracy, rates.tpr_at_fpr_0001, rates.tpr_at_fpr_001)
    four = [PrintedStatement(item.low, item.high, true) for item, true in zip(figures, (0.5, 0.5, *small), strict=True)]
    missed = [item for item in four if not item.low <= item.truth <= item.high] if is_all else []
    return (missed or four)[0]


def _true_star(epsilon: float, delta: float) -> float:
    """Return Epsilon* of randomised response on losses 0 and 1: of members right with probability expit(epsilon)."""
    honest = float(expit(epsilon))
    return max(0.0, math.log((honest - delta) / (1 - honest)))


def _response_losses(draw: np.random.Generator, epsilon: float, shape: tuple[int, ...], is_in: bool) -> Floats:
    """Return losses that are small where a coin of randomised response says "in", spread within each half."""
    small = (draw.random(shape) < expit(epsilon)) == is_in
    return draw.random(shape) + np.where(small, 0.0, 1.0)


@over("{size} + {size} losses, epsilon {epsilon:g}", size=(100,), epsilon=(0.0, 0.5, 2.0))
def stars(draw: np.random.Generator, size: int, epsilon: float, method: StarMethod) -> PrintedStatement:
    """Play the interval of Epsilon*; the truth is that of the distributions of the losses, whatever they are."""
    members, nonmembers = (_response_losses(draw, epsilon, (size,), is_in) for is_in in (True, False))
    if method is StarMethod.EMPIRICAL:
        low, high = empirical_interval(members, nonmembers, 1e-3, confidence=CONFIDENCE)
    else:
        low, high = estimate_epsilon_star(members, nonmembers, 1e-3, draw, method, CONFIDENCE).interval
    return PrintedStatement(low, high, _true_star(epsilon, 1e-3))


@over(
    "{models} models, {size} + {size} losses, epsilon {epsilon:g}",
    models=(1, 3, 30),
    size=(2, 30, 200),
    epsilon=(0.0, 0.5, 2.0),
)
def mechanisms(draw: np.random.Generator, models: int, size: int, epsilon: float) -> PrintedStatement:
    """Play the bound from the losses of several models."""
    members, nonmembers = (_response_losses(draw, epsilon, (models, size), is_in) for is_in in (True, False))
    return at_least(mechanism_lower_bound(members, nonmembers, 1e-3, CONFIDENCE), _true_star(epsilon, 1e-3))
