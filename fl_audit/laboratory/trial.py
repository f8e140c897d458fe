"""A claim on trial: games look for leads, fresh games try the best of them, and nothing is assumed of the mechanism.

First every kind of game is played some times, and every group of features is ranked on these games. The few best leads
are then tried on games that nobody has seen, in stages of growing number. The level is shared among leads and stages,
so the probability that a claim that holds is called violated is at most the level, whatever was tried before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fl_audit.arrays import Flags, Floats
from fl_audit.errors import require
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.evidence.bounds.lower_bounds import epsilon_lower_bound
from fl_audit.laboratory.causes import cause_of
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.features import LOW_BITS, along, feature_groups
from fl_audit.laboratory.leads import Lead, leads
from fl_audit.laboratory.seen import Games
from fl_audit.laboratory.transcript import telling_lines

Play = Callable[[str, int, int], tuple[Games, Flags]]
"""From a kind of game, the number of the first game and how many: what was seen, and whether D was played."""
Tell = Callable[[str], None]
"""Takes what is going on, in words."""

CHUNK = 20
"""Games that are played in one go; every part of a budget is a multiple of it."""


@dataclass(frozen=True)
class Budget:
    """How many games are played.

    Parameters
    ----------
    pilot
        Games of every kind that look for leads.
    stages
        Games that try one lead, stage by stage.
    shares
        Share of the level that every stage has; they add up to 1.
    tried
        Leads that are tried at least, each of another kind of game, in the first stage.
    most
        Leads that are tried at most, if so many seem to break the claim.
    deep
        Of them, those that are tried in the later stages as well, as long as they break nothing.
    until_broken
        Whether the trial ends with the first lead that breaks the claim, and says nothing of the others.

    Raises
    ------
    InputError
        If a number of games is no multiple of `CHUNK`, or the shares do not add up to 1.
    """

    pilot: int = 200
    stages: tuple[int, ...] = (1000, 4000, 12000)
    shares: tuple[float, ...] = (0.3, 0.3, 0.4)
    tried: int = 3
    most: int = 12
    deep: int = 2
    until_broken: bool = False

    def __post_init__(self) -> None:
        for count in (self.pilot, *self.stages):
            wrong = f"budget has a part of {count} games: accepted are multiples of {CHUNK} from {2 * CHUNK}"
            require(count % CHUNK == 0 and count >= 2 * CHUNK, wrong)
        require(len(self.stages) == len(self.shares), "budget has stages and shares of different numbers")
        require(abs(sum(self.shares) - 1) < 1e-9, f"shares of the level are {self.shares}: they have to add up to 1")


QUICK = Budget(pilot=120, stages=(600, 2000), shares=(0.5, 0.5), tried=2, most=8, deep=1)
"""A budget of seconds."""


@dataclass(frozen=True)
class Attempt:
    """What fresh games said of one lead.

    Parameters
    ----------
    lead
        The lead.
    bound
        Lower bound on epsilon at the delta of the lead's limit, at the confidence that this stage has.
    confidence
        That confidence.
    ceiling
        The bound that games which never err would have given.
    games
        How many games were played at this stage.
    right
        How many of them were guessed right, with a threshold learned before.
    scores, present
        The scores and what was played, shape (games,).
    along
        What was released along the differing contribution, summed over rounds, shape (games,).
    lines
        The lines of the transcript that tell most.
    cause
        Why games were told, as far as it can be seen; empty where it cannot.
    """

    lead: Lead
    bound: float
    confidence: float
    ceiling: float
    games: int
    right: int
    scores: Floats
    present: Flags
    along: Floats
    lines: tuple[str, ...]
    cause: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.bound > self.lead.limit.epsilon


@dataclass(frozen=True)
class Refusal:
    """Games that the mechanism did not play to the end.

    Parameters
    ----------
    kind
        The kind of game.
    said
        What was raised, in one line.
    share_present, share_absent
        Share of games refused where D was played, and where D' was.
    is_allowed
        Whether the input was malformed, so that refusing it is right.
    """

    kind: str
    said: str
    share_present: float
    share_absent: float
    is_allowed: bool


@dataclass(frozen=True)
class Trial:
    """What came of a claim.

    Parameters
    ----------
    claim
        The claim.
    verdict
        `violated`, `consistent`, or `inconclusive` where no number of right guesses could have refuted it.
    attempts
        The last attempt of every lead that was tried, the most telling first.
    refusals
        What the mechanism refused to play.
    pilots
        Games that looked for leads, by kind.
    floating
        The attempt that looked at nothing but low bits, None if no such lead seemed to break the claim. Where it does,
        floating-point arithmetic leaks: a claim about real numbers does not cover that, and the verdict leaves it out.
    """

    claim: StatedClaim
    verdict: Verdict
    attempts: tuple[Attempt, ...]
    refusals: tuple[Refusal, ...]
    pilots: int
    floating: Attempt | None = None

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
) -> Trial:
    """Hold a claim against games.

    Parameters
    ----------
    claim
        The claim.
    kinds
        Kinds of games, by name.
    play
        Plays games.
    malformed
        Kinds whose inputs may be refused.
    said
        What the mechanism said last when it refused a kind.
    budget
        How many games; None for the usual number.
    confidence
        Probability with which a claim that holds is not called violated, above 0.5 and below 1.
    tell
        Takes progress.
    """
    budget = budget or Budget()
    found, low_bits = list[Lead](), list[Lead]()
    refusals = list[Refusal]()
    for place, kind in enumerate(kinds):
        tell(f"looking for leads: {kind} ({place + 1} of {len(kinds)})")
        games, present = play(kind, 0, budget.pilot)
        if np.any(games.refused):
            refusal = _refusal(kind, said(kind), games, present, kind in malformed)
            refusals.append(refusal)
            if refusal.is_allowed or np.all(games.refused):
                continue
        ranked = leads(kind, games, present, claim.limits, budget.stages[-1])
        found += [lead for lead in ranked if lead.group not in LOW_BITS][:1]
        low_bits += [lead for lead in ranked if lead.group in LOW_BITS and lead.margin > 0][:1]
    found.sort(key=lambda lead: -lead.margin)
    chosen = found[: min(budget.most, max(budget.tried, sum(lead.margin > 0 for lead in found)))]
    finest = max(low_bits, key=lambda lead: lead.margin, default=None)
    level = (1 - confidence) / max(1, len(chosen) + (finest is not None))
    attempts = list[Attempt]()
    for place, lead in enumerate(chosen):
        attempts.append(_tried(lead, play, budget, level, place < budget.deep, tell))
        if budget.until_broken and attempts[-1].is_broken:
            break
    attempts.sort(key=lambda attempt: attempt.lead.limit.epsilon - attempt.bound)
    verdict = _verdict(attempts)
    is_tried = finest is not None and not (budget.until_broken and verdict is Verdict.VIOLATED)
    floating = _tried(finest, play, budget, level, True, tell) if finest is not None and is_tried else None
    return Trial(claim, verdict, tuple(attempts), tuple(refusals), budget.pilot * len(kinds), floating)


def _refusal(kind: str, said: str, games: Games, present: Flags, is_allowed: bool) -> Refusal:
    return Refusal(
        kind, said, float(np.mean(games.refused[present])), float(np.mean(games.refused[~present])), is_allowed
    )


def _tried(lead: Lead, play: Play, budget: Budget, level: float, is_deep: bool, tell: Tell) -> Attempt:
    """Try a lead on fresh games, stage by stage, until it breaks the claim or all its stages are played."""
    first = budget.pilot
    attempt: Attempt | None = None
    stages = list(zip(budget.stages, budget.shares, strict=True))
    # A lead with one stage has the level to itself.
    for stage, share in stages if is_deep else [(budget.stages[0], 1.0)]:
        tell(f"trying {lead.group!r} in {lead.kind}: {stage} fresh games")
        games, present = play(lead.kind, first, stage)
        first += stage
        attempt = _attempt(lead, games, present, 1 - share * level)
        if attempt.is_broken:
            break
    assert attempt is not None
    return attempt


def _scores(lead: Lead, games: Games) -> Floats:
    """Score games by a lead; a number that none of these games showed is missing in all of them."""
    missing = np.tile([0.0, 1.0], (len(games), 1))
    return lead.rule(feature_groups(games).get(lead.group, missing))


def _attempt(lead: Lead, games: Games, present: Flags, confidence: float) -> Attempt:
    scores = _scores(lead, games)
    one, zero = scores[present], scores[~present]
    limit = lead.limit
    bound = epsilon_lower_bound(one, zero, limit.delta, confidence, lead.method)
    right = int(np.sum((scores > lead.threshold) == present))
    ceiling = bound.limit_of_detection
    lines = telling_lines(games, present, lead.group)
    cause = cause_of(games, present, lead.group)
    seen = along(games)
    return Attempt(lead, bound.epsilon, confidence, ceiling, len(scores), right, scores, present, seen, lines, cause)


def _verdict(attempts: Sequence[Attempt]) -> Verdict:
    if any(attempt.is_broken for attempt in attempts):
        return Verdict.VIOLATED
    can = [attempt for attempt in attempts if attempt.ceiling > attempt.lead.limit.epsilon]
    return Verdict.CONSISTENT if can else Verdict.INCONCLUSIVE
