"""Online test of a claim with few trials: each trial is guessed from the earlier ones, and correct guesses are counted.

With a few hundred trials of a whole app, none can be set aside for the search for distinguishers. So every trial is
guessed before the rule is trained on it. A guess depends on earlier trials alone, and an independent fair coin decides
whether D is used. Under (epsilon, delta)-DP a guess is then right with probability at most (e^epsilon + delta) /
(e^epsilon + 1), whatever happened before (Kairouz et al. 2015, Theorem 2.1), so the number of right guesses is
stochastically dominated by a binomial. Nothing else is assumed.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import beta

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.black_box.claim import LESSONS, StatedClaim
from fl_audit.audits.black_box.claim_audit import ClaimAudit, DistinguisherTest, attempt_of, verdict_of
from fl_audit.audits.black_box.distinguishers import Distinguisher, Rule, find_distinguishers, learned_rule
from fl_audit.audits.black_box.features import BESIDE_OTHERS, LOW_BITS, feature_groups
from fl_audit.audits.black_box.transcript import Transcripts
from fl_audit.errors import require, require_number
from fl_audit.statistics.methods import BoundMethod
from fl_audit.verdict.verdict import Verdict

_BLOCK = 10  # fewest trials after which everything is learned anew
_HEAD_START = 1.5
"""Standard deviations of luck by which another group has to be ahead before it replaces the first."""


def audit_online(
    claim: StatedClaim,
    kind: str,
    trials: Transcripts,
    present: Flags,
    confidence: float = 0.95,
    knows_others: bool = False,
    void: Flags | None = None,
) -> ClaimAudit:
    """Audit a claim by trials that were run one after another.

    Raises `InputError` if there are too few trials, or the confidence is out of its range.

    Parameters
    ----------
    claim
        The claim under audit.
    kind
        Name of the scenario.
    trials
        Transcripts of all planned trials in order, more than `LESSONS`. Their number must not depend on the outcomes of
        the trials; otherwise the confidence is not valid.
    present
        Whether D was used in each trial, shape (trials,): fair coins, independent of everything else.
    confidence
        Probability with which a claim that holds is not called violated, above 0.5 and below 1.
    knows_others
        Whether the claim covers an observer who knows all other clients' contributions. If not, evidence that needs
        this knowledge refutes nothing: clients may add the noise in shares, and such an observer would know their
        shares.
    void
        Whether each trial is no evidence about the claim, shape (trials,); None if all are. Guesses on such trials
        never count as right. This only lowers the number of right guesses, so the confidence holds whatever makes a
        trial void.
    """
    require_number("trials are", len(trials), f"whole numbers from {LESSONS + 1}")
    require_number("confidence is", confidence, "numbers above 0.5 and below 1")
    limit, counts = claim.limits[-1], np.ones(len(trials), dtype=bool) if void is None else ~void
    trials = replace(trials, has_release=trials.has_release & counts)

    def guessed(groups: dict[str, Floats]) -> DistinguisherTest:
        """Return the test of the distinguisher that guesses by the given groups of features."""
        right, scores, group, rule = _guesses(groups, present)
        right &= counts[LESSONS:]
        bound = guessed_epsilon(int(right.sum()), len(right), limit.delta, confidence)
        are_trials = int(trials.taken(slice(LESSONS, None)).share_of_trials(present[LESSONS:]) * len(right))
        ceiling = guessed_epsilon(are_trials, are_trials, limit.delta, confidence) if are_trials else 0.0
        distinguisher = Distinguisher(kind, group, rule, limit, BoundMethod.CLOPPER_PEARSON, bound - limit.epsilon, 0.0)
        return attempt_of(distinguisher, bound, ceiling, confidence, right, scores, trials, present, LESSONS)

    every = feature_groups(trials)
    low_bits = {name: every.pop(name) for name in LOW_BITS if name in every}
    by_all = {name: features for name, features in every.items() if knows_others or name != BESIDE_OTHERS}
    attempt, floating = guessed(by_all), guessed(low_bits)
    knowing = guessed(every) if len(by_all) < len(every) and not attempt.is_broken else None
    if knowing is not None and not knowing.is_broken:
        knowing = None
    verdict = verdict_of([attempt]) if knowing is None else Verdict.INCONCLUSIVE
    found = floating if floating.is_broken else None
    return ClaimAudit(claim, verdict, (attempt,), (), LESSONS, found, knowing=knowing)


def most_telling(pilots: Sequence[tuple[Transcripts, Flags]], claim: StatedClaim) -> int:
    """Return the index of the variant whose pilot trials best distinguish D from D'; the first one of equals.

    Parameters
    ----------
    pilots
        For each variant, transcripts of its pilot trials and whether D was used in each.
    claim
        The claim under audit.
    """

    def margin(trials: Transcripts, present: Flags) -> float:
        can_teach = min(present.sum(), (~present).sum()) >= 4
        return find_distinguishers("", trials, present, claim.limits, len(trials))[0].margin if can_teach else -np.inf

    return int(np.argmax([margin(*one) for one in pilots]))


def guessed_epsilon(right: int, guesses: int, delta: float, confidence: float) -> float:
    """Return a lower bound on epsilon at delta from the number of right guesses of fair coins; 0 proves nothing.

    The Clopper-Pearson lower bound on the probability p of a right guess gives epsilon = ln((p - delta) / (1 - p)),
    since (epsilon, delta)-DP bounds p. Raises `InputError` if there is no guess, or `right` exceeds `guesses`.

    Parameters
    ----------
    right
        Number of right guesses, from 0 to `guesses`.
    guesses
        Number of guesses, at least 1.
    delta
        Delta of the bound, at least 0 and below 1.
    confidence
        Confidence of the bound, above 0.5 and below 1.

    Examples
    --------
    >>> round(guessed_epsilon(180, 180, 1e-5, 0.95), 2)
    4.09
    >>> guessed_epsilon(95, 180, 1e-5, 0.95)
    0.0
    """
    require(0 <= right <= guesses and guesses >= 1, f"{right} of {guesses} guesses are right: accepted are 0 to all")
    if right == 0:
        return 0.0
    share = float(beta.ppf(1 - confidence, right, guesses - right + 1))
    return float(np.log((share - delta) / (1 - share))) if 2 * share > 1 + delta else 0.0


def fewest_trials(claim: StatedClaim, confidence: float = 0.95) -> int:
    """Return the smallest number of trials that could refute a claim, if every guess were right.

    Parameters
    ----------
    claim
        The claim under audit.
    confidence
        Confidence of the audit, above 0.5 and below 1.

    Examples
    --------
    >>> fewest_trials(StatedClaim("add-remove-client", epsilon=4.0))
    186
    """
    # A claim of a huge epsilon allows a share that is 1 in floating point.
    wrong = max(1 - claim.success, 1e-15)
    return LESSONS + int(np.floor(np.log(1 - confidence) / np.log1p(-wrong))) + 1


def _guesses(groups: dict[str, Floats], present: Flags) -> tuple[Flags, Floats, str, Rule]:
    """Guess the trials block by block, each block by the group of features that has guessed best so far."""
    # Of the guesses that count: whether each was right, and the score behind it less the threshold, (guesses,); then
    # what was looked at most, and its last rule.
    names, count = list(groups), len(present)
    scores = np.zeros((len(names), count))
    rules: dict[str, Rule] = {}
    followed = np.zeros(count, dtype=np.int64)
    stop = _BLOCK
    while stop < count:
        start, stop = stop, min(count, stop + max(_BLOCK, stop // 10))  # later blocks are longer
        past = present[:start]
        followed[start:stop] = _best_distinguisher((scores[:, _BLOCK:start] > 0) == past[_BLOCK:])
        if min(np.sum(past), np.sum(~past)) < 2:
            continue
        for place, name in enumerate(names):
            rules[name] = learned_rule(groups[name][:start], past)
            seen = rules[name](groups[name][:stop])
            # Less the middle between the medians under D and D'.
            medians = np.median(seen[:start][past]) + np.median(seen[:start][~past])
            scores[place, start:stop] = seen[start:] - float(medians) / 2
    chosen = scores[followed, np.arange(count)][LESSONS:]
    group = names[int(np.bincount(followed[LESSONS:]).argmax())]
    nothing: Rule = lambda values: np.zeros(len(values))  # noqa: E731
    return (chosen > 0) == present[LESSONS:], chosen, group, rules.get(group, nothing)


def _best_distinguisher(right: Flags) -> int:
    """Return the index of the group with the most right guesses, from whether guesses were right, (groups, trials).

    The first group is returned unless another one is better by more than chance.
    """
    counts = right.sum(axis=1)
    best = int(np.argmax(counts))
    head_start = _HEAD_START * np.sqrt(right.shape[1]) / 2
    return best if counts[best] > counts[0] + head_start else 0
