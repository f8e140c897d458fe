"""Work that takes long says what it is, again and again, also where standard error is a file."""

import re
import time
from collections.abc import Callable

import pytest

from fl_audit.runs import progress

Said = Callable[[str], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return a function that waits, as long as a busy machine needs, until something matches what was said so far."""

    def wait_for(wanted: str) -> str:
        end, told = time.monotonic() + 60.0, ""
        while not re.search(wanted, told):
            assert time.monotonic() < end, told
            time.sleep(0.02)
            told += capsys.readouterr().err
        return told

    return wait_for


def test_long_work_is_told_in_a_line_and_short_work_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    with progress.at_work("short work"):  # it is over long before a line is due
        pass
    monkeypatch.setattr(progress, "SECONDS_UNTIL_A_LINE", 0.05)
    with progress.at_work("long work"):
        told = said("\n")
        time.sleep(0.2)
    assert told + capsys.readouterr().err == "long work\n"


def test_longer_work_is_told_again_even_where_it_reports_nothing(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    assert progress.SECONDS_BETWEEN_LINES <= 10.0
    monkeypatch.setattr(progress, "SECONDS_UNTIL_A_LINE", 0.05)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.1)
    with progress.at_work("a long report"):
        lines = said("(.*\n){3}").splitlines()
    assert all(line.startswith("a long report: ") and line.endswith(" s gone") for line in lines[1:])
    with progress.progress_bar(600) as on_round:
        first = said("\n").splitlines()[0]
        on_round(200)
        on_round(200)
        said(r"playing: 400 of 600 trial-rounds, \d+ s gone, about \d+ s left\n")
    assert re.match(r"starting .*: 0 of 600 trial-rounds, \d+ s gone", first)
