"""A claim on trial: games look for leads, fresh games try the best of them, and nothing is assumed of the mechanism.

First every kind of game is played some times, and every group of features is ranked on these games. The few best leads
are then tried on games that nobody has seen, in stages of growing number. The level is shared among leads and stages,
so the probability that a claim that holds is called violated is at most the level, whatever was tried before.
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
from fl_audit.audits.black_box.features import LOW_BITS, along, feature_groups
from fl_audit.audits.black_box.leads import Lead, every_second, leads, margin_of
from fl_audit.audits.black_box.seen import Games
from fl_audit.errors import require
from fl_audit.statistics.lower_bounds import bound_limit, epsilon_lower_bound
from fl_audit.verdict.verdict import Verdict

Play = Callable[[str, int, int], tuple[Games, Flags]]
"""From a kind of game, the number of the first game and how many: what was seen, and whether D was played.

They are fewer games than were asked for where the time was over before the last of them.
"""
Tell = Callable[[str], None]
"""Takes what is going on, in words."""


class OutOfTimeError(Exception):
    """Raised by what plays games if the time for them is over: the trial ends with what it has."""


FEWEST_OF_EACH = 10
"""Games of either truth below which nothing is made of what was played when the time was over."""

CHUNK = 20
"""Games that are played in one go; every part of a budget is a multiple of it."""


@dataclass(frozen=True)
class Budget:
    """How many games are played.

    Raises `InputError` if a number of games is no multiple of `CHUNK`, or the shares do not add up to 1.
    """

    pilot: int = 400  # games that look for leads, of every kind that is looked at closely
    stages: tuple[int, ...] = (1000, 3000, 8000)  # games that try one lead, stage by stage
    shares: tuple[float, ...] = (0.3, 0.3, 0.4)  # share of the level that every stage has; they add up to 1
    tried: int = 3  # leads that are tried at least, each of another kind of game, in the first stage
    most: int = 6  # leads that are tried at most, if so many seem to break the claim
    # Of them, those that are tried in the second stage, if they break nothing; half of these in the next, and so on.
    deep: int = 2
    # Whether the trial ends with the first lead that breaks the claim, and says nothing of the others.
    until_broken: bool = False
    # Whether, of leads that promise about the same, those of the plainer kinds are tried: what a page names first does
    # not hang on luck then.
    plainest: bool = False
    scout: int = 100  # games of every kind that find out which ones to look at closely; no more than `pilot` are played
    kept: int = 12  # kinds that are looked at closely

    def __post_init__(self) -> None:
        for count in (self.scout, self.pilot, *self.stages):
            wrong = f"budget has a part of {count} games: accepted are multiples of {CHUNK} from {2 * CHUNK}"
            require(count % CHUNK == 0 and count >= 2 * CHUNK, wrong)
        require(len(self.stages) == len(self.shares), "budget has stages and shares of different numbers")
        require(abs(sum(self.shares) - 1) < 1e-9, f"shares of the level are {self.shares}: they have to add up to 1")


QUICK = Budget(pilot=120, stages=(400, 1000), shares=(0.5, 0.5), tried=2, most=3, deep=1, scout=40, kept=8)
"""A budget of seconds."""


@dataclass(frozen=True)
class Attempt:
    """What fresh games said of one lead."""

    lead: Lead  # the lead
    bound: float  # lower bound on epsilon at the delta of the lead's limit, at the confidence that this stage has
    confidence: float  # that confidence
    ceiling: float  # the bound that games which never err would have given, of those that were games at all
    games: int  # how many games were played at this stage
    share_of_games: float  # the share of them in which a model was released and the differing contribution arrived
    right: int  # how many of them were guessed right, with a threshold learned before
    scores: Floats  # the score of each game, shape (games,)
    present: Flags  # whether D was played, shape (games,)
    along: Floats  # what was released along the differing contribution, summed over rounds, shape (games,)
    lines: tuple[str, ...]  # the lines of the transcript that tell most
    cause: LeakCause = NO_CAUSE  # why games were told, as far as it can be seen

    @property
    def is_broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.bound > self.lead.limit.epsilon


@dataclass(frozen=True)
class Refusal:
    """Games that the mechanism did not play to the end."""

    kind: str  # the kind of game
    said: str  # what was raised, in one line
    share_present: float  # share of games refused where D was played
    share_absent: float  # share of games refused where D' was played
    is_allowed: bool  # whether the input was malformed, so that refusing it is right


class Unrefuted(StrEnum):
    """Why what only who knows all others' replies can tell does not refute a claim.

    SHARES: the others reply something else each time to the same model: that may be shares of the noise.
    SHARES_OUTSIDE: what they had learned was held still, and something else arrived each time: their modifiers add.
    """

    SHARES = "shares"
    SHARES_OUTSIDE = "shares outside"


class KindPlayed(NamedTuple):
    """What the games of a kind asked."""

    games: int = 0  # how many there were, whether they looked for leads or tried them
    names: tuple[str, ...] = ()  # names of the numbers that were seen beside the model in any of them


@dataclass(frozen=True)
class Trial:
    """What came of a claim."""

    claim: StatedClaim  # the claim
    # `violated`, `consistent`, or `inconclusive` where no number of right guesses could have refuted it.
    verdict: Verdict
    attempts: tuple[Attempt, ...]  # the last attempt of every lead that was tried, the most telling first
    refusals: tuple[Refusal, ...]  # what the mechanism refused to play
    pilots: int  # games that looked for leads, by kind
    # The attempt that looked at nothing but low bits, None if no such lead seemed to break the claim. Where it does,
    # floating-point arithmetic leaks: a claim about real numbers does not cover that, and the verdict leaves it out.
    floating: Attempt | None = None
    unplayed: tuple[str, ...] = ()  # kinds of games for which the time was too short to play any
    untried: tuple[str, ...] = ()  # kinds for which the time was too short to try their leads on fresh games
    # Kinds of games that seemed to break the claim, and for which the budget had no fresh games: others did more.
    passed_over: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()  # kinds without a single game: nothing was released, or what differs never arrived
    refused: tuple[str, ...] = ()  # kinds of which every game was refused, though the input was an ordinary one
    # The attempt that breaks the claim for who knows what all others sent, where the claim covers no such observer and
    # no other attempt breaks it.
    knowing: Attempt | None = None
    unrefuted: Unrefuted = Unrefuted.SHARES  # why that refutes nothing, where there is such an attempt
    asked: Mapping[str, KindPlayed] = field(default_factory=dict)  # what was played of each kind, by its name
    hindrance: str = ""  # why many games say nothing of the claim, as a sentence; empty where nothing is known of it

    @property
    def worst(self) -> Attempt | None:
        """The attempt that went farthest; None if nothing could be played."""
        return self.attempts[0] if self.attempts else None


def put_on_trial(
    claim: StatedClaim,
    kinds: Sequence[str],
    play: Play,
    malformed: frozenset[str],
    said: Callable[[str], str],
    budget: Budget | None = None,
    confidence: float = 0.95,
    tell: Tell = lambda _: None,
    keep: Callable[[Trial], None] = lambda _: None,
) -> Trial:
    """Hold a claim against games.

    Where the time is over before fresh games try a lead, half of the games that looked for leads try what the other
    half has found: whatever was played is judged.

    Parameters
    ----------
    claim, kinds
        The claim; kinds of games, by name.
    play
        Plays games; raises `OutOfTimeError` when there is no time for more.
    malformed, said
        Kinds whose inputs may be refused; what the mechanism said last when it refused a kind.
    budget
        How many games; None for the usual number.
    confidence, tell
        Probability with which a claim that holds is not called violated, above 0.5 and below 1; takes progress.
    keep
        Takes what is to be said if the trial can go on no further, after every lead that was tried.
    """
    budget = budget or Budget()
    refusals, entirely = list[Refusal](), set[str]()
    scout, pilots = min(budget.scout, budget.pilot), 0

    def look(kind: str, games: Games, present: Flags, fresh: int = budget.stages[-1]) -> list[Lead]:
        found = leads(kind, games, present, claim.limits, fresh)
        # Numbers beside the model may tell where no game was one; nothing else of such a kind is worth a trial.
        return [lead for lead in found if lead.margin > 0] if kind in silent else found

    scouted, unplayed, silent = dict[str, list[Lead]](), tuple[str, ...](), list[str]()
    looked = dict[str, tuple[Games, Flags]]()
    for place, kind in enumerate(kinds):
        tell(f"looking for leads: {kind} ({place + 1} of {len(kinds)})")
        try:
            games, present = play(kind, 0, scout)
        except OutOfTimeError:
            unplayed = tuple(kinds[place:])
            break
        pilots += len(present)
        if np.any(games.refused):
            one, zero = (float(np.mean(games.refused[which])) for which in (present, ~present))
            refusals.append(Refusal(kind, said(kind), one, zero, is_allowed=kind in malformed))
            if np.all(games.refused):
                entirely.add(kind)
            if kind in malformed or kind in entirely:
                continue
        if games.share_of_games(present) == 0:
            silent.append(kind)
        scouted[kind], looked[kind] = look(kind, games, present), (games, present)
    left = list[Lead]()
    if scout < budget.pilot:
        closely = _kept(scouted, budget.kept)
        for kind in closely:
            tell(f"looking closely: {kind}")
            with suppress(OutOfTimeError):
                games, present = play(kind, 0, budget.pilot)
                if len(present) > len(looked[kind][1]):
                    pilots += len(present) - len(looked[kind][1])
                    scouted[kind], looked[kind] = look(kind, games, present), (games, present)
        left = [lead for lead in _by_bits(scouted)[0] if lead.kind not in closely and lead.margin > 0]
        scouted = {kind: scouted[kind] for kind in closely}
    found, low_bits = _by_bits(scouted)
    # Kinds come plainest first, and equals stay in that order.
    found.sort(key=lambda lead: -round(lead.margin, 1 if budget.plainest else 9))
    chosen = found[: min(budget.most, max(budget.tried, sum(lead.margin > 0 for lead in found)))]
    finest = max((lead for lead in low_bits if lead.margin > 0), key=lambda lead: lead.margin, default=None)
    level = (1 - confidence) / max(1, len(chosen) + (finest is not None))
    passed_over = tuple(lead.kind for lead in (*found[len(chosen) :], *left) if lead.margin > 0)

    def judged(attempts: Sequence[Attempt], floating: Sequence[Attempt] = ()) -> Trial:
        done = {attempt.lead.kind for attempt in attempts}
        untried = tuple(lead.kind for lead in chosen if lead.kind not in done) if not budget.until_broken else ()
        ranked = sorted(attempts, key=lambda attempt: attempt.lead.limit.epsilon - attempt.bound)
        return Trial(
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


def _by_bits(scouted: Mapping[str, list[Lead]]) -> tuple[list[Lead], list[Lead]]:
    """Return the leads of all kinds: those that look at more than low bits, and the others."""
    every = [lead for ranked in scouted.values() for lead in ranked]
    low = [lead for lead in every if lead.group in LOW_BITS]
    return [lead for lead in every if lead not in low], low


def _kept(scouted: Mapping[str, list[Lead]], count: int) -> list[str]:
    """Return the kinds with the best leads, in their order, and the one with the best lead of low bits."""
    found, low = (sorted(some, key=lambda lead: -lead.margin) for some in _by_bits(scouted))
    best = {lead.kind for lead in (*found[:count], *low[:1])}
    return [kind for kind in scouted if kind in best]


def _tried_by_halves(
    looked: Mapping[str, tuple[Games, Flags]],
    look: Callable[[str, Games, Flags, int], list[Lead]],
    most: int,
    confidence: float,
) -> list[Attempt]:
    """Return attempts without fresh games: half of the games that looked for leads learns, and the other half tries."""
    found = list[tuple[Lead, Games, Flags]]()
    for kind, (games, present) in looked.items():
        learns = every_second(present)
        if min(np.sum(present[~learns]), np.sum(~present[~learns])) >= FEWEST_OF_EACH // 2:
            ranked = _by_bits({kind: look(kind, games.taken(learns), present[learns], int(np.sum(~learns)))})[0]
            found += [(lead, games.taken(~learns), present[~learns]) for lead in ranked]
    # The half that tries a lead had no part in choosing it.
    found.sort(key=lambda one: -one[0].margin)
    level = (1 - confidence) / max(1, len(found[:most]))
    return [_attempt(*one, 1 - level) for one in found[:most]]


def _tried(
    chosen: Sequence[Lead],
    play: Play,
    budget: Budget,
    level: float,
    tell: Tell,
    keep: Callable[[list[Attempt]], None] = lambda _: None,
) -> list[Attempt]:
    """Return the last attempts of leads: stage by stage on fresh games, of which those that tell most see the next."""
    # Which ones these are follows from earlier games, and every stage of a lead has its share of the level anyway.
    first, last = budget.pilot, dict[str, Attempt]()
    going, next_stage = list(chosen), budget.deep
    for stage, share in zip(budget.stages, budget.shares, strict=True):
        for lead in going:
            tell(f"trying {lead.group!r} in {lead.kind}: {stage} fresh games")
            try:
                last[lead.kind] = _attempt(lead, *play(lead.kind, first, stage), 1 - share * level)
            except OutOfTimeError:
                return list(last.values())
            keep(list(last.values()))
            if budget.until_broken and last[lead.kind].is_broken:
                return list(last.values())
        going = [lead for lead in going if not last[lead.kind].is_broken]
        # By how much each will pass its limit on so many fresh games, as far as its last ones say.
        fresh, tried = budget.stages[-1] // 2, [last[lead.kind] for lead in going]
        margins = {one.lead.kind: margin_of(one.scores, one.present, (one.lead.limit,), fresh)[0] for one in tried}
        going = sorted(going, key=lambda lead: -margins[lead.kind])[:next_stage]
        first, next_stage = first + stage, max(1, next_stage // 2)
    return list(last.values())


def _attempt(lead: Lead, games: Games, present: Flags, confidence: float) -> Attempt:
    # A number that none of these games showed is missing in all of them.
    missing = np.tile([0.0, 1.0], (len(games), 1))
    scores = lead.rule(feature_groups(games).get(lead.group, missing))
    one, zero, share = scores[present], scores[~present], games.share_of_games(present)
    bound = epsilon_lower_bound(one, zero, lead.limit.delta, confidence, lead.method).epsilon
    ceiling = bound_limit(lead.method, int(share * one.size), int(share * zero.size), lead.limit.delta, confidence)
    return attempt_of(lead, bound, ceiling, confidence, (scores > lead.threshold) == present, scores, games, present)


def attempt_of(
    lead: Lead,
    bound: float,
    ceiling: float,
    confidence: float,
    right: Flags,
    scores: Floats,
    games: Games,
    present: Flags,
    lessons: int = 0,
) -> Attempt:
    """Return what games said of a lead, with what explains it.

    Parameters
    ----------
    lead, bound, ceiling, confidence, right, scores
        As of `Attempt`; whether each game that counts was guessed right, and its score, shape (games,).
    games, present, lessons
        All games, whether D was played, and how many of them, at the beginning, do not count.
    """
    counted = games.taken(slice(lessons, None))
    return Attempt(
        lead=lead, bound=bound, confidence=confidence, ceiling=ceiling, games=len(scores),
        share_of_games=counted.share_of_games(present[lessons:]), right=int(right.sum()), scores=scores,
        present=present[lessons:], along=along(counted), lines=telling_lines(games, present, lead.group),
        cause=cause_of(games, present, lead.group),
    )  # fmt: skip


def verdict_of(attempts: Sequence[Attempt]) -> Verdict:
    """Return what some attempts make of a claim."""
    if any(attempt.is_broken for attempt in attempts):
        return Verdict.VIOLATED
    can = any(attempt.ceiling > attempt.lead.limit.epsilon for attempt in attempts)
    return Verdict.CONSISTENT if can else Verdict.INCONCLUSIVE
