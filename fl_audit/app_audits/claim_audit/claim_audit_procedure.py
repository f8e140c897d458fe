"""Audit a privacy claim by black-box trials: search trials select distinguishers, and fresh trials test the best ones.

A distinguisher is a trained rule that separates trials with D from trials with D'. Search trials of every scenario (the
surroundings of a trial) rank the distinguishers. The best ones are tested on fresh trials, in stages of growing size.
The significance level is divided among distinguishers and stages, so the audit calls a true claim violated with at most
this probability. Nothing is assumed about the mechanism.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    FEWEST_OF_EACH,
    ClaimAudit,
    DistinguisherTest,
    OutOfTimeError,
    Tell,
    TrialBudget,
    distinguisher_test,
)
from fl_audit.app_audits.claim_audit.distinguisher_search import DistinguisherSearch, Play, key_of
from fl_audit.app_audits.claim_audit.distinguishers import (
    Distinguisher,
    FeatureSort,
    IsOfTrialsAlone,
    every_second,
    margin_of,
)
from fl_audit.app_audits.claim_audit.features import feature_groups
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.array_types import Flags
from fl_audit.statistics.lower_bounds import bound_limit, epsilon_lower_bound


def audit_claim(
    claim: StatedClaim,
    kinds: Sequence[str],
    play: Play,
    malformed: frozenset[str],
    describe: Callable[[str], str],
    budget: TrialBudget | None = None,
    confidence: float = 0.95,
    tell: Tell = lambda _: None,
    keep: Callable[[ClaimAudit], None] = lambda _: None,
    is_of_trials_alone: IsOfTrialsAlone = lambda *_: False,
) -> ClaimAudit:
    """Audit a privacy claim by playing black-box trials, and return the tests, the skipped scenarios and the verdict.

    If the time runs out before any distinguisher is tested on fresh trials, one half of the search trials selects
    distinguishers and the other half tests them.

    Parameters
    ----------
    claim
        The privacy claim to be audited.
    kinds
        Names of the scenarios in which trials are played, from plain to special.
    play
        Function that plays trials; it raises `OutOfTimeError` if there is no time for any.
    malformed
        Names of the scenarios with malformed input, in which the mechanism may end with an error.
    describe
        Function from the name of a scenario to the mechanism's last error message in it.
    budget
        The number of trials in each stage; None for the defaults.
    confidence
        Probability with which a true claim is not called violated; above 0.5 and below 1.
    tell
        Callback that receives progress messages.
    keep
        Callback that receives the result so far after the search and after each test.
    is_of_trials_alone
        Function that says whether only clients of the trials are known to report a number beside the model.
    """
    budget = budget or TrialBudget()
    search = DistinguisherSearch(claim, play, malformed, describe, budget, tell, is_of_trials_alone)
    search.scout(kinds)
    search.select()
    level = (1 - confidence) / max(1, len(search.selected) + (search.finest is not None))
    keep(search.result(()))
    tests = _tested_in_stages(
        claim,
        search.selected,
        play,
        budget,
        level,
        tell,
        is_of_trials_alone,
        lambda so_far: keep(search.result(so_far)),
    )
    if not tests and search.selected:
        tests = _tried_by_halves(search, budget.fewest_tests, confidence, is_of_trials_alone)
    floating = list[DistinguisherTest]()
    if search.finest is not None and not (budget.until_broken and any(test.refutes_claim for test in tests)):
        floating = _tested_in_stages(claim, [search.finest], play, budget, level, tell, is_of_trials_alone)
    return search.result(tests, floating)


def _tried_by_halves(
    search: DistinguisherSearch, largest: int, confidence: float, is_of_trials_alone: IsOfTrialsAlone
) -> list[DistinguisherTest]:
    """Train distinguishers on one half of the search trials, and test at most `largest` of them on the other half."""
    tried = list[tuple[Distinguisher, Transcripts, Flags]]()
    for kind, (trials, present) in search.looked.items():
        learns = every_second(present)
        if min(np.sum(present[~learns]), np.sum(~present[~learns])) >= FEWEST_OF_EACH // 2:
            looked = search.look(kind, trials.select_trials(learns), present[learns], int(np.sum(~learns)))
            ranked = [distinguisher for distinguisher in looked if distinguisher.sort is not FeatureSort.LOW_BITS]
            tried += [(distinguisher, trials.select_trials(~learns), present[~learns]) for distinguisher in ranked]
    # The half that tests a distinguisher did not train or select it.
    tried.sort(key=lambda distinguishers: -distinguishers[0].margin)
    level = (1 - confidence) / max(1, len(tried[:largest]))
    return [
        _tested(search.claim, distinguisher, trials, present, 1 - level, is_of_trials_alone)
        for distinguisher, trials, present in tried[:largest]
    ]


def _tested_in_stages(
    claim: StatedClaim,
    chosen: Sequence[Distinguisher],
    play: Play,
    budget: TrialBudget,
    level: float,
    tell: Tell,
    is_of_trials_alone: IsOfTrialsAlone,
    keep: Callable[[list[DistinguisherTest]], None] = lambda _: None,
) -> list[DistinguisherTest]:
    """Test distinguishers on fresh trials in stages, and return the result of each distinguisher's last test.

    Only the distinguishers with the largest expected margins reach the next stage. `level` is the significance level of
    one distinguisher over all stages together.
    """
    # Earlier trials select distinguishers, and each stage of a distinguisher has its own share of the level.
    first = budget.pilot
    last = dict[tuple[str, FeatureSort], DistinguisherTest]()
    going = list(chosen)
    next_stage = budget.deep
    for stage, share in zip(budget.stages, budget.shares, strict=True):
        for distinguisher in going:
            tell(f"trying {distinguisher.group!r} in {distinguisher.kind}: {stage} fresh trials")
            try:
                trials, present = play(distinguisher.kind, first, stage)
                last[key_of(distinguisher)] = _tested(
                    claim, distinguisher, trials, present, 1 - share * level, is_of_trials_alone
                )
            except OutOfTimeError:
                return list(last.values())
            keep(list(last.values()))
            if budget.until_broken and last[key_of(distinguisher)].refutes_claim:
                return list(last.values())
        going = [distinguisher for distinguisher in going if not last[key_of(distinguisher)].is_broken]
        # The expected margin of each distinguisher on fresh trials, from its last trials.
        fresh = budget.stages[-1] // 2
        tried = [last[key_of(distinguisher)] for distinguisher in going]
        margins = {
            key_of(test.distinguisher): margin_of(test.scores, test.present, (test.distinguisher.limit,), fresh)[0]
            for test in tried
        }
        going = sorted(going, key=lambda distinguisher: -margins[key_of(distinguisher)])[:next_stage]
        first = first + stage
        next_stage = max(1, next_stage // 2)
    return list(last.values())


def _tested(
    claim: StatedClaim,
    distinguisher: Distinguisher,
    transcripts: Transcripts,
    present: Flags,
    confidence: float,
    is_of_trials_alone: IsOfTrialsAlone,
) -> DistinguisherTest:
    # A number that did not occur in any of these trials is marked as missing in all of them.
    missing = np.tile([0.0, 1.0], (len(transcripts), 1))
    scores = distinguisher.rule(feature_groups(transcripts).get(distinguisher.group, missing))
    ones = scores[present]
    zeros = scores[~present]
    share = transcripts.share_of_trials(present)
    bound = epsilon_lower_bound(ones, zeros, distinguisher.limit.delta, confidence, distinguisher.method).epsilon
    ceiling = bound_limit(
        distinguisher.method, int(share * ones.size), int(share * zeros.size), distinguisher.limit.delta, confidence
    )
    return distinguisher_test(
        distinguisher,
        claim,
        bound,
        ceiling,
        confidence,
        (scores > distinguisher.threshold) == present,
        scores,
        transcripts,
        present,
        is_of_trials_alone=distinguisher.sort is FeatureSort.BESIDE_MODEL
        and is_of_trials_alone(distinguisher.kind, distinguisher.group),
    )
