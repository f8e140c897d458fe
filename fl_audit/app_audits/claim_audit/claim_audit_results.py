"""Results of a black-box audit, the verdict on them, and the number of trials.

A distinguisher is a rule that tells D from D'.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.distinguishers import Distinguisher, FeatureSort
from fl_audit.app_audits.claim_audit.features import summed_projections
from fl_audit.app_audits.claim_audit.gaussian_mu_estimate import GaussianMuEstimate, estimate_gaussian_mu
from fl_audit.app_audits.claim_audit.leak_causes import LeakCause, cause_of, telling_lines
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.verdict.verdict import Verdict, verdict_on

Tell = Callable[[str], None]
"""A function that takes progress messages."""


class OutOfTimeError(Exception):
    """Raised when the time for trials is over; the audit is then decided by the trials that have been run."""


FEWEST_OF_EACH = 10
"""Smallest number of trials with D, and also with D', from which an audit that ran out of time is judged."""

CHUNK = 20
"""Number of trials played in one call; every number of trials in a `TrialBudget` is a multiple of it."""


@dataclass(frozen=True)
class TrialBudget:
    """Numbers of trials and distinguishers that each stage of a black-box audit uses.

    Raises `InputError` if a number of trials is not a multiple of `CHUNK` or is below 2 * `CHUNK`. The error is also
    raised if `stages` and `shares` differ in length, or if the shares do not add up to 1.
    """

    pilot: int = 400  # number of search trials for each scenario that passes the first search
    stages: tuple[int, ...] = (1000, 3000, 8000)  # number of fresh trials for each distinguisher, by stage
    shares: tuple[float, ...] = (0.3, 0.3, 0.4)  # share of the significance level for each stage; they add up to 1
    fewest_tests: int = 3  # smallest number of distinguishers that are tested in the first stage
    most_tests: int = 6  # largest number of distinguishers that are tested in the first stage
    # Number of distinguishers that are tested in the second stage. Each later stage tests half as many, at least one.
    deep: int = 2
    # Whether the audit ends with the first distinguisher that refutes the claim, without testing the others.
    until_broken: bool = False
    # Whether distinguishers with almost equal margins are ordered by scenario, the plainest first, and not by chance.
    plainest: bool = False
    scout: int = 100  # number of trials of each scenario in the first search; at most `pilot` are played
    passing_scenarios: int = 12  # number of scenarios that pass the first search

    def __post_init__(self) -> None:
        for count in (self.scout, self.pilot, *self.stages):
            wrong = f"budget has a part of {count} trials: accepted are multiples of {CHUNK} from {2 * CHUNK}"
            require(count % CHUNK == 0 and count >= 2 * CHUNK, wrong)
        require(len(self.stages) == len(self.shares), "budget has stages and shares of different numbers")
        require(abs(sum(self.shares) - 1) < 1e-9, f"shares of the level are {self.shares}: they have to add up to 1")


QUICK = TrialBudget(
    pilot=120,
    stages=(400, 1000),
    shares=(0.5, 0.5),
    fewest_tests=2,
    most_tests=3,
    deep=1,
    scout=40,
    passing_scenarios=8,
)
"""A budget for tests of a few seconds."""


@dataclass(frozen=True)
class DistinguisherTest:
    """The result of testing one distinguisher on fresh trials."""

    distinguisher: Distinguisher  # the tested distinguisher
    bound: float  # lower bound on epsilon, at the delta of the tested inequality
    confidence: float  # the confidence of the bound
    ceiling: float  # the bound that this number of valid trials gives if every guess is right
    trials: int  # number of trials of the test
    share_of_trials: float  # share of valid trials: a model was released, and the differing contribution arrived
    right: int  # number of trials guessed right, with a threshold learned on earlier trials
    scores: Floats  # the score of each trial, shape (trials,)
    present: Flags  # true for trials with D, false for trials with D', shape (trials,)
    along: Floats  # releases projected on the differing contribution, summed over rounds, shape (trials,)
    lines: tuple[str, ...]  # lines of text on the values that differ most between D and D'
    cause: LeakCause | None = None  # the likely cause of a difference, if known
    noise: GaussianMuEstimate | None = None  # the estimated noise; None if the noise does not look Gaussian
    # Whether the rule looks at a number that only clients of the trials are known to report. Whether the app's own
    # clients report it is not seen, so the test refutes nothing.
    is_of_trials_alone: bool = False

    @property
    def is_beside_model(self) -> bool:
        """Whether the rule looks at a number that is released beside the model."""
        return self.distinguisher.sort is FeatureSort.BESIDE_MODEL

    @property
    def is_broken(self) -> bool:
        """Whether the lower bound exceeds the claimed epsilon."""
        return self.bound > self.distinguisher.limit.epsilon

    @property
    def refutes_claim(self) -> bool:
        """Whether the test refutes the claim, by what an app is known to release."""
        return self.is_broken and not self.is_of_trials_alone


@dataclass(frozen=True)
class TrialErrorShares:
    """The shares of a scenario's trials with D, and of its trials with D', that ended with a certain error.

    The error was raised by the mechanism.
    """

    kind: str  # name of the scenario
    error: str  # the error message, in one line
    share_present: float  # share of the trials with D that ended with an error, from 0 to 1
    share_absent: float  # share of the trials with D' that ended with an error, from 0 to 1
    is_allowed: bool  # whether the input was malformed, so that an error is a correct reply


class OthersNoiseShareReason(StrEnum):
    """Reason why a test that uses the other clients' replies does not refute a claim: they may contain noise.

    SHARES: to the same model, the other clients reply differently each time. The difference may be their share of the
    noise. SHARES_OUTSIDE: the other clients' results were fixed, but different values arrived each time. So Flower
    mods, which run code around a client, may add noise.
    """

    SHARES = "shares"
    SHARES_OUTSIDE = "shares outside"


class ScenarioTrialsSummary(NamedTuple):
    """The number of trials in one scenario, and the names of released numbers, such as metrics, besides the model."""

    trials: int = 0  # number of trials, for the search and for the tests together
    names: tuple[str, ...] = ()  # names of the numbers that any trial released besides the model


@dataclass(frozen=True)
class ClaimAudit:
    """The result of a black-box audit of a claim: tested distinguishers, scenarios without a test, and the verdict.

    It is the evidence behind an `AuditResult`, with the scores that its figures draw; a review has several of them.
    """

    claim: StatedClaim  # the audited claim
    # `violated`, `consistent`, or `inconclusive` if even right guesses in all trials could not have refuted the claim.
    verdict: Verdict
    # The last test of each tested distinguisher, the one with the strongest evidence against the claim first.
    tests: tuple[DistinguisherTest, ...]
    refusals: tuple[TrialErrorShares, ...]  # scenarios with trials that the mechanism ended with an error
    pilots: int  # number of search trials over all scenarios
    # The test of a distinguisher that uses only low bits; None if no such distinguisher seemed to refute the claim. If
    # this test exceeds the claimed epsilon, floating-point arithmetic leaks. The verdict ignores such a leak, because
    # a claim about real numbers does not cover it.
    floating: DistinguisherTest | None = None
    unplayed: tuple[str, ...] = ()  # names of the scenarios without any trial, because the time ran out
    untried: tuple[str, ...] = ()  # names of the scenarios without fresh trials, because the time ran out
    # Names of the scenarios that may refute the claim, but got no fresh trials because others seemed better.
    passed_over: tuple[str, ...] = ()
    # Those of them whose search trials were within the claim; the search trials of the others seem to refute it.
    passed_over_within: tuple[str, ...] = ()
    # Names of the scenarios without a valid trial: nothing was released, or the differing contribution never arrived.
    silent: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()  # names of the scenarios whose trials all ended with an error, despite valid input
    # The test that refutes the claim for an adversary who knows the replies of all other clients; None if the claim
    # covers such an adversary, or if another test refutes the claim.
    knowing: DistinguisherTest | None = None
    # The reason why `knowing` does not refute the claim.
    not_covered: OthersNoiseShareReason = OthersNoiseShareReason.SHARES
    # The trials of each scenario, keyed by its name.
    trial_summaries: Mapping[str, ScenarioTrialsSummary] = field(default_factory=dict)
    # Numbers of the rounds after those of the claim in which the strategy releases without its noise.
    bare_rounds: tuple[int, ...] = ()
    hindrance: str = ""  # why many trials are not valid, as a sentence; empty if no reason is known

    @property
    def worst(self) -> DistinguisherTest | None:
        """The test with the strongest evidence against the claim; None if no distinguisher was tested."""
        return self.tests[0] if self.tests else None


def distinguisher_test(
    distinguisher: Distinguisher,
    claim: StatedClaim,
    bound: float,
    ceiling: float,
    confidence: float,
    right: Flags,
    scores: Floats,
    transcripts: Transcripts,
    present: Flags,
    lessons: int = 0,
    is_of_trials_alone: bool = False,
) -> DistinguisherTest:
    """Return the result of testing a distinguisher on trials, completed with the likely cause of a leak.

    The first `lessons` trials trained the distinguisher. All later trials are *counted*: they test it.

    Parameters
    ----------
    distinguisher
        The tested distinguisher.
    claim
        The audited claim.
    bound
        Lower bound on epsilon that the trials prove.
    ceiling
        Lower bound on epsilon that the trials would have proved if every guess had been right.
    confidence
        Confidence of `bound`.
    right
        Whether the guess was right, for each counted trial, shape (counted trials,).
    scores
        Score that the distinguisher gave each counted trial, shape (counted trials,).
    transcripts
        Transcripts of all trials, counted or not.
    present
        True for trials with D, false for trials with D', shape (all trials,).
    lessons
        Number of first trials, which are not counted.
    is_of_trials_alone
        Whether only clients of the trials are known to report the number that the distinguisher looks at.
    """
    counted_transcripts = transcripts.select_trials(slice(lessons, None))
    counted_present = present[lessons:]
    along = summed_projections(counted_transcripts)
    return DistinguisherTest(
        distinguisher=distinguisher,
        bound=bound,
        confidence=confidence,
        ceiling=ceiling,
        trials=len(scores),
        share_of_trials=counted_transcripts.share_of_trials(counted_present),
        right=int(right.sum()),
        scores=scores,
        present=counted_present,
        along=along,
        lines=telling_lines(transcripts, present, distinguisher.group),
        cause=cause_of(transcripts, present, distinguisher.group),
        noise=estimate_gaussian_mu(along, counted_present, claim.allowed_mu),
        is_of_trials_alone=is_of_trials_alone,
    )


def verdict_of(tests: Sequence[DistinguisherTest]) -> Verdict:
    """Return the verdict on a claim from the tests of distinguishers.

    It is VIOLATED if a test refutes the claim. It is CONSISTENT if no test refutes the claim, at least one test would
    have refuted it if all guesses had been right, and the tests leave nothing open (see `leave_open`).
    Otherwise it is INCONCLUSIVE.
    """
    can_refute = any(test.ceiling > test.distinguisher.limit.epsilon for test in tests)
    return verdict_on(any(test.refutes_claim for test in tests), can_refute and not leave_open(tests))


def leave_open(tests: Sequence[DistinguisherTest]) -> bool:
    """Return whether tests leave something open, so that no verdict is consistent.

    They leave open a reading of Gaussian noise that contradicts the claim, and a number that tells more than the claim
    allows and that only clients of the trials are known to report.
    """
    return bool(broken_estimates(tests)) or bool(numbers_of_trials(tests))


def numbers_of_trials(tests: Sequence[DistinguisherTest]) -> tuple[str, ...]:
    """Return the numbers that tell more than the claim allows, and that only clients of the trials report."""
    return tuple(dict.fromkeys(test.distinguisher.group for test in tests if test.is_broken and not test.refutes_claim))


def broken_estimates(tests: Sequence[DistinguisherTest]) -> list[GaussianMuEstimate]:
    """Return the estimates of the noise in tests whose lower bound on mu exceeds the claim."""
    return [test.noise for test in tests if test.noise is not None and test.noise.is_broken]
