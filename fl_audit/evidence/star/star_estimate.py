"""Epsilon* of one model with its interval, what speaks against it, and what simple attacks achieve on the same losses.

The three ways differ in the laws of the scores, how the supremum is found and in the interval (`intervals`).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.arrays import Floats
from fl_audit.errors import choice, require, require_number
from fl_audit.evidence.star import epsilon_star as parametric
from fl_audit.evidence.star import normal_mixture as mixtures
from fl_audit.evidence.star.empirical_star import EMPIRICAL_CUT, LossAttacks, empirical_epsilon_star, loss_attacks
from fl_audit.evidence.star.intervals import empirical_interval, gather, hull_interval, parametric_draws
from fl_audit.evidence.star.methods import StarMethod
from fl_audit.evidence.star.mixture_star import epsilon_star_mixtures, threshold_limits
from fl_audit.notebook import html_table
from fl_audit.rounding import interval_text

_Pair = tuple[Floats, Floats]  # of members and of the population
_Laws = tuple[mixtures.NormalMixture, mixtures.NormalMixture]
PARAMETRIC_CUT = 1e-6
"""Cut of the value that is given beside the supremum without a cut; the published text has lost the paper's own."""
FEW = 30  # with fewer losses than this there is a warning that the interval may not cover
_FIT_AT_MOST = 10_000
_REPLICATES = 1000
_MIXTURE_REPLICATES = 100
_MIXTURE_REPLICATE_TOLERANCE = 1e-5
_POOR_FIT = 0.05
_LARGEST_EVALUATION = 1000
_SETS = ("members", "population")


@dataclass(frozen=True)
class StarEstimate:
    """Epsilon* of one model and what a reader needs to weigh it."""

    # In nats, at least 0. For `parametric` and `mixture` the supremum over all thresholds, for `empirical` over those
    # within the cut. Infinite where there is no bound: at delta 0 for any two different normals, and where a threshold
    # separates the losses of the two sets.
    epsilon_star: float
    delta: float  # the delta that it is stated at
    method: StarMethod  # how it was found
    interval: tuple[float, float]  # lower and upper end of the confidence interval; see `intervals`
    confidence: float  # confidence of the interval
    cut: float  # error rates below `cut` or above 1 - `cut` were left out of `epsilon_star_within_cut`
    epsilon_star_within_cut: float  # Epsilon* over the thresholds within the cut; over all if none is, see `warnings`
    members: int  # number of losses of members
    population: int  # of the population
    attacks: LossAttacks  # what simple attacks on the losses achieve
    # The laws that were fitted to the scores of members and population; None for `empirical`, or where all losses of a
    # set are equal.
    laws: _Laws | None
    warnings: tuple[str, ...]  # what speaks against the value or the interval, in words

    @property
    def interval_name(self) -> str:
        """What the interval is: one with a confidence for `empirical`, else one of resamples that rests on the fit."""
        share = f"{100 * self.confidence:.4g} %"
        return f"{share} confidence interval" if self.method is StarMethod.EMPIRICAL else f"middle {share} of resamples"

    def __str__(self) -> str:
        ends = interval_text(*self.interval)
        return (
            f"Epsilon* {self.epsilon_star:.4g} at delta {self.delta:g} ({self.interval_name} {ends}), by "
            f"{self.method} from {self.members:,} and {self.population:,} losses"
        )

    def _repr_html_(self) -> str:
        """Return the estimate as a table, for a notebook."""
        rows = [
            ("Epsilon*, nats", f"{self.epsilon_star:.4g}"),
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
    method: StarMethod = StarMethod.PARAMETRIC,
    confidence: float = 0.95,
    cut: float | None = None,
    shift: float = parametric.DEFAULT_SHIFT,
) -> StarEstimate:
    """Return Epsilon* of one model with its interval, warnings, and what simple attacks achieve on the same losses.

    Parameters
    ----------
    member_losses, population_losses
        Losses on training records and on a sample of the population, finite, at least 0, (m,) and (p,), two or more.
    delta
        From 0 to below 1; the paper recommends less than one over the number of members.
    rng
        Draws the bootstrap samples, seeds the fits of mixtures and splits the scores to check a fit.
    method
        How error rates are found. `mixture` fits at most 10,000 scores of a set, drawn at random.
    confidence, cut
        Confidence of the interval, above 0 and below 1; and the cut, from 0 to below 0.5, where None means 0.001 for
        `empirical`, as in the paper, and 1e-6 otherwise.
    shift
        As for `parametric_epsilon_star`.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number is out of its range.
    """
    method = choice(StarMethod, "method", method)
    parametric.require_star_delta(delta)
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    losses = parametric.checked_pair(member_losses, population_losses)
    require(losses[0].ndim == 1, f"member losses have shape {losses[0].shape}: accepted is one axis")
    if cut is None:
        cut = EMPIRICAL_CUT if method is StarMethod.EMPIRICAL else PARAMETRIC_CUT
    parametric.require_cut(cut)
    scores, laws = parametric.scores_of_pair(*losses, shift), None
    if method is StarMethod.EMPIRICAL:
        value = within = float(empirical_epsilon_star(*losses, delta, cut))
        interval = empirical_interval(*losses, delta, cut, confidence)
    elif not all(np.ptp(each) > 0 for each in scores):
        # Where a set is constant, the value is 0 or infinite whatever the law of the other set.
        value = within = float(parametric.parametric_epsilon_star(*losses, delta, shift))
        interval = (value, value)
    else:
        laws = _laws(scores, method, rng)
        value, within = (_of_laws(laws, delta, limit, method) for limit in (0.0, cut))
        # The cut leaves thresholds out, so it cannot show more; each was searched to 1e-9 only.
        value = max(value, within)
        interval = (value, value)
        if math.isfinite(value):
            if method is StarMethod.PARAMETRIC:
                draws = parametric_draws(gather(*losses), delta, shift, _REPLICATES, rng)
            else:
                draws = _mixture_draws(scores, laws, delta, rng)
            interval = hull_interval(value, draws, confidence)
    warnings = _warnings(losses, laws, delta, cut, value, method)
    for name, each, law in zip(_SETS, scores, laws or (), strict=False):
        warnings += _poor_fit(name, each, law, method, rng)
    sizes, attacks = (losses[0].size, losses[1].size), loss_attacks(*losses)
    return StarEstimate(value, delta, method, interval, confidence, cut, within, *sizes, attacks, laws, tuple(warnings))


def _laws(scores: _Pair, method: StarMethod, rng: np.random.Generator) -> _Laws:
    if method is StarMethod.PARAMETRIC:
        one, zero = (mixtures.normal(float(each.mean()), float(each.std())) for each in scores)
    else:
        one, zero = (mixtures.choose_mixture(_some(each, rng), rng) for each in scores)
    return one, zero


def _of_laws(laws: _Laws, delta: float, cut: float, method: StarMethod) -> float:
    """Return Epsilon* of fitted laws; for two normals there is a closed form."""
    if method is StarMethod.MIXTURE:
        return epsilon_star_mixtures(*laws, delta, cut).epsilon_star
    one, zero = laws
    return float(parametric.epsilon_star_gaussian(one.means[0], one.stds[0], zero.means[0], zero.stds[0], delta, cut))


def _some(scores: Floats, rng: np.random.Generator) -> Floats:
    """Return at most as many scores as a mixture is fitted to."""
    return scores if scores.size <= _FIT_AT_MOST else rng.choice(scores, _FIT_AT_MOST, replace=False)


def _mixture_draws(scores: _Pair, laws: _Laws, delta: float, rng: np.random.Generator) -> Floats:
    """Return bootstrap estimates: mixtures keep their number of components and are refitted from the original fit."""
    found = []
    used = [_some(each, rng) for each in scores]
    for _ in range(_MIXTURE_REPLICATES):
        drawn = [rng.choice(each, each.size) for each in used]
        if not all(np.ptp(each) > 0 for each in drawn):
            found.append(math.inf)
            continue
        pairs = zip(drawn, laws, strict=True)
        one, zero = (mixtures.fit_mixture(each, law.components, rng, start=law) for each, law in pairs)
        found.append(epsilon_star_mixtures(one, zero, delta, tolerance=_MIXTURE_REPLICATE_TOLERANCE).epsilon_star)
    return np.array(found)


def _warnings(
    losses: _Pair, laws: _Laws | None, delta: float, cut: float, value: float, method: StarMethod
) -> list[str]:
    """Return what speaks against the value, in words."""
    found = []
    for name, each in zip(_SETS, losses, strict=True):
        if each.size < FEW:
            found.append(f"{each.size} losses of {name}: with fewer than {FEW} the interval may not cover")
        if np.ptp(each) == 0:
            found.append(f"all losses of {name} are equal: their law says nothing about other records")
    if math.isinf(value) and laws is not None and delta == 0:
        instead = f"epsilon_star_within_cut leaves out error rates beyond {cut:g} and 1 - {cut:g}"
        found.append(f"unbounded: at delta 0 two different normal laws have no largest ratio; {instead}")
    elif math.isinf(value) and method is StarMethod.EMPIRICAL:
        found.append("unbounded: a threshold tells more than delta of one set apart without an error")
    elif math.isinf(value):
        found.append("unbounded: a set of equal losses is told apart by a threshold beside it")
    if laws is not None and cut and threshold_limits(*laws, cut) is None:
        found.append(f"no threshold has both error rates within the cut of {cut:g}: all thresholds count")
    if method is StarMethod.EMPIRICAL and cut * min(each.size for each in losses) < 1:
        found.append(f"the cut of {cut:g} is less than one loss of a set: single losses decide the value")
    return found


def _poor_fit(
    name: str, scores: Floats, law: mixtures.NormalMixture, method: StarMethod, rng: np.random.Generator
) -> list[str]:
    """Return a warning where the two-sample test of appendix 8.2 rejects the fit, otherwise none."""
    size = min(_LARGEST_EVALUATION, scores.size // 2)
    used = _some(scores, rng)
    components = min(law.components, mixtures.MOST_COMPONENTS)
    if size < FEW or np.unique(used).size < FEW:
        return []
    if (p_value := mixtures.ks_check(used, components, size, rng)) > _POOR_FIT:
        return []
    advice = "; compare --method mixture and empirical" if method is StarMethod.PARAMETRIC else ""
    kind = "a normal" if components == 1 else f"a mixture of {components} normals"
    return [f"scores of {name} do not look like {kind} (two-sample KS p = {p_value:.2g}){advice}"]
