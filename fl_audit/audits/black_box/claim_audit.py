"""Result types of a black-box audit, and the number of trials that it runs; see `claim_trials` for the audit itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.black_box.causes import NO_CAUSE, LeakCause, cause_of, telling_lines
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.distinguishers import Distinguisher
from fl_audit.audits.black_box.features import along
from fl_audit.audits.black_box.transcript import Transcripts
from fl_audit.errors import require
from fl_audit.verdict.verdict import Verdict

Tell = Callable[[str], None]
"""A function that takes progress messages."""


class OutOfTimeError(Exception):
    """Raised by a function that plays trials when the time is over: the audit then ends with the trials so far."""


FEWEST_OF_EACH = 10
"""Number of trials of each truth below which the trials are not judged if the time has run out."""

CHUNK = 20
"""Number of trials played in one call; every part of a budget is a multiple of it."""


@dataclass(frozen=True)
class TrialBudget:
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


QUICK = TrialBudget(pilot=120, stages=(400, 1000), shares=(0.5, 0.5), tried=2, most=3, deep=1, scout=40, kept=8)
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
class IncompleteTrials:
    """The trials of a scenario that the mechanism ended with an error."""

    kind: str  # the scenario
    said: str  # the error message, in one line
    share_present: float  # share of trials refused where D was played
    share_absent: float  # share of trials refused where D' was played
    is_allowed: bool  # whether the input was malformed, so that refusing it is right


class NotRefutingReason(StrEnum):
    """The reason for which a distinguisher that uses the replies of all other clients does not refute a claim.

    SHARES: the others reply differently each time to the same model; the difference may be their shares of the noise.
    SHARES_OUTSIDE: the others' results were fixed, and different values arrived each time; their Flower mods add noise.
    """

    SHARES = "shares"
    SHARES_OUTSIDE = "shares outside"


class ScenarioTrials(NamedTuple):
    """The trials that were run in one scenario."""

    trials: int = 0  # number of trials, for the search of distinguishers or for their test
    names: tuple[str, ...] = ()  # names of the numbers that were seen beside the model in any of them


@dataclass(frozen=True)
class ClaimAudit:
    """The result of a black-box audit of a claim: its scenarios, the tested distinguishers, and the verdict."""

    claim: StatedClaim  # the claim
    # `violated`, `consistent`, or `inconclusive` where no number of right guesses could have refuted it.
    verdict: Verdict
    # The last attempt of every distinguisher that was tried, the most telling first.
    attempts: tuple[DistinguisherTest, ...]
    refusals: tuple[IncompleteTrials, ...]  # the trials that the mechanism refused to play
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
    not_covered: NotRefutingReason = NotRefutingReason.SHARES  # the reason why such an attempt refutes nothing
    asked: Mapping[str, ScenarioTrials] = field(default_factory=dict)  # the trials played in each scenario, by its name
    hindrance: str = ""  # why many trials say nothing about the claim, as a sentence; empty where no reason is known

    @property
    def worst(self) -> DistinguisherTest | None:
        """The test with the strongest evidence against the claim; None if no distinguisher was tested."""
        return self.attempts[0] if self.attempts else None


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
    """Return the result of testing a distinguisher, with the likely cause of a leak.

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
        Whether the distinguisher guessed right in each counted trial, shape (trials,).
    scores
        Score of each counted trial, shape (trials,).
    trials
        Transcripts of all trials, including those that are not counted.
    present
        Whether D was used in each trial, including those that are not counted, shape (all trials,).
    lessons
        Number of initial trials that are not counted, because the rule was trained on them.
    """
    counted = trials.taken(slice(lessons, None))
    return DistinguisherTest(
        distinguisher=distinguisher, bound=bound, confidence=confidence, ceiling=ceiling, trials=len(scores),
        share_of_trials=counted.share_of_trials(present[lessons:]), right=int(right.sum()), scores=scores,
        present=present[lessons:], along=along(counted), lines=telling_lines(trials, present, distinguisher.group),
        cause=cause_of(trials, present, distinguisher.group),
    )  # fmt: skip


def verdict_of(attempts: Sequence[DistinguisherTest]) -> Verdict:
    """Return the verdict on a claim from the tests of distinguishers."""
    if any(attempt.is_broken for attempt in attempts):
        return Verdict.VIOLATED
    can = any(attempt.ceiling > attempt.distinguisher.limit.epsilon for attempt in attempts)
    return Verdict.CONSISTENT if can else Verdict.INCONCLUSIVE
