"""Audit of a claim: some trials find distinguishers and fresh trials test the best; nothing is assumed of the
mechanism.

First every scenario is played some times, and every group of features is ranked on these trials. The few best
distinguishers are then tried on trials that nobody has seen, in stages of growing number. The level is shared among
distinguishers and stages, so the probability that a claim that holds is called violated is at most the level, whatever
was tried before.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from fl_audit.arrays import Flags, Floats
from fl_audit.audits.black_box.causes import NO_CAUSE, LeakCause, cause_of, telling_lines
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.distinguishers import Distinguisher, every_second, find_distinguishers, margin_of
from fl_audit.audits.black_box.features import LOW_BITS, along, feature_groups
from fl_audit.audits.black_box.transcript import Transcripts
from fl_audit.errors import require
from fl_audit.statistics.lower_bounds import bound_limit, epsilon_lower_bound
from fl_audit.verdict.verdict import Verdict

Play = Callable[[str, int, int], tuple[Transcripts, Flags]]
"""A function from a scenario, the number of the first trial and a number of trials to transcripts and truths.

It returns fewer trials than requested if the time ends before the last of them; a truth is true where D was played.
"""
Tell = Callable[[str], None]
"""A function that takes progress messages."""


class OutOfTimeError(Exception):
    """Raised by a function that plays trials when the time is over: the audit then ends with the trials so far."""


FEWEST_OF_EACH = 10
"""Number of trials of each truth below which the trials are not judged if the time has run out."""

CHUNK = 20
"""Number of trials played in one call; every part of a budget is a multiple of it."""


@dataclass(frozen=True)
class Budget:
    """The number of trials in each stage of an audit.

    Raises `InputError` if a number of trials is no multiple of `CHUNK`, or the shares do not add up to 1.
    """

    pilot: int = 400  # trials that look for distinguishers, of every kind that is looked at closely
    stages: tuple[int, ...] = (1000, 3000, 8000)  # trials that try one distinguisher, stage by stage
    shares: tuple[float, ...] = (0.3, 0.3, 0.4)  # share of the level that every stage has; they add up to 1
    tried: int = 3  # distinguishers that are tried at least, each of another scenario, in the first stage
    most: int = 6  # distinguishers that are tried at most, if so many seem to break the claim
    # Number of distinguishers that are tried in the second stage, if none breaks the claim; half as many in the next
    # stage, and so on.
    deep: int = 2
    # Whether the audit ends with the first distinguisher that breaks the claim, and says nothing of the others.
    until_broken: bool = False
    # Whether, of distinguishers that seem about equally good, those of the plainer kinds are tried: what a page names
    # first does not hang on luck then.
    plainest: bool = False
    scout: int = (
        100  # trials of every kind that find out which ones to look at closely; no more than `pilot` are played
    )
    kept: int = 12  # kinds that are looked at closely

    def __post_init__(self) -> None:
        for count in (self.scout, self.pilot, *self.stages):
            wrong = f"budget has a part of {count} trials: accepted are multiples of {CHUNK} from {2 * CHUNK}"
            require(count % CHUNK == 0 and count >= 2 * CHUNK, wrong)
        require(len(self.stages) == len(self.shares), "budget has stages and shares of different numbers")
        require(abs(sum(self.shares) - 1) < 1e-9, f"shares of the level are {self.shares}: they have to add up to 1")


QUICK = Budget(pilot=120, stages=(400, 1000), shares=(0.5, 0.5), tried=2, most=3, deep=1, scout=40, kept=8)
"""A budget for tests of a few seconds."""


@dataclass(frozen=True)
class DistinguisherTest:
    """The result of testing one distinguisher on fresh trials."""

    distinguisher: Distinguisher  # the distinguisher
    bound: (
        float  # lower bound on epsilon at the delta of the distinguisher's limit, at the confidence that this stage has
    )
    confidence: float  # the confidence of the bound
    ceiling: float  # the bound that trials which never err would have given, of those that were trials at all
    trials: int  # number of trials played at this stage
    share_of_trials: float  # the share of them in which a model was released and the differing contribution arrived
    right: int  # number of these trials guessed right, with a threshold learned before
    scores: Floats  # the score of each trial, shape (trials,)
    present: Flags  # whether D was played, shape (trials,)
    along: Floats  # releases along the differing contribution, summed over rounds, shape (trials,)
    lines: tuple[str, ...]  # the lines of the transcript that tell most
    cause: LeakCause = NO_CAUSE  # the cause for which trials were told apart, if known

    @property
    def is_broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.bound > self.distinguisher.limit.epsilon


@dataclass(frozen=True)
class Refusal:
    """Trials that the mechanism refused to complete."""

    kind: str  # the scenario
    said: str  # the error message, in one line
    share_present: float  # share of trials refused where D was played
    share_absent: float  # share of trials refused where D' was played
    is_allowed: bool  # whether the input was malformed, so that refusing it is right


class NotCovered(StrEnum):
    """The reason why distinguishers that need all others' replies do not refute a claim.

    SHARES: the others reply something else each time to the same model: that may be shares of the noise.
    SHARES_OUTSIDE: what they had learned was held still, and something else arrived each time: their mods add.
    """

    SHARES = "shares"
    SHARES_OUTSIDE = "shares outside"


class KindPlayed(NamedTuple):
    """The trials played in one scenario."""

    trials: int = 0  # number of trials, for the search of distinguishers or for their test
    names: tuple[str, ...] = ()  # names of the numbers that were seen beside the model in any of them


@dataclass(frozen=True)
class ClaimAudit:
    """The result of a black-box audit of a claim: its scenarios, the tested distinguishers, and the verdict."""

    claim: StatedClaim  # the claim
    # `violated`, `consistent`, or `inconclusive` where no number of right guesses could have refuted it.
    verdict: Verdict
    attempts: tuple[
        DistinguisherTest, ...
    ]  # the last attempt of every distinguisher that was tried, the most telling first
    refusals: tuple[Refusal, ...]  # the trials that the mechanism refused to play
    pilots: int  # trials that looked for distinguishers, by kind
    # The attempt that looked at nothing but low bits, None if no such distinguisher seemed to break the claim. Where it
    # does, floating-point arithmetic leaks: a claim about real numbers does not cover that, and the verdict leaves it
    # out.
    floating: DistinguisherTest | None = None
    unplayed: tuple[str, ...] = ()  # scenarios for which the time was too short to play any
    untried: tuple[str, ...] = ()  # kinds for which the time was too short to try their distinguishers on fresh trials
    # Scenarios that seemed to break the claim, and for which the budget had no fresh trials: others did more.
    passed_over: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()  # kinds without a single trial: nothing was released, or what differs never arrived
    refused: tuple[str, ...] = ()  # kinds of which every trial was refused, though the input was an ordinary one
    # The attempt that breaks the claim for who knows what all others sent, where the claim covers no such observer and
    # no other attempt breaks it.
    knowing: DistinguisherTest | None = None
    not_covered: NotCovered = NotCovered.SHARES  # the reason why such an attempt refutes nothing
    asked: Mapping[str, KindPlayed] = field(default_factory=dict)  # the trials played in each scenario, by its name
    hindrance: str = ""  # why many trials say nothing about the claim, as a sentence; empty where no reason is known

    @property
    def worst(self) -> DistinguisherTest | None:
        """The attempt with the strongest evidence; None if nothing could be played."""
        return self.attempts[0] if self.attempts else None


def audit_claim(
    claim: StatedClaim,
    kinds: Sequence[str],
    play: Play,
    malformed: frozenset[str],
    said: Callable[[str], str],
    budget: Budget | None = None,
    confidence: float = 0.95,
    tell: Tell = lambda _: None,
    keep: Callable[[ClaimAudit], None] = lambda _: None,
) -> ClaimAudit:
    """Audit a claim by trials.

    If the time ends before fresh trials test a distinguisher, half of the trials that looked for distinguishers test
    what the other half has found, so that all trials that were played are judged.

    Parameters
    ----------
    claim
        The claim under audit.
    kinds
        Names of the scenarios.
    play
        Function that plays trials and raises `OutOfTimeError` when there is no time for more.
    malformed
        Names of the scenarios whose inputs the mechanism may refuse.
    said
        Function that returns the last message with which the mechanism refused a scenario.
    budget
        The number of trials; None for the usual number.
    confidence
        Probability with which a claim that holds is not called violated, above 0.5 and below 1.
    tell
        Function that receives messages on progress.
    keep
        Function that receives the result so far after every distinguisher that was tried, for the case that the audit
        cannot go on.
    """
    budget = budget or Budget()
    refusals, entirely = list[Refusal](), set[str]()
    scout, pilots = min(budget.scout, budget.pilot), 0

    def look(kind: str, trials: Transcripts, present: Flags, fresh: int = budget.stages[-1]) -> list[Distinguisher]:
        found = find_distinguishers(kind, trials, present, claim.limits, fresh)
        # Numbers beside the model may tell where no trial was one; nothing else of such a kind is worth a audit.
        return [distinguisher for distinguisher in found if distinguisher.margin > 0] if kind in silent else found

    scouted, unplayed, silent = dict[str, list[Distinguisher]](), tuple[str, ...](), list[str]()
    looked = dict[str, tuple[Transcripts, Flags]]()
    for place, kind in enumerate(kinds):
        tell(f"looking for distinguishers: {kind} ({place + 1} of {len(kinds)})")
        try:
            trials, present = play(kind, 0, scout)
        except OutOfTimeError:
            unplayed = tuple(kinds[place:])
            break
        pilots += len(present)
        if np.any(trials.refused):
            one, zero = (float(np.mean(trials.refused[which])) for which in (present, ~present))
            refusals.append(Refusal(kind, said(kind), one, zero, is_allowed=kind in malformed))
            if np.all(trials.refused):
                entirely.add(kind)
            if kind in malformed or kind in entirely:
                continue
        if trials.share_of_trials(present) == 0:
            silent.append(kind)
        scouted[kind], looked[kind] = look(kind, trials, present), (trials, present)
    left = list[Distinguisher]()
    if scout < budget.pilot:
        closely = _kept(scouted, budget.kept)
        for kind in closely:
            tell(f"looking closely: {kind}")
            with suppress(OutOfTimeError):
                trials, present = play(kind, 0, budget.pilot)
                if len(present) > len(looked[kind][1]):
                    pilots += len(present) - len(looked[kind][1])
                    scouted[kind], looked[kind] = look(kind, trials, present), (trials, present)
        left = [
            distinguisher
            for distinguisher in _by_bits(scouted)[0]
            if distinguisher.kind not in closely and distinguisher.margin > 0
        ]
        scouted = {kind: scouted[kind] for kind in closely}
    found, low_bits = _by_bits(scouted)
    # Kinds come plainest first, and equals stay in that order.
    found.sort(key=lambda distinguisher: -round(distinguisher.margin, 1 if budget.plainest else 9))
    chosen = found[: min(budget.most, max(budget.tried, sum(distinguisher.margin > 0 for distinguisher in found)))]
    finest = max(
        (distinguisher for distinguisher in low_bits if distinguisher.margin > 0),
        key=lambda distinguisher: distinguisher.margin,
        default=None,
    )
    level = (1 - confidence) / max(1, len(chosen) + (finest is not None))
    passed_over = tuple(
        distinguisher.kind for distinguisher in (*found[len(chosen) :], *left) if distinguisher.margin > 0
    )

    def judged(attempts: Sequence[DistinguisherTest], floating: Sequence[DistinguisherTest] = ()) -> ClaimAudit:
        done = {attempt.distinguisher.kind for attempt in attempts}
        untried = (
            tuple(distinguisher.kind for distinguisher in chosen if distinguisher.kind not in done)
            if not budget.until_broken
            else ()
        )
        ranked = sorted(attempts, key=lambda attempt: attempt.distinguisher.limit.epsilon - attempt.bound)
        return ClaimAudit(
            claim, verdict_of(ranked), tuple(ranked), tuple(refusals), pilots, next(iter(floating), None), unplayed,
            untried, passed_over, tuple(silent),
            tuple(one.kind for one in refusals if not one.is_allowed and one.kind in entirely),
        )  # fmt: skip

    keep(judged(()))
    attempts = _tried(chosen, play, budget, level, tell, lambda so_far: keep(judged(so_far)))
    if not attempts and chosen:
        attempts = _tried_by_halves(looked, look, budget.tried, confidence)
    is_tried = finest is not None and not (budget.until_broken and verdict_of(attempts) is Verdict.VIOLATED)
    floating = _tried([finest], play, budget, level, tell) if finest is not None and is_tried else []
    return judged(attempts, floating)


def _by_bits(scouted: Mapping[str, list[Distinguisher]]) -> tuple[list[Distinguisher], list[Distinguisher]]:
    """Return the distinguishers of all scenarios in two lists: those that use more than low bits, and the others."""
    every = [distinguisher for ranked in scouted.values() for distinguisher in ranked]
    low = [distinguisher for distinguisher in every if distinguisher.group in LOW_BITS]
    return [distinguisher for distinguisher in every if distinguisher not in low], low


def _kept(scouted: Mapping[str, list[Distinguisher]], count: int) -> list[str]:
    """Return the scenarios with the best distinguishers, in order, and that with the best distinguisher of low bits."""
    found, low = (sorted(some, key=lambda distinguisher: -distinguisher.margin) for some in _by_bits(scouted))
    best = {distinguisher.kind for distinguisher in (*found[:count], *low[:1])}
    return [kind for kind in scouted if kind in best]


def _tried_by_halves(
    looked: Mapping[str, tuple[Transcripts, Flags]],
    look: Callable[[str, Transcripts, Flags, int], list[Distinguisher]],
    most: int,
    confidence: float,
) -> list[DistinguisherTest]:
    """Return attempts without fresh trials: half of the search trials train, and the other half test."""
    found = list[tuple[Distinguisher, Transcripts, Flags]]()
    for kind, (trials, present) in looked.items():
        learns = every_second(present)
        if min(np.sum(present[~learns]), np.sum(~present[~learns])) >= FEWEST_OF_EACH // 2:
            ranked = _by_bits({kind: look(kind, trials.taken(learns), present[learns], int(np.sum(~learns)))})[0]
            found += [(distinguisher, trials.taken(~learns), present[~learns]) for distinguisher in ranked]
    # The half that tries a distinguisher had no part in choosing it.
    found.sort(key=lambda one: -one[0].margin)
    level = (1 - confidence) / max(1, len(found[:most]))
    return [_attempt(*one, 1 - level) for one in found[:most]]


def _tried(
    chosen: Sequence[Distinguisher],
    play: Play,
    budget: Budget,
    level: float,
    tell: Tell,
    keep: Callable[[list[DistinguisherTest]], None] = lambda _: None,
) -> list[DistinguisherTest]:
    """Return the final attempts of distinguishers, tested in stages on fresh trials; the best ones pass to the next
    stage.
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


def attempt_of(
    distinguisher: Distinguisher,
    bound: float,
    ceiling: float,
    confidence: float,
    right: Flags,
    scores: Floats,
    trials: Transcripts,
    present: Flags,
    lessons: int = 0,
) -> DistinguisherTest:
    """Return the result of trials for a distinguisher, with its cause.

    Parameters
    ----------
    distinguisher
        The distinguisher that was tested, see `DistinguisherTest`.
    bound
        Lower bound that the trials prove, see `DistinguisherTest`.
    ceiling
        Bound that the trials would have proved if every guess had been right, see `DistinguisherTest`.
    confidence
        Confidence of the bound, see `DistinguisherTest`.
    right
        Whether the distinguisher guessed right in each trial that counts, shape (trials,).
    scores
        Score of each trial that counts, shape (trials,).
    trials
        Transcripts of all trials, including those that do not count.
    present
        Whether D was used in each trial, also in those that do not count, shape (all trials,).
    lessons
        Number of trials at the beginning that do not count, since the rule was learned from them.
    """
    counted = trials.taken(slice(lessons, None))
    return DistinguisherTest(
        distinguisher=distinguisher, bound=bound, confidence=confidence, ceiling=ceiling, trials=len(scores),
        share_of_trials=counted.share_of_trials(present[lessons:]), right=int(right.sum()), scores=scores,
        present=present[lessons:], along=along(counted), lines=telling_lines(trials, present, distinguisher.group),
        cause=cause_of(trials, present, distinguisher.group),
    )  # fmt: skip


def verdict_of(attempts: Sequence[DistinguisherTest]) -> Verdict:
    """Return the verdict on a claim by some attempts."""
    if any(attempt.is_broken for attempt in attempts):
        return Verdict.VIOLATED
    can = any(attempt.ceiling > attempt.distinguisher.limit.epsilon for attempt in attempts)
    return Verdict.CONSISTENT if can else Verdict.INCONCLUSIVE
