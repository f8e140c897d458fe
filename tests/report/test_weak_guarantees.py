"""A guarantee that excludes nothing a person could object to is called weak, by one rule and in every verdict."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import claim_warning
from fl_audit.app_audits.review.claims import StatedAppClaim, stated_claim_warning
from fl_audit.audits.membership.sections_attacks import _allowed
from fl_audit.audits.page.engineer_part import warnings_of
from fl_audit.audits.page.first_screen import first_screen
from fl_audit.audits.page.report_page import render_html
from fl_audit.cli.main import app
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.report.guarantee_warnings import is_weak, is_weak_guarantee, weak_claim_warning, weakness_warning
from fl_audit.report.report_elements import ReportContents, ReportNumber
from fl_audit.statistics.claim_comparisons import Reading, finding_text
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import NO_LIMIT, limit_text, percent
from tests.report.conftest import KINDS

MakeContents = Callable[..., ReportContents]


@pytest.mark.parametrize("prior", [0.01, 0.5, 0.9])
def test_odds_that_grow_99_times_are_weak_at_any_prior(prior: float) -> None:
    def belief(epsilon: float) -> float:
        odds = math.exp(epsilon) * prior / (1 - prior)
        return odds / (1 + odds)

    assert is_weak(belief(8), 0.5, prior)
    assert is_weak(belief(math.log(99) + 0.01), 0.5, prior)
    assert not is_weak(belief(math.log(99) - 0.01), 0.5, prior)
    assert is_weak(belief(1), 0.91, prior)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("verdict", [Verdict.CONSISTENT, Verdict.VIOLATED, Verdict.INCONCLUSIVE, Verdict.NOT_AUDITED])
@pytest.mark.parametrize("mu", [1.0, 2.5])
def test_a_weak_claim_is_called_so_whatever_the_verdict(make_contents, verdict: Verdict, mu: float) -> None:
    contents = make_contents(**(KINDS[verdict] | {"mu": mu}))
    weak = mu > 2
    assert is_weak_guarantee(contents.guarantee) == weak
    assert any("next to nothing" in line for line in warnings_of(contents)) == weak
    assert ('<p class="label">' in first_screen(contents)) >= weak


@pytest.mark.parametrize("epsilon", [0.5, 4.5, 4.6, 8.0, 28.0, 1000.0])
def test_a_claim_of_others_is_weak_by_the_same_rule(epsilon: float) -> None:
    """Odds that grow 99 times are weak, whatever the claim is about; delta alone can make it weak, too."""
    for delta in (0.0, 1e-5):
        warning = weak_claim_warning(epsilon, delta, Adjacency.ADD_REMOVE_CLIENT)
        assert (warning is not None) == (epsilon > math.log(99))
    assert weak_claim_warning(0.1, 0.95, Adjacency.REPLACE_RECORD) is not None
    assert weak_claim_warning(math.inf, 1e-5, Adjacency.REPLACE_RECORD) is not None


@pytest.mark.parametrize("noise", [0.2, 0.8, 3.0])
def test_a_claim_by_noise_is_weak_where_its_guarantee_is(noise: float) -> None:
    """The claim of somebody's strategy, beside the guarantee that the accountant `gdp` derives for the same noise."""
    claim = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=noise, rounds=3)
    guarantee = derive_guarantee(Claim(claim.neighbours, gaussian_rounds(noise, 3), claim.delta))
    assert (claim_warning(claim) is not None) == (weakness_warning(guarantee) is not None) == (noise < 2)


def test_the_whole_training_of_an_app_counts_and_not_a_trial_of_it() -> None:
    """Noise 3 is no weak claim for a round; for 400 rounds it is. An epsilon of the reviewer is for all rounds."""
    claim = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=3.0)
    assert stated_claim_warning(StatedAppClaim(claim, "its wrapper"), rounds=1) is None
    assert stated_claim_warning(StatedAppClaim(claim, "its wrapper"), rounds=400) is not None
    reviewer = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, epsilon=8.0)
    assert stated_claim_warning(StatedAppClaim(reviewer, "named", is_of_reviewer=True, mu=0.1), rounds=1) is not None
    assert stated_claim_warning(StatedAppClaim(None, "nothing is named"), rounds=1) is None


def test_a_limit_that_excludes_nothing_is_not_shown_as_one() -> None:
    """No reader is to take "at most almost 100 %: no contradiction" for a sign of protection."""
    row = ReportNumber("Belief", 0.7, low=0.6, high=0.8, confidence=0.95, limit=1 - 1e-13, largest=1.0, is_share=True)
    text = finding_text(row.to_json())
    assert text.endswith(Reading.NO_LIMIT)
    assert "claimed at most" not in text


@pytest.mark.parametrize("share", [1.0, 1 - 1e-12])
def test_a_certainty_is_no_limit_wherever_one_is_printed(share: float) -> None:
    assert limit_text(share) == NO_LIMIT
    assert _allowed(share) == "; the guarantee excludes nothing"
    assert limit_text(0.999) == percent(0.999)
    assert "at most 72" in _allowed(0.72)


def test_the_page_of_so_weak_a_claim_names_no_limit_of_almost_everything(make_contents: MakeContents) -> None:
    page = render_html(make_contents(mu=60.0), []).replace("\N{NO-BREAK SPACE}", " ")
    for words in ("at most almost 100 %", "limit almost 100 %", "than almost 100 %", "</td><td>almost 100 %"):
        assert words not in page


@pytest.mark.parametrize(
    ("command", "noise", "is_weak"),
    [("account", 0.5, True), ("account", 5.0, False), ("calibrate", 8.0, True), ("calibrate", 1.0, False)],
)
def test_commands_name_a_weak_guarantee(command: str, noise: float, is_weak: bool) -> None:
    option = "--noise-multiplier" if command == "account" else "--epsilon"
    words = [command, option, str(noise), "--rounds", "1", "--delta", "1e-5", "--adjacency", "add-remove-record"]
    assert ("next to nothing" in CliRunner().invoke(app, words).stdout) is is_weak
    assert (json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["warning"] is not None) is is_weak


def test_a_ledger_names_what_all_trainings_spend_as_weak(tmp_path: Path) -> None:
    add = ["account", "--ledger", str(tmp_path / "ledger"), "--delta", "1e-5", "--noise-multiplier", "1.4"]
    add += ["--rounds", "1", "--adjacency", "add-remove-record"]
    warned = ["next to nothing" in CliRunner().invoke(app, [*add, "--name", str(number)]).stdout for number in range(6)]
    assert warned == sorted(warned), "each training adds to what is spent"
    assert (warned[0], warned[-1]) == (False, True)
