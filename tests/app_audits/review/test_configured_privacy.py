"""A number of the configuration that claims more than the strategy has is said in the notes and at the top."""

from pathlib import Path

import pytest
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from fl_audit.app_audits.review.claims import stated_by
from fl_audit.app_audits.review.privacy_mentions import weaker_than_configured
from fl_audit.app_audits.review.review import review
from fl_audit.app_audits.review.review_messages import headline, report_lines_of_review
from fl_audit.app_audits.trial_options import ReviewOptions
from tests.app_audits.review.apps import CLIENT, with_strategy, write_app

WRAPPED = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.25, 1.0, 10)


@pytest.mark.parametrize(
    ("config", "expected_note"),
    [
        ({"noise-multiplier": 1.0}, "the configuration names noise-multiplier 1.0; the strategy uses 0.25"),
        ({"server.noise_multiplier": "1.5"}, "names server.noise_multiplier 1.5; the strategy uses 0.25"),
        ({"noiseMultiplier": 1}, "the strategy uses 0.25"),
        ({"clipping-norm": 0.5}, "the configuration names clipping-norm 0.5; the app clips to 1"),
        # mu is 4 in one round: epsilon 24.38 at delta 1e-5.
        ({"target-epsilon": 8}, "names target-epsilon 8; the strategy's noise comes to 24.38 over 1 round "),
        ({"noise-multiplier": 0.25, "clip-norm": 1.0, "epsilon": 25.0}, ""),
        ({"noise-multiplier": 0.2, "clipping-norm": 2.0}, ""),
        ({"noise-multiplier": "high", "adam-epsilon": 0.01, "max-grad-norm": 0.5, "use-epsilon": True}, ""),
    ],
)
def test_only_numbers_that_claim_more_are_said(config: dict[str, object], expected_note: str) -> None:
    notes = weaker_than_configured(stated_by(WRAPPED, (), None, 1), config, rounds=1)
    assert len(notes) == (expected_note != "")
    assert expected_note in "".join(notes)


def test_the_epsilon_of_a_modifier_is_compared_with_the_configured_one() -> None:
    stated = stated_by(FedAvg(), (LocalDpMod(1.0, 2.0, 6.0, 1e-5),), None, 1)
    (note,) = weaker_than_configured(stated, {"epsilon": 3.0}, rounds=5)
    assert note.endswith("epsilon 3.0; LocalDpMod uses 6")
    assert weaker_than_configured(stated, {"epsilon": 6.0}, rounds=5) == ()


@pytest.mark.long
@pytest.mark.usefixtures("small_working_directory", "searched_as_before", "plainest_scenario_only")
@pytest.mark.parametrize("divisor", [4, 1])
def test_a_review_says_whose_number_is_weaker(tmp_path: Path, divisor: int) -> None:
    noise = f'context.run_config["noise-multiplier"] / {divisor}'
    server = with_strategy(
        f"DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0, min_available_nodes=4), {noise}, "
        "1.0, 4)"
    )
    directory = write_app(tmp_path, f"divided_app_{divisor}", server, CLIENT)
    with (directory / "pyproject.toml").open("a") as file:
        file.write("noise-multiplier = 1.0\n")
    app_review = review(directory, ReviewOptions(processes=1, seconds=100, rounds=1, clients=4, is_quick=True))
    expected_note = "The configuration names noise-multiplier 1.0; the strategy uses 0.25."
    notes = [text for about, text in report_lines_of_review(app_review) if about == "Note"]
    assert (expected_note in notes) is (expected_note in headline(app_review)) is (divisor == 4)
