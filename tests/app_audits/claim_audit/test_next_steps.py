"""The advice after an audit of other people's code removes what left it open; it is no general call for more trials."""

from typing import Any

import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import next_step_words
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit
from fl_audit.verdict.verdict import Verdict

_CLAIM = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("verdict", "open_parts", "remedy"),
    [
        (Verdict.CONSISTENT, {}, "whenever its code"),
        (Verdict.CONSISTENT, {"untried": ("removed",)}, "raise --minutes"),
        (Verdict.INCONCLUSIVE, {"unplayed": ("removed",)}, "raise --minutes"),
        (Verdict.INCONCLUSIVE, {"bare_rounds": (6, 7)}, "--rounds 6"),
        (Verdict.INCONCLUSIVE, {"silent": ("removed",)}, "keeps trials from being played"),
        (Verdict.INCONCLUSIVE, {"refused": ("removed",)}, "keeps trials from being played"),
    ],
)
def test_each_cause_has_a_remedy_of_its_own(verdict: Verdict, open_parts: dict[str, Any], remedy: str) -> None:
    words = next_step_words(ClaimAudit(_CLAIM, verdict, (), (), 40, **open_parts))
    assert remedy in words
    assert "Play more" not in words
