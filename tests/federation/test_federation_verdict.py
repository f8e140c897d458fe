"""Tests of the verdict: an honest federation is not called violated, and one that secretly halves its noise is."""

from pathlib import Path
from typing import Any

import pytest

from fl_audit.privacy.gaussian import gaussian_mu, gdp_epsilon
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.run import ClientAppAndStrategy
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings
from tests.builders.strategies import HalvedNoise

SECTIONS: dict[str, dict[str, Any]] = {
    "data": {"name": "breast-cancer", "records": 60, "clients": 2},
    "training": {"rounds": 30, "learning-rate": 0.5},
    "privacy": {"delta": 0.001, "clipping-norm": 3.0},
    "audit": {"trials": 2000, "epsilon-star": False},
    "run": {"trials-per-batch": 1000, "keep-releases": 0},
}


# One worker plays the run that tests share.
pytestmark = pytest.mark.xdist_group("verdict")


def play(
    directory: Path, strategy: type[TrialBatchStrategy] = TrialBatchStrategy, **changes: dict[str, Any]
) -> ReportContents:
    plan = small_plan(**changed_settings(SECTIONS, changes))
    return run_locally(plan, directory / "run", parties=ClientAppAndStrategy(strategy=strategy))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> ReportContents:
    return play(tmp_path_factory.mktemp("honest"))


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "verdict"), [(TrialBatchStrategy, "consistent"), (HalvedNoise, "violated")])
def test_two_thousand_trials_tell_an_honest_server_from_one_that_halves_its_noise(
    strategy: type[TrialBatchStrategy], verdict: str, honest: ReportContents, tmp_path: Path
) -> None:
    contents = honest if strategy is TrialBatchStrategy else play(tmp_path, strategy)
    empirical_epsilon = contents.summary["empirical_epsilon"]
    assert contents.summary["verdict"] == verdict
    assert contents.summary["innovations"]["holds"] is (verdict == "consistent")
    guarantee = contents.summary["guarantee"]
    assert (empirical_epsilon["lower_bound_at_violation_level"] > guarantee["epsilon"]) is (verdict == "violated")
    # 60,000 innovations find noise that is 1 % too small; the accountant of the guarantee leaves more room than that.
    exact = gdp_epsilon(0.001, gaussian_mu(guarantee["noise_multiplier"], 30))
    assert exact < empirical_epsilon["limit_of_detection"] < 1.03 * exact


def test_one_trial_is_inconclusive(tmp_path: Path) -> None:
    contents = run_locally(small_plan(audit={"trials": 1}), tmp_path / "run")
    assert contents.summary["verdict"] == "inconclusive"
    empirical_epsilon = contents.summary["empirical_epsilon"]
    claimed = contents.summary["guarantee"]["epsilon"]
    assert empirical_epsilon["lower_bound"] < 1.5 * claimed < empirical_epsilon["limit_of_detection"]
    assert "too little to" in contents.summary["scope"]


@pytest.mark.long
def test_global_sensitivity_gives_the_insider_less_as_the_sensitivities_predict(
    honest: ReportContents, tmp_path: Path
) -> None:
    """The spread of 1000 trials has a standard error of 2.2 %."""
    changes: dict[str, Any] = {"privacy": {"sensitivity": "global"}, "audit": {"trials": 1000}}
    runs = {"local": honest, "global": play(tmp_path, **changes)}
    spread = {name: run.trials["log_odds"].std() for name, run in runs.items()}
    signal = runs["global"].rounds["local_sensitivity"] / runs["global"].rounds["sigma"]
    predicted = (signal**2).groupby(runs["global"].rounds["trial"]).sum().mean() ** 0.5
    assert spread["global"] == pytest.approx(predicted, rel=0.1)
    assert spread["global"] < 0.8 * spread["local"]
    assert runs["global"].summary["insider"]["advantage"] < runs["local"].summary["insider"]["advantage"]
