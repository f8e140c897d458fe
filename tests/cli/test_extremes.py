"""Every option of every command at its extremes: one line and a quick end, whatever number, path or encoding it is."""

import contextlib
import encodings
import os
import pkgutil
import signal
import socket
import sys
import time
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click
import numpy as np
import pytest
import typer

from fl_audit.atomic_files import atomic_file
from fl_audit.cli.main import app, main
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.image_folders import ImageSettings
from fl_audit.data.table_text import read_table_text
from fl_audit.errors import InputError
from fl_audit.runs.exports.trackers import to_mlflow
from tests.builders.refusals import assert_refused
from tests.builders.settings import tiny_toml

ROOT: click.Group = typer.main.get_command(app)  # type: ignore[assignment]
Options = dict[str, str | None]
"""The value given to each option; None for a switch."""

GUARANTEE: Options = {"delta": "1e-5", "rounds": "10", "adjacency": "add-remove-record"}
BASES: dict[str, tuple[list[str], Options]] = {
    "simulate": (["absent"], {"engine": "local"}),
    "release": (["absent", "others", "scores"], {"delta": "1e-5"}),
    "demo": ([], {"engine": "local", "out": "table.csv"}),
    "init": (["new.toml"], {"data": "table.csv", "label": "y", "belief": ".9"}),
    "check": (["audit.toml"], {"no-probe": None}),
    "run": (["audit.toml"], {"engine": "local", "out": "table.csv"}),
    "replay": (["absent"], {}),
    "report": (["absent"], {}),
    "compare": (["absent"], {}),
    "export": (["absent"], {"to": "badge", "out": "badge.svg"}),
    "sweep": (["audit.toml"], {"engine": "local", "out": "table.csv", "over": "training.rounds=2"}),
    "sign": (["absent"], {"key": "scores"}),
    "verify": (["absent"], {}),
    "gate": (["absent.toml", "absent"], {}),
    "settings": ([], {}),
    "datasets": ([], {}),
    "calibrate": ([], GUARANTEE | {"belief": ".9"}),
    "account": ([], GUARANTEE | {"noise-multiplier": "2"}),
    "bound": (["scores", "others"], {"delta": "1e-5"}),
    "epsilon-star": (["others", "scores"], {"delta": "1e-5"}),
    "strategy": (["absent:factory"], {"adjacency": "add-remove-client", "claim-epsilon": "1"}),
    "review": (["absent"], {"claim-epsilon": "1"}),
    "training": (["absent:function"], {}),
    "live": (["absent"], {"coins": "scores"}),
    "reproduce": (["negoescu2023-fig4"], {"out": "table.csv"}),
}
"""For every command arguments and options beside which one is tried; those that would play are refused at their end."""

TARGETS = {"belief", "epsilon", "advantage", "reconstruction", "noise-multiplier"}
NUMBERS = {
    "INT": ("0", "-1", "1000000000000", "9223372036854775808", "1" + 400 * "0"),
    "FLOAT": ("0", "-1", "1e-320", "1e308", "-1e308", "nan", "inf", "1" + 400 * "0"),
}
NO_FILES = ("fifo", "loop", "loop/below", "socket", "/dev/zero", "x" * 5000)
SECONDS = 60.0
"""No command here works so long on a machine that does something else too."""


@pytest.fixture
def input_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draw = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'uv'[number % 2]}" for number, (a, b) in enumerate(draw.normal(size=(60, 2)))]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (tmp_path / "audit.toml").write_text(tiny_toml())
    for name, mean in (("scores", 1.0), ("others", 0.0)):
        (tmp_path / name).write_text("\n".join(map(str, draw.normal(mean, size=60).tolist())))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as unix_socket:
        unix_socket.bind("socket")
    return tmp_path


class TooLateError(BaseException):
    """A command took too long; no handler of exceptions takes it for one of its own."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TooLateError` in a `with` block that takes more seconds than given."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TooLateError("".join(traceback.format_stack(frame)[-3:]))

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def command(name: str, option: str | None = None, value: str = "", position: int | None = None) -> list[str]:
    """Return a command with one of its options, or arguments, replaced."""
    arguments = list(BASES[name][0])
    options = dict(BASES[name][1])
    if option in TARGETS:
        options = {key: setting for key, setting in options.items() if key not in TARGETS}
    if option is not None:
        options[option] = value
    if position is not None:
        arguments[position : position + 1] = [value]
    flags = [f"--{key}" if setting is None else f"--{key}={setting}" for key, setting in options.items()]
    return [name, *flags, "--", *arguments]


def numeric(name: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a command that take a number, and the extremes of each."""
    for parameter in ROOT.commands[name].params:
        kind = "INT" if isinstance(parameter.type, click.types.IntParamType) else "FLOAT"
        if isinstance(parameter.type, (click.types.IntParamType, click.types.FloatParamType)):
            yield from ((parameter.opts[0][2:], value) for value in NUMBERS[kind])


def of_paths(name: str) -> Iterator[tuple[str | None, int | None]]:
    """Yield the options of a command that take a path, and the places of its arguments that do."""
    arguments = [argument for argument in ROOT.commands[name].params if argument.param_type_name == "argument"]
    for parameter in ROOT.commands[name].params:
        if isinstance(parameter.type, click.Path):
            is_argument = parameter in arguments
            yield (None, arguments.index(parameter)) if is_argument else (parameter.opts[0][2:], None)


def ends(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    """Run a command; return its status, with what it did wrong where it did."""
    monkeypatch.setattr(sys, "argv", ["fl-audit", *words])
    short_words = [word[:80] for word in words]
    capsys.readouterr()
    status: object = 0
    with limited(SECONDS):
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    errors = capsys.readouterr().err
    lines = [line for line in errors.splitlines() if line.startswith("fl-audit:")]
    assert "Traceback" not in errors, short_words
    assert status in (0, 2), (short_words, status, errors)
    assert len(lines) == (status == 2), (short_words, errors)
    assert all(len(line) < 2000 for line in lines), short_words
    return status


def test_every_command_is_walked_over() -> None:
    assert set(BASES) == set(ROOT.commands)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in BASES if any(True for _ in numeric(name))])
def test_the_largest_numbers(
    name: str, input_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    largest = dict(numeric(name))  # the last of each: 401 digits
    assert all(len(value) == 401 for value in largest.values())
    for option, value in largest.items():
        ends(command(name, option, value), monkeypatch, capsys)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in BASES if any(True for _ in numeric(name))])
def test_every_number_at_its_extremes(
    name: str, input_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value in numeric(name):
        ends(command(name, option, value), monkeypatch, capsys)
        (input_directory / "new.toml").unlink(missing_ok=True)


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("name", [name for name in BASES if any(True for _ in of_paths(name))])
def test_every_path_that_is_no_file_is_refused_at_once(
    name: str, input_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir(input_directory))
    for option, position in of_paths(name):
        for odd in NO_FILES:
            began = time.monotonic()
            assert ends(command(name, option, odd, position), monkeypatch, capsys) == 2
            assert time.monotonic() - began < 5
    assert sorted(os.listdir(input_directory)) == before


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in BASES if any(True for _ in of_paths(name))])
def test_every_path_at_its_extremes(
    name: str, input_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, position in of_paths(name):
        for odd in (*NO_FILES, "/dev/full", "/proc/self/mem", "", "bytes", "nothing"):
            is_new_place = option == "out" and odd in ("", "nothing")  # where a run would really begin
            if not is_new_place:
                ends(command(name, option, odd, position), monkeypatch, capsys)


def test_what_two_numbers_make_together_is_refused(
    input_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command("calibrate", "rounds", "1000000000000")
    for words in (["--sampling-rate=.01", "--delta=1e-5"], ["--sampling-rate=.5"]):
        assert ends([arguments[0], *words, *arguments[1:]], monkeypatch, capsys) == 2
    assert ends(command("calibrate", "epsilon", "1e308"), monkeypatch, capsys) == 2


def test_every_encoding_reads_a_table_or_is_refused(input_directory: Path) -> None:
    refused = set()
    encoding_names = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
    for name in encoding_names | {"a\0b", "base64", "x" * 3000, "../x", "utf 8"}:
        try:
            read_table_text(input_directory / "table.csv", name)
        except InputError:
            refused.add(name)
    assert {"punycode", "undefined", "a\0b", "base64_codec", "rot_13"} <= refused
    assert not {"utf_8", "cp1252", "latin_1"} & refused


def test_long_cells_and_wide_tables_are_read(tmp_path: Path) -> None:
    names = [f"column{number}" for number in range(50_000)]
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    assert read_table_text(tmp_path / "wide.csv").header == names
    (tmp_path / "long.csv").write_text("a,y\n" + "z" * 200_000 + ",u\n1,v\n")
    table = read_table_text(tmp_path / "long.csv")
    assert (table.header, table.separator) == (["a", "y"], ",")


@pytest.mark.parametrize("shape", [(2**70, 4), (10**12,), (10**12, 1)])
def test_headers_that_claim_more_than_there_is_get_one_line(
    shape: tuple[int, ...], input_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words + b"\0" * 64
    with zipfile.ZipFile("huge.npz", "w") as archive:
        archive.writestr("x.npy", content)
    Path("huge.npy").write_bytes(content)
    assert_refused("is damaged", load_source, DataSpec("npz", options=(("path", "huge.npz"),)))
    assert ends(command("bound", None, "huge.npy", 0), monkeypatch, capsys) == 2
    assert ends(command("epsilon-star", None, "huge.npy", 0), monkeypatch, capsys) == 2


def test_no_picture_is_made_larger_than_any_model_reads() -> None:
    assert ImageSettings.of({"image-size": 4096}).size == 4096
    assert_refused(r"image-size in .data. is 1000000000: .* 1 to 4096", ImageSettings.of, {"image-size": 10**9})


@pytest.mark.long
def test_a_server_that_does_not_answer_is_told_in_seconds() -> None:
    pytest.importorskip("mlflow")
    with socket.socket() as server_socket:
        server_socket.bind(("127.0.0.1", 0))
        port = server_socket.getsockname()[1]
    began = time.monotonic()
    assert_refused("does not answer", to_mlflow, None, f"http://127.0.0.1:{port}", "audits")  # type: ignore[arg-type]
    assert time.monotonic() - began < 15


def test_a_writer_puts_no_file_in_the_place_of_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="is a pipe"), atomic_file(tmp_path / "fifo") as file:
        file.write_text("a report")
    assert (tmp_path / "fifo").is_fifo()
    assert os.listdir(tmp_path) == ["fifo"]


def test_a_path_begins_in_nobodys_home(input_directory: Path) -> None:
    spec = DataSpec("csv", options=(("path", "~nobody-of-this-name/a.csv"), ("label", "y")))
    assert_refused(r"~nobody.*: .*without '~'", load_source, spec)
