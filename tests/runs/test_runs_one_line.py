"""A failure of a machine gets one line, never a traceback, and what was finished is kept."""

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from fl_audit.atomic_files import atomic_file
from fl_audit.data.encoding import min_max
from fl_audit.errors import FederationError, InputError
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from fl_audit.runs.verbosity import printable
from tests.builders.commands import exit_status
from tests.builders.runs import run_locally, small_plan

STRANGE = ("a$b$c_{x", "[red]x[bold]", "one\x1b[31mtwo\nthree")


def test_a_disk_that_is_full_before_the_run_leaves_nothing_in_its_way(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"0" * 158_000)
    with pytest.raises(InputError, match="be made: No space"):
        run_audit(small_plan(), small_disk / "run", Engine.LOCAL)
    assert not (small_disk / "run").exists()


@pytest.mark.parametrize(
    "raised",
    [
        OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_writer_that_fails_names_the_file_that_was_to_be_written(raised: Exception, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, atomic_file(tmp_path / "table"):
        raise raised
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "table"))
    with pytest.raises(KeyError), atomic_file(tmp_path / "table"):
        raise KeyError("something else")
    assert list(tmp_path.iterdir()) == []


def test_a_ray_that_does_not_start_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray raises an exception of no particular kind where its raylet dies while it starts."""
    import ray

    def dies(*_: object, **arguments: object) -> None:
        raise Exception("Node timed out.\nThis could happen because some of the raylet")

    monkeypatch.setattr(ray, "init", dies)
    before = dict(os.environ)
    with pytest.raises(FederationError) as caught:
        run_audit(small_plan(), tmp_path / "run", Engine.RAY, with_report=False)
    assert re.fullmatch(r"Ray .*did not .*: Node timed out\.", str(caught.value))
    assert {name for name in os.environ if name.startswith("RAY_AUTH")} <= before.keys()


@pytest.mark.long
def test_names_of_runs_are_shown_and_drawn_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dollar sign begins no formula, brackets no style, and nothing moves the cursor."""
    for name in STRANGE:
        run_locally(small_plan(audit={"epsilon-star": False}), tmp_path / name)
    monkeypatch.setenv("COLUMNS", "200")
    said = exit_status("compare", *(str(tmp_path / name) for name in STRANGE), "--plot", str(tmp_path / "x.png"))
    out, err = capsys.readouterr()
    assert (said, err) == (0, "")
    assert all(printable(name) in out for name in STRANGE)
    assert "\x1b[31m" not in out
    assert (tmp_path / "x.png").stat().st_size > 0
    assert exit_status("report", str(tmp_path / "no\x1b[31mne\n")) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_columns_too_wide_for_a_number_are_refused() -> None:
    wide = np.array([[0.0, -1e308], [1.0, 1e308]])
    with pytest.raises(InputError, match=r"-1e\+308 to 1e\+308"):
        min_max(wide)
    scaled, _ = min_max(wide / 4)
    np.testing.assert_array_equal(scaled, [[0, 0], [1, 1]])
