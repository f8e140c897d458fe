"""The command: names, flags, one line for what is wrong."""

import sys
from pathlib import Path

import pytest

from fl_audit.experiments.papers.reproduce import PAPERS
from tests.builders.commands import RunCommand, command_runner


@pytest.fixture
def run_reproduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("FL_AUDIT_DATA", raising=False)

    return command_runner(capsys, "reproduce")


@pytest.mark.long
def test_an_item_without_runs(run_reproduce: RunCommand, tmp_path: Path) -> None:
    finished = run_reproduce("bernau2021-table3", "--quick")
    made = tmp_path / "runs" / "reproduce-bernau2021-table3-quick"
    assert finished.returncode == 0
    assert "bernau2021-table3" in finished.stdout
    assert sorted(path.name for path in made.iterdir()) == [
        "bernau2021-table3.html", "table3.csv", "table3.json", "table3.png", "table3.svg",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bernau2021-tabel2"], "nearest is 'bernau2021-table2'"),
        (["negoescu2023-fig33"], "nearest is 'negoescu2023-fig3'"),
        (["bernau2021-fig9", "--data-dir", "gone"], "none of its"),
        (["bernau2021-fig9", "--engine", "cloud"], ": accepted are ray and local"),
    ],
)
def test_wrong_arguments_get_one_line(
    run_reproduce: RunCommand, tmp_path: Path, arguments: list[str], said: str
) -> None:
    finished = run_reproduce(*arguments)
    assert finished.returncode == 2
    assert said in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not (tmp_path / "runs").exists()


def test_the_help_names_every_paper_and_item(run_reproduce: RunCommand) -> None:
    finished = run_reproduce("--help")
    assert finished.returncode == 0
    words = " ".join(finished.stdout.split())
    for paper in PAPERS:
        assert paper.key in words
        assert paper.heading in words
        assert paper.items[-1].key in words
