"""Auditors that are scored on the corpus: ours, a plain baseline, and public packages where they are installed.

An auditor is a function of a case, a number of trials and a source of randomness. It says whether the claim is false,
and which epsilon it certifies at which delta, with a confidence of 95 %.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_procedure import audit_claim
from fl_audit.app_audits.claim_audit.claim_audit_results import CHUNK, TrialBudget
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.errors import InputError
from fl_audit.verdict.verdict import Verdict
from tests.validation.corpus.case import Case, Floats, played
from tests.validation.corpus.federated import OWN
from tests.validation.corpus.scores import Scores, scores_of

LEVEL = 0.05
"""With what probability at most an auditor may call a claim false that holds."""


class Finding(NamedTuple):
    """Finding of an auditor about a case."""

    is_found: bool  # whether it calls the claim false
    epsilon: float = 0.0  # the epsilon that it certifies
    delta: float = 0.0  # at this delta
    is_in_doubt: bool = False  # whether it neither accuses nor clears


Auditor = Callable[[Case, int, np.random.Generator], Finding | None]
"""Returns None where it has nothing to say about a case of this kind."""


def black_box(case: Case, trials: int, generator: np.random.Generator) -> Finding:
    """Judge a case as `fl-audit strategy` judges trials: two fifths look for a distinguisher, the others try it.

    There must be at least 100 trials.
    """
    pilot = max(2, 2 * trials // (5 * CHUNK)) * CHUNK
    fresh = (trials - pilot) // CHUNK * CHUNK

    def play(_kind: str, _first: int, count: int) -> tuple[Transcripts, NDArray[np.bool_]]:
        released, present = played(case, count, generator)
        return _transcripts(case, released), present

    budget = TrialBudget(pilot, (fresh,), (1.0,), fewest_tests=1, most_tests=1, deep=1, scout=pilot)
    result = audit_claim(_stated(case), (case.name,), play, frozenset(), str, budget, 1 - LEVEL)
    low_bits = result.floating
    if case.claim.covers_low_bits and low_bits is not None and low_bits.is_broken:
        return Finding(True, low_bits.bound, low_bits.distinguisher.limit.delta)
    worst = result.worst
    if worst is None:
        return Finding(False)
    return Finding(result.verdict is Verdict.VIOLATED, worst.bound, worst.distinguisher.limit.delta)


def _stated(case: Case) -> StatedClaim:
    claim = case.claim
    if claim.mu is None:
        return StatedClaim(claim.adjacency, claim.epsilon, claim.delta, rounds=claim.rounds)
    return StatedClaim(claim.adjacency, noise_multiplier=math.sqrt(claim.rounds) / claim.mu, rounds=claim.rounds)


def _transcripts(case: Case, released: Floats) -> Transcripts:
    layout = case.layout
    trials = len(released)
    size = layout.rounds * layout.of_round
    everywhere = np.ones(trials, bool)
    rounds = released[:, :size].reshape(trials, layout.rounds, layout.of_round)
    difference = (np.zeros(size) if case.difference is None else case.difference[:size]).reshape(rounds.shape[1:])
    # Shares of the noise that the insider knows stand behind the tensors, one for each.
    released_tensors = [(name, width) for name, width in layout.tensors if not name.startswith(OWN)]
    ends = [int(end) for end in np.cumsum([width for _, width in released_tensors])]
    tensors = tuple((name, slice(end - width, end)) for (name, width), end in zip(released_tensors, ends, strict=True))
    steps = rounds[..., : ends[-1]]
    nothing = np.zeros((*rounds.shape[:2], ends[-1]))
    own_shares = rounds[..., ends[-1] :] if len(released_tensors) < len(layout.tensors) else nothing
    return Transcripts(
        steps=steps,
        released=steps,
        direction=np.broadcast_to(difference[:, : ends[-1]], steps.shape),
        others=nothing,
        own=own_shares,
        contributed=everywhere,
        has_release=everywhere,
        numbers=released[:, size:],
        names=layout.beside,
        refused=~everywhere,
        tensors=tensors,
    )


def conformance(case: Case, _trials: int, _generator: np.random.Generator) -> Finding | None:
    """Judge a training as `fl-audit training` does: it runs twice, and what it does is held against what it says.

    Its epsilon is the one that the recorded steps give, and no bound from trials.
    """
    if case.training is None:
        return None
    train, model, dataset, is_claim_named = case.training
    options = _OPTIONS if is_claim_named else replace(_OPTIONS, epsilon=case.claim.epsilon, delta=case.claim.delta)
    # A training that makes its model takes the records alone.
    new_model = model()
    function = partial(train, None) if new_model is None else lambda model, dataset: train(model, dataset)
    came = audit_training(function, case.name, new_model, dataset(), options)
    # The epsilon of no noise is a very large number there.
    composed = came.composed.epsilon if came.composed is not None else 0.0
    composed = math.inf if composed > _NO_EPSILON else composed
    is_found = came.verdict is Verdict.VIOLATED
    return Finding(is_found, composed, case.claim.delta, came.verdict is Verdict.INCONCLUSIVE)


_OPTIONS = TrainingAuditOptions(1, 2)
_NO_EPSILON = 1e6


def baseline(case: Case, trials: int, generator: np.random.Generator) -> Finding:
    """Take the threshold that does best on one half of the held-out scores, and bound epsilon on the other half."""
    scores = scores_of(case, trials, generator)
    present_scores = scores.present
    absent_scores = scores.absent
    thresholds = np.unique(np.concatenate([present_scores[::2], absent_scores[::2]]))
    choices = [
        (
            _bound(present_scores[::2], absent_scores[::2], threshold, side, delta) - epsilon,
            threshold,
            side,
            epsilon,
            delta,
        )
        for threshold in thresholds
        for side in (True, False)
        for epsilon, delta in case.claim.limits
    ]
    _, threshold, side, epsilon, delta = max(choices)
    bound = _bound(present_scores[1::2], absent_scores[1::2], threshold, side, delta)
    return Finding(bound > epsilon, bound, delta)


def _bound(present_scores: Floats, absent_scores: Floats, threshold: float, side: bool, delta: float) -> float:
    """Return the epsilon of Clopper and Pearson at a threshold, with an alarm above it for D or below it for D'."""
    hits, alarms = (
        (present_scores > threshold, absent_scores > threshold)
        if side
        else (absent_scores <= threshold, present_scores <= threshold)
    )
    hit_count = int(hits.sum())
    wrong = int(alarms.sum())
    low = float(beta.ppf(LEVEL / 2, hit_count, hits.size - hit_count + 1)) if hit_count else 0.0
    high = float(beta.ppf(1 - LEVEL / 2, wrong + 1, alarms.size - wrong)) if wrong < alarms.size else 1.0
    return math.log((low - delta) / high) if low - delta > high else 0.0


def jax_privacy(case: Case, trials: int, generator: np.random.Generator) -> Finding:
    """Bound epsilon by `CanaryScoreAuditor.epsilon_clopper_pearson` of jax-privacy, over all thresholds."""
    auditor_class = _installed("jax_privacy.auditing", "jax-privacy").CanaryScoreAuditor

    def bound(scores: Scores, delta: float, level: float) -> float:
        return float(
            auditor_class(scores.present, scores.absent).epsilon_clopper_pearson(level, delta, one_sided=False)
        )

    return _at_limits(case, scores_of(case, trials, generator), bound)


def privacy_estimates(case: Case, trials: int, generator: np.random.Generator) -> Finding:
    """Bound epsilon by `compute_eps_lo` of privacy-estimates, from guesses at the threshold of most right ones."""
    package = _installed("privacy_estimates", "privacy-estimates")

    def bound(scores: Scores, delta: float, level: float) -> float:
        threshold = _of_most_right(scores.choosing_present, scores.choosing_absent)
        hits = int(np.sum(scores.present > threshold))
        alarms = int(np.sum(scores.absent > threshold))
        counts = package.AttackResults(
            FN=scores.present.size - hits, FP=alarms, TN=scores.absent.size - alarms, TP=hits
        )
        # Its own method, joint-beta, takes about a minute for each bound.
        return float(package.compute_eps_lo(counts, delta, level, "beta"))

    return _at_limits(case, scores_of(case, trials, generator), bound)


def _of_most_right(present_scores: Floats, absent_scores: Floats) -> float:
    thresholds = np.unique(np.concatenate([present_scores, absent_scores]))
    right = [
        float(np.mean(present_scores > threshold) + np.mean(absent_scores <= threshold)) for threshold in thresholds
    ]
    return float(thresholds[int(np.argmax(right))])


def _at_limits(case: Case, scores: Scores, bound: Callable[[Scores, float, float], float]) -> Finding:
    """Hold a bound against every inequality of the claim, of which each has its share of the level."""
    limits = case.claim.limits
    bounds = [(bound(scores, delta, LEVEL / len(limits)), epsilon, delta) for epsilon, delta in limits]
    best, epsilon, delta = max(bounds, key=lambda entry: entry[0] - entry[1])
    return Finding(best > epsilon, best, delta)


def _installed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{package} is not installed, or lacks {error.name}: it is left out") from error


AUDITORS: dict[str, Auditor] = {
    "fl-audit": black_box,
    "fl-audit-training": conformance,
    "baseline": baseline,
    "jax-privacy": jax_privacy,
    "privacy-estimates": privacy_estimates,
}
"""All of them, by name."""
