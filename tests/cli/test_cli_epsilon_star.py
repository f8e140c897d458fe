"""The command for losses: what it prints, draws and refuses."""

import json
import re
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from fl_audit.experiments.papers.negoescu2023.simulation import (
    SimulationSettings,
    _true_epsilon_star,
    simulate,
    summary,
)
from fl_audit.released_model.parametric_star import parametric_epsilon_star
from tests.builders.commands import command_runner

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command on two files of losses in a temporary directory."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    np.savetxt("members.txt", draw.gamma(2, 0.3, 300))
    np.save("population.npy", draw.gamma(3, 0.3, 400))
    np.savetxt("negative.txt", [0.1, -0.2, 0.3])
    np.savetxt("nan.txt", [0.1, np.nan])
    np.savetxt("one.txt", [0.1])
    np.savetxt("flat.txt", np.full(150, 0.2))
    Path("empty.txt").write_text("\n")

    run_command = command_runner(capsys, "epsilon-star")
    return lambda *arguments: astuple(run_command(*arguments))


@pytest.mark.parametrize("method", ["parametric", "empirical", "mixture"])
def test_one_json_object(run: Run, method: str) -> None:
    code, out, err = run("members.txt", "population.npy", "--delta", "1e-3", "--method", method, "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert {"epsilon_star", "delta", "method", "interval", "attacks", "warnings", "cut"} <= set(answer)
    assert (answer["method"], answer["delta"]) == (method, 1e-3)
    low, high = answer["interval"]
    assert low <= answer["epsilon_star"] <= high
    if method == "parametric":
        truth = parametric_epsilon_star(np.loadtxt("members.txt"), np.load("population.npy"), 1e-3)
        assert answer["epsilon_star"] == pytest.approx(float(truth), abs=1e-8)


def test_unbounded_is_null_beside_the_value_within_the_cut(run: Run) -> None:
    usual = ("members.txt", "population.npy", "--delta", "0", "--json")
    within = json.loads(run(*usual)[1])
    assert within["epsilon_star"] == within["epsilon_star_within_cut"] > 0
    assert (within["unbounded"], within["epsilon_star_without_cut"], within["cut"]) == (False, None, 1e-6)
    answer = json.loads(run(*usual, "--cut", "0", "--method", "parametric")[1])
    assert (answer["epsilon_star"], answer["unbounded"], answer["interval"]) == (None, True, [None, None])
    assert "at delta 0" in answer["warnings"][0]
    _, out, _ = run("flat.txt", "population.npy", "--delta", "1e-3", "--json")
    assert json.loads(out)["unbounded"]


@pytest.mark.long
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_table_and_figure(run: Run, ending: str) -> None:
    code, out, err = run("members.txt", "population.npy", "--delta", "1e-3", "--plot", f"star.{ending}")
    assert code == 0, err
    for expected_text in (
        "(parametric), error rates from 1e-06 to 1 - 1e-06",
        "95 % of resamples",
        "AUC",
        "Yeom",
        "TPR at FPR 0.1 %",
        f"figure: star.{ending}",
    ):
        assert expected_text in out
    assert Path(f"star.{ending}").stat().st_size > 5000


@pytest.mark.long
def test_figures_of_what_has_no_distribution(run: Run) -> None:
    for file_name, method in (("flat.txt", "parametric"), ("members.txt", "empirical")):
        assert run(file_name, "population.npy", "--delta", "0", "--method", method, "--plot", "star.png")[0] == 0
    assert run("flat.txt", "flat.txt", "--delta", "0.1", "--plot", "star.png")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (("members.txt", "population.npy", "--delta", "1"), "delta is 1"),
        (("members.txt", "population.npy", "--delta", "-0.1"), "delta is -0.1"),
        (("members.txt", "population.npy", "--delta", "nan"), "delta is nan"),
        (("negative.txt", "population.npy", "--delta", "0.1"), "member losses .*-0.2"),
        (("members.txt", "nan.txt", "--delta", "0.1"), "population losses .*nan"),
        (("one.txt", "population.npy", "--delta", "0.1"), "2 or more losses"),
        (("empty.txt", "population.npy", "--delta", "0.1"), "empty.txt is empty"),
        (("gone.txt", "population.npy", "--delta", "0.1"), "gone.txt .*be read"),
        (("members.txt", "population.npy", "--delta", "0.1", "--method", "kde"), "'kde': .* parametric"),
        (("members.txt", "population.npy", "--delta", "0.1", "--confidence", "1"), "confidence is 1"),
        (("members.txt", "population.npy", "--delta", "0.1", "--cut", "0.7"), "cut is 0.7"),
        (
            ("members.txt", "population.npy", "--delta", "0.1", "--plot", "star.bmp"),
            r"star\.bmp.*: .* \.png, \.pdf and \.svg",
        ),
        (("members.txt", "population.npy", "--delta", "0.1", "--plot", "gone/star.png"), "gone.*not exist"),
        (("members.txt", "population.npy", "--delta", "0.1", "--seed", "-1"), "--seed -1"),
    ],
)
def test_wrong_input_gets_one_line(run: Run, arguments: tuple[str, ...], expected_message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert re.search(expected_message, err)
    assert err.count("\n") == 1
    assert not list(Path().glob("star.*"))


def test_the_simulation_of_appendix_b() -> None:
    """Both forms shrink to 0 if nothing leaks; if much does, the empirical one stays below (figures 4 and 5)."""
    settings = SimulationSettings(separations=(0.0, 3.0), sizes=(1000, 10_000), repetitions=10)
    table = simulate(settings, seed=1)
    assert len(table) == 2 * 2 * 3 * 10
    assert _true_epsilon_star(settings, 0.0) == 0
    bias = {cell: errors.bias for cell, errors in summary(table).items()}
    for separation in settings.separations:
        for size in settings.sizes:
            assert abs(bias[separation, size, "parametric"]) < abs(bias[separation, size, "empirical"])
    assert bias[0.0, 1000, "parametric"] > bias[0.0, 10_000, "parametric"] > 0
    assert bias[3.0, 10_000, "empirical"] < -1
