"""A directory where the documentation is followed: its files are there, its commands are typed, its Python is run."""

import ast
import json
import re
import runpy
import shlex
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fl_audit.app_audits.launchers import strategy_audit_launcher
from fl_audit.app_audits.review.app_loading import read_app
from fl_audit.cli.main import app, main
from fl_audit.runs.config import PRIVACY_TARGETS, parse_config
from fl_audit.runs.config_file import load_config
from fl_audit.runs.site_policy import read_policy
from fl_audit.user_modules import OWN_PACKAGE, searched_last
from tests.builders.commands import audit_strategy_here
from tests.documentation.pages import FILES, Block, makers

TRIALS = 12
MORE_TRIALS = 14
SHADOWS = 24
"""Few trials: nothing that is printed or drawn needs more, but for attacks with shadow models, which need 24."""

Namespace = dict[str, Any]


class Workspace:
    """Runs blocks in one directory; what one page has made, others find, and no command is run twice."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._output: dict[str, str] = {}
        for name, block in FILES.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(block.body)
        runpy.run_path("make_data.py")

    def run(self, block: Block, before: Block | None, namespace: Namespace, capsys: pytest.CaptureFixture[str]) -> None:
        """Run a block, or hold what it shows against what the block before it printed."""
        for directory in re.findall(r"\bruns/[\w-]+", block.body):
            if makers().get(directory) not in (None, *block.commands):
                self.make(directory, capsys)
        match block.kind:
            case "toml":
                check_configuration(block, self.directory)
            case "json":
                json.loads(block.body)
            case "sh":
                for command in block.commands:
                    self._command(command, capsys)
            case "python" if block.file is None:
                exec(compile(block.body, block.page, "exec"), namespace)
            case "text":
                assert before is not None, f"{block.page}: a text block shows what a block of commands prints"
                assert_shown(block.body, "\n".join(self._output[command] for command in before.commands), block.page)

    def make(self, directory: str, capsys: pytest.CaptureFixture[str]) -> Path:
        """Return a directory that some page makes, made if need be."""
        if not (self.directory / directory).exists():
            self._command(makers()[directory], capsys)
        return self.directory / directory

    def _command(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        if command in self._output:
            return
        capsys.readouterr()
        words = shlex.split(command, comments=True)
        if words[0] == "python":
            runpy.run_path(words[1], run_name="__main__")
        else:
            self._fl_audit(words)
        self._output[command] = capsys.readouterr().out

    def _fl_audit(self, words: list[str]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [*words, *_made_small(words)])
            if _name(words) == "run":  # Figures are most of the time of a small run; `fl-audit report` draws them.
                patch.setattr("fl_audit.audits.page.report_files.write_report", lambda *_: None)
            if _name(words) == "report":  # The PDF takes seconds more, and has tests of its own.
                patch.setattr("fl_audit.audits.page.report_files.write_pdf", lambda *_: None)
            if _name(words) == "strategy":  # A process of its own, which has tests of its own, takes seconds to begin.
                patch.setattr(strategy_audit_launcher, "audit_in_subprocess", audit_strategy_here)
            with pytest.raises(SystemExit) as ended:
                main()
        assert ended.value.code == 0, shlex.join(words)


def _name(words: list[str]) -> str:
    """Return the command, before which options may stand."""
    return next(word for word in words[1:] if not word.startswith("-"))


def _made_small(words: list[str]) -> list[str]:
    """Return options that make a run small and local; the last `--set` of a key counts."""
    match _name(words):
        case "strategy":
            return ["--set", "processes=1"]
        case "sweep":
            return ["--engine", "local"]
        case "run":
            pass
        case _:
            return []
    is_longer = "--resume" in words and any(word.startswith("audit.trials=") for word in words)
    trials = SHADOWS if "membership.toml" in words else MORE_TRIALS if is_longer else TRIALS
    return ["--engine", "local", "--set", f"audit.trials={trials}"]


def read(block: Block, directory: Path) -> None:
    """Read a block without running it: its settings, the options of its commands, what it imports of ours."""
    match block.kind:
        case "toml":
            check_configuration(block, directory)
        case "sh":
            for command in block.commands:
                program, *words = shlex.split(command, comments=True)
                if program == "python":
                    compile(Path(words[0]).read_text(), words[0], "exec")
                    continue
                name = _name([program, *words])
                words = words[words.index(name) + 1 :]
                parameters = get_command(app).commands[name].make_context(name, words).params  # type: ignore[attr-defined]
                if name in ("run", "sweep"):
                    with searched_last(directory):
                        load_config(
                            Path(parameters["config"]),
                            [*(parameters["set_"] or []), *_first_values(parameters.get("over"))],
                        )
        case "python":
            for node in ast.walk(ast.parse(block.body)):
                match node:
                    case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == OWN_PACKAGE:
                        assert all(hasattr(import_module(module), alias.name) for alias in names), (
                            f"{block.page}: {module}"
                        )


def _first_values(over: list[str] | None) -> list[str]:
    """Return the settings of the first point of a sweep."""
    return [setting_values.partition(",")[0] for setting_values in over or []]


_RELATION_OF = {"dp-fedavg": "add-remove-client", "dp-sgd-clients": "add-remove-record"}
"""The adjacency with which a part of a configuration that names none is checked, by its strategy."""


def check_configuration(block: Block, directory: Path) -> None:
    """Check a configuration, or a part of one, as `fl-audit run` does before it looks at data."""
    if block.file is not None and block.file.endswith("pyproject.toml"):
        assert read_app((directory / block.file).parent).server
        return
    if block.file is not None and block.file.endswith("policy.toml"):
        read_policy(directory / block.file)
        return
    if block.file is not None:
        # As the command does, which finds modules of the user in the directory where it was started.
        with searched_last(directory):
            load_config(directory / block.file)
        return
    values = tomllib.loads(block.body)
    privacy = values.setdefault("privacy", {})
    if privacy.get("private") is not False and not set(privacy) & set(PRIVACY_TARGETS):
        privacy["epsilon"] = 1.0
    if privacy.get("private") is not False and "adjacency" not in privacy:
        privacy["adjacency"] = _RELATION_OF.get(values.get("training", {}).get("strategy"), "replace-record")
    parse_config(values)


def assert_shown(page_text: str, printed: str, page: str) -> None:
    """Every word that a page shows is printed, in this order; numbers may be shown with fewer digits."""
    printed_words = iter(re.sub(r"[─-╿]", " ", printed).split())
    for word in page_text.split():
        assert any(_is_same(word, printed_word) for printed_word in printed_words), (
            f"{page} shows {word!r}, which is not printed there"
        )


def _is_same(page_word: str, printed: str) -> bool:
    if page_word == printed:
        return True
    try:
        digits = len(page_word.rstrip(",").partition(".")[2])
        return f"{float(printed.rstrip(',')):.{digits}f}" == page_word.rstrip(",")
    except ValueError:
        return False
