"""Parametric Epsilon* (Negoescu et al. 2023): the privacy risk of one released model, computed from its losses.

Losses of members and of a population sample are transformed to scores (appendix 8.1). A normal distribution is fitted
to the scores of each set. Epsilon* is the supremum, over all thresholds, of four log ratios of error rates (definition
2, section 3.1). Tail probabilities are computed as logarithms, so that far tails keep their digits, and the supremum is
found by bisection instead of on a grid. All functions accept many models at once, such as those of several trials, in
leading axes. Related modules: `empirical_star` (makes no assumption about the losses), `mixture_star` (mixtures of
normals) and `star_estimate` (one model, with interval and warnings).

Bisection finds the supremum for the following reason. Each ratio is (P(X > t) - delta) / Q(X > t) for two normals P and
Q, both reflected for lower tails. Let P be standard, Q = N(m, r^2), and M the Mills ratio (1 - Phi) / phi. The
derivative of the ratio in t has the sign of H(t) = P(X > t) - delta - phi(t) r M((t - m) / r). The derivative H' has
the sign of t (1 - 1/r^2) + m/r^2, which changes once, at t* = m / (1 - r^2), and H is below 0 where P(X > t) = delta.
So H falls through 0 at most once (for r < 1 after t*). That point is the only inner maximum, and there the ratio of the
tails equals the ratio of the densities of P and Q.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.released_model.star_methods import EMPIRICAL_CUT, PARAMETRIC_CUT
from fl_audit.value_checks import require_number

_FARTHEST = 40.0
"""The search starts this many standard deviations below the mean, where P(X > t) differs from 1 by less than 1e-350."""
_BISECTIONS = 60
DEFAULT_SHIFT = 1.0
"""Constant added to the normalised losses. In the published text its definition is damaged: only "(=1)" is legible."""


def require_star_delta(delta: float) -> None:
    """Raise `InputError` unless delta is at least 0 and below 1."""
    require_number("delta is", delta, "numbers from 0 to below 1")


def require_cut(cut: float) -> None:
    """Raise `InputError` unless the stability cut of error rates is at least 0 and below 1/2."""
    require_number("cut is", cut, "numbers from 0 to below 0.5")


@dataclass(frozen=True)
class StarSettings:
    """Settings with which a run computes Epsilon*: delta, and the cut below which error rates are left out."""

    delta: float  # from 0 to below 1
    # From 0 to below 0.5: error rates below it or above 1 - `cut` are left out; 0 leaves out none.
    cut: float = PARAMETRIC_CUT

    @property
    def counted_cut(self) -> float:
        """The stability cut for Epsilon* from empirical distributions: the larger of `cut` and `EMPIRICAL_CUT`.

        At smaller error rates than `EMPIRICAL_CUT`, the estimate would depend on single losses.
        """
        return max(self.cut, EMPIRICAL_CUT)

    def __post_init__(self) -> None:
        require_star_delta(self.delta)
        require_cut(self.cut)


def _checked_losses(losses: ArrayLike, description: str, at_least: int = 2) -> Floats:
    """Return losses as float64; raise `InputError` unless there are `at_least` of them, all finite and at least 0.

    `description` is the word for the losses in the message.
    """
    values = np.asarray(losses, dtype=np.float64)
    enough = values.ndim >= 1 and values.shape[-1] >= at_least
    require(enough, f"{description} have shape {values.shape}: accepted are {at_least} or more losses")
    if values.size and not (values.min() >= 0 and values.max() < math.inf):
        wrong = values[~((values >= 0) & (values < math.inf))][0]
        require(False, f"{description} contain {wrong}: accepted are finite numbers from 0")
    return values


def checked_pair(member_losses: ArrayLike, population_losses: ArrayLike, at_least: int = 2) -> tuple[Floats, Floats]:
    """Check losses of members and of the population; return them as float64, shapes (..., m) and (..., p).

    Raises `InputError` if leading axes differ, a set has too few losses, or a loss is negative or not finite.

    Parameters
    ----------
    member_losses
        Losses of members, one for each record along the last axis.
    population_losses
        Losses of the population sample, one for each record along the last axis.
    at_least
        Smallest number of losses that either set must have.
    """
    members = _checked_losses(member_losses, "member losses", at_least)
    population = _checked_losses(population_losses, "population losses", at_least)
    axes = members.shape[:-1]
    population_axes = population.shape[:-1]
    require(
        axes == population_axes,
        f"member losses have leading axes {axes}: accepted are {population_axes}, the population's",
    )
    return members, population


def loss_scores(losses: ArrayLike, low: ArrayLike, high: ArrayLike, shift: float = DEFAULT_SHIFT) -> Floats:
    """Return the scores logit(exp(-(normalised loss + shift))) of losses, shape (..., n).

    Smaller losses have larger scores. A loss is normalised as (loss - low) / (high - low). Source: Negoescu et al.
    2023, appendix 8.1.

    Parameters
    ----------
    losses
        The losses, at least 0, finite, shape (..., n).
    low
        Smallest loss of members and population together, shape (...). If it equals `high`, all normalised losses are 0.
    high
        Largest loss of members and population together, shape (...).
    shift
        Positive number that is added to each normalised loss, since the logit of 1 is infinite.

    Raises
    ------
    InputError
        If a loss is negative, not finite or outside low to high, or the shift is not positive.
    """
    require_number("shift is", shift, "positive finite numbers")
    values = _checked_losses(losses, "losses")
    bottom = np.asarray(low, dtype=np.float64)[..., None]
    top = np.asarray(high, dtype=np.float64)[..., None]
    within = bool(np.all((values >= bottom) & (values <= top)))
    require(within, "a loss lies outside low to high: accepted are losses within")
    span = top - bottom
    shifted = (values - bottom) / np.where(span > 0, span, 1.0) + shift
    return shifted_scores(shifted)


def shifted_scores(shifted: Floats) -> Floats:
    """Return the scores logit(exp(-y)) of losses, as `loss_scores` does, from losses that are already normalised.

    `shifted` has any shape and holds the numbers y > 0: the normalised losses plus the shift.
    """
    return np.asarray(-(shifted + np.log(-np.expm1(-shifted))), dtype=np.float64)


def scores_of_pair(
    member_losses: Floats, population_losses: Floats, shift: float = DEFAULT_SHIFT
) -> tuple[Floats, Floats]:
    """Return the scores of members' losses and of population losses, with the shapes of the losses.

    The score of a loss is logit(exp(-(normalised loss + shift))), as in `loss_scores`. For each model, both sets of
    losses are normalised by the range of all losses together.

    Parameters
    ----------
    member_losses
        Losses of members as `checked_pair` returns them, shape (..., m).
    population_losses
        Losses of the population sample as `checked_pair` returns them, shape (..., p).
    shift
        Number above 0 that is added to each normalised loss.
    """
    low = np.minimum(member_losses.min(axis=-1), population_losses.min(axis=-1))
    high = np.maximum(member_losses.max(axis=-1), population_losses.max(axis=-1))
    return loss_scores(member_losses, low, high, shift), loss_scores(population_losses, low, high, shift)


def epsilon_star_gaussian(
    member_mean: ArrayLike,
    member_std: ArrayLike,
    population_mean: ArrayLike,
    population_std: ArrayLike,
    delta: float,
    cut: float = 0.0,
) -> Floats:
    """Return Epsilon* in nats, for known normal distributions of two sets of scores.

    Epsilon* is the supremum, over all thresholds, of the logarithms of (1-delta-FPR)/FNR, (1-delta-FNR)/FPR,
    (FPR-delta)/(1-FNR) and (FNR-delta)/(1-FPR), and at least 0. For equal standard deviations and no cut it equals
    `gdp_epsilon(delta, mu)`, where mu is the distance of the means in standard deviations. It stays the same if members
    and population are exchanged, or if the same linear map is applied to all scores.

    Parameters
    ----------
    member_mean
        Mean of the members' scores, finite; all means and standard deviations broadcast together.
    population_mean
        Mean of the population's scores, finite.
    member_std
        Standard deviation of the members' scores, finite and at least 0; 0 means a constant score. For two equal
        constants Epsilon* is 0. For a constant and any other distribution it is infinite.
    population_std
        Standard deviation of the population's scores, finite and at least 0; 0 means a constant score.
    delta
        Delta of Epsilon*, at least 0 and below 1. At 0 and without a cut, Epsilon* of two different normals is
        infinite.
    cut
        The paper's stability cut (footnote of section 3.1), from 0 to below 0.5: the supremum is taken over thresholds
        whose FPR and FNR both lie between `cut` and 1 - `cut`. If there is no such threshold, or the cut is 0 (the
        default), all thresholds count. A cut is useful for distributions that were fitted to losses, because their
        tails are extrapolated.

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> round(float(epsilon_star_gaussian(1.0, 1.0, 0.0, 1.0, 1e-5)), 4)
    4.3772
    """
    require_star_delta(delta)
    require_cut(cut)
    moments = (member_mean, member_std, population_mean, population_std)
    distributions = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in moments))
    finite = np.logical_and.reduce([np.isfinite(values) for values in distributions])
    require(bool(np.all(finite)), "a mean or standard deviation is NaN or infinite: accepted are finite numbers")
    mean_1, std_1, mean_0, std_0 = distributions
    require(bool(np.all((std_1 >= 0) & (std_0 >= 0))), "a standard deviation is negative: accepted are numbers from 0")
    same = (mean_1 == mean_0) & (std_1 == std_0)
    constant = (std_1 == 0) | (std_0 == 0)
    reach = np.full(same.shape, np.inf)
    if cut:
        reach[np.abs(mean_1 - mean_0) < -ndtri(cut) * (std_1 + std_0)] = -ndtri(cut)
    unbounded = ~same & (constant | ((delta == 0) & np.isinf(reach)))
    plain = ~same & ~unbounded
    epsilon_star = np.where(unbounded, np.inf, 0.0)
    # Epsilon* is the largest over both orders of the two distributions, and over upper and lower tails.
    gap = mean_0[plain] - mean_1[plain]
    finite_std_1 = std_1[plain]
    finite_std_0 = std_0[plain]
    offset = np.stack([gap / finite_std_1, -gap / finite_std_1, -gap / finite_std_0, gap / finite_std_0])
    spread = np.stack(
        [
            finite_std_0 / finite_std_1,
            finite_std_0 / finite_std_1,
            finite_std_1 / finite_std_0,
            finite_std_1 / finite_std_0,
        ]
    )
    with np.errstate(all="ignore"):
        epsilon_star[plain] = np.max(_tail_supremum(offset, spread, delta, reach[plain]), axis=0)
    return np.asarray(epsilon_star, dtype=np.float64)


def _tail_supremum(offset: Floats, spread: Floats, delta: float, reach: Floats) -> Floats:
    """Return the supremum over t of log((P(X > t) - delta) / Q(X > t)), at least 0.

    X is N(0, 1) under P and N(offset, spread^2) under Q; t is at most `reach` standard deviations from both means.
    """
    # P is N(0, 1), Q is N(offset, spread^2), and t lies within `reach` standard deviations of both means. The inner
    # maximum is bracketed and found by bisection on the sign of H, see the module's docstring.
    first = np.maximum(-reach, offset - reach * spread)
    last = np.minimum(reach, offset + reach * spread)
    turn = offset / ((1 - spread) * (1 + spread))
    low = np.maximum(np.where(spread < 1, np.maximum(turn, -_FARTHEST), -_FARTHEST), first)
    high = np.minimum(np.full_like(low, -ndtri(delta)), last)
    inner = (low < high) & _rises(low, offset, spread, delta) & ~_rises(last, offset, spread, delta)
    # The bisection runs only for ratios with an inner maximum, so that it does no work for the others.
    low_point, high_point, shift, scale = (values[inner] for values in (low, high, offset, spread))
    for _ in range(_BISECTIONS):
        middle = (low_point + high_point) / 2
        rises = _rises(middle, shift, scale, delta)
        low_point = np.where(rises, middle, low_point)
        high_point = np.where(rises, high_point, middle)
    low[inner] = low_point
    x = (low - offset) / spread
    # At its maximum the ratio of tails equals that of the densities.
    inside = np.where(inner, (x - low) * (x + low) / 2 + np.log(spread), 0.0)
    ratios = (np.log(np.maximum(ndtr(-t) - delta, 0.0)) - log_ndtr((offset - t) / spread) for t in (first, last))
    ends = [np.where(np.isfinite(reach), ratio, 0.0) for ratio in ratios]
    return np.asarray(np.maximum.reduce([inside, *ends, np.zeros_like(inside)]), dtype=np.float64)


def _rises(t: Floats, offset: Floats, spread: Floats, delta: float) -> Flags:
    """Return whether (P(X > t) - delta) / Q(X > t) increases at t, i.e. H(t) > 0 in the module's docstring."""
    x = (t - offset) / spread
    gap = np.log(np.maximum(ndtr(-t) - delta, 0.0))
    log_density = -t * t / 2 - math.log(2 * math.pi) / 2
    # The log of the Mills ratio (1 - Phi(x)) / phi(x), without overflow on either side.
    log_mills_positive = np.log(erfcx(np.maximum(x, 0.0) / math.sqrt(2))) + math.log(math.pi / 2) / 2
    log_mills_negative = log_ndtr(-np.minimum(x, 0.0)) + x * x / 2 + math.log(2 * math.pi) / 2
    return np.asarray(
        gap > log_density + np.log(spread) + np.where(x > 0, log_mills_positive, log_mills_negative), dtype=np.bool_
    )


def parametric_epsilon_star(
    member_losses: ArrayLike,
    population_losses: ArrayLike,
    delta: float,
    shift: float = DEFAULT_SHIFT,
    cut: float = PARAMETRIC_CUT,
) -> Floats:
    """Return the parametric Epsilon* of each model, shape (...), from members' and population losses.

    Losses are transformed to scores (`loss_scores`), to which normals are fitted by maximum likelihood, with standard
    deviations of denominator n.

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, shape (..., m), m at least 2.
    population_losses
        Losses on a sample of the population, finite and at least 0, shape (..., p) with the same leading axes, p at
        least 2.
    delta
        Delta of Epsilon*, at least 0 and below 1; the paper recommends less than one over the number of members.
    shift
        Number above 0 that is added to each normalised loss (`loss_scores`).
    cut
        Stability cut, from 0 to below 0.5: thresholds with an error rate below `cut` or above 1 - `cut` are left out,
        unless none remains.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or shapes or another number are not accepted.
    """
    scores = scores_of_pair(*checked_pair(member_losses, population_losses), shift)
    return epsilon_star_gaussian(*fit_normal(scores[0]), *fit_normal(scores[1]), delta, cut)


def fit_normal(scores: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation (denominator n) of scores over the last axis; exact if scores are equal."""
    constant = scores.min(axis=-1) == scores.max(axis=-1)
    mean = np.where(constant, scores[..., 0], scores.mean(axis=-1))
    return mean, np.where(constant, 0.0, scores.std(axis=-1))
