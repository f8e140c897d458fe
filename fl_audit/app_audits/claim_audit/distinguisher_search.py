"""Search for distinguishers: trials of every scenario suggest rules that tell D from D', and the best ones are chosen.

A scenario is the surroundings of a trial. Trials of the search are no evidence: fresh trials test what is chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    ClaimAudit,
    DistinguisherTest,
    OutOfTimeError,
    Tell,
    TrialBudget,
    TrialErrorShares,
    verdict_of,
)
from fl_audit.app_audits.claim_audit.distinguishers import (
    Distinguisher,
    FeatureSort,
    IsOfTrialsAlone,
    find_distinguishers,
)
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.array_types import Flags

Play = Callable[[str, int, int], tuple[Transcripts, Flags]]
"""A function that plays trials: it takes a scenario's name, the number of the first trial, and the number of trials.

It returns their transcripts and a mask that is true for trials with D. It returns fewer trials if the time runs out.
"""


@dataclass
class DistinguisherSearch:
    """The search for distinguishers (rules that tell D from D'): its inputs, and the results so far."""

    claim: StatedClaim
    play: Play
    malformed: frozenset[str]
    last_error: Callable[[str], str]  # from the name of a scenario to the last error of the mechanism in it
    budget: TrialBudget
    tell: Tell
    is_of_trials_alone: IsOfTrialsAlone
    ranked: dict[str, list[Distinguisher]] = field(default_factory=dict)  # distinguishers of each scenario, by name
    looked: dict[str, tuple[Transcripts, Flags]] = field(default_factory=dict)  # search trials of each scenario
    refusals: list[TrialErrorShares] = field(default_factory=list)
    entirely: set[str] = field(default_factory=set)  # scenarios whose trials all ended with an error
    silent: list[str] = field(default_factory=list)  # scenarios without a valid trial
    unplayed: tuple[str, ...] = ()  # scenarios without any trial, because the time ran out
    pilots: int = 0  # number of search trials so far
    # What `select` has selected for tests on fresh trials: distinguishers for the verdict, the one with the largest
    # margin first, and the best distinguisher by low bits alone; None if none seems to refute the claim.
    selected: list[Distinguisher] = field(default_factory=list)
    finest: Distinguisher | None = None
    passed_over: tuple[str, ...] = ()  # names of scenarios that may refute the claim but get no fresh trials
    passed_over_within: tuple[str, ...] = ()  # those of them whose search trials were within the claim

    def look(self, kind: str, transcripts: Transcripts, present: Flags, fresh: int) -> list[Distinguisher]:
        """Return the distinguishers of the scenario `kind`, in the order in which they are worth a test.

        `fresh` is the number of new trials on which they would be tested. The margin of a distinguisher is the lower
        bound on epsilon that is expected from the new trials, minus the claimed epsilon. If no trial of the scenario
        was valid, only distinguishers with a positive margin are returned.
        """
        distinguishers = find_distinguishers(
            kind, transcripts, present, self.claim.limits, fresh, self.is_of_trials_alone
        )
        # If no trial was valid, numbers besides the model may still tell D from D'; other groups are not worth a test.
        return (
            [distinguisher for distinguisher in distinguishers if distinguisher.margin > 0]
            if kind in self.silent
            else distinguishers
        )

    def scout(self, kinds: Sequence[str]) -> None:
        """Run a few trials of each kind of scenario, and store the distinguishers that they suggest.

        Kinds for which no time is left are stored in `unplayed`.
        """
        for index, kind in enumerate(kinds):
            self.tell(f"looking for distinguishers: {kind} ({index + 1} of {len(kinds)})")
            try:
                trials, present = self.play(kind, 0, min(self.budget.scout, self.budget.pilot))
            except OutOfTimeError:
                self.unplayed = tuple(kinds[index:])
                break
            self.pilots += len(present)
            if self._is_refused(kind, trials, present):
                continue
            if trials.share_of_trials(present) == 0:
                self.silent.append(kind)
            self._keep(kind, trials, present)

    def _is_refused(self, kind: str, transcripts: Transcripts, present: Flags) -> bool:
        """Record the trials that ended with an error, and return whether the search skips this scenario.

        The scenario is skipped if all its trials ended with an error. A scenario with malformed input is skipped if any
        trial ended with an error.
        """
        if not np.any(transcripts.refused):
            return False
        ones, zeros = (float(np.mean(transcripts.refused[which])) for which in (present, ~present))
        is_allowed = kind in self.malformed
        self.refusals.append(TrialErrorShares(kind, self.last_error(kind), ones, zeros, is_allowed))
        if np.all(transcripts.refused):
            self.entirely.add(kind)
        return is_allowed or kind in self.entirely

    def _keep(self, kind: str, transcripts: Transcripts, present: Flags) -> None:
        self.ranked[kind] = self.look(kind, transcripts, present, self.budget.stages[-1])
        self.looked[kind] = transcripts, present

    def select(self) -> None:
        """Run more trials of the best scenarios, and select the distinguishers to be tested on fresh trials."""
        distinguishers = self._look_closely() if self.budget.scout < self.budget.pilot else []
        ranked = _by_sort(self.ranked)
        # Scenarios are ordered from plain to special, and the sort is stable.
        of_release = sorted(ranked[FeatureSort.RELEASE], key=self._rank)
        numbers = _best_of_each_number(sorted(ranked[FeatureSort.BESIDE_MODEL], key=self._rank))
        count = min(
            self.budget.most_tests,
            max(self.budget.fewest_tests, sum(distinguisher.margin > 0 for distinguisher in of_release)),
        )
        self.selected = sorted((*of_release[:count], *numbers[: self.budget.most_tests]), key=self._rank)
        positive = [distinguisher for distinguisher in ranked[FeatureSort.LOW_BITS] if distinguisher.margin > 0]
        self.finest = max(positive, key=lambda distinguisher: distinguisher.margin, default=None)
        passed_over = [
            distinguisher
            for distinguisher in (*of_release[count:], *numbers[self.budget.most_tests :], *distinguishers)
            if distinguisher.margin > 0
        ]
        self.passed_over = tuple(distinguisher.kind for distinguisher in passed_over)
        self.passed_over_within = tuple(
            distinguisher.kind for distinguisher in passed_over if not distinguisher.seems_to_refute
        )

    def _rank(self, distinguisher: Distinguisher) -> float:
        """Return a sort key by which distinguishers with large margins come first."""
        return -round(distinguisher.margin, 1 if self.budget.plainest else 9)

    def _look_closely(self) -> list[Distinguisher]:
        """Play more trials of the best scenarios, rank their distinguishers again, and drop all other scenarios.

        Returns the dropped distinguishers that may refute the claim and do not use only the low bits of releases.
        """
        closely = _selected_scenarios(self.ranked, self.budget.passing_scenarios)
        for kind in closely:
            self.tell(f"looking closely: {kind}")
            with suppress(OutOfTimeError):
                trials, present = self.play(kind, 0, self.budget.pilot)
                if (missing := len(present) - len(self.looked[kind][1])) > 0:
                    self.pilots += missing
                    self._keep(kind, trials, present)
        distinguishers = [
            distinguisher
            for distinguisher in _by_sort(self.ranked)[FeatureSort.RELEASE]
            if distinguisher.kind not in closely and distinguisher.margin > 0
        ]
        self.ranked = {kind: self.ranked[kind] for kind in closely}
        return distinguishers

    def result(self, tests: Sequence[DistinguisherTest], floating: Sequence[DistinguisherTest] = ()) -> ClaimAudit:
        """Return the result of the audit from the tests of the selected distinguishers so far.

        `floating` holds the test of the distinguisher that uses only the low bits of releases, if there was one.
        """
        done = {key_of(test.distinguisher) for test in tests}
        untried = tuple(distinguisher.kind for distinguisher in self.selected if key_of(distinguisher) not in done)
        ranked = sorted(tests, key=lambda test: test.distinguisher.limit.epsilon - test.bound)
        return ClaimAudit(
            claim=self.claim,
            verdict=verdict_of(ranked),
            tests=tuple(ranked),
            refusals=tuple(self.refusals),
            pilots=self.pilots,
            floating=next(iter(floating), None),
            unplayed=self.unplayed,
            untried=() if self.budget.until_broken else untried,
            passed_over=self.passed_over,
            passed_over_within=self.passed_over_within,
            silent=tuple(self.silent),
            refused=tuple(
                refusal.kind for refusal in self.refusals if not refusal.is_allowed and refusal.kind in self.entirely
            ),
        )


def key_of(distinguisher: Distinguisher) -> tuple[str, FeatureSort]:
    """Return a key that no two selected distinguishers share: the scenario and the sort of features."""
    return distinguisher.kind, distinguisher.sort


def _by_sort(scouted: Mapping[str, list[Distinguisher]]) -> dict[FeatureSort, list[Distinguisher]]:
    """Return the distinguishers of all scenarios, keyed by the sort of their features, in the order of scenarios."""
    every = [distinguisher for ranked in scouted.values() for distinguisher in ranked]
    return {sort: [distinguisher for distinguisher in every if distinguisher.sort is sort] for sort in FeatureSort}


def _best_of_each_number(ranked: Sequence[Distinguisher]) -> list[Distinguisher]:
    """Return the first distinguisher by each number beside the model, in the order of `ranked`.

    A number that tells in one scenario is released in all of them.
    """
    best = dict[str, Distinguisher]()
    for distinguisher in ranked:
        best.setdefault(distinguisher.group, distinguisher)
    return list(best.values())


def _selected_scenarios(scouted: Mapping[str, list[Distinguisher]], count: int) -> list[str]:
    """Return the scenarios in which the best distinguishers were found, in their order in `scouted`.

    The best are the `count` distinguishers by the release with the largest margins. The best one of each number beside
    the model is added, at most `count` of them, and the best one by the low bits of the release. The margin is the
    expected bound on epsilon minus the claimed epsilon.
    """
    ranked = {
        sort: sorted(distinguishers, key=lambda distinguisher: -distinguisher.margin)
        for sort, distinguishers in _by_sort(scouted).items()
    }
    numbers = _best_of_each_number(ranked[FeatureSort.BESIDE_MODEL])[:count]
    chosen = (*ranked[FeatureSort.RELEASE][:count], *numbers, *ranked[FeatureSort.LOW_BITS][:1])
    best = {distinguisher.kind for distinguisher in chosen}
    return [kind for kind in scouted if kind in best]
