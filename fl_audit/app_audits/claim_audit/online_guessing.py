"""Test a privacy claim online with few trials: guess each trial from earlier trials only, and count the right guesses.

With a few hundred trials, none can be set aside for the search for distinguishers. So the trials are guessed block by
block, and a rule is trained on all earlier trials before each block. An independent fair coin decides whether a trial
uses D. Under (epsilon, delta)-DP a guess is then right with probability at most (e^epsilon + delta) / (e^epsilon + 1),
whatever happened before (Kairouz et al. 2015, Theorem 2.1). So the number of right guesses is stochastically dominated
by a binomial variable. Nothing else is assumed.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import beta

from fl_audit.app_audits.claim_audit.claim import LESSONS, StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    ClaimAudit,
    DistinguisherTest,
    distinguisher_test,
    verdict_of,
)
from fl_audit.app_audits.claim_audit.distinguishers import (
    Distinguisher,
    Rule,
    find_distinguishers,
    learned_rule,
    sort_of,
)
from fl_audit.app_audits.claim_audit.features import BESIDE_OTHERS, LOW_BITS, feature_groups
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.value_checks import require_number
from fl_audit.verdict.verdict import Verdict

_BLOCK = 10  # smallest number of trials in a block; rules are trained anew before each block
_HEAD_START = 1.5
"""Number of standard deviations, of a count of coin flips, by which a group must beat the first group to replace it."""


def audit_online(
    claim: StatedClaim,
    kind: str,
    transcripts: Transcripts,
    present: Flags,
    confidence: float = 0.95,
    knows_others: bool = False,
    void: Flags | None = None,
) -> ClaimAudit:
    """Audit a claim by trials that were run one after another, and return the test and the verdict.

    Raises `InputError` if there are too few trials, or if the confidence is out of its range.

    Shapes: `present` (trials,), `void` (trials,).

    `transcripts`: Their number must not depend on their outcomes.

    `knows_others`: If not, evidence that needs this knowledge does not refute the claim, because clients may add the
    noise in shares.

    `void`: A guess on such a trial counts as wrong, so the confidence stays valid for any choice of these trials.
    """
    require_number("trials are", len(transcripts), f"whole numbers from {LESSONS + 1}")
    require_number("confidence is", confidence, "numbers above 0.5 and below 1")
    limit = claim.limits[-1]
    counts = np.ones(len(transcripts), dtype=bool) if void is None else ~void
    transcripts = replace(transcripts, has_release=transcripts.has_release & counts)

    def guessed(groups: dict[str, Floats]) -> DistinguisherTest:
        right, scores, group, rule = _guesses(groups, present)
        right &= counts[LESSONS:]
        bound = guessed_epsilon(int(right.sum()), len(right), limit.delta, confidence)
        are_trials = int(
            transcripts.select_trials(slice(LESSONS, None)).share_of_trials(present[LESSONS:]) * len(right)
        )
        ceiling = guessed_epsilon(are_trials, are_trials, limit.delta, confidence) if are_trials else 0.0
        distinguisher = Distinguisher(
            kind,
            group,
            rule,
            limit,
            BoundMethod.CLOPPER_PEARSON,
            bound - limit.epsilon,
            0.0,
            sort=sort_of(group, transcripts),
        )
        return distinguisher_test(
            distinguisher, claim, bound, ceiling, confidence, right, scores, transcripts, present, LESSONS
        )

    every = feature_groups(transcripts)
    low_bits = {name: every.pop(name) for name in LOW_BITS if name in every}
    by_all = {name: features for name, features in every.items() if knows_others or name != BESIDE_OTHERS}
    test = guessed(by_all)
    floating = guessed(low_bits)
    knowing = guessed(every) if len(by_all) < len(every) and not test.is_broken else None
    if knowing is not None and not knowing.is_broken:
        knowing = None
    verdict = verdict_of([test]) if knowing is None else Verdict.INCONCLUSIVE
    return ClaimAudit(claim, verdict, (test,), (), LESSONS, floating if floating.is_broken else None, knowing=knowing)


def most_telling(pilots: Sequence[tuple[Transcripts, Flags]], claim: StatedClaim) -> int:
    """Return the index of the variant of the target's contribution whose pilot trials distinguish D from D' best.

    Shapes: `pilots` (trials,).
    """

    def margin(transcripts: Transcripts, present: Flags) -> float:
        can_teach = min(present.sum(), (~present).sum()) >= 4
        return (
            find_distinguishers("", transcripts, present, claim.limits, len(transcripts))[0].margin
            if can_teach
            else -np.inf
        )

    return int(np.argmax([margin(*pilot) for pilot in pilots]))


def guessed_epsilon(right: int, guesses: int, delta: float, confidence: float) -> float:
    """Return a lower bound on epsilon from the number of right guesses of fair coins; 0 means that nothing is proved.

    The Clopper-Pearson lower bound on the probability p of a right guess gives epsilon = ln((p - delta) / (1 - p)).
    Raises `InputError` if there is no guess, or if `right` exceeds `guesses`.

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
    """Return the smallest number of trials with which an online audit could refute a claim, if every guess were right.

    The number includes the `LESSONS` initial trials that do not count.

    Examples
    --------
    >>> fewest_trials(StatedClaim("add-remove-client", epsilon=4.0))
    186
    """
    # For a huge epsilon the allowed share rounds to 1.
    wrong = max(1 - claim.success, 1e-15)
    return LESSONS + int(np.floor(np.log(1 - confidence) / np.log1p(-wrong))) + 1


def _guesses(groups: dict[str, Floats], present: Flags) -> tuple[Flags, Floats, str, Rule]:
    """Guess the trials block by block, each block by the group of features that guessed best in earlier blocks.

    Return, for each counted trial, whether the guess was right, and the score minus the rule's threshold. Return also
    the name of the group that was used most often, and its last rule.
    """

    names = list(groups)
    count = len(present)
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
        for index, name in enumerate(names):
            rules[name] = learned_rule(groups[name][:start], past)
            guesses = rules[name](groups[name][:stop])
            # The threshold is the middle between the medians under D and D'.
            medians = np.median(guesses[:start][past]) + np.median(guesses[:start][~past])
            scores[index, start:stop] = guesses[start:] - float(medians) / 2
    chosen = scores[followed, np.arange(count)][LESSONS:]
    group = names[int(np.bincount(followed[LESSONS:]).argmax())]
    nothing: Rule = lambda values: np.zeros(len(values))  # noqa: E731
    return (chosen > 0) == present[LESSONS:], chosen, group, rules.get(group, nothing)


def _best_distinguisher(right: Flags) -> int:
    """Return the index of the group of features with the most right guesses.

    The result is 0 if the best group is ahead of group 0 only by chance. `right` has the shape (groups, trials).
    """
    counts = right.sum(axis=1)
    best = int(np.argmax(counts))
    head_start = _HEAD_START * np.sqrt(right.shape[1]) / 2
    return best if counts[best] > counts[0] + head_start else 0
