"""The groups of a review's scenarios: the mechanism itself, what is released beside it, and unusual replies.

A fault of the mechanism says more than any other, so its scenarios are played first, with the whole budget.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from fl_audit.app_audits.black_box.scenario import OF_FEW_TENSORS, ClientContribution, Direction, ReplyFault
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    ClaimAudit,
    DistinguisherTest,
    verdict_of,
    without_broken_readings,
)
from fl_audit.app_audits.review.side_channels import NUMBERS
from fl_audit.verdict.verdict import Verdict


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
    return tuple(test for test in claim_audit.tests if test.is_broken and group_of_test(test) is group)


def is_mechanism_as_claimed(claim_audit: ClaimAudit) -> bool:
    """Return whether the tests in scenarios of the mechanism, by themselves, are consistent with the claim."""
    return _verdict_on_mechanism(claim_audit) is Verdict.CONSISTENT


def _verdict_on_mechanism(claim_audit: ClaimAudit) -> Verdict:
    tests = [test for test in claim_audit.tests if group_of_test(test) is ScenarioGroup.MECHANISM]
    return verdict_of(tests)


def of_mechanism(claim_audit: ClaimAudit) -> ClaimAudit:
    """Return the audit without the tests of other groups that refute the claim, and with the verdict of the rest."""
    tests = tuple(
        test for test in claim_audit.tests if not test.is_broken or group_of_test(test) is ScenarioGroup.MECHANISM
    )
    if any(test.is_broken for test in tests):
        return replace(claim_audit, tests=tests)
    return replace(claim_audit, tests=tests, verdict=_verdict_on_mechanism(claim_audit))


def merged(claim_audit: ClaimAudit, second: ClaimAudit) -> ClaimAudit:
    """Return two audits of one claim, in different scenarios, as one audit.

    It is `violated` if one of them is. Otherwise it has the verdict of the first, unless readings of the second
    contradict this verdict.
    """
    is_violated = Verdict.VIOLATED in (claim_audit.verdict, second.verdict)
    verdict = without_broken_readings(claim_audit.verdict, second.tests)
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
        asked={**claim_audit.asked, **second.asked},
        hindrance=claim_audit.hindrance or second.hindrance,
    )


def _weakest_last(test: DistinguisherTest) -> tuple[bool, float]:
    return not test.is_broken, test.distinguisher.limit.epsilon - test.bound


def split(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of the mechanism's scenarios among `names`, and all other names."""
    first = [name for name in names if group_of(name) is ScenarioGroup.MECHANISM]
    return first, [name for name in names if name not in first]
