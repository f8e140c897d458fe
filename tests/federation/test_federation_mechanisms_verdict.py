"""Tests of verdicts under every mechanism: honest federations are not called violated, and halved noise is found."""

from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import HONEST, ClientAppAndStrategy
from tests.builders.clients import app_with_mechanism
from tests.builders.runs import run_locally
from tests.builders.settings import changed_settings
from tests.builders.strategies import HalvedNoise

Changes = dict[str, dict[str, Any]]

CLIENTS: Changes = {
    "data": {"name": "digits", "records": 60, "clients": 5, "test-records": 10, "population-records": 10},
    "model": {"name": "logistic"},
    "training": {
        "strategy": "dp-fedavg",
        "rounds": 6,
        "local-epochs": 1,
        "local-batch": 6,
        "local-learning-rate": 0.05,
    },
    "privacy": {
        "noise-multiplier": 1.0,
        "delta": 0.01,
        "clipping-norm": 0.1,
        "accountant": "gdp",
        "adjacency": "add-remove-client",
    },
    "audit": {"trials": 60, "epsilon-star": False, "membership": False},
    "run": {"seed": 1, "trials-per-batch": 60, "keep-releases": 0},
}
RECORDS: Changes = {
    "training": {
        "strategy": "dp-fedsgd",
        "learning-rate": 0.5,
        "local-epochs": None,
        "local-batch": None,
        "local-learning-rate": None,
    },
    "privacy": {"adjacency": "add-remove-record", "clipping-norm": 1.0},
}
PLD: Changes = {"privacy": {"accountant": "pld"}}
SAMPLED = {"training": {"sampling-rate": 0.5}}
SEEN = {"audit": {"participation": "seen"}}
ADAPTIVE = {"privacy": {"clipping": "adaptive"}}

MECHANISMS: dict[str, tuple[Changes, ...]] = {
    "clients": (),
    "clients replaced": ({"privacy": {"adjacency": "replace-client"}},),
    "clients sampled in secret": (PLD, SAMPLED),
    "clients replaced and sampled in secret": (PLD, SAMPLED, {"privacy": {"adjacency": "replace-client"}}),
    "clients seen to be sampled": (PLD, SAMPLED, SEEN),
    "records sampled in secret": (RECORDS, PLD, SAMPLED),
    "records seen to be sampled": (RECORDS, PLD, SAMPLED, SEEN),
    "cohorts": ({"training": {"cohort": 2}},),
    "distributed noise, two colluders": ({"privacy": {"noise": "distributed"}, "audit": {"colluders": 2}},),
    "local noise": ({"privacy": {"noise": "local"}},),
    "local noise, the server looks": ({"privacy": {"noise": "local"}, "audit": {"adversary": "server"}},),
    "adaptive clipping": (ADAPTIVE,),
    "adaptive clipping, clients sampled": (PLD, ADAPTIVE, SAMPLED),
    "noise along a tree": ({"privacy": {"noise": "tree"}},),
    "banded noise": ({"privacy": {"noise": "banded"}},),
}


def play(directory: Path, changes: tuple[Changes, ...], parties: ClientAppAndStrategy = HONEST) -> ReportContents:
    """Run a federation on the local engine; a change to None removes a setting."""
    settings = reduce(changed_settings, changes, CLIENTS)
    clean_settings = {
        name: {key: value for key, value in section_values.items() if value is not None}
        for name, section_values in settings.items()
    }
    return run_locally(plan_run(parse_config(clean_settings)), directory, parties=parties)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_honest_federation_is_not_called_violated(mechanism: str, tmp_path: Path) -> None:
    contents = play(tmp_path / "run", MECHANISMS[mechanism])
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
    ("mechanism", "parties"),
    [
        ("clients sampled in secret", SERVER),
        ("records sampled in secret", SERVER),
        ("clients seen to be sampled", SERVER),
        ("adaptive clipping", SERVER),
        ("banded noise", SERVER),
        ("distributed noise, two colluders", EACH_CLIENT),
    ],
)
def test_halved_noise_is_found(mechanism: str, parties: ClientAppAndStrategy, tmp_path: Path) -> None:
    contents = play(tmp_path / "run", MECHANISMS[mechanism], parties)
    empirical_epsilon = contents.summary["empirical_epsilon"]
    guarantee = contents.summary["guarantee"]
    assert contents.summary["verdict"] == "violated"
    assert empirical_epsilon["lower_bound_at_violation_level"] > guarantee["epsilon"]
