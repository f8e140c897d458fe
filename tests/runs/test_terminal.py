"""Nothing that a table, a model or a file name holds acts on the terminal, and any encoding can show it."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.runs import verbosity
from fl_audit.runs.terminal import EscapingConsole
from tests.few_examples import examples

CLEAR, CLIPBOARD = "\x1b[2J", "\x1b]52;c;aGk=\x07"


@settings(max_examples=examples(40))
@given(st.text())
def test_no_control_character_passes(text: str) -> None:
    raw = io.StringIO()
    cast(TextIO, verbosity.EscapingStream(raw)).write(text)
    assert verbosity.plain(text) == raw.getvalue()
    assert not any(
        (ord(character) < 32 and character not in "\n\t") or 127 <= ord(character) < 160 for character in raw.getvalue()
    )


def test_a_table_of_rich_keeps_its_colours_and_shows_what_would_act() -> None:
    from rich.table import Table

    raw = io.StringIO()
    console = EscapingConsole(file=raw, force_terminal=True, color_system="standard", width=100, markup=False)
    table = Table()
    table.add_column(f"name{CLEAR}", style="bold")
    table.add_row(f"x{CLIPBOARD}")
    console.print(table)
    assert CLEAR not in raw.getvalue()
    assert CLIPBOARD not in raw.getvalue()
    assert "\\x1b[2J" in raw.getvalue()
    assert "\x1b[1m" in raw.getvalue()  # its own


def test_an_encoding_that_lacks_a_character_shows_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", raw)
    verbosity.protect_terminal()
    sys.stdout.write("20\N{NO-BREAK SPACE}% of gr\u00f6\u00dfe \N{EN DASH} \U0001f600\n")
    assert cast(io.BytesIO, raw.buffer).getvalue() == b"20 % of gr\\xf6\\xdfe - \\U0001f600\n"


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_commands_print_a_table_of_any_names_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    names = f"gr\u00f6\u00dfe{CLEAR},\u6f22\u5b57,target"
    labels = "no", f"y\u00e9s{CLIPBOARD}"
    rows = [f"{number % 7},{number % 5},{labels[number % 2]}" for number in range(60)]
    (tmp_path / "table.csv").write_text("\n".join([names, *rows]), encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": os.pathsep.join(sys.path)}

    def printed(*arguments: str) -> bytes:
        command = [sys.executable, "-m", "fl_audit.cli.main", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    output = printed(
        "init", "a.toml", "--data", "table.csv", "--label", "target", "--belief", "0.9", "--drop", "\u6f22\u5b57"
    )
    output += printed("check", "a.toml", "--set", "audit.trials=2")
    assert b"\x1b" not in output
    assert b"\x07" not in output
    output.decode(encoding)
