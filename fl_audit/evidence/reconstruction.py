"""How often an attacker names the right one of some candidates, and whether that contradicts a promise."""

import math
from bisect import bisect_left

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
    hits, worlds
        Worlds in which the first guess was right, of how many, at least 1; they are independent.
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
    p_value = float(bdtrc(hits - 1, worlds, bound)) if hits > 0 else 1.0
    limit, more = _share_found(worlds, bound), {"worlds": worlds}
    test = TestResult(TestName.CANDIDATES, float(hits), p_value, hits / worlds, bound, limit, more=more)
    low, at_level = (
        epsilon_of_hits(hits, worlds, chance, guarantee.delta, one) for one in (confidence, 1 - test.level)
    )
    said = (confidence, _METHOD, _ASSUMPTION)
    alone = judged_by_one(test, (low, at_level), *said, Missing.CANDIDATES_ALONE)
    return judged_with_noise(alone, noise, guarantee)


def _share_found(worlds: int, bound: float) -> float:
    """Return the smallest share of hits that would be found with probability `DETECTION_POWER`; infinite if none is."""
    level, counts = TestName.CANDIDATES.level, range(1, worlds + 1)
    fewest = 1 + bisect_left(counts, True, key=lambda hits: bool(bdtrc(hits - 1, worlds, bound) < level))
    return float(bdtri(fewest - 1, worlds, 1 - DETECTION_POWER)) if fewest <= worlds else math.inf


def epsilon_of_hits(hits: int, worlds: int, chance: float, delta: float, confidence: float) -> float:
    """Return an epsilon that is passed at a confidence: who keeps it is hit at most e^epsilon chance + delta often.

    Parameters
    ----------
    hits, worlds
        Worlds in which the first guess was right, of how many.
    chance
        How often the best guess is right where nothing is released, 1 / m of m equally likely candidates; positive.
    delta, confidence
        Delta of (epsilon, delta)-DP, from 0 and below 1, and a confidence above 0.5 and below 1.
    """
    low = clopper_pearson(hits, worlds, 2 * confidence - 1)[0]
    return max(0.0, math.log(max(low - delta, 1e-300) / chance))
