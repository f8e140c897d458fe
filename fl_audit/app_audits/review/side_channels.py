"""Results of a review's trials on side channels: parts of clients' replies besides trained parameters.

They are metrics, example counts, buffers (untrained tensors) of the model, and replies to evaluation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fl_audit.app_audits.black_box.scenario import OF_FEW_TENSORS, Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.claim_audit.claim_audit_messages import TOO_FEW, not_tried
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, DistinguisherTest, ScenarioTrialsSummary


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


def _strength(test: DistinguisherTest) -> tuple[float, bool, float]:
    """Return a sort key: the share of right guesses, whether the rule looks at the model itself, and the evidence."""
    is_of_model = not test.distinguisher.group.startswith(tuple(_BESIDE.values()))
    return test.right / test.trials, is_of_model, test.bound - test.distinguisher.limit.epsilon


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

    results_found = []
    broken_tests = [test for result in results for test in result.tests if test.is_broken]
    broken = {test.distinguisher.kind for test in broken_tests}
    summaries = {name: summary for result in results for name, summary in result.asked.items()}
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
        results_found.append(SideChannelResult(aside, bool(tried), trials, share, by, untried, names))
    return tuple(results_found)
