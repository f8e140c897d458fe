"""The result of trials, as it is stored: what was not played is never consistent."""

import pytest

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit
from fl_audit.app_audits.claim_audit.trial_results import in_app_result, strategy_result
from fl_audit.verdict.verdict import Verdict

CLAIM = StatedClaim("add-remove-client", epsilon=1.0, rounds=2)


@pytest.mark.parametrize(
    ("verdict", "rounds", "expected"),
    [
        (Verdict.CONSISTENT, 2, Verdict.CONSISTENT),
        (Verdict.CONSISTENT, None, Verdict.CONSISTENT),
        (Verdict.CONSISTENT, 3, Verdict.INCONCLUSIVE),
        (Verdict.VIOLATED, 3, Verdict.VIOLATED),
    ],
)
def test_rounds_that_no_trial_plays_are_never_consistent(
    verdict: Verdict, rounds: int | None, expected: Verdict
) -> None:
    result = in_app_result("app", ClaimAudit(CLAIM, verdict, (), (), 0), (), rounds, (), ())
    assert result.verdict is expected
    assert (result.scope.rounds, result.scope.played_rounds) == (rounds, 2)
    assert ("2 of its 3 rounds" in result.headline) is (verdict is not expected)


def test_a_strategy_whose_rounds_nobody_named_has_no_claim_about_a_training() -> None:
    audit = ClaimAudit(CLAIM, Verdict.CONSISTENT, (), (), 0)
    assert strategy_result("mine", audit, ()).scope.covers_all_rounds is None
    assert strategy_result("mine", audit, (), rounds=2).scope.covers_all_rounds is True
