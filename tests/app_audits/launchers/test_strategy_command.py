"""`fl-audit strategy`: what it prints, writes and refuses."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, Strategy
from typer.testing import CliRunner

from fl_audit.app_audits.black_box.audited_system import AuditedSystem, system_of
from fl_audit.app_audits.black_box.scenario_texts import scenario_texts
from fl_audit.app_audits.black_box.scenarios import BY_NAME, kinds_of
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.black_box.trial_messages import Observer
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import claim_words, refusal_words
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.app_audits.launchers import strategy_audit_launcher
from fl_audit.cli.main import app
from fl_audit.verdict.verdict import Verdict
from tests.builders.commands import audit_strategy_here
from tests.builders.refusals import assert_refused
from tests.builders.strategies import central_noise

pytestmark = pytest.mark.usefixtures("small_working_directory")
NO_FUNCTION = ("a", "b")
_SMALL = TrialBudget(
    pilot=40, stages=(200,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1, scout=40, passing_scenarios=1
)


def private() -> Strategy:
    """Return Flower's wrapper: noise 1 at norm 1 for four clients."""
    return central_noise()


def plain() -> Strategy:
    """Return averaging without noise."""
    return FedAvg(fraction_evaluate=0.0)


def failing() -> Strategy:
    """Raise, in two lines."""
    raise ValueError("no noise\nnamed")


def _strategy(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["strategy", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture(autouse=True)
def _importable_and_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play in this process; that of its own, which takes seconds to begin, is tested with the ends of commands."""
    monkeypatch.setitem(sys.modules, "strategies_of_mine", sys.modules[__name__])
    monkeypatch.setattr(strategy_audit_launcher, "audit_in_subprocess", audit_strategy_here)


def test_averaging_without_noise_breaks_a_claim(tmp_path: Path) -> None:
    out = _strategy(
        "strategies_of_mine:plain",
        "--claim-epsilon",
        "4",
        "--adjacency",
        "add-remove-client",
        "--include",
        "removed",
        "--quick",
        "--set",
        "processes=1",
        "--out",
        str(tmp_path / "trial"),
        "--json",
    )
    answer = json.loads(out)
    assert answer["verdict"] == "violated"
    assert answer["trial"] == "removed"
    assert answer["lower_bound"] > 4
    finding = answer["findings"][0]
    assert finding["right"] == finding["trials"] == 400
    assert any("step of" in line for line in finding["transcript"])
    assert Path(answer.pop("report")) == tmp_path / "trial" / "report.html"
    assert json.loads((tmp_path / "trial" / "summary.json").read_text()) == answer
    page = (tmp_path / "trial" / "report.html").read_text()
    assert "breaks the claim" in page
    assert page.count("<figure") == len(answer["findings"])


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_violation_ends_with_status_4_where_it_is_asked_for(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"verdict": str(verdict), "headline": "So it is.", "lines": []}
    monkeypatch.setattr(strategy_audit_launcher, "audit_in_subprocess", lambda *_: answer)
    claim = ["strategies_of_mine:plain", "--claim-epsilon", "1", "--adjacency", "add-remove-client"]
    ended = [CliRunner().invoke(app, ["strategy", *claim, *flags]) for flags in (["--fail-on-violation"], [])]
    assert [result.exit_code for result in ended] == [4 if verdict is Verdict.VIOLATED else 0, 0]


@pytest.mark.long
def test_a_claim_about_users_is_held_against_a_strategy() -> None:
    out = _strategy(
        "strategies_of_mine:plain",
        "--claim-epsilon",
        "4",
        "--adjacency",
        "add-remove-user",
        "--include",
        "removed among opposite ones",
        "--quick",
        "--set",
        "processes=1",
        "--json",
    )
    answer = json.loads(out)
    assert answer["verdict"] == "violated"
    assert "add-remove-user" in out


@pytest.mark.long
def test_exchanging_a_client_tells_twice_as_much_as_leaving_it_out() -> None:
    # One round with z = 1: the shift is 2 spreads, so about 84 % are guessed right; the claim allows 69 %.
    out = _strategy(
        "strategies_of_mine:private",
        "--claim-noise-multiplier",
        "1",
        "--adjacency",
        "replace-client",
        "--include",
        "opposite",
        "--quick",
        "--set",
        "processes=1",
        "--json",
    )
    answer = json.loads(out)
    finding = answer["findings"][0]
    assert answer["verdict"] == "violated"
    assert finding["claimed_success"] == pytest.approx(0.6915, abs=1e-4)
    # 400 trials: 3.6 standard errors on either side of Phi(1), so one run in 3000 would fail.
    assert finding["right"] / finding["trials"] == pytest.approx(0.8413, abs=0.066)
    assert finding["if_gaussian"]["mu_low"] > 1
    assert finding["if_gaussian"]["mu"] == pytest.approx(2.0, abs=0.5)


def test_an_answer_comes_when_the_time_is_over_and_says_what_is_missing() -> None:
    out = _strategy(
        "strategies_of_mine:plain",
        "--claim-epsilon",
        "4",
        "--adjacency",
        "add-remove-client",
        "--set",
        "processes=1",
        "--set",
        "seconds=0.5",
        "--json",
    )
    answer = json.loads(out)
    assert "wrong shape" in answer["unplayed"]
    assert answer["verdict"] in ("violated", "inconclusive")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("nothing", "--claim-epsilon", "1"), "names no function"),
        (("missing_module:f", "--claim-epsilon", "1"), "cannot be imported"),
        (("strategies_of_mine:NO_FUNCTION", "--claim-epsilon", "1"), "tuple"),
        (("strategies_of_mine:failing", "--claim-epsilon", "1"), "raised ValueError: no noise named"),
        (("strategies_of_mine:plain",), "no claim is stated, .*--claim-epsilon, --claim-noise-multiplier"),
        (("strategies_of_mine:plain", "--claim-epsilon", "-1"), "epsilon is -1"),
        (("strategies_of_mine:plain", "--claim-epsilon", "1", "--adjacency", "client"), "--adjacency is 'client'"),
        (("strategies_of_mine:plain", "--claim-epsilon", "1", "--include", "all"), "--include 'all'"),
        (("strategies_of_mine:plain", "--claim-epsilon", "1", "--set", "observer=me"), "observer is 'me'"),
        (("strategies_of_mine:plain", "--claim-epsilon", "1", "--set", "clients=1"), "clients are 1"),
        (("strategies_of_mine:plain", "--claim-epsilon", "1", "--set", "seconds=0"), "seconds are 0"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], wrong: str) -> None:
    full_arguments = arguments if "--adjacency" in arguments else (*arguments, "--adjacency", "add-remove-client")
    assert_refused(wrong, lambda: CliRunner().invoke(app, ["strategy", *full_arguments], catch_exceptions=False))


def test_a_claim_without_neighbours_is_refused() -> None:
    result = CliRunner().invoke(app, ["strategy", "strategies_of_mine:plain", "--claim-epsilon", "1"])
    assert result.exit_code == 2
    assert "--adjacency" in result.output


def test_the_norm_of_a_strategy_is_taken_from_it() -> None:
    assert system_of("strategies_of_mine:private", 4, None, True, "client").norm == 1.0
    assert system_of("strategies_of_mine:private", 4, 0.5, True, "client").norm == 0.5


@pytest.mark.long
def test_an_observer_may_be_named_by_its_word() -> None:
    system = AuditedSystem(private, observer="server")  # type: ignore[arg-type]
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    # Noise that the server adds hides nothing from the server, and all that it claims from a client.
    assert audit_system(system, claim, budget=_SMALL, include=["removed"]).verdict is Verdict.VIOLATED
    assert system == AuditedSystem(private, observer=Observer.SERVER)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_a_claim_about_users_is_played_as_one_about_records(relation: str) -> None:
    system = AuditedSystem(private)
    of_users, of_records, of_clients = (
        [kind.name for kind in kinds_of(system, StatedClaim(f"{relation}-{unit}", noise_multiplier=1.0))]
        for unit in ("user", "record", "client")
    )
    assert of_users == of_records
    assert of_users
    assert of_users != of_clients


def test_every_kind_of_trial_has_words_and_a_fix() -> None:
    assert [*scenario_texts()] == [*BY_NAME]
    assert all(texts.words and texts.usual_fix for texts in scenario_texts().values())


class _OnItsOwnModel(FedAvg):
    """A strategy that loads what it releases into the text model of its app, which has many tensors."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Return the mean, which the model must take."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            layers = [torch.nn.TransformerEncoderLayer(4, 1, 4, batch_first=True) for _ in range(3)]
            torch.nn.Sequential(torch.nn.Embedding(9, 4), *layers).load_state_dict(arrays.to_torch_state_dict())
        return arrays, metrics


def on_its_own_model() -> Strategy:
    """Return Flower's wrapper of a strategy that needs its app's model."""
    return DifferentialPrivacyServerSideFixedClipping(_OnItsOwnModel(fraction_evaluate=0.0), 1.0, 1.0, 4)


def test_a_strategy_that_needs_its_apps_model_is_led_to_a_review_in_few_words() -> None:
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    audit_result = audit_system(AuditedSystem(on_its_own_model), claim, budget=_SMALL, include=["removed", "huge"])
    assert audit_result.verdict is Verdict.INCONCLUSIVE
    assert "fl-audit review" in audit_result.hindrance
    assert audit_result.hindrance in claim_words(audit_result)
    (refusal_line,) = refusal_words(audit_result.refusals)
    assert refusal_line.startswith("removed, huge: an ordinary input was refused")
    assert len(refusal_line) < 320
