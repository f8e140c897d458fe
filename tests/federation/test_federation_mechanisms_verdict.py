"""Tests of verdicts under every mechanism: honest federations are not called violated, and halved noise is found."""

from pathlib import Path
from typing import Any

import pytest

from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.run import HONEST, ClientAppAndStrategy
from tests.builders.clients import app_with_mechanism
from tests.builders.mechanisms import MECHANISMS
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings
from tests.builders.strategies import HalvedNoise

CASES = MECHANISMS | {
    "sampled records, seen": changed_settings(MECHANISMS["sampled records"], {"audit": {"participation": "seen"}})
}


def play(directory: Path, name: str, parties: ClientAppAndStrategy = HONEST) -> ReportContents:
    """Run sixty trials of a mechanism, with updates that nearly all exceed the clipping norm."""
    is_of_records = "records" in name
    changes: dict[str, dict[str, Any]] = {
        "data": {"name": "digits", "test-records": 10, "population-records": 10},
        "training": {"rounds": 6}
        | ({"learning-rate": 0.5} if is_of_records else {"local-epochs": 1, "local-learning-rate": 0.05}),
        "privacy": {"noise-multiplier": 1.0, "clipping-norm": 1.0 if is_of_records else 0.1},
        "audit": {"trials": 60},
        "run": {"seed": 1, "trials-per-batch": 60, "keep-releases": 0},
    }
    return run_locally(small_plan(**changed_settings(CASES[name], changes)), directory, parties=parties)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("name", CASES)
def test_an_honest_federation_is_not_called_violated(name: str, tmp_path: Path) -> None:
    contents = play(tmp_path / "run", name)
    guarantee = contents.plan.guarantee
    empirical_epsilon = contents.summary["empirical_epsilon"]
    assert guarantee is not None
    assert contents.summary["verdict"] in {"consistent", "inconclusive"}
    assert contents.summary["innovations"]["holds"]
    exact = guarantee.claim.profile.epsilon(guarantee.delta)
    # The bound of 95 % confidence passes the truth in one of twenty runs; the one of the verdict in one of a thousand.
    assert 0.8 * exact < empirical_epsilon["lower_bound"]
    assert empirical_epsilon["lower_bound_at_violation_level"] <= guarantee.epsilon
    assert exact < empirical_epsilon["limit_of_detection"]
    assert 0 <= empirical_epsilon["from_sensitivity"] <= guarantee.epsilon * (1 + 1e-5)


SERVER = ClientAppAndStrategy(strategy=HalvedNoise)
EACH_CLIENT = ClientAppAndStrategy(
    client_app=app_with_mechanism(lambda claimed: claimed.with_multiplier(claimed.noise_multiplier / 2))
)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("name", "parties"),
    [
        ("sampled clients", SERVER),
        ("sampled records", SERVER),
        ("sampled clients, seen", SERVER),
        ("adaptive", SERVER),
        ("banded", SERVER),
        ("distributed", EACH_CLIENT),
    ],
)
def test_halved_noise_is_found(name: str, parties: ClientAppAndStrategy, tmp_path: Path) -> None:
    contents = play(tmp_path / "run", name, parties)
    empirical_epsilon = contents.summary["empirical_epsilon"]
    guarantee = contents.summary["guarantee"]
    assert contents.summary["verdict"] == "violated"
    assert empirical_epsilon["lower_bound_at_violation_level"] > guarantee["epsilon"]
