"""Epsilon* (privacy risk) of one model, with its interval, warnings, and the results of simple attacks.

The three methods, `parametric`, `mixture` and `empirical`, differ in the distributions that they assume, in the search
for the supremum and in the interval (module `star_intervals`).
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats, in_one_axis
from fl_audit.errors import require
from fl_audit.html_tables import html_table
from fl_audit.released_model import normal_mixture as mixtures
from fl_audit.released_model import parametric_star as parametric
from fl_audit.released_model.empirical_star import (
    LossAttackResults,
    epsilon_star_of_counts,
    loss_attacks,
    threshold_counts,
)
from fl_audit.released_model.minimum_sample_size import FEWEST
from fl_audit.released_model.mixture_star import epsilon_star_mixtures
from fl_audit.released_model.star_intervals import empirical_interval, hull_interval, loss_cells, parametric_draws
from fl_audit.released_model.star_methods import DEFAULT_CUTS, StarMethod, cut_text
from fl_audit.released_model.star_warnings import (
    SETS,
    FittedDistributions,
    LossPair,
    chance_warnings,
    equal_losses_warnings,
    fit_warnings_of_set,
    sample_of_scores,
    value_warnings,
)
from fl_audit.value_checks import choice, require_number
from fl_audit.words import interval_text

_REPLICATES = 1000
_MIXTURE_REPLICATES = 100
_MIXTURE_REPLICATE_TOLERANCE = 1e-5


@dataclass(frozen=True)
class StarEstimate:
    """An estimate of Epsilon* of one model, with its interval, settings, attack results and warnings."""

    # In nats, at least 0: over the thresholds within the cut, or over all if none lies within it (see `warnings`).
    # Infinite if one of these thresholds separates the losses of the two sets without error.
    epsilon_star: float
    delta: float  # delta of Epsilon*
    method: StarMethod  # method of the estimate
    interval: tuple[float, float]  # lower and upper end of the interval, see `interval_name` and `star_intervals`
    confidence: float  # confidence of the interval
    cut: float  # error rates below `cut` or above 1 - `cut` were left out of `epsilon_star`; 0 left out none
    # Epsilon* over all thresholds. It depends on tails without any sampled losses, so it may be far from the truth.
    # Infinite if it is unbounded, as at delta 0 for any two different normals.
    epsilon_star_without_cut: float
    members: int  # number of losses of members
    population: int  # number of losses of the population
    attacks: LossAttackResults  # results of simple attacks on the losses
    # The distributions that were fitted to the scores of members and population; None for `empirical`, or where all
    # losses of a set are equal.
    distributions: FittedDistributions | None
    warnings: tuple[str, ...]  # warnings on the value or the interval, in words
    # Whether there are too few losses for an estimate. `epsilon_star` is then the lower end of a confidence interval
    # that holds for any distributions of losses.
    is_lower_bound: bool = False

    @property
    def epsilon_star_within_cut(self) -> float:
        """Epsilon* over the thresholds within the cut; another name of `epsilon_star`."""
        return self.epsilon_star

    @property
    def interval_name(self) -> str:
        """Name of the interval: "95 % confidence interval", or "middle 95 % of resamples" for a bootstrap."""
        share = f"{100 * self.confidence:.4g} %"
        holds_for_any = self.is_lower_bound or self.method is StarMethod.EMPIRICAL
        return f"{share} confidence interval" if holds_for_any else f"middle {share} of resamples"

    @property
    def cut_name(self) -> str:
        """Error rates over which Epsilon* is taken (the cut), as text: "error rates from 0.001 to 1 - 0.001"."""
        return cut_text(self.cut)

    def __str__(self) -> str:
        at_least = "at least " if self.is_lower_bound else ""
        ends = interval_text(*self.interval)
        return (
            f"Epsilon* {at_least}{self.epsilon_star:.4g} at delta {self.delta:g}, {self.cut_name} "
            f"({self.interval_name} {ends}), by {self.method} from {self.members:,} and {self.population:,} losses"
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                f"Epsilon*{' at least' if self.is_lower_bound else ''}, {self.cut_name}, nats",
                f"{self.epsilon_star:.4g}",
            ),
            ("at delta", f"{self.delta:g}"),
            (self.interval_name, interval_text(*self.interval)),
            ("AUC of the loss threshold attack", f"{float(self.attacks.auc):.3f}"),
            ("losses of members and population", f"{self.members:,} and {self.population:,}"),
        ]
        return html_table(rows, f"Epsilon*, {self.method}", self.warnings)


def estimate_epsilon_star(
    member_losses: ArrayLike,
    population_losses: ArrayLike,
    delta: float,
    rng: np.random.Generator,
    method: StarMethod | None = None,
    confidence: float = 0.95,
    cut: float | None = None,
    shift: float = parametric.DEFAULT_SHIFT,
) -> StarEstimate:
    """Return Epsilon* of one model, with its interval, warnings, and the results of simple attacks.

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, shape (m,), m at least 2. If either set has fewer than 100
        losses, the result is only a lower bound and an interval that hold for any distributions (module
        `minimum_sample_size`).
    population_losses
        Losses on a sample of the population, finite and at least 0, shape (p,), p at least 2.
    delta
        Delta of Epsilon*, at least 0 and below 1; the paper recommends less than one over the number of members.
    rng
        Generator of bootstrap samples, of fits of mixtures, and of the splits that test a fit.
    method
        Method of the estimate. None means `parametric`, as in the paper; but if the two-sample test rejects the normal
        fit to either set, it means `empirical`, which assumes no form of the distributions. `mixture` fits at most
        10,000 randomly chosen scores of each set.
    confidence
        Confidence of the interval, above 0 and below 1.
    cut
        Stability cut, from 0 to below 0.5: thresholds with an error rate below `cut` or above 1 - `cut` are left out.
        None means the method's default in `star_methods.DEFAULT_CUTS`.
    shift
        Number above 0 that is added to each normalised loss (`loss_scores`).

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number is out of its range.
    """
    star_method = None if method is None else choice(StarMethod, "method", method)
    parametric.require_star_delta(delta)
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    losses = parametric.checked_pair(in_one_axis(member_losses), in_one_axis(population_losses))
    require(losses[0].ndim == 1, f"member losses have shape {losses[0].shape}: accepted is one axis")
    if cut is not None:
        parametric.require_cut(cut)
    if min(losses_of_set.size for losses_of_set in losses) < FEWEST:
        chosen = star_method or StarMethod.EMPIRICAL
        return _of_few(losses, delta, chosen, confidence, DEFAULT_CUTS[chosen] if cut is None else cut)
    arguments = _Arguments(delta, confidence, cut, shift, loss_attacks(*losses))
    if star_method is not None:
        return _estimate(losses, star_method, arguments, rng)[0]
    parametric_estimate, rejected = _estimate(losses, StarMethod.PARAMETRIC, arguments, rng)
    if not rejected:
        return parametric_estimate
    empirical, _ = _estimate(losses, StarMethod.EMPIRICAL, arguments, rng)
    reason = (
        f"{rejected[0]}; the value is therefore that of empirical, which assumes no form (parametric: "
        f"{parametric_estimate.epsilon_star:.4g} for {parametric_estimate.cut_name})"
    )
    return replace(empirical, warnings=(reason, *rejected[1:], *empirical.warnings))


class _Arguments(NamedTuple):
    """The arguments of an estimate that do not depend on the method, and the results of simple attacks."""

    delta: float
    confidence: float
    cut: float | None
    shift: float
    attacks: LossAttackResults


def _estimate(
    losses: LossPair, method: StarMethod, arguments: _Arguments, rng: np.random.Generator
) -> tuple[StarEstimate, tuple[str, ...]]:
    """Return the estimate by one method, and a warning for each set whose fit was rejected."""
    delta = arguments.delta
    cut = DEFAULT_CUTS[method] if arguments.cut is None else arguments.cut
    scores = parametric.scores_of_pair(*losses, arguments.shift)
    value, beyond, interval, distributions = _value(losses, scores, method, arguments, cut, rng)
    warnings = tuple(value_warnings(losses, distributions, delta, cut, value, method))
    fits = zip(SETS, scores, distributions or (), strict=False)
    fit_warnings = tuple(
        warning
        for name, scores_of_set, distribution in fits
        for warning in fit_warnings_of_set(name, scores_of_set, distribution, method, rng)
    )
    sizes = losses[0].size, losses[1].size
    chance = tuple(chance_warnings(value, sizes, delta, cut, method, rng))
    estimate = StarEstimate(
        value,
        delta,
        method,
        interval,
        arguments.confidence,
        cut,
        max(value, beyond),
        *sizes,
        arguments.attacks,
        distributions,
        warnings + fit_warnings + chance,
    )
    return estimate, fit_warnings


def _value(
    losses: LossPair, scores: LossPair, method: StarMethod, arguments: _Arguments, cut: float, rng: np.random.Generator
) -> tuple[float, float, tuple[float, float], FittedDistributions | None]:
    """Return Epsilon* with the stability cut, Epsilon* without a cut, and the interval of the former.

    The last element holds the fitted distributions; None if none were fitted.
    """
    delta = arguments.delta
    if method is StarMethod.EMPIRICAL:
        counts = threshold_counts(*losses)
        value, beyond = (float(epsilon_star_of_counts(counts, delta, limit)) for limit in (cut, 0.0))
        return value, beyond, empirical_interval(*losses, delta, cut, arguments.confidence), None
    if not all(np.ptp(scores_of_set) > 0 for scores_of_set in scores):
        # If a set is constant, the value is 0 or infinite whatever the distribution of the other set.
        value = float(parametric.parametric_epsilon_star(*losses, delta, arguments.shift, cut))
        return value, value, (value, value), None
    distributions = _distributions(scores, method, rng)
    value, beyond = (_of_distributions(distributions, delta, limit, method) for limit in (cut, 0.0))
    if not math.isfinite(value):
        return value, beyond, (value, value), distributions
    if method is StarMethod.PARAMETRIC:
        draws = parametric_draws(loss_cells(*losses), delta, arguments.shift, _REPLICATES, rng, cut)
    else:
        draws = _mixture_draws(scores, distributions, delta, cut, rng)
    return value, beyond, hull_interval(value, draws, arguments.confidence), distributions


def _of_few(losses: LossPair, delta: float, method: StarMethod, confidence: float, cut: float) -> StarEstimate:
    """Return the estimate for fewer than `FEWEST` losses: the lower end of an interval valid for any distributions."""
    low, high = empirical_interval(*losses, delta, cut, confidence)
    # The losses give no upper limit of the Epsilon* of fitted distributions, which depends on their far tails.
    interval = (low, high if method is StarMethod.EMPIRICAL else math.inf)
    fewest = min(zip((losses_of_set.size for losses_of_set in losses), SETS, strict=True))
    problem = (
        f"{fewest[0]} losses of {fewest[1]}, and a value of Epsilon* takes {FEWEST} of each set: with fewer, two sets"
    )
    warnings = [
        f"{problem} from one distribution mostly show a value above 1, so only the interval that holds for any "
        "distributions is stated"
    ]
    warnings += equal_losses_warnings(losses)
    sizes = (losses[0].size, losses[1].size)
    attacks = loss_attacks(*losses)
    fields = (interval, confidence, cut, low, *sizes, attacks, None, tuple(warnings))
    return StarEstimate(low, delta, method, *fields, is_lower_bound=True)


def least_of_few(member_losses: Floats, population_losses: Floats, delta: float, cut: float) -> Floats:
    """Return, for each trial (row), the lower bound on Epsilon* that stands for a value if losses are few, else NaN.

    Parameters
    ----------
    member_losses
        Losses on members, shape (trials, m).
    population_losses
        Losses on other records, shape (trials, p).
    delta
        Delta of Epsilon*, at least 0 and below 1.
    cut
        Smallest error rate that is used, above 0.
    """
    trials = len(member_losses)
    if min(member_losses.shape[1], population_losses.shape[1]) >= FEWEST:
        return np.full(trials, np.nan)
    pairs = zip(member_losses, population_losses, strict=True)
    return np.array([empirical_interval(*losses, delta, cut)[0] for losses in pairs], dtype=np.float64)


def _distributions(scores: LossPair, method: StarMethod, rng: np.random.Generator) -> FittedDistributions:
    if method is StarMethod.PARAMETRIC:
        member_distribution, population_distribution = (
            mixtures.normal(float(scores_of_set.mean()), float(scores_of_set.std())) for scores_of_set in scores
        )
    else:
        member_distribution, population_distribution = (
            mixtures.choose_mixture(sample_of_scores(scores_of_set, rng), rng) for scores_of_set in scores
        )
    return member_distribution, population_distribution


def _of_distributions(distributions: FittedDistributions, delta: float, cut: float, method: StarMethod) -> float:
    """Return Epsilon* for the fitted distributions of scores."""
    if method is StarMethod.MIXTURE:
        return epsilon_star_mixtures(*distributions, delta, cut).epsilon_star
    members, population = distributions
    return float(
        parametric.epsilon_star_gaussian(
            members.means[0], members.stds[0], population.means[0], population.stds[0], delta, cut
        )
    )


def _mixture_draws(
    scores: LossPair, distributions: FittedDistributions, delta: float, cut: float, rng: np.random.Generator
) -> Floats:
    """Return Epsilon* of mixtures that are refitted to bootstrap samples, shape (replicates,).

    For a sample of equal scores, Epsilon* is infinite.
    """
    values = []
    samples = [sample_of_scores(scores_of_set, rng) for scores_of_set in scores]
    for _ in range(_MIXTURE_REPLICATES):
        bootstrap_samples = [rng.choice(scores_of_set, scores_of_set.size) for scores_of_set in samples]
        if not all(np.ptp(scores_of_set) > 0 for scores_of_set in bootstrap_samples):
            values.append(math.inf)
            continue
        pairs = zip(bootstrap_samples, distributions, strict=True)
        members, population = (
            mixtures.fit_mixture(scores_of_set, distribution.components, rng, start=distribution)
            for scores_of_set, distribution in pairs
        )
        values.append(epsilon_star_mixtures(members, population, delta, cut, _MIXTURE_REPLICATE_TOLERANCE).epsilon_star)
    return np.array(values)
