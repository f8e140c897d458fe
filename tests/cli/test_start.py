"""Commands that learn nothing answer at once, and clients start soon: they do not import what takes seconds."""

import ast
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "ray", "flwr", "pandas", "matplotlib", "scipy.optimize", "scipy.stats", "dp_accounting", "sklearn")

COMMANDS = {
    "--help": 0,
    "--version": 0,
    "account --help": 0,
    "datasets": 0,
    "settings privacy": 0,
    "run misspelt.toml": 2,
    "compare first second": 0,
    "export first --to badge --out badge.svg": 0,
    "run audit.toml --out taken": 2,
    "run audit.toml --resume --out new": 2,
    "sweep misspelt.toml": 2,
    "reproduce misspelt": 2,
    "strategy misspelt:private --claim-epsilon 1": 2,
    "account --noise-multiplier 1 --delta 1e-5 --rounds 30 --adjacency replace-record": 0,
    "account --noise-multiplier 1 --delta 1e-5 --rounds 30 --adjacency add-remove-record --sampling-rate 0.1": 0,
    "calibrate --belief 0.9 --delta 1e-3 --rounds 30 --adjacency replace-record": 0,
}

PROGRAM = f"""
import contextlib, io, json, sys
from fl_audit.cli.main import main

found = {{}}
for command in json.loads(sys.argv[1]):
    sys.argv = ["fl-audit", *command.split()]
    status = 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    found[command] = [status, [name for name in {HEAVY} if name in sys.modules]]
import fl_audit.clients.app
from fl_audit.data.catalogue import DataSpec, load_source

load_source(DataSpec("breast-cancer"))
found["a client"] = [0, [name for name in {HEAVY} if name in sys.modules]]
print(json.dumps(found))
"""


LIST = """
import sys
from fl_audit.cli.main import main
sys.argv = ["fl-audit", "--help"]
try:
    main()
except SystemExit:
    print([name for name in sys.modules if name.startswith(('fl_audit.cli.', 'rich.table'))], file=sys.stderr)
"""


def test_the_list_of_commands_imports_none_of_them() -> None:
    ran = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True)
    assert "epsilon-star" in ran.stdout
    assert {name.rpartition(".")[2] for name in ast.literal_eval(ran.stderr)} == {"main", "lazy_commands"}


def test_importing_the_package_looks_nothing_up_on_the_disk() -> None:
    code = "import sys, fl_audit; print([name for name in ('importlib.metadata', 'numpy') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def _processor_seconds(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("words", "seconds_limit"), [(("-m", "fl_audit.cli.main", "--help"), 0.4), (("-c", "import fl_audit"), 0.2)]
)
def test_a_start_is_short(words: tuple[str, ...], seconds_limit: float) -> None:
    assert min(_processor_seconds(*words) for _ in range(3)) < seconds_limit


@pytest.mark.long
def test_commands_that_learn_nothing_import_nothing_slow(tmp_path: Path) -> None:
    (tmp_path / "misspelt.toml").write_text("[privacy]\nbelif = 0.9\n")
    (tmp_path / "audit.toml").write_text("[privacy]\nadjacency = 'replace-record'\nbelief = 0.9\ndelta = 1e-3\n")
    (tmp_path / "taken" / "theirs").mkdir(parents=True)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text('{"schema": 1, "verdict": "no guarantee", "guarantee": null}')
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(list(COMMANDS))]
    ran = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
    outcomes = json.loads(ran.stdout)
    # Clients learn, and every process of a client is started anew.
    assert outcomes.pop("a client") == [0, ["torch", "flwr"]]
    assert outcomes == {command: [status, []] for command, status in COMMANDS.items()}
