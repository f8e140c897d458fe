"""Commands that learn nothing answer at once, and clients start soon: they do not import what takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

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
from fl_audit.experiments.cli.main import main

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


def test_commands_that_learn_nothing_import_nothing_slow(tmp_path: Path) -> None:
    (tmp_path / "misspelt.toml").write_text("[privacy]\nbelif = 0.9\n")
    (tmp_path / "audit.toml").write_text("[privacy]\nadjacency = 'replace-record'\nbelief = 0.9\ndelta = 1e-3\n")
    (tmp_path / "taken" / "theirs").mkdir(parents=True)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text('{"schema": 1, "verdict": "no promise", "guarantee": null}')
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(list(COMMANDS))]
    ran = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    # Clients learn, and every process of a client is started anew.
    assert found.pop("a client") == [0, ["torch", "flwr"]]
    assert found == {command: [status, []] for command, status in COMMANDS.items()}
