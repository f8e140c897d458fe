"""The verdict: an honest federation is not called violated, one that secretly halves its noise is."""

from pathlib import Path

import pytest
from audits import MakePlan
from secret_noise import HalvedNoise

from experiments.runs.engines import Engine
from experiments.runs.run import Parties, run_audit
from fl_audit.privacy.gaussian import gaussian_mu, gdp_epsilon
from strategies.dp_strategy import DPStrategy

SECTIONS = {
    "data": {"name": "breast-cancer", "records": 60, "clients": 2},
    "training": {"rounds": 30, "learning-rate": 0.5},
    "privacy": {"delta": 0.001, "clipping-norm": 3.0},
    "audit": {"worlds": 2000, "epsilon-star": False},
    "run": {"worlds-per-batch": 1000, "keep-releases": 0},
}


@pytest.mark.parametrize(("strategy", "verdict"), [(DPStrategy, "consistent"), (HalvedNoise, "violated")])
def test_two_thousand_worlds_tell_an_honest_server_from_one_that_halves_its_noise(
    strategy: type[DPStrategy], verdict: str, small_plan: MakePlan, tmp_path: Path
) -> None:
    plan, parties = small_plan(**SECTIONS), Parties(strategy=strategy)
    contents = run_audit(plan, tmp_path / "run", Engine.LOCAL, parties=parties, with_report=False)
    found = contents.summary["empirical_epsilon"]
    assert contents.summary["verdict"] == verdict
    assert contents.summary["innovations"]["holds"] is (verdict == "consistent")
    promise = contents.summary["guarantee"]
    assert (found["lower_bound_at_violation_level"] > promise["epsilon"]) is (verdict == "violated")
    # 60,000 innovations find noise that is 1 % too small; the accountant of the promise leaves more room than that.
    exact = gdp_epsilon(0.001, gaussian_mu(promise["noise_multiplier"], 30))
    assert exact < found["limit_of_detection"] < 1.03 * exact


def test_one_world_is_inconclusive(small_plan: MakePlan, tmp_path: Path) -> None:
    contents = run_audit(small_plan(audit={"worlds": 1}), tmp_path / "run", Engine.LOCAL, with_report=False)
    assert contents.summary["verdict"] == "inconclusive"
    found, promised = contents.summary["empirical_epsilon"], contents.summary["guarantee"]["epsilon"]
    assert found["lower_bound"] < 1.5 * promised < found["limit_of_detection"]
    assert "too little to tell" in contents.summary["scope"]


def test_global_sensitivity_gives_the_insider_less_as_the_sensitivities_predict(
    small_plan: MakePlan, tmp_path: Path
) -> None:
    runs = {
        scaling: run_audit(
            small_plan(**SECTIONS | {"privacy": SECTIONS["privacy"] | {"sensitivity": scaling}}),
            tmp_path / scaling,
            Engine.LOCAL,
            with_report=False,
        )
        for scaling in ("local", "global")
    }
    spread = {name: run.worlds["log_odds"].std() for name, run in runs.items()}
    signal = runs["global"].rounds["local_sensitivity"] / runs["global"].rounds["sigma"]
    predicted = (signal**2).groupby(runs["global"].rounds["world"]).sum().mean() ** 0.5
    assert spread["global"] == pytest.approx(predicted, rel=0.1)
    assert spread["global"] < 0.8 * spread["local"]
    assert runs["global"].summary["insider"]["advantage"] < runs["local"].summary["insider"]["advantage"]
