"""Order of a review of Flower's wrappers: noise and clipping first, then leaks beside them."""

from pathlib import Path

import pytest

from fl_audit.app_audits.review.review import review
from fl_audit.app_audits.review.review_messages import found_in, headline, report_lines_of_review
from fl_audit.app_audits.review.scenario_groups import ScenarioGroup, broken_tests, group_of, split
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.review.apps import CLIENT, with_strategy, write_app

pytestmark = pytest.mark.usefixtures("small_working_directory", "searched_as_before")
INNER = "FedAvg(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4)"
WRAPPERS = {
    "server_fixed": ("DifferentialPrivacyServerSideFixedClipping({inner}, 1.0, 1.0, 4)", ""),
    "server_adaptive": ("DifferentialPrivacyServerSideAdaptiveClipping({inner}, 1.0, 4, 1.0, **BITS)", ""),
    "client_fixed": ("DifferentialPrivacyClientSideFixedClipping({inner}, 1.0, 1.0, 4)", "fixedclipping_mod"),
    "client_adaptive": (
        "DifferentialPrivacyClientSideAdaptiveClipping({inner}, 1.0, 4, 1.0, **BITS)",
        "adaptiveclipping_mod",
    ),
}


def _app(directory: Path, name: str, wrapper: str, mod: str) -> Path:
    bits = wrapper.format(inner=INNER).replace("**BITS", "clipped_count_stddev=2.0")
    server = with_strategy(bits).replace("import DifferentialPrivacyServerSideFixedClipping, FedAvg", "import *")
    client = CLIENT
    if mod:
        client = f"from flwr.clientapp.mod import {mod}\n{CLIENT.replace('ClientApp()', f'ClientApp(mods=[{mod}])')}"
    return write_app(directory / "app", name, server, client)


@pytest.mark.long
@pytest.mark.parametrize("name", list(WRAPPERS))
def test_a_wrapper_that_is_configured_rightly_is_said_to_be_as_claimed(tmp_path: Path, name: str) -> None:
    wrapper, mod = WRAPPERS[name]
    app_review = review(_app(tmp_path, f"right_{name}", wrapper, mod), ReviewOptions(is_quick=True, seconds=200.0))
    assert headline(app_review).startswith("Noise and clipping are as claimed")
    # This wrapper's clients report a bit of their norm, whose mean FedAvg releases without noise.
    releases_bit = name == "client_adaptive"
    assert app_review.verdict is (Verdict.VIOLATED if releases_bit else Verdict.INCONCLUSIVE)
    assert ("norm_bit" in headline(app_review)) is releases_bit
    # The cause and the fix on the page are those of the first finding: it must be the one that decides.
    assert found_in(app_review.result)[0].test.is_beside_model is releases_bit
    assert not broken_tests(app_review.result, ScenarioGroup.MECHANISM)
    lines = dict(report_lines_of_review(app_review))
    assert lines["Broken by"] == "no scenario"
    assert "zero" in lines["Known edges of Flower's wrapper"]


@pytest.mark.long
def test_noise_for_more_clients_than_are_asked_leads_the_verdict(tmp_path: Path) -> None:
    app = _app(tmp_path, "too_many", "DifferentialPrivacyServerSideFixedClipping({inner}, 1.0, 1.0, 20)", "")
    app_review = review(app, ReviewOptions(clients=4, is_quick=True, seconds=200.0))
    assert app_review.verdict is Verdict.VIOLATED
    assert "20 clients" in headline(app_review).split(". ")[0]
    assert "5 times smaller" in headline(app_review).split(". ")[0]
    assert broken_tests(app_review.result, ScenarioGroup.MECHANISM)


def test_scenarios_of_the_mechanism_come_before_unusual_replies() -> None:
    names = [
        "zero",
        "removed",
        "not a number",
        "many examples",
        "huge",
        "missing reply, own model",
        "running statistics",
    ]
    assert split(names)[0] == ["removed", "huge"]
    assert group_of("zero") is group_of("missing reply, own model") is ScenarioGroup.EDGES
    assert group_of("many examples") is group_of("running statistics") is ScenarioGroup.BESIDE
