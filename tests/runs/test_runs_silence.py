"""Work that takes long says what it is, again and again, also where standard error is a file."""

import time

import pytest

from fl_audit.experiments.runs import progress


def test_long_work_is_told_in_a_line_and_short_work_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_UNTIL_A_LINE", 0.05)
    with progress.at_work("short work"):
        pass
    with progress.at_work("long work"):
        time.sleep(0.5)
    assert capsys.readouterr().err == "long work\n"


def test_longer_work_is_told_again_even_where_it_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert progress.SECONDS_BETWEEN_LINES <= 10.0
    monkeypatch.setattr(progress, "SECONDS_UNTIL_A_LINE", 0.05)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.1)
    with progress.at_work("a long report"):
        time.sleep(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith("a long report: ") and line.endswith(" s gone") for line in lines[1:])
    with progress.progress_bar(600) as on_round:
        time.sleep(0.2)
        on_round(200)
        on_round(200)
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("starting the clients: 0 of 600 world-rounds, 0 s gone")
    assert "playing: 400 of 600 world-rounds, 0 s gone, about 0 s left" in lines
