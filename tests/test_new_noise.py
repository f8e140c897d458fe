"""A new kind of noise is one file and one line in the registry; when both are gone, nothing is left of it."""

import json
import math
import re
from pathlib import Path

import pytest
from torch import Tensor

from fl_audit.federation.federation import Federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.mechanisms.noises.mechanism_noise import Normals
from fl_audit.mechanisms.noises.registry import NOISES, names_of_noises
from fl_audit.mechanisms.threat_model import CLIENT_ALONE
from fl_audit.privacy.events import GaussianRelease
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planned_run_check import check_plan
from fl_audit.runs.run import run_audit
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan
from tests.toy_noise.two_servers import TwoServersGaussian

_NAME = "two-servers"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the line to the registry, and take it away after the test."""
    monkeypatch.setitem(NOISES, _NAME, TwoServersGaussian)


def _plan(privacy: dict[str, object] | None = None, **sections: dict[str, object]) -> RunPlan:
    stated = {"belief": None, "sensitivity": None, "noise-multiplier": 1.5, "accountant": None, "noise": _NAME}
    usual: dict[str, dict[str, object]] = {
        "audit": {"trials": 30, "epsilon-star": False},
        "run": {"trials-per-batch": 15},
    }
    return small_plan(privacy=stated | (privacy or {}), **(usual | sections))


@pytest.mark.usefixtures("registered")
def test_a_new_noise_is_configured_checked_played_judged_and_reported(tmp_path: Path) -> None:
    plan = _plan()
    assert plan.federation.mechanism.noise == TwoServersGaussian(1.5)
    assert Federation.from_json(plan.federation.to_json()) == plan.federation
    (event,) = plan.federation.mechanism.events(4, CLIENT_ALONE)
    assert isinstance(event, GaussianRelease)
    assert event.noise_multiplier == pytest.approx(1.5 * math.sqrt(2), rel=1e-12)
    checked = check_plan(plan, with_probe=False)
    assert checked.limits is not None
    assert checked.limits.noise_short_in_all is not None
    run_audit(plan, tmp_path / "run", Engine.LOCAL)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["guarantee"]["noise_multiplier"] == pytest.approx(1.5 * math.sqrt(2), rel=1e-9)
    assert summary["verdict"] in ("consistent", "inconclusive")
    # 120 releases of 31 parameters show it with a standard error of 1.2 %; the noise of one server is 29 % less.
    assert summary["noise"]["ratio"] == pytest.approx(1.0, abs=0.05)
    page = (tmp_path / "run" / "report.html").read_text()
    assert re.search("two servers: [^.<]*all of it", page)


@pytest.mark.usefixtures("registered")
def test_half_of_a_new_noise_is_found_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second server draws what the first one draws, or nothing: the sum holds too little of its own noise."""

    def draws_of_one(normals: Normals, server_round: int) -> Tensor:
        return normals(0) / math.sqrt(2)

    monkeypatch.setattr(TwoServersGaussian, "server_draws", lambda _: draws_of_one)
    run_audit(_plan(), tmp_path / "run", Engine.LOCAL)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["verdict"] == "violated"
    assert summary["noise"]["ratio"] == pytest.approx(math.sqrt(0.5), abs=0.05)


@pytest.mark.usefixtures("registered")
def test_settings_and_refusals_name_a_new_noise() -> None:
    (noise,) = settings("privacy.noise")
    assert noise.choices == names_of_noises()
    assert noise.choices is not None
    assert _NAME in noise.choices
    assert_refused(f"noise is 'misspelt': .*'{_NAME}'", _plan, {"noise": "misspelt"})
    assert_refused(f"sensitivity is 'local' .*'{_NAME}'", _plan, {"sensitivity": "local"})
    clients = {"strategy": "dp-fedavg", "rounds": 4, "local-batch": 5}
    of_clients = {"adjacency": "add-remove-client"}
    named = f"clipping is 'adaptive' .*'{_NAME}': .*'fixed'"
    assert_refused(named, _plan, of_clients | {"clipping": "adaptive"}, training=clients)
    assert_refused(f"noise is '{_NAME}' .*cohort", _plan, of_clients, training=clients | {"cohort": 2})
    named = f"noise is '{_NAME}' .*'dp-sgd-clients'"
    assert_refused(named, _plan, {"adjacency": "add-remove-record"}, training={"strategy": "dp-sgd-clients"})
    named = "adversary = 'server' are noise = 'distributed' and 'local'"
    assert_refused(named, _plan, audit={"trials": 6, "adversary": "server"})


@pytest.mark.usefixtures("registered")
def test_canaries_are_played_with_a_new_noise_that_carries_them(monkeypatch: pytest.MonkeyPatch) -> None:
    played = {"kind": "canaries", "trials": None, "canaries": 6, "epsilon-star": False}
    assert_refused(r"'canaries' .*: .*noise = 'central' and 'inside-training', .*sensitivity", _plan, audit=played)
    monkeypatch.setattr(TwoServersGaussian, "carries_canaries", True)
    assert _plan(audit=played).federation.canaries == 6
    named = f"noise = 'central', 'inside-training' and '{_NAME}', .*sensitivity"
    assert_refused(named, _plan, {"noise": "tree"}, audit=played)


@pytest.mark.usefixtures("registered")
def test_the_bits_of_an_adaptive_norm_get_the_noise_that_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TwoServersGaussian, "require_adaptive_clipping", lambda _: None)
    clients = {"strategy": "dp-fedavg", "rounds": 4, "local-batch": 5}
    mechanism = _plan({"adjacency": "add-remove-client", "clipping": "adaptive"}, training=clients).federation.mechanism
    of_sum = 1.5 * math.sqrt(2)
    of_bits = mechanism.bit_sigma / mechanism.bit_sensitivity
    assert of_bits == pytest.approx(AdaptiveClipping(1.0).bit_noise * of_sum, rel=1e-12)
    assert mechanism.claimed_multiplier(CLIENT_ALONE) == pytest.approx((of_sum**-2 + of_bits**-2) ** -0.5, rel=1e-12)


def test_without_its_line_a_noise_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _NAME not in names_of_noises()
    assert_refused(f"privacy.noise is '{_NAME}': .*'central'", _plan)
    with monkeypatch.context() as added:
        added.setitem(NOISES, _NAME, TwoServersGaussian)
        plan = _plan()
        stored = plan.federation.to_json()
    Federation.from_json.cache_clear()
    with pytest.raises(ValueError, match=f"stored noise .*'{_NAME}'"):
        Federation.from_json(stored)
    (setting,) = settings("privacy.noise")
    assert _NAME not in (setting.choices or ())


def test_every_noise_is_registered_under_its_own_kind_and_no_name_has_two() -> None:
    assert {kind: noise.kind for kind, noise in NOISES.items()} == {kind: kind for kind in NOISES}
    assert len(set(names_of_noises())) == len(names_of_noises()) > 5
