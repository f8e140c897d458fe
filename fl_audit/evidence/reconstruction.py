"""How often an attacker names the right one of some candidates, and whether that contradicts a promise."""

import math

import numpy as np
from scipy.special import bdtrc, bdtri

from fl_audit.arrays import Floats, Integers
from fl_audit.errors import require
from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.evidence.belief.family import DETECTION_POWER, Missing, TestName, TestResult
from fl_audit.evidence.belief.noise_scale import NoiseAlong
from fl_audit.evidence.belief.verdict import Judgement, judged_by_one, judged_with_noise
from fl_audit.privacy.guarantee import Guarantee

_METHOD = "clopper-pearson"
_ASSUMPTION = "The candidates were as likely as was said, and nothing else is assumed."


def ranks_of_truth(log_likelihood: Floats, truth: Integers) -> Integers:
    """Return the place of the true candidate in the attacker's order, 1 being its first guess.

    Of candidates that look alike the one with the smaller number is guessed first, whichever is true.

    Parameters
    ----------
    log_likelihood
        Log-likelihood of everything that was seen, for each candidate, up to a constant in each world; (worlds,
        candidates).
    truth
        Number of the true candidate, from 0, (worlds,).

    Raises
    ------
    InputError
        If shapes do not fit or a number is NaN.

    Examples
    --------
    >>> ranks_of_truth(np.array([[0.5, 2.0, -1.0], [0.5, 0.5, 0.5]]), np.array([0, 2])).tolist()
    [2, 3]
    """
    shape = log_likelihood.shape
    accepted = log_likelihood.ndim == 2 and truth.shape == shape[:1] and not bool(np.isnan(log_likelihood).any())
    require(accepted, f"log-likelihoods have shape {shape}: accepted is (worlds, candidates), and no NaN")
    of_truth = np.take_along_axis(log_likelihood, truth[:, None], axis=1)
    is_before = np.arange(shape[1]) < truth[:, None]
    ahead = (log_likelihood > of_truth) | ((log_likelihood == of_truth) & is_before)
    return np.asarray(ahead.sum(axis=1) + 1, dtype=np.int64)


def judge_hits(
    hits: int, worlds: int, chance: float, guarantee: Guarantee, confidence: float, noise: NoiseAlong | None = None
) -> Judgement:
    """Return whether first guesses that were right contradict the promise.

    Parameters
    ----------
    hits
        Worlds in which the first guess was right.
    worlds
        Number of worlds, at least 1; they are independent.
    chance
        How likely the likeliest candidate was before anything was seen: 1 / m of m equally likely ones.
    guarantee
        The promise, for all neighbours.
    confidence
        Confidence of the lower bound on epsilon, above 0.5 and below 1. The verdict itself is always at `FAMILY_LEVEL`.
    noise
        The noise along the contribution of the candidate that was in, in every world; None where nobody can work it
        out. How often the attack would be right under less noise depends on how candidates lie to each other, and is
        not known: whether a breach would have been found is said by the noise.

    Returns
    -------
    Judgement
        Violated where so many hits or more have a probability under the level by the reconstruction bound, and where
        there is less noise than was claimed; otherwise as `judged_with_noise` has it, never consistent without noise.
        The lower bound on epsilon is log((p - delta) / chance), p the lower end of the share of hits: no mechanism with
        (epsilon, delta)-DP is hit more often than e^epsilon chance + delta.
    """
    bound = guarantee.reconstruction_bound(chance)
    assert bound is not None, "the game of reconstruction has global noise"
    test = _test_of_hits(hits, worlds, bound)
    low, at_level = (
        epsilon_of_hits(hits, worlds, chance, guarantee.delta, one) for one in (confidence, 1 - test.level)
    )
    alone = judged_by_one(
        test, False, (low, at_level), confidence, _METHOD, _ASSUMPTION, math.inf, missing=Missing.CANDIDATES_ALONE
    )
    return judged_with_noise(alone, noise, guarantee)


def _test_of_hits(hits: int, worlds: int, bound: float) -> TestResult:
    return TestResult(
        name=TestName.CANDIDATES,
        statistic=float(hits),
        p_value=float(bdtrc(hits - 1, worlds, bound)) if hits > 0 else 1.0,
        measured=hits / worlds,
        promised=bound,
        limit=_share_found(worlds, bound),
        more={"worlds": worlds},
    )


def _fewest_found(worlds: int, bound: float) -> int:
    """Return the smallest number of hits that refutes the bound at the level; more than `worlds` if none does."""
    low, high = math.floor(bound * worlds), worlds + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bdtrc(middle - 1, worlds, bound) < TestName.CANDIDATES.level else (middle, high)
    return high


def _share_found(worlds: int, bound: float) -> float:
    """Return the smallest share of hits that would be found with probability `DETECTION_POWER`; above 1 if none is."""
    fewest = _fewest_found(worlds, bound)
    if fewest > worlds:
        return math.inf
    return float(bdtri(fewest - 1, worlds, 1 - DETECTION_POWER))


def epsilon_of_hits(hits: int, worlds: int, chance: float, delta: float, confidence: float) -> float:
    """Return an epsilon that is passed at a confidence: who keeps it is hit at most e^epsilon chance + delta often.

    Parameters
    ----------
    hits
        Worlds in which the first guess was right.
    worlds
        Number of worlds.
    chance
        How often the best guess is right where nothing is released, 1 / m of m equally likely candidates; positive.
    delta
        Delta of (epsilon, delta)-DP, from 0 and below 1.
    confidence
        Above 0.5 and below 1.
    """
    low = clopper_pearson(hits, worlds, 2 * confidence - 1)[0]
    return max(0.0, math.log(max(low - delta, 1e-300) / chance))
