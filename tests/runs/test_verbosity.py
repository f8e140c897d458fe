"""Output of commands beside their results: completion, help, how much is said, and one JSON object where asked."""

import io
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from typer.main import get_command
from typer.testing import CliRunner

from fl_audit.adjacency import Adjacency
from fl_audit.cli.main import app
from fl_audit.errors import InputError
from fl_audit.runs import progress, verbosity
from tests.builders.commands import printed_by
from tests.builders.settings import small_toml

CONFIG = small_toml(privacy={"accountant": "gdp"}, run={"seed": 0})


@pytest.fixture(autouse=True)
def _audible(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Leave the talk as it was, and write no page: what is in it is tested elsewhere."""
    monkeypatch.setattr("fl_audit.audits.page.report_files.write_report", lambda *_: None)
    yield
    verbosity.set_verbosity(quiet=False, level=None)


def _completed(*words: str) -> list[str]:
    completions = ShellComplete(get_command(app), {}, "fl-audit", "_FL_AUDIT_COMPLETE").get_completions(
        list(words[:-1]), words[-1]
    )
    return [completion.value for completion in completions]


def test_a_shell_completes_commands_and_values() -> None:
    assert _completed("cali") == ["calibrate"]
    assert _completed("run", "--engine", "") == ["ray", "local"]
    assert _completed("sweep", "a.toml", "--engine", "l") == ["local"]
    assert _completed("account", "--adjacency", "") == list(Adjacency)
    assert _completed("calibrate", "--accountant", "rdp") == ["rdp-classic", "rdp"]
    assert _completed("run", "--set", "privacy.nois") == [
        "privacy.noise-multiplier=",
        "privacy.noise-over=",
        "privacy.noise=",
    ]
    assert _completed("run", "--set", "privacy.noise=b") == ["privacy.noise=banded"]
    assert _completed("settings", "run.se") == ["run.seed"]


def test_help_has_no_stray_backslashes_and_names_the_exit_statuses() -> None:
    names = get_command(app).commands  # type: ignore[attr-defined]
    helps = [printed_by(*words, "--help") for words in ([], *([name] for name in names))]
    assert not any("\\" in help_text for help_text in helps)
    for status in ("0 ", "2 ", "3 ", "4 ", "130 "):
        assert re.search(rf"^\s+{status}", helps[0], re.MULTILINE), status
    assert "--install-completion" in helps[0]


def test_run_prints_one_json_object(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(CONFIG)
    out = tmp_path / "out"
    ran = CliRunner().invoke(
        app, ["run", str(tmp_path / "audit.toml"), "--out", str(out), "--engine", "local", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    answer = json.loads(ran.stdout)
    stored = json.loads((out / "summary.json").read_text())
    assert {key: answer[key] for key in stored} == stored
    assert answer["report"] == str(out / "report.html")
    # Standard error is no terminal here: there are lines, if it takes long enough, and no control codes.
    assert "\x1b" not in ran.stderr


def test_data_sets_as_json() -> None:
    datasets = json.loads(printed_by("datasets", "--json"))["datasets"]
    digits = next(dataset for dataset in datasets if dataset["name"] == "digits")
    assert digits["found"] is True
    assert all(isinstance(dataset["found"], bool) for dataset in datasets)


def test_quiet_leaves_result_lines_and_errors(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(CONFIG)
    flags = ["run", str(tmp_path / "audit.toml"), "--engine", "local"]
    ran = CliRunner().invoke(app, ["--quiet", *flags, "--out", str(tmp_path / "quiet")])
    assert ran.stderr == ""
    assert "report: " in ran.stdout
    command_result = CliRunner().invoke(
        app, ["--quiet", "--log-level", "info", *flags, "--out", str(tmp_path / "logged")]
    )
    assert re.search("INFO fl_audit: .*data", command_result.stderr)
    assert isinstance(CliRunner().invoke(app, ["--log-level", "loud", "datasets"]).exception, InputError)


def test_a_line_has_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    line_callbacks = []
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(progress, "_repeating_line", lambda line: nullcontext(line_callbacks.append(line)))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    lines = []
    with progress.progress_bar(1000) as on_round:
        clock[0] += 40.0  # clients start, which takes as long as eight of the rounds that follow
        for _ in range(10):
            on_round(50)
            lines.append(line_callbacks[0]())
            clock[0] += 5.0
    assert lines[::3] == [
        "playing: 50 of 1,000 trial-rounds, 40 s gone",
        "playing: 200 of 1,000 trial-rounds, 55 s gone, about 80 s left",
        "playing: 350 of 1,000 trial-rounds, 70 s gone, about 65 s left",
        "playing: 500 of 1,000 trial-rounds, 85 s gone, about 50 s left",
    ]
