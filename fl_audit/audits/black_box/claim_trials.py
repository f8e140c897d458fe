"""Black-box audit of a claim: some trials select distinguishers, and fresh trials test the best ones.

Nothing is assumed about the mechanism. First some trials of every scenario are run, and every group of features is
ranked on them. Then the few best distinguishers are tested on fresh trials, in stages of growing size. The significance
level is divided among distinguishers and stages, so a claim that holds is called violated with at most this
probability, whatever was selected before.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from fl_audit.array_types import Flags
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.claim_audit import (
    FEWEST_OF_EACH,
    ClaimAudit,
    DistinguisherTest,
    IncompleteTrials,
    OutOfTimeError,
    Tell,
    TrialBudget,
    attempt_of,
    verdict_of,
)
from fl_audit.audits.black_box.distinguishers import Distinguisher, every_second, find_distinguishers, margin_of
from fl_audit.audits.black_box.features import LOW_BITS, feature_groups
from fl_audit.audits.black_box.transcript import Transcripts
from fl_audit.statistics.lower_bounds import bound_limit, epsilon_lower_bound
from fl_audit.verdict.verdict import Verdict

Play = Callable[[str, int, int], tuple[Transcripts, Flags]]
"""A function from a scenario, the number of the first trial and a number of trials to transcripts and truths.

It returns fewer trials than requested if the time ends before the last of them; a truth is true where D was played.
"""


def audit_claim(
    claim: StatedClaim,
    kinds: Sequence[str],
    play: Play,
    malformed: frozenset[str],
    said: Callable[[str], str],
    budget: TrialBudget | None = None,
    confidence: float = 0.95,
    tell: Tell = lambda _: None,
    keep: Callable[[ClaimAudit], None] = lambda _: None,
) -> ClaimAudit:
    """Audit a claim by black-box trials.

    If the time ends before any distinguisher is tested on fresh trials, the search trials are split in two halves: one
    selects distinguishers and the other tests them, so that the trials still lead to a verdict.

    Parameters
    ----------
    claim
        The claim under audit.
    kinds
        Names of the scenarios.
    play
        Function that runs trials; it raises `OutOfTimeError` if there is no time for more.
    malformed
        Names of the scenarios with malformed input, which the mechanism may refuse.
    said
        Function that returns the last error message of the mechanism in a scenario.
    budget
        The number of trials in each stage; None for the default.
    confidence
        Probability with which a claim that holds is not called violated; above 0.5 and below 1.
    tell
        Callback that receives progress messages.
    keep
        Callback that receives the result so far after every test, in case the audit is interrupted.
    """
    budget = budget or TrialBudget()
    search = _DistinguisherSearch(claim, play, malformed, said, budget, tell)
    search.scout(kinds)
    choice = search.choice()
    level = (1 - confidence) / max(1, len(choice.tried) + (choice.finest is not None))
    keep(search.result(choice, ()))
    attempts = _tried(choice.tried, play, budget, level, tell, lambda so_far: keep(search.result(choice, so_far)))
    if not attempts and choice.tried:
        attempts = _tried_by_halves(search, budget.tried, confidence)
    floating = list[DistinguisherTest]()
    if choice.finest is not None and not (budget.until_broken and verdict_of(attempts) is Verdict.VIOLATED):
        floating = _tried([choice.finest], play, budget, level, tell)
    return search.result(choice, attempts, floating)


@dataclass(frozen=True)
class _Choice:
    """The distinguishers that are selected for tests on fresh trials."""

    tried: list[Distinguisher]  # those that may refute the claim, the most telling first
    finest: Distinguisher | None  # the best one of low bits alone that seems to break the claim; None for none
    passed_over: tuple[str, ...]  # scenarios that seemed to break the claim, and for which there are no fresh trials


@dataclass
class _DistinguisherSearch:
    """The search for distinguishers: how trials are run, and the results of the scenarios so far."""

    claim: StatedClaim
    play: Play
    malformed: frozenset[str]
    said: Callable[[str], str]
    budget: TrialBudget
    tell: Tell
    ranked: dict[str, list[Distinguisher]] = field(default_factory=dict)  # the distinguishers of a scenario
    looked: dict[str, tuple[Transcripts, Flags]] = field(default_factory=dict)  # the trials behind them
    refusals: list[IncompleteTrials] = field(default_factory=list)
    entirely: set[str] = field(default_factory=set)  # scenarios of which every trial was refused
    silent: list[str] = field(default_factory=list)  # scenarios without a single trial
    unplayed: tuple[str, ...] = ()  # scenarios without time for trials
    pilots: int = 0  # number of trials

    def look(self, kind: str, trials: Transcripts, present: Flags, fresh: int) -> list[Distinguisher]:
        """Return the distinguishers of a scenario, ranked by their expected margin in a test with `fresh` trials."""
        found = find_distinguishers(kind, trials, present, self.claim.limits, fresh)
        # Numbers beside the model may tell where no trial was one; nothing else of such a kind is worth an audit.
        return [one for one in found if one.margin > 0] if kind in self.silent else found

    def scout(self, kinds: Sequence[str]) -> None:
        """Run a few trials of every scenario, as long as there is time."""
        for place, kind in enumerate(kinds):
            self.tell(f"looking for distinguishers: {kind} ({place + 1} of {len(kinds)})")
            try:
                trials, present = self.play(kind, 0, min(self.budget.scout, self.budget.pilot))
            except OutOfTimeError:
                self.unplayed = tuple(kinds[place:])
                break
            self.pilots += len(present)
            if self._is_refused(kind, trials, present):
                continue
            if trials.share_of_trials(present) == 0:
                self.silent.append(kind)
            self._keep(kind, trials, present)

    def _is_refused(self, kind: str, trials: Transcripts, present: Flags) -> bool:
        """Record the refused trials of a scenario, and return whether the search skips this scenario."""
        if not np.any(trials.refused):
            return False
        one, zero = (float(np.mean(trials.refused[which])) for which in (present, ~present))
        self.refusals.append(IncompleteTrials(kind, self.said(kind), one, zero, is_allowed=kind in self.malformed))
        if np.all(trials.refused):
            self.entirely.add(kind)
        return kind in self.malformed or kind in self.entirely

    def _keep(self, kind: str, trials: Transcripts, present: Flags) -> None:
        self.ranked[kind] = self.look(kind, trials, present, self.budget.stages[-1])
        self.looked[kind] = trials, present

    def choice(self) -> _Choice:
        """Run more trials of the best scenarios, and return the distinguishers to be tested."""
        left = self._look_closely() if self.budget.scout < self.budget.pilot else []
        found, low_bits = _by_bits(self.ranked)
        # Kinds come plainest first, and equals stay in that order.
        found.sort(key=lambda one: -round(one.margin, 1 if self.budget.plainest else 9))
        count = min(self.budget.most, max(self.budget.tried, sum(one.margin > 0 for one in found)))
        finest = max((one for one in low_bits if one.margin > 0), key=lambda one: one.margin, default=None)
        passed_over = tuple(one.kind for one in (*found[count:], *left) if one.margin > 0)
        return _Choice(found[:count], finest, passed_over)

    def _look_closely(self) -> list[Distinguisher]:
        """Run more trials of the best scenarios, and return the promising distinguishers of all other scenarios."""
        closely = _kept(self.ranked, self.budget.kept)
        for kind in closely:
            self.tell(f"looking closely: {kind}")
            with suppress(OutOfTimeError):
                trials, present = self.play(kind, 0, self.budget.pilot)
                if (more := len(present) - len(self.looked[kind][1])) > 0:
                    self.pilots += more
                    self._keep(kind, trials, present)
        left = [one for one in _by_bits(self.ranked)[0] if one.kind not in closely and one.margin > 0]
        self.ranked = {kind: self.ranked[kind] for kind in closely}
        return left

    def result(
        self, choice: _Choice, attempts: Sequence[DistinguisherTest], floating: Sequence[DistinguisherTest] = ()
    ) -> ClaimAudit:
        """Return the result of the audit from the tests so far, with the test of low bits apart."""
        done = {attempt.distinguisher.kind for attempt in attempts}
        untried = tuple(one.kind for one in choice.tried if one.kind not in done)
        ranked = sorted(attempts, key=lambda attempt: attempt.distinguisher.limit.epsilon - attempt.bound)
        return ClaimAudit(
            claim=self.claim,
            verdict=verdict_of(ranked),
            attempts=tuple(ranked),
            refusals=tuple(self.refusals),
            pilots=self.pilots,
            floating=next(iter(floating), None),
            unplayed=self.unplayed,
            untried=() if self.budget.until_broken else untried,
            passed_over=choice.passed_over,
            silent=tuple(self.silent),
            refused=tuple(one.kind for one in self.refusals if not one.is_allowed and one.kind in self.entirely),
        )


def _by_bits(scouted: Mapping[str, list[Distinguisher]]) -> tuple[list[Distinguisher], list[Distinguisher]]:
    """Return the distinguishers of all scenarios in two lists: those that use more than low bits, and the others."""
    every = [distinguisher for ranked in scouted.values() for distinguisher in ranked]
    low = [distinguisher for distinguisher in every if distinguisher.group in LOW_BITS]
    return [distinguisher for distinguisher in every if distinguisher not in low], low


def _kept(scouted: Mapping[str, list[Distinguisher]], count: int) -> list[str]:
    """Return the scenarios of the `count` best distinguishers and of the best one that uses only low bits."""
    found, low = (sorted(some, key=lambda distinguisher: -distinguisher.margin) for some in _by_bits(scouted))
    best = {distinguisher.kind for distinguisher in (*found[:count], *low[:1])}
    return [kind for kind in scouted if kind in best]


def _tried_by_halves(search: _DistinguisherSearch, most: int, confidence: float) -> list[DistinguisherTest]:
    """Return attempts without fresh trials: half of the search trials train, and the other half test."""
    found = list[tuple[Distinguisher, Transcripts, Flags]]()
    for kind, (trials, present) in search.looked.items():
        learns = every_second(present)
        if min(np.sum(present[~learns]), np.sum(~present[~learns])) >= FEWEST_OF_EACH // 2:
            ranked = _by_bits({kind: search.look(kind, trials.taken(learns), present[learns], int(np.sum(~learns)))})[0]
            found += [(distinguisher, trials.taken(~learns), present[~learns]) for distinguisher in ranked]
    # The half that tries a distinguisher had no part in choosing it.
    found.sort(key=lambda one: -one[0].margin)
    level = (1 - confidence) / max(1, len(found[:most]))
    return [_attempt(*one, 1 - level) for one in found[:most]]


def _tried(
    chosen: Sequence[Distinguisher],
    play: Play,
    budget: TrialBudget,
    level: float,
    tell: Tell,
    keep: Callable[[list[DistinguisherTest]], None] = lambda _: None,
) -> list[DistinguisherTest]:
    """Test distinguishers in stages on fresh trials, and return the last test of each.

    Only the best ones pass from one stage to the next.
    """
    # Earlier trials decide the choice, and every stage of a distinguisher has its share of the level anyway.
    first, last = budget.pilot, dict[str, DistinguisherTest]()
    going, next_stage = list(chosen), budget.deep
    for stage, share in zip(budget.stages, budget.shares, strict=True):
        for distinguisher in going:
            tell(f"trying {distinguisher.group!r} in {distinguisher.kind}: {stage} fresh trials")
            try:
                last[distinguisher.kind] = _attempt(
                    distinguisher, *play(distinguisher.kind, first, stage), 1 - share * level
                )
            except OutOfTimeError:
                return list(last.values())
            keep(list(last.values()))
            if budget.until_broken and last[distinguisher.kind].is_broken:
                return list(last.values())
        going = [distinguisher for distinguisher in going if not last[distinguisher.kind].is_broken]
        # By how much each will pass its limit on so many fresh trials, as far as its last ones say.
        fresh, tried = budget.stages[-1] // 2, [last[distinguisher.kind] for distinguisher in going]
        margins = {
            one.distinguisher.kind: margin_of(one.scores, one.present, (one.distinguisher.limit,), fresh)[0]
            for one in tried
        }
        going = sorted(going, key=lambda distinguisher: -margins[distinguisher.kind])[:next_stage]
        first, next_stage = first + stage, max(1, next_stage // 2)
    return list(last.values())


def _attempt(distinguisher: Distinguisher, trials: Transcripts, present: Flags, confidence: float) -> DistinguisherTest:
    # A number that none of these trials showed is missing in all of them.
    missing = np.tile([0.0, 1.0], (len(trials), 1))
    scores = distinguisher.rule(feature_groups(trials).get(distinguisher.group, missing))
    one, zero, share = scores[present], scores[~present], trials.share_of_trials(present)
    bound = epsilon_lower_bound(one, zero, distinguisher.limit.delta, confidence, distinguisher.method).epsilon
    ceiling = bound_limit(
        distinguisher.method, int(share * one.size), int(share * zero.size), distinguisher.limit.delta, confidence
    )
    return attempt_of(
        distinguisher,
        bound,
        ceiling,
        confidence,
        (scores > distinguisher.threshold) == present,
        scores,
        trials,
        present,
    )
