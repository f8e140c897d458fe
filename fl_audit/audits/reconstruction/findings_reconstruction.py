"""Findings of the reconstruction audit: the share of right guesses, and the largest share that the guarantee allows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fl_audit.array_types import Floats, Integers
from fl_audit.audits.reconstruction.candidate_ranks import candidate_ranks
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.statistics.advantage import clopper_pearson

_GUESSES = (1, 5, 10, 100)


@dataclass(frozen=True)
class TopGuessRate:
    """The share of trials in which the true candidate is among the attacker's first `guesses` guesses."""

    guesses: int  # number of guesses that count in each trial
    share: float  # share of the trials in which one of these guesses is right, from 0 to 1
    low: float  # lower end of the Clopper-Pearson interval of the share
    high: float  # upper end of the Clopper-Pearson interval of the share
    chance: float  # largest probability that one of these guesses is right without any release
    bound: float  # the largest share that the guarantee allows


@dataclass(frozen=True)
class CandidateRanksFinding:
    """The success of an attacker who knows all data except which of several candidates was used in the training."""

    candidates: int  # number of candidates, which are records, clients, or values of a column
    # Probability that the true candidate is among the best k guesses without any release, for k from 1 to all,
    # (candidates,): the sum of the k largest prior probabilities.
    chances: Floats
    ranks: Integers  # rank of the true candidate in the attacker's order, 1 for the first guess, (trials,)
    successes: tuple[TopGuessRate, ...]  # one entry for each number of guesses, ascending from one guess
    confidence: float  # confidence of each interval
    # Largest mu over candidates and trials: norm of a candidate's contribution over the noise, all rounds together.
    longest: float
    median: float  # median of mu over candidates and trials

    @property
    def are_even(self) -> bool:
        """Whether all candidates have the same prior probability, up to rounding."""
        return bool(abs(self.chances[0] - 1 / self.candidates) < 1e-9)

    @cached_property
    def first(self) -> TopGuessRate:
        """The share of trials in which the attacker's first guess is right, with its interval and the allowed share."""
        return self.successes[0]

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `reconstruction`, for `summary.json`."""
        return {
            "reconstruction": {
                "candidates": self.candidates,
                "trials": len(self.ranks),
                "confidence": self.confidence,
                "success": json_of(self.successes),
                "mean_rank": float(np.mean(self.ranks)),
                "largest_mu": self.longest,
                "median_mu": self.median,
            }
        }


def measure_reconstruction(run: FinishedRun, _: Findings) -> CandidateRanksFinding | None:
    """Return how often the adversary guessed the true candidate, with the limits of the guarantee.

    The result is None if the run is no reconstruction audit, or if it has no insider or no guarantee.
    """
    ranks = candidate_ranks(run)
    table = run.tables.targets
    guarantee = run.plan.guarantee
    if ranks is None or table is None or guarantee is None:
        return None
    candidates = run.plan.federation.targets
    mu = table["mu"].to_numpy(dtype=np.float64)
    chances = np.minimum(np.cumsum(np.sort(run.plan.federation.prior_of_candidates)[::-1]), 1.0)
    confidence = run.plan.confidence
    estimates = []
    for guesses in sorted({min(guess_count, candidates - 1) for guess_count in _GUESSES}):
        chance = float(chances[guesses - 1])
        hits = int(np.sum(ranks <= guesses))
        bound = guarantee.reconstruction_bound(chance)
        assert bound is not None, "the reconstruction audit has global noise"
        low, high = clopper_pearson(hits, len(ranks), confidence)
        estimates.append(TopGuessRate(guesses, hits / len(ranks), low, high, chance, bound))
    mus = float(mu.max()), float(np.median(mu))
    return CandidateRanksFinding(candidates, chances, ranks, tuple(estimates), confidence, *mus)
