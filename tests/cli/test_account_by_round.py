"""`fl-audit account --per-round` prints what as many rounds spend when they are accounted by themselves."""

import json

import pytest
from typer.testing import CliRunner

from fl_audit.cli.main import app


def account(*arguments: str) -> str:
    words = ["account", "--delta", "1e-5", "--adjacency", "add-remove-record", "--noise-multiplier", "4", *arguments]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("more", [(), ("--sampling-rate", "0.1"), ("--accountant", "rdp")])
def test_each_round_is_accounted_as_a_training_of_its_length(more: tuple[str, ...]) -> None:
    whole = json.loads(account("--rounds", "7", "--per-round", "--json", *more))
    assert list(whole["epsilon_by_round"]) == [str(number) for number in range(1, 8)]
    alone = json.loads(account("--rounds", "3", "--json", *more))
    assert whole["epsilon_by_round"]["3"] == alone["epsilon"]
    assert whole["epsilon_by_round"]["7"] == whole["epsilon"]


def test_long_trainings_with_loss_distributions_show_fifty_rounds() -> None:
    found = json.loads(account("--rounds", "101", "--sampling-rate", "0.01", "--per-round", "--json"))
    assert len(found["epsilon_by_round"]) <= 51
    last = account("--rounds", "3", "--sampling-rate", "0.1", "--per-round").splitlines()[-2]
    alone = json.loads(account("--rounds", "3", "--sampling-rate", "0.1", "--json"))
    assert f"{alone['epsilon']:.6g}" in last
