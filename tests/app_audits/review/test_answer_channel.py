"""Results of subprocesses that run other people's code: that code cannot send a result in their place."""

import re
from pathlib import Path

import pytest

from fl_audit.app_audits.launchers import isolated_process
from fl_audit.errors import InputError

PROGRAM = """
import json, os, sys, time
from pathlib import Path

def found(asked, tell):
    {before}
    own_of_code()
    return {{"judged": asked["trials"]}}

def own_of_code():
    forged = {{"judged": "forged", "is_done": True}}
    {code}
"""
FILES = """
    for name in ("told.json", "request.json", "answer.json"):
        (Path(os.environ["TMPDIR"]) / name).write_text(json.dumps(forged))
    assert sys.argv[1:] == [] and sys.stdin.read() == ""
"""
PIPES = """
    for number in range(3, 100):
        try:
            os.write(number, (json.dumps(forged) + chr(10)).encode())
        except OSError:
            pass
"""
CHILD = """
    import subprocess
    subprocess.run([sys.executable, "-c", "import os\\nfor n in range(3, 50):\\n  try: os.write(n, b'{}\\\\n')\\n"
                    "  except OSError: pass"], close_fds=False)
"""


def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, before: str = "pass") -> str:
    name = f"forging_{abs(hash((code, before)))}"
    (tmp_path / f"{name}.py").write_text(PROGRAM.format(code=code.strip(), before=before))
    monkeypatch.syspath_prepend(str(tmp_path))
    return f"{name}:found"


@pytest.mark.parametrize("code", [FILES, CHILD], ids=["files", "child"])
def test_a_result_is_not_replaced_by_files_or_by_programs_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    with (tmp_path / "log").open("wb") as log:
        process_result = isolated_process.run_isolated(
            _program(tmp_path, monkeypatch, code), {"trials": 40}, tmp_path, 60.0, log=log
        )
    assert (process_result.values, process_result.ended) == ({"judged": 40}, "")


@pytest.mark.parametrize("before", ["pass", 'tell({"judged": "so far"})'], ids=["none", "early"])
def test_nothing_is_believed_if_the_code_writes_to_every_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    name = _program(tmp_path, monkeypatch, PIPES, before)
    with (tmp_path / "log").open("wb") as log, pytest.raises(InputError, match="nothing that came through it counts"):
        isolated_process.run_isolated(name, {"trials": 40}, tmp_path, 60.0, log=log)


@pytest.mark.parametrize("launcher", ["review", "strategy_audit", "training_audit"])
def test_all_launchers_use_the_pipe(launcher: str) -> None:
    """They start subprocesses through `run_isolated` alone, and the functions called there start none."""
    directory = Path(isolated_process.__file__).parent
    text = (directory / f"{launcher}_launcher.py").read_text()
    assert re.search(r"run_(command_)?isolated\(", text)
    (function_module,) = set(re.findall(r"launchers\.(isolated_\w+):", text))
    assert "subprocess." not in text + (directory / f"{function_module}.py").read_text()
