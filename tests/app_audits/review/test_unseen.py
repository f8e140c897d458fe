"""Parts of an app that could not be loaded, imported or read are never taken for absent."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import FedAvg

from fl_audit.app_audits.audit_results import review_result
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit
from fl_audit.app_audits.page import write_app_page
from fl_audit.app_audits.review.app_loading import read_app
from fl_audit.app_audits.review.claims import StatedAppClaim, stated_by
from fl_audit.app_audits.review.privacy_mentions import find_record_privacy_mentions, named_in
from fl_audit.app_audits.review.review import review
from fl_audit.app_audits.review.review_messages import headline, report_lines_of_review, review_json
from fl_audit.app_audits.review.review_result import ReviewResult, mentions_and_unseen, server_verdict
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.user_modules import collision_words
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.review.apps import CLIENT, caught, with_strategy, write_app
from tests.builders.refusals import assert_refused

pytestmark = pytest.mark.usefixtures("small_working_directory", "searched_as_before")
SERVER = with_strategy("FedAvg(fraction_evaluate=0.0)")
LOCAL = CLIENT.replace("ClientApp()", "ClientApp(mods=[LocalDpMod(1.0, 2.0, 3.0, 1e-5)])").replace(
    "import ClientApp", "import ClientApp\nfrom flwr.clientapp.mod import LocalDpMod"
)
MISSING = "flwr.clientapp.mod import LocalDpMod", "no_such_mods import mod"
UNSEEN = "the clients' modifiers"


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (f"{LOCAL}\nraise OSError('no data here')\n", "OSError: no data here"),
        (f"{LOCAL}\nexit(0)\n", "SystemExit: 0"),
        (f"{LOCAL}\nfrom .nothing import here\n", "ModuleNotFoundError"),
        ("import no_such_clients\napp = no_such_clients.ClientApp()\n", "not installed here: no_such_clients"),
        ("app = None\n", "is a NoneType, no ClientApp"),
        (LOCAL.replace("LocalDpMod(1.0, 2.0, 3.0, 1e-5)", "mod").replace(*MISSING), "not installed here: no_such_mods"),
    ],
)
def test_modifiers_that_could_not_be_loaded_are_not_absent(
    tmp_path: Path, client: str, reason: str, request: pytest.FixtureRequest
) -> None:
    number = request.node.callspec.indices["client"]
    captured_strategy = caught(write_app(tmp_path, f"unseen_app_{number}", SERVER, client))
    assert captured_strategy.mods == ()
    assert len(captured_strategy.unseen) == 1
    assert captured_strategy.unseen[0].startswith(f"{UNSEEN} could not")
    assert reason in captured_strategy.unseen[0]


def test_modifiers_that_an_app_does_not_have_are_absent(tmp_path: Path) -> None:
    assert caught(write_app(tmp_path / "a", "bare_app", SERVER)).unseen == ()
    assert caught(write_app(tmp_path / "b", "clientless_app", SERVER, None)).unseen == ()
    loaded = caught(write_app(tmp_path / "c", "local_app", SERVER, LOCAL))
    assert loaded.unseen == ()
    assert isinstance(loaded.mods[0].mod, LocalDpMod)


class Named(FedAvg):
    """A strategy with attributes of its own."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        vars(self).update(attributes)


class OfTheClass(FedAvg):
    """A strategy whose settings are attributes of its class, one of them worked out."""

    noise_multiplier = 1.5

    @property
    def clipping_norm(self) -> float:
        """Return two."""
        return 2.0


class Broken(FedAvg):
    """A strategy that cannot say how much noise it adds."""

    @property
    def noise_multiplier(self) -> float:
        """Raise."""
        raise RuntimeError("not yet")


@pytest.mark.parametrize(
    "strategy",
    [
        Named(noise_multiplier=np.float32(1.5), clipping_norm=np.int64(2)),
        OfTheClass(),
        Named(noise_multiplier=torch.tensor(1.5), clip_norm=np.array(2.0)),
    ],
)
def test_numbers_of_all_libraries_are_read(strategy: FedAvg) -> None:
    stated_claim = stated_by(strategy, (), None, 1)
    assert stated_claim.claim == StatedClaim("add-remove-client", noise_multiplier=1.5)
    assert (stated_claim.norm, stated_claim.unseen) == (2.0, ())


@pytest.mark.parametrize(
    ("strategy", "expected_reason"),
    [
        (Named(noise_multiplier="1.0", clipping_norm=1.0), "(it is '1.0'"),
        (Named(noise_multiplier=float("nan"), clipping_norm=1.0), "(it is 'nan'"),
        (Named(noise_multiplier=torch.ones(2), clipping_norm=1.0), "not be read"),
        (Named(noise_multiplier=1.0), "noise_multiplier = 1, and no clipping"),
        (Broken(), "(it is 'not yet'"),
        (Named(noise_multiplier=0.0, clipping_norm=1.0), ""),
        (Named(noise_multiplier=None, clipping_norm=1.0), ""),
        (FedAvg(), ""),
    ],
)
def test_noise_that_could_not_be_read_is_not_absent(strategy: FedAvg, expected_reason: str) -> None:
    stated_claim = stated_by(strategy, (), None, 1)
    assert stated_claim.claim is None
    assert expected_reason in "; ".join(stated_claim.unseen)
    assert (stated_claim.unseen == ()) is (expected_reason == "")


def test_privacy_that_a_configuration_names_is_not_absent() -> None:
    for config in ({"noise-multiplier": 1.0}, {"dp.enabled": True}, {"target-epsilon": 8}, {"privacy": "opacus"}):
        assert f"{next(iter(config))} = " in named_in(config)
    absent = {
        "noise-multiplier": 0.0,
        "use-dp": False,
        "privacy": "none",
        "adam-epsilon": 1e-8,
        "lr": 0.1,
        "adapter": 2,
    }
    assert named_in(absent) == ""


def _review(stated: StatedAppClaim, result: ClaimAudit, unseen: tuple[str, ...]) -> ReviewResult:
    verdict = server_verdict(stated, result, 3, 3, unseen)
    return ReviewResult(
        "app",
        stated,
        verdict,
        3,
        3,
        4,
        {"train": 4, "evaluate": 0},
        None,
        ("removed",),
        "few trials",
        result,
        None,
        (),
        (),
        unseen=unseen,
    )


@pytest.mark.parametrize("came", [Verdict.CONSISTENT, Verdict.VIOLATED, Verdict.INCONCLUSIVE])
@pytest.mark.parametrize("has_claim", [True, False])
def test_what_was_not_seen_makes_a_review_inconclusive(tmp_path: Path, came: Verdict, has_claim: bool) -> None:
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    app_review = _review(
        StatedAppClaim(claim if has_claim else None, "here"), ClaimAudit(claim, came, (), (), 40), (f"{UNSEEN} (why)",)
    )
    assert app_review.verdict is Verdict.INCONCLUSIVE
    assert headline(app_review).startswith(f"Inconclusive: {UNSEEN} (why). ")
    assert "guarantees no privacy" not in headline(app_review)
    assert dict(report_lines_of_review(app_review))["Claim"].startswith("none that") is not has_claim
    assert "no noise" not in dict(report_lines_of_review(app_review))["Claim"]
    assert dict(report_lines_of_review(app_review))["Not loaded"].endswith(f"{UNSEEN[1:]} (why).")
    values = review_json(app_review)
    assert values["not_loaded"] == [f"{UNSEEN} (why)"]
    result = review_result(app_review)
    assert result.scope.unseen[0] == f"{UNSEEN} (why)"
    page = write_app_page(result, [(app_review.result, ())], False, tmp_path)
    assert f"{UNSEEN} (why)".replace("'", "&#x27;") in page.read_text().split("<details")[0]


@pytest.mark.long
@pytest.mark.usefixtures("plainest_scenario_only")
def test_an_app_whose_clients_cannot_be_imported_guarantees_who_knows_what(tmp_path: Path) -> None:
    client = f"{LOCAL}\nraise OSError('no data here')\n"
    interim_reviews = list[ReviewResult]()
    wishes = ReviewOptions(processes=1, seconds=100, rounds=1, clients=4, is_quick=True)
    app_review = review(
        write_app(tmp_path, "local_app_without_data", SERVER, client), wishes, keep=interim_reviews.append
    )
    assert app_review.verdict is Verdict.INCONCLUSIVE
    assert re.match(rf"Inconclusive: {UNSEEN} .*\(local_app_without_data\.client_app:app ", headline(app_review))
    # What is kept meanwhile: before all trials that none was played, and then what was judged.
    assert interim_reviews[0].result.unplayed == ("removed",)
    assert [bool(interim_review.result.tests) for interim_review in interim_reviews][-1]
    assert {interim_review.verdict for interim_review in interim_reviews} == {Verdict.INCONCLUSIVE}
    assert all(review_json(interim_review)["not_loaded"] for interim_review in interim_reviews)


@pytest.mark.parametrize("position", ["at the top", "in main"])
@pytest.mark.parametrize("is_package", [True, False])
def test_packages_that_hide_each_other_are_both_named(tmp_path: Path, position: str, is_package: bool) -> None:
    name = f"hidden_app_{position[:2]}_{is_package}"
    line = "from typer.nets import Net" if is_package else "import typer\ntyper.Net"
    code = (
        f"{line}\n{SERVER}"
        if position == "at the top"
        else SERVER.replace(
            "    strategy =", "".join(f"    {code_line}\n" for code_line in line.split("\n")) + "    strategy ="
        )
    )
    directory = write_app(tmp_path, name, code)
    if is_package:
        (directory / "typer").mkdir()
        (directory / "typer" / "__init__.py").write_text("")
        (directory / "typer" / "nets.py").write_text("class Net: ...")
    else:
        (directory / "typer.py").write_text("class Net: ...")
    theirs = directory / ("typer" if is_package else "typer.py")
    installed = Path(typer.__file__).parent
    error = assert_refused(None, caught, directory)
    assert f"{theirs} is hidden by {installed}: " in str(error)
    assert "'typer'" in str(error)


def test_other_errors_name_no_packages(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("")
    assert collision_words(ModuleNotFoundError("no", name="nothing_of_this_name"), tmp_path) == ""
    assert collision_words(ValueError("server"), tmp_path) == ""


@pytest.mark.parametrize("code", ["", "import opacus"])
def test_settings_are_about_records_only_where_code_is(tmp_path: Path, code: str) -> None:
    """A claim in the configuration alone may be about clients as well: nobody saw it at work."""
    name = f"settings_{'of_records' if code else 'alone'}"
    directory = write_app(
        tmp_path, name, SERVER, f"{CLIENT}\ntry:\n    {code or 'pass'}\nexcept ImportError:\n    pass\n"
    )
    file = directory / "pyproject.toml"
    file.write_text(f"{file.read_text()}noise-multiplier = 1.0\nuse-dp = true\n")
    app = read_app(directory)
    mentions, unseen = mentions_and_unseen(
        caught(directory), StatedAppClaim(None, "nothing is named"), app, find_record_privacy_mentions(directory)
    )
    assert (mentions == (), unseen == ()) == (code == "", code != "")
    assert code or "noise-multiplier = 1.0, use-dp = True" in unseen[0]
