"""How often an attacker names the right one of some candidates, and whether that contradicts a promise."""

import math

import numpy as np
from scipy.special import bdtrc, bdtri, ndtr, ndtri

from fl_audit.arrays import Floats, Integers
from fl_audit.errors import require
from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.evidence.belief.family import DETECTION_POWER, FAMILY_LEVEL, Missing, TestName, TestResult
from fl_audit.evidence.belief.noise_estimate import BREACH
from fl_audit.evidence.belief.verdict import Judgement, judged_by_one
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.reconstruction import against_its_absence, reconstruction_bound

_METHOD = "clopper-pearson"
_ASSUMPTION = "The candidates were as likely as was said, and nothing else is assumed."
_MOST_WORLDS = 2**40
_MOST_CANDIDATES, _TRIALS = 1000, 10_000
"""The most candidates whose distances are worked out, and how many attacks are simulated: 0.02 is 4 standard errors."""


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


def hits_under_less_noise(
    log_likelihood: Floats, truth: Integers, prior: Floats, factor: float, source: np.random.Generator
) -> float:
    """Return how often the best attack would name the right candidate under less noise, as far as a run tells.

    Candidates that contribute nearly the same are hard to tell apart, however long their contributions are. Under
    Gaussian noise a candidate at a distance d of the true one, over the noise, is on average less likely than it by
    d^2 / 2 in the logarithm, whatever noise was really added. The attack is simulated on points at these distances. Of
    few worlds for each candidate the distances are uncertain, and the share is rather too large.

    Parameters
    ----------
    log_likelihood
        As for `ranks_of_truth`, by the claimed noise and without the prior, (worlds, candidates).
    truth
        Number of the true candidate, from 0, (worlds,).
    prior
        How likely each candidate was, (candidates,), of sum 1.
    factor
        The claimed noise over the lesser one, from 1.
    source
        Draws the simulated attacks.

    Returns
    -------
    float
        From 0 to 1; 1 for more than 1,000 candidates, which are not looked at.
    """
    count = len(prior)
    if count > _MOST_CANDIDATES:
        return 1.0
    behind = np.full((count, count), np.nan)
    for one in np.unique(truth):
        found = log_likelihood[truth == one].mean(axis=0)
        behind[one] = found[one] - found
    squares = behind + behind.T
    squares = np.where(np.isnan(squares), np.fmax(2 * behind, 2 * behind.T), squares)
    np.fill_diagonal(squares, np.nan)
    squares = np.where(np.isnan(squares), np.nanmean(squares), squares)
    np.fill_diagonal(squares, 0.0)
    # The products of the points' coordinates, seen from their mean (classical scaling, Torgerson 1952).
    centred = np.eye(count) - prior
    sizes, axes = np.linalg.eigh(-centred @ squares @ centred.T / 2)
    points = factor * axes * np.sqrt(np.maximum(sizes, 0.0))
    true = source.choice(count, size=_TRIALS, p=prior)
    seen = points[true] + source.standard_normal((_TRIALS, count))
    with np.errstate(divide="ignore"):
        scores = seen @ points.T - np.square(points).sum(axis=1) / 2 + np.log(prior)
    return float(np.mean(scores.argmax(axis=1) == true))


def judge_hits(
    hits: int,
    worlds: int,
    chance: float,
    guarantee: Guarantee,
    confidence: float,
    longest: float,
    is_secret: bool = False,
    most: float = 1.0,
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
    longest
        Length of the longest candidate's contribution over the claimed noise, all rounds of a world together and as if
        it took part wherever it may, the mean over worlds; from 0.
    is_secret
        Whether rounds are sampled and the attacker is not shown who takes part.
    most
        How often these candidates could be named under two thirds of the noise, as `hits_under_less_noise` says; 1
        where that is not known.

    Returns
    -------
    Judgement
        Violated where so many hits or more have a probability under `FAMILY_LEVEL` by the reconstruction bound;
        otherwise consistent if the best attack on contributions of that length under two thirds of the noise would be
        found with probability `DETECTION_POWER`, and inconclusive if not: contributions far below the clipping norm, or
        nearly alike, stay hidden by much less noise than was promised. The lower bound on epsilon is
        log((p - delta) / chance), p the lower end of the share of hits: no mechanism with (epsilon, delta)-DP is hit
        more often than e^epsilon chance + delta. Its limit is what first guesses that are all right would show.
    """
    bound = guarantee.reconstruction_bound(chance)
    assert bound is not None, "the game of reconstruction has global noise"
    at_breach = min(most, _most_hits(BREACH * longest, chance, guarantee.claim if is_secret else None))
    test = _test_of_hits(hits, worlds, bound, at_breach)
    bounds = (
        epsilon_of_hits(hits, worlds, chance, guarantee.delta, confidence),
        epsilon_of_hits(hits, worlds, chance, guarantee.delta, 1 - FAMILY_LEVEL),
    )
    limit = epsilon_of_hits(worlds, worlds, chance, guarantee.delta, 1 - FAMILY_LEVEL)
    return judged_by_one(
        test, at_breach >= test.limit, bounds, confidence, _METHOD, _ASSUMPTION, limit,
        _worlds_needed(bound, at_breach), Missing.CANDIDATES_ALONE,
    )  # fmt: skip


def _most_hits(mu: float, chance: float, sampled: Claim | None) -> float:
    """Return the share of hits that no attack passes on contributions of a length over the noise.

    Parameters
    ----------
    mu
        The length over the noise, from 0.
    chance
        The share where nothing is released.
    sampled
        The claim whose sampling hides who takes part; None where nothing does: Phi(mu + Phi^-1(chance)).
    """
    if mu == 0 or sampled is None:
        return float(ndtr(mu + ndtri(chance)))
    alone = against_its_absence(sampled)
    return reconstruction_bound(alone.with_noise(alone.full_participation_mu / mu), chance)


def _test_of_hits(hits: int, worlds: int, bound: float, at_breach: float) -> TestResult:
    return TestResult(
        name=TestName.CANDIDATES,
        statistic=float(hits),
        p_value=float(bdtrc(hits - 1, worlds, bound)) if hits > 0 else 1.0,
        measured=hits / worlds,
        promised=bound,
        limit=_share_found(worlds, bound),
        more={"worlds": worlds, "at_breach": at_breach},
    )


def _fewest_found(worlds: int, bound: float) -> int:
    """Return the smallest number of hits that refutes the bound at `FAMILY_LEVEL`; more than `worlds` if none does."""
    low, high = math.floor(bound * worlds), worlds + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bdtrc(middle - 1, worlds, bound) < FAMILY_LEVEL else (middle, high)
    return high


def _share_found(worlds: int, bound: float) -> float:
    """Return the smallest share of hits that would be found with probability `DETECTION_POWER`; above 1 if none is."""
    fewest = _fewest_found(worlds, bound)
    if fewest > worlds:
        return math.inf
    return float(bdtri(fewest - 1, worlds, 1 - DETECTION_POWER))


def _worlds_needed(bound: float, at_breach: float) -> int | None:
    """Return how many worlds would find hits as frequent as under the breach; None where no number would."""

    def is_enough(worlds: int) -> bool:
        return _share_found(worlds, bound) <= at_breach

    few, enough = 0, 1
    while not is_enough(enough):
        few, enough = enough, 2 * enough
        if enough > _MOST_WORLDS or at_breach <= bound:
            return None
    # Hits are whole numbers, so that a few more worlds may be too few again: the number that is returned is enough.
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if is_enough(middle) else (middle, enough)
    return enough


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
