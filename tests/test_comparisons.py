"""`fl-audit compare`: what it reads, shows and refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.cli.main import app
from experiments.comparisons.rows import rows
from fl_audit.errors import InputError


def _stored(directory: Path, **changes: Any) -> Path:
    directory.mkdir(parents=True)
    summary = {
        "schema": 1,
        "verdict": "consistent",
        "guarantee": {
            "belief_bound": 0.9,
            "epsilon": 2.0,
            "delta": 0.001,
            "noise_multiplier": 3.5,
            "advantage_bound_exact": 0.4,
        },
        "insider": {"advantage": 0.25},
        "empirical_epsilon": {"lower_bound": 1.5},
        "epsilon_star": {"mean": 0.7},
        "utility": {"test_accuracy": 0.81},
        "attacks": None,
    }
    (directory / "summary.json").write_text(json.dumps(summary | changes))
    return directory


def _compare(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two finished runs, one of them without a promise."""
    attacks = {"by_name": {"lira": {"lower_bound": {"epsilon": 0.9}}, "loss": {"lower_bound": None}}}
    nothing = {"epsilon": None, "delta": None, "noise_multiplier": None, "advantage_bound_exact": None}
    return _stored(tmp_path / "private"), _stored(
        tmp_path / "plain", verdict="no promise", guarantee=nothing, insider=None, attacks=attacks,
        empirical_epsilon=None, epsilon_star=None,
    )  # fmt: skip


def test_every_number_comes_from_its_place(two: tuple[Path, Path]) -> None:
    private, plain = json.loads(_compare(*two, "--json"))["runs"]
    assert private == {
        "run": "private", "verdict": "consistent", "belief": 0.9, "epsilon": 2.0, "delta": 0.001,
        "noise_multiplier": 3.5, "shown": 1.5, "advantage": 0.25, "advantage_bound": 0.4, "accuracy": 0.81,
        "epsilon_star": 0.7, "attack": None,
    }  # fmt: skip
    assert plain["attack"] == 0.9
    assert plain["accuracy"] == 0.81
    assert {plain[key] for key in ("belief", "epsilon", "noise_multiplier", "shown", "advantage", "epsilon_star")} == {
        None
    }


def test_the_table_and_the_figure(two: tuple[Path, Path], tmp_path: Path) -> None:
    shown = _compare(*two, "--plot", tmp_path / "runs.png")
    assert "25\u202f% of 40" in shown.replace("\xa0", "\u202f")
    assert "no promise" in shown
    assert max(map(len, _compare(*two).splitlines())) <= 80
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    first, second = _stored(tmp_path / "a" / "run"), _stored(tmp_path / "b" / "run")
    assert [row.run for row in rows([first, second])] == [str(first), str(second)]


def test_bad_input_is_one_line(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="at least two"):
        rows([two[0]])
    with pytest.raises(InputError, match="named twice"):
        rows([two[0], two[0]])
    with pytest.raises(InputError, match="no finished run"):
        rows([two[0], tmp_path / "empty"])
    (tmp_path / "empty" / "summary.json").write_text("[]")
    with pytest.raises(InputError, match="no summary of a run"):
        rows([two[0], tmp_path / "empty"])
    with pytest.raises(InputError, match="ends in"):
        CliRunner().invoke(app, ["compare", *map(str, two), "--plot", "x.jpg"], catch_exceptions=False)
