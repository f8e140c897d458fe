"""Evaluate a reconstruction audit: the rank of the true candidate, and how often the first guess is right.

The number of right first guesses is tested against the guarantee and gives a lower bound on epsilon.
"""

import math
from bisect import bisect_left
from dataclasses import replace

import numpy as np
from scipy.special import bdtrc, bdtri

from fl_audit.array_types import Floats, Integers
from fl_audit.audits.common.target_log_odds import log_odds_of_targets
from fl_audit.errors import require
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.statistics.advantage import clopper_pearson
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult
from fl_audit.verdict.judging import judged_by_one, judged_with_noise
from fl_audit.verdict.noise_scale import NoiseAlongTarget
from fl_audit.verdict.verdict import AuditKindPhrases, VerdictDetails


def candidate_ranks(run: FinishedRun) -> Integers | None:
    """Return the rank of the true candidate among the attacker's guesses in each trial, 1 for the first, (trials,).

    The result is None if the run is no reconstruction audit, or if it has no insider.
    """
    return run.cached(_ranks)


def _ranks(run: FinishedRun) -> Integers | None:
    if (scores := log_odds_of_targets(run, is_exactly_one=True)) is None:
        return None
    with np.errstate(divide="ignore"):
        prior = np.log(run.plan.federation.prior_of_candidates)
    return ranks_of_truth(scores[0] + prior, true_candidates(run))


def true_candidates(run: FinishedRun) -> Integers:
    """Return which candidate is in the training set of each trial of a reconstruction audit, indices (trials,)."""
    table = run.tables.targets
    assert table is not None, "the audit of reconstruction has candidates"
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(run.trials, -1)
    return np.asarray(is_in.argmax(axis=1), dtype=np.int64)


def ranks_of_truth(log_likelihood: Floats, truth: Integers) -> Integers:
    """Return the rank of the true candidate in the order of the attacker's guesses, 1 for the first guess, (trials,).

    The attacker guesses in the order of decreasing likelihood, and candidates with equal likelihood in ascending order
    of their numbers.

    Shapes: `log_likelihood` (trials, candidates), `truth` (trials,).

    Examples
    --------
    >>> ranks_of_truth(np.array([[0.5, 2.0, -1.0], [0.5, 0.5, 0.5]]), np.array([0, 2])).tolist()
    [2, 3]
    """
    shape = log_likelihood.shape
    accepted = log_likelihood.ndim == 2 and truth.shape == shape[:1] and not bool(np.isnan(log_likelihood).any())
    require(accepted, f"log-likelihoods have shape {shape}: accepted is (trials, candidates), and no NaN")
    of_truth = np.take_along_axis(log_likelihood, truth[:, None], axis=1)
    is_before = np.arange(shape[1]) < truth[:, None]
    ahead = (log_likelihood > of_truth) | ((log_likelihood == of_truth) & is_before)
    return np.asarray(ahead.sum(axis=1) + 1, dtype=np.int64)


def judge_hits(
    hits: int,
    trials: int,
    chance: float,
    guarantee: Guarantee,
    confidence: float,
    noise: NoiseAlongTarget | None = None,
) -> VerdictDetails:
    """Return the verdict on the guarantee, and its tests, from the number of hits: trials whose first guess was right.

    The guarantee is violated if there are too many hits for the reconstruction bound, or if a test of the noise fails.
    Otherwise the verdict says whether both tests would have found a breach, see `judged_with_noise`. Without `noise`
    the verdict is never `consistent`.

    The lower bound on epsilon is log((p - delta) / chance), where p is the lower confidence bound on the hit rate. It
    holds because under (epsilon, delta)-DP the hit rate is at most e^epsilon chance + delta.

    `noise`: The limit of detection is that of the tests of this noise, because the hit rate under less noise is
    unknown.
    """
    bound = guarantee.reconstruction_bound(chance)
    assert bound is not None, "the reconstruction audit has global noise"
    p_value = float(bdtrc(hits - 1, trials, bound)) if hits > 0 else 1.0
    limit = _share_found(trials, bound)
    share = hits / trials
    test = TestResult(TestName.CANDIDATES, float(hits), p_value, share, bound, limit, more={"trials": trials})
    low, at_level = (epsilon_of_hits(hits, trials, chance, guarantee.delta, p) for p in (confidence, 1 - test.level))
    method = "clopper-pearson"
    assumption = "The candidates were as likely as was said, and nothing else is assumed."
    alone = judged_by_one(
        test,
        (low, at_level),
        NotTestedReason.CANDIDATES_ALONE,
        confidence=confidence,
        method=method,
        assumption=assumption,
    )
    return replace(judged_with_noise(alone, noise, guarantee), words=_WORDS)


def _share_found(trials: int, bound: float) -> float:
    """Return the smallest true hit rate at which the test of `bound` refutes the guarantee with probability 0.9.

    It is infinite if even hits in all trials would not refute it.
    """
    level = TestName.CANDIDATES.level
    counts = range(1, trials + 1)
    fewest = 1 + bisect_left(counts, True, key=lambda hits: bool(bdtrc(hits - 1, trials, bound) < level))
    return float(bdtri(fewest - 1, trials, 1 - DETECTION_POWER)) if fewest <= trials else math.inf


def epsilon_of_hits(hits: int, trials: int, chance: float, delta: float, confidence: float) -> float:
    """Return a lower confidence bound on epsilon from the number of trials whose first guess was right.

    Under (epsilon, delta)-DP the hit rate is at most e^epsilon chance + delta.
    """
    low = clopper_pearson(hits, trials, 2 * confidence - 1)[0]
    return max(0.0, math.log(max(low - delta, 1e-300) / chance))


_WORDS = AuditKindPhrases(
    shown_by="first guesses",
    next_step="Play more trials to find smaller breaches; other candidates (seed in [data]) may be more exposed.",
)
