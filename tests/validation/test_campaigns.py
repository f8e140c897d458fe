"""The command of the campaigns lists them all, and plays one by its name."""

import ast
import sys
from pathlib import Path

import pytest

from tests.builders.refusals import assert_refused
from tests.validation.__main__ import CAMPAIGNS, main, play

FOLDER = Path(__file__).parent


def test_every_module_with_a_command_is_a_campaign() -> None:
    modules = set[str]()
    for path in FOLDER.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        has_command = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if has_command and path.stem != "__main__":
            modules.add(".".join(path.relative_to(FOLDER).with_suffix("").parts))
    assert modules == set(CAMPAIGNS.values())


def test_a_campaign_reads_its_options_from_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.validation", "false_alarms", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert output.startswith("usage: python -m tests.validation false_alarms")
    assert "--audits" in output


def test_an_unknown_campaign_is_refused() -> None:
    assert_refused(r"campaign is 'nothing': accepted are breaches, ", play, "nothing")
