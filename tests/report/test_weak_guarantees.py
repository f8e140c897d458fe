"""A guarantee that excludes nothing a person could object to is called weak, by one rule and in every verdict."""

import math

import pytest
from test_claim_standing import KINDS

from fl_audit.audits.page.first_screen import first_screen, warnings_of
from fl_audit.report.guarantee_warnings import is_weak, is_weak_guarantee
from fl_audit.verdict.verdict import Verdict


@pytest.mark.parametrize("prior", [0.01, 0.5, 0.9])
def test_odds_that_grow_99_times_are_weak_at_any_prior(prior: float) -> None:
    def belief(epsilon: float) -> float:
        odds = math.exp(epsilon) * prior / (1 - prior)
        return odds / (1 + odds)

    assert is_weak(belief(8), 0.5, prior)
    assert is_weak(belief(math.log(99) + 0.01), 0.5, prior)
    assert not is_weak(belief(math.log(99) - 0.01), 0.5, prior)
    assert is_weak(belief(1), 0.91, prior)


@pytest.mark.parametrize("verdict", [Verdict.CONSISTENT, Verdict.VIOLATED, Verdict.INCONCLUSIVE, Verdict.NOT_AUDITED])
@pytest.mark.parametrize("mu", [1.0, 2.5])
def test_a_weak_claim_is_called_so_whatever_the_verdict(make_contents, verdict: Verdict, mu: float) -> None:
    contents = make_contents(**(KINDS[verdict] | {"mu": mu}))
    weak = mu > 2
    assert is_weak_guarantee(contents.guarantee) == weak
    assert any("next to nothing" in line for line in warnings_of(contents)) == weak
    assert ('<p class="label">' in first_screen(contents)) >= weak
