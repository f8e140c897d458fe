"""A review of an app whose model reads texts: transformer, token ids, a buffer of positions."""

from pathlib import Path

import pytest

from fl_audit.app_audits.review.review import review
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.review.apps import caught
from tests.app_audits.review.text_app import write_text_app
from tests.builders.refusals import assert_refused

pytestmark = pytest.mark.usefixtures("small_working_directory", "searched_as_before")
HONEST = "PrivateMean(1.0, 1.0, 4)"
OF_FLOWER = "DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), 1.0, 1.0, 4)"
OPTIONS = ReviewOptions(processes=1, seconds=1000, rounds=1, clients=4, is_quick=True)


def test_the_model_of_an_app_on_texts_is_taken_with_its_positions(tmp_path: Path) -> None:
    captured_strategy = caught(write_text_app(tmp_path, "taken_text_app", HONEST))
    kinds = {
        name: array.numpy().dtype.kind for name, array in captured_strategy.start.arguments["initial_arrays"].items()
    }
    assert kinds.pop("position_ids") == "i"
    assert set(kinds.values()) == {"f"}


@pytest.mark.long
def test_an_honest_app_on_texts_is_consistent(tmp_path: Path) -> None:
    app_review = review(write_text_app(tmp_path, "honest_text_app", HONEST), OPTIONS)
    assert app_review.verdict is Verdict.CONSISTENT
    assert "removed" in app_review.kinds


@pytest.mark.long
def test_the_wrapper_of_flower_is_found_on_texts_by_what_it_does_with_any_model(tmp_path: Path) -> None:
    """Its clipping divides by the norm of an update, and its mean counts examples: neither is in the noise.

    Whether the app's clients send such updates is not seen, so the verdict is open.
    """
    app_review = review(write_text_app(tmp_path, "wrapped_text_app", OF_FLOWER, sends_positions=False), OPTIONS)
    assert app_review.verdict is Verdict.INCONCLUSIVE
    broken = {test.distinguisher.kind for test in app_review.result.tests if test.is_broken}
    assert {"zero", "many examples"} <= {name.removesuffix(", own model") for name in broken}


def test_a_review_says_which_whole_numbers_the_wrapper_of_flower_cannot_scale(tmp_path: Path) -> None:
    """The remedy that it offers is the one with which the test above reviews the app."""
    named = r"whole numbers \(position_ids\).*persistent=False"
    assert_refused(named, lambda: review(write_text_app(tmp_path, "refused_text_app", OF_FLOWER), OPTIONS))
