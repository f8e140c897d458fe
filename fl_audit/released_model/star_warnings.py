"""Warnings on an estimate of Epsilon* of one model: losses that are equal, unsuitable cuts, chance, and poor fits."""

import math

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.released_model import normal_mixture as mixtures
from fl_audit.released_model.minimum_sample_size import value_by_chance
from fl_audit.released_model.mixture_star import threshold_limits
from fl_audit.released_model.star_methods import PARAMETRIC_CUT, StarMethod

LossPair = tuple[Floats, Floats]
"""Losses, or scores, of members and of the population."""
FittedDistributions = tuple[mixtures.NormalMixture, mixtures.NormalMixture]
"""Distributions that were fitted to the scores of members and of the population."""
SETS = ("members", "population")
_FIT_AT_MOST = 10_000
_POOR_FIT = 0.05
_LARGEST_EVALUATION = 1000
_LEAST_EVALUATION = 30


def equal_losses_warnings(losses: LossPair) -> list[str]:
    """Return a warning for each set whose losses are all equal."""
    sets = zip(SETS, losses, strict=True)
    return [
        f"all losses of {name} are equal: their distribution says nothing about other records"
        for name, x in sets
        if np.ptp(x) == 0
    ]


def value_warnings(
    losses: LossPair,
    distributions: FittedDistributions | None,
    delta: float,
    cut: float,
    value: float,
    method: StarMethod,
) -> list[str]:
    """Return warnings on an estimate of Epsilon*: equal losses, an infinite value, or an unsuitable cut.

    A cut is unsuitable if no threshold has error rates from `cut` to 1 - `cut`. With the method `empirical`, a cut is
    also unsuitable if it is less than one over the number of losses of a set.
    """
    warnings = equal_losses_warnings(losses)
    if math.isinf(value) and distributions is not None and delta == 0:
        instead = f"a cut above 0, such as {PARAMETRIC_CUT:g}, leaves out the error rates where it has none"
        warnings.append(f"unbounded: at delta 0 two different normal distributions have no largest ratio; {instead}")
    elif math.isinf(value) and method is StarMethod.EMPIRICAL:
        warnings.append("unbounded: a threshold tells more than delta of one set apart without an error")
    elif math.isinf(value):
        warnings.append("unbounded: a set of equal losses is told apart by a threshold beside it")
    if distributions is not None and cut and threshold_limits(*distributions, cut) is None:
        warnings.append(f"no threshold has both error rates within the cut of {cut:g}: all thresholds count")
    if method is StarMethod.EMPIRICAL and cut * min(losses_of_set.size for losses_of_set in losses) < 1:
        warnings.append(f"the cut of {cut:g} is less than one loss of a set: single losses decide the value")
    return warnings


def chance_warnings(
    value: float, sizes: tuple[int, int], delta: float, cut: float, method: StarMethod, rng: np.random.Generator
) -> list[str]:
    """Return a warning, alone in a list, if chance alone could give `value` although nothing leaks; otherwise [].

    `sizes` are the numbers of member and population losses. `rng` draws simulated scores without a leak.
    """
    if method is StarMethod.EMPIRICAL or delta == 0 or value > (chance := value_by_chance(sizes, delta, cut, rng)):
        return []
    return [f"with so many losses chance alone gives up to {chance:.2g} where nothing leaks: {value:.2g} shows no leak"]


def sample_of_scores(scores: Floats, rng: np.random.Generator) -> Floats:
    """Return the scores, or a random sample of 10,000 of them if there are more."""
    return scores if scores.size <= _FIT_AT_MOST else rng.choice(scores, _FIT_AT_MOST, replace=False)


def fit_p_value(scores: Floats, components: int, rng: np.random.Generator) -> float | None:
    """Return the p-value of a two-sample Kolmogorov-Smirnov test of a fit to scores; None if there are too few scores.

    Source: Negoescu et al. 2023, appendix 8.2.

    Parameters
    ----------
    scores
        The scores of one set, shape (n,).
    components
        Number of normals in the mixture; 1 is a single normal.
    rng
        Generator that splits the scores and draws from the fit.
    """
    size = min(_LARGEST_EVALUATION, scores.size // 2)
    used = sample_of_scores(scores, rng)
    if size < _LEAST_EVALUATION or np.unique(used).size < _LEAST_EVALUATION:
        return None
    return mixtures.ks_check(used, min(components, mixtures.MOST_COMPONENTS), size, rng)


def fit_is_rejected(p_value: float | None) -> bool:
    """Return whether a fit is rejected, i.e. its p-value is at most 0.05; an untested fit (None) is not rejected."""
    return p_value is not None and p_value <= _POOR_FIT


def fit_warnings_of_set(
    name: str, scores: Floats, distribution: mixtures.NormalMixture, method: StarMethod, rng: np.random.Generator
) -> list[str]:
    """Return one warning if a test rejects the fitted distribution; otherwise an empty list."""
    p_value = fit_p_value(scores, distribution.components, rng)
    if not fit_is_rejected(p_value):
        return []
    kind = "a normal" if distribution.components == 1 else f"a mixture of {distribution.components} normals"
    advice = "" if method is StarMethod.PARAMETRIC else "; compare --method empirical"
    return [f"scores of {name} do not look like {kind} (two-sample KS p = {p_value:.2g}){advice}"]
