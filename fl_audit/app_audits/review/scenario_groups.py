"""The groups of a review's scenarios: the mechanism itself, what is released beside it, and unusual replies.

A fault of the mechanism says more than any other, so its scenarios are played first, with the whole budget. What is
released beside the model are side channels: metrics, example counts, buffers (untrained tensors) of the model, and
replies to evaluation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fl_audit.app_audits.black_box.scenario import OF_FEW_TENSORS, ClientContribution, Direction, ReplyFault, Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.claim_audit.claim_audit_messages import TOO_FEW, not_tried
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    ClaimAudit,
    DistinguisherTest,
    ScenarioTrialsSummary,
    leave_open,
    verdict_of,
)
from fl_audit.verdict.verdict import Verdict, with_doubt


class ScenarioGroup(StrEnum):
    """A group of scenarios, in the order in which a review names what they found."""

    MECHANISM = "noise and clipping"  # ordinary updates of any length and direction
    BESIDE = "beside the model"  # numbers of examples, metrics, and tensors that are no parameters
    EDGES = "unusual replies"  # updates of exactly zero, and replies that are missing or malformed


def group_of(name: str) -> ScenarioGroup:
    """Return the group of a scenario, given its name."""
    kind = BY_NAME[name]
    contributions = [
        contribution
        for contribution in (kind.present, kind.absent, kind.others)
        if isinstance(contribution, ClientContribution)
    ]
    if any(
        contribution.form is not ReplyFault.PLAIN or contribution.direction is Direction.ZERO
        for contribution in contributions
    ):
        return ScenarioGroup.EDGES
    is_beside = kind.plain_name in (*NUMBERS.values(), "many examples") or kind.present.direction in OF_FEW_TENSORS
    return ScenarioGroup.BESIDE if is_beside else ScenarioGroup.MECHANISM


def group_of_test(test: DistinguisherTest) -> ScenarioGroup:
    """Return the group of a test: that of its scenario, or `BESIDE` if it looks at a number beside the model.

    What a number tells of an unusual reply is a matter of this reply.
    """
    group = group_of(test.distinguisher.kind)
    return ScenarioGroup.BESIDE if test.is_beside_model and group is ScenarioGroup.MECHANISM else group


def broken_tests(claim_audit: ClaimAudit, group: ScenarioGroup) -> tuple[DistinguisherTest, ...]:
    """Return the tests in a group's scenarios that refute the claim."""
    return tuple(test for test in claim_audit.tests if test.refutes_claim and group_of_test(test) is group)


def tests_of_metrics(beside: ClaimAudit | None) -> tuple[DistinguisherTest, ...]:
    """Return the tests that tell by the metrics of clients alone, of an audit of what is released beside the model."""
    tests = () if beside is None else beside.tests
    return tuple(test for test in tests if test.is_broken and BY_NAME[test.distinguisher.kind].differs_in_metrics)


def is_mechanism_as_claimed(claim_audit: ClaimAudit) -> bool:
    """Return whether the tests in scenarios of the mechanism, by themselves, are consistent with the claim."""
    return _verdict_on_mechanism(claim_audit) is Verdict.CONSISTENT


def _verdict_on_mechanism(claim_audit: ClaimAudit) -> Verdict:
    tests = [test for test in claim_audit.tests if group_of_test(test) is ScenarioGroup.MECHANISM]
    return verdict_of(tests)


def of_mechanism(claim_audit: ClaimAudit) -> ClaimAudit:
    """Return the audit without the tests of other groups that refute the claim, and with the verdict of the rest."""
    tests = tuple(
        test for test in claim_audit.tests if not test.refutes_claim or group_of_test(test) is ScenarioGroup.MECHANISM
    )
    if any(test.refutes_claim for test in tests):
        return replace(claim_audit, tests=tests)
    return replace(claim_audit, tests=tests, verdict=_verdict_on_mechanism(claim_audit))


def merged(claim_audit: ClaimAudit, second: ClaimAudit) -> ClaimAudit:
    """Return two audits of one claim, in different scenarios, as one audit.

    It is `violated` if one of them is. Otherwise it has the verdict of the first, unless the tests of the second
    contradict this verdict.
    """
    is_violated = Verdict.VIOLATED in (claim_audit.verdict, second.verdict)
    verdict = with_doubt(claim_audit.verdict, leave_open(second.tests))
    floats = [test for test in (claim_audit.floating, second.floating) if test is not None]
    knowing = claim_audit if claim_audit.knowing is not None else second
    return replace(
        claim_audit,
        verdict=Verdict.VIOLATED if is_violated else verdict,
        tests=tuple(sorted((*claim_audit.tests, *second.tests), key=_weakest_last)),
        refusals=claim_audit.refusals + second.refusals,
        pilots=claim_audit.pilots + second.pilots,
        floating=max(floats, key=lambda test: test.is_broken, default=None),
        unplayed=claim_audit.unplayed + second.unplayed,
        untried=claim_audit.untried + second.untried,
        passed_over=claim_audit.passed_over + second.passed_over,
        passed_over_within=claim_audit.passed_over_within + second.passed_over_within,
        silent=claim_audit.silent + second.silent,
        refused=claim_audit.refused + second.refused,
        knowing=knowing.knowing,
        not_covered=knowing.not_covered,
        trial_summaries={**claim_audit.trial_summaries, **second.trial_summaries},
        hindrance=claim_audit.hindrance or second.hindrance,
    )


def _weakest_last(test: DistinguisherTest) -> tuple[bool, float]:
    return not test.is_broken, test.distinguisher.limit.epsilon - test.bound


def split(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of the mechanism's scenarios among `names`, and all other names."""
    first = [name for name in names if group_of(name) is ScenarioGroup.MECHANISM]
    return first, [name for name in names if name not in first]


class SideChannel(StrEnum):
    """A part of clients' replies, besides trained parameters, that may leak information."""

    METRICS = "metrics"
    EXAMPLES = "example counts"
    BUFFERS = "buffers"
    EVALUATION = "evaluation replies"


NUMBERS = {
    SideChannel.METRICS: "metrics",
    SideChannel.EXAMPLES: "more examples than true",
    SideChannel.EVALUATION: "evaluation",
}
"""Name of the scenario that tests a side channel alone, keyed by side channel; it is run even without a claim."""


@dataclass(frozen=True)
class SideChannelResult:
    """Result of the trials on one side channel: whether they told D from D', and which scenarios gave no result."""

    aside: SideChannel  # the side channel
    is_played: bool  # whether trials on the side channel were run
    trials: int = 0  # number of trials on the side channel, over all scenarios
    # Largest share of right guesses among the distinguishers (rules that tell D from D') that refuted the claim; None
    # if none did.
    share: float | None = None
    by: str | None = None  # features that the distinguisher with this share uses; None if there is none
    # Whether only clients of the trials are known to report the number that these features are.
    is_of_trials_alone: bool = False
    # Names of scenarios on the side channel without a result, keyed by the reason.
    untried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # names of the metrics that occurred in these trials


_BESIDE = {SideChannel.METRICS: "metrics: ", SideChannel.EVALUATION: "evaluation: "}
"""Prefix of the names of a side channel's numbers in transcripts, keyed by side channel."""


def _unknown(claim_audit: ClaimAudit) -> dict[str, tuple[str, ...]]:
    """Return the names of the scenarios without a result or with too few trials, keyed by the reason."""
    weak = tuple(
        test.distinguisher.kind for test in claim_audit.tests if test.ceiling <= test.distinguisher.limit.epsilon
    )
    return {why: kinds for why, kinds in not_tried(claim_audit).items() if why != TOO_FEW} | (
        {TOO_FEW: weak} if weak else {}
    )


def _strength(test: DistinguisherTest) -> tuple[bool, float, bool, float]:
    """Return a sort key: the share of right guesses, whether the rule looks at the model itself, and the evidence.

    What an app is known to release comes before what only clients of the trials report.
    """
    is_of_model = not test.distinguisher.group.startswith(tuple(_BESIDE.values()))
    evidence = test.bound - test.distinguisher.limit.epsilon
    return test.refutes_claim, test.right / test.trials, is_of_model, evidence


def _channel_of_number(test: DistinguisherTest) -> SideChannel | None:
    """Return the side channel of the number that a test looks at; None if it looks at the model."""
    group = test.distinguisher.group
    return next((channel for channel, start in _BESIDE.items() if group.startswith(start)), None)


def side_channel_results(results: Sequence[ClaimAudit], kinds: Sequence[str]) -> tuple[SideChannelResult, ...]:
    """Return for each side channel whether the trials found a leak through it.

    `results`: Some audits attack the released model, others the numbers that are released beside it.
    """

    def is_about(channel: SideChannel, scenario: Scenario) -> bool:
        if channel is SideChannel.BUFFERS:
            return scenario.present.direction in OF_FEW_TENSORS
        return scenario.plain_name == NUMBERS[channel] or (
            channel is SideChannel.EXAMPLES and scenario.plain_name == "many examples"
        )

    channel_results = []
    broken_tests = [test for result in results for test in result.tests if test.is_broken]
    broken = {test.distinguisher.kind for test in broken_tests}
    summaries = {name: summary for result in results for name, summary in result.trial_summaries.items()}
    for aside in SideChannel:
        # A number is tested in one of the scenarios that release it, whichever tells most.
        tests = [
            test
            for test in broken_tests
            if _channel_of_number(test) is aside or is_about(aside, BY_NAME[test.distinguisher.kind])
        ]
        worst = max(tests, key=_strength, default=None)
        share, by = (None, None) if worst is None else (worst.right / worst.trials, worst.distinguisher.group)
        about = [name for name in kinds if is_about(aside, BY_NAME[name])]
        untried = {
            why: named_numbers
            for result in results
            for why, names in _unknown(result).items()
            if (named_numbers := tuple(name for name in names if name in about and name not in broken))
        }
        untried_names = {name for names in untried.values() for name in names}
        tried = [summaries.get(name, ScenarioTrialsSummary()) for name in about if name not in untried_names]
        start = _BESIDE.get(aside, "")
        numbers = dict.fromkeys(
            name.removeprefix(start) for summary in tried for name in summary.names if name.startswith(start)
        )
        trials = sum(summary.trials for summary in tried)
        names = tuple(numbers) if start else ()
        is_of_trials_alone = worst is not None and worst.is_of_trials_alone
        channel_results.append(
            SideChannelResult(aside, bool(tried), trials, share, by, is_of_trials_alone, untried, names)
        )
    return tuple(channel_results)
