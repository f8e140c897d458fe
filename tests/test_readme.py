"""The README is run: its files are written where a reader would write them, its commands typed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.main import main

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README.replace("\\\n", ""), flags=re.DOTALL)
FILES = {
    body.split("\n")[0].removeprefix("# "): body
    for kind, body in BLOCKS
    if kind in ("toml", "python") and body[0] == "#"
}
COMMANDS = [
    line
    for kind, body in BLOCKS
    if kind == "sh"
    for line in body.split("\n")
    if line.startswith(("fl-audit", "python ")) and "--ray-address" not in line
]


def test_the_readme_names_what_it_should() -> None:
    assert set(FILES) == {
        "audit.toml",
        "clients.toml",
        "membership.toml",
        "make_data.py",
        "my_models.py",
        "my_strategies.py",
        "promise.py",
    }
    assert len(COMMANDS) == 18
    assert "make demo" in README
    assert "make test" in README
    for link in re.findall(r"\]\((experiments/[^)]*)\)", README):
        assert (Path(__file__).parents[1] / link).exists(), link


@pytest.mark.timeout(600)
def test_its_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in this process: each start would take seconds, and that the program starts is tested elsewhere."""
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for command in [*COMMANDS, "python promise.py"]:
        words = shlex.split(command, comments=True)
        if words[0] == "python":
            ran = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=False)
            assert ran.returncode == 0, f"{command}: {ran.stderr}"
            continue
        # Attacks with shadow models need 24 worlds; nothing else that is printed or drawn needs more than a few.
        worlds = 24 if "membership.toml" in words else 12
        engine = ["--engine", "local", "--set", f"audit.worlds={worlds}"] if words[1] == "run" else []
        monkeypatch.setattr(sys, "argv", [*words, *engine])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, command
    assert (tmp_path / "runs" / "own-model" / "report.html").exists()
    assert (tmp_path / "runs" / "clients" / "insiders.parquet").exists()
    assert (tmp_path / "runs" / "membership" / "targets.parquet").exists()
