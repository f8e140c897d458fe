"""Work that takes long says what it is, also where standard error is a file."""

import time

import pytest

from experiments.runs import progress


def test_long_work_is_told_in_a_line_and_short_work_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_UNTIL_A_LINE", 0.05)
    with progress.at_work("short work"):
        pass
    with progress.at_work("long work"):
        time.sleep(0.5)
    assert capsys.readouterr().err == "long work\n"
