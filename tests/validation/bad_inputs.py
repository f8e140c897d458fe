"""Bad inputs to every command: how many end in a traceback, in a hang, or in more than one line.

    python -m tests.validation bad_inputs [--cases 600] [--seed 0] [--seconds 30] [--kind files]

Four kinds are generated, a quarter of the cases each: files that are damaged, compressed bombs, or no files at all,
for every command that reads one; directories of runs with one such file; settings of a configuration at their extremes;
and options at their extremes, two at a time. All are given to the commands in this process. The faults are printed, and
the command exits with status 1 if there is one.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import sys
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import click
import numpy as np
import typer
from typer.testing import CliRunner

from fl_audit.cli.main import app
from fl_audit.cli.main import main as fl_audit_command
from fl_audit.experiments.studies.study_commands import exit_with, parser_of
from fl_audit.runs.config.settings_reference import settings

_PROGRESS = ("review of ", "loading the data", "training of ", "strategy ", "drawing the figures")
"""Beginnings of lines that say what a command is doing."""
_OLD_WORKBOOK = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "Workbook".encode("utf-16-le")
_ROOT: click.Group = typer.main.get_command(app)  # type: ignore[assignment]
_CONFIG = """
data = {name = "breast-cancer", records = 40, clients = 2}
model = {name = "logistic"}
training = {rounds = 2, learning-rate = 1.0}
privacy = {belief = 0.9, delta = 0.01, adjacency = "replace-record"}
audit = {trials = 2, neighbour = "random"}
run = {seed = 1}
"""
_NUMBERS = ("0", "-1", "1", "nan", "inf", "-inf", "1e-320", "1e-300", "1e308", "1e-17", "0.5", "10" * 30, "x", "")
_VALUES = (*_NUMBERS, "true", "[]", "[1, 2]", '"\\u0000"', '"x"', "{a = 1}", '"../.."', '""', "'" + "y" * 4000 + "'")
_PATHS = ("pipe", "zero", "loop", "a\0b", "y" * 5000, "nothing", "", ".", "/proc/kmsg", "/proc/self/mem", "bytes",
          "./" * 2000 + "table.csv")  # fmt: skip
_READERS: dict[str, Sequence[str]] = {
    "init table": ("init", "new.toml", "--force", "--data", "FILE", "--label", "y", "--epsilon", "2", "--rounds", "2"),
    "init archive": ("init", "new.toml", "--force", "--data", "FILE", "--epsilon", "2", "--rounds", "2"),
    "check csv": ("check", "audit.toml", "--no-probe", "--set", "data.name=csv", "--set", "data.path=FILE", "--set",
                  "data.label=y"),
    "check npz": ("check", "audit.toml", "--no-probe", "--set", "data.name=npz", "--set", "data.path=FILE"),
    "check configuration": ("check", "--no-probe", "FILE"),
    "sweep": ("sweep", "FILE", "--over", "training.rounds=2", "--engine", "local", "--out", "swept"),
    "bound": ("bound", "FILE", "scores", "--delta", "1e-5"),
    "bound with a column": ("bound", "FILE", "--column", "x", "scores", "--delta", "1e-5"),
    "epsilon-star": ("epsilon-star", "scores", "FILE", "--delta", "1e-5"),
    "ledger": ("account", "--ledger", "FILE", "--delta", "1e-5"),
    "live": ("live", "rounds", "--coins", "FILE"),
    "review": ("review", "project", "--claim-epsilon", "1"),
    "sign": ("sign", "run", "--key", "FILE"),
    "verify": ("verify", "run", "--key", "FILE"),
    "strategy": ("strategy", "FILE:factory", "--adjacency", "add-remove-client", "--claim-epsilon", "1"),
}  # fmt: skip
"""Commands that read a file, whose name stands in place of FILE."""
_OF_A_RUN: dict[str, Sequence[str]] = {
    "report": ("report", "run"),
    "replay": ("replay", "run"),
    "compare": ("compare", "run"),
    "badge": ("export", "run", "--to", "badge", "--out", "badge.svg"),
    "tensorboard": ("export", "run", "--to", "tensorboard", "--out", "logs"),
    "verify": ("verify", "run"),
    "sign": ("sign", "run", "--key", "key", "--new-key"),
    "resume": ("run", "audit.toml", "--engine", "local", "--out", "run", "--resume"),
}
_OPTIONS: dict[str, Sequence[str]] = {
    "calibrate": ("--delta", "1e-5", "--rounds", "10", "--adjacency", "add-remove-record", "--belief", ".9"),
    "account": ("--delta", "1e-5", "--rounds", "10", "--adjacency", "add-remove-record", "--noise-multiplier", "2"),
    "bound": ("scores", "others", "--delta", "1e-5"),
    "epsilon-star": ("others", "scores", "--delta", "1e-5"),
    "init": ("new.toml", "--force", "--data", "table.csv", "--label", "y", "--belief", ".9"),
    "check": ("audit.toml", "--no-probe"),
    "export": ("run", "--to", "badge", "--out", "badge.svg"),
    "compare": ("run",),
    "sign": ("run", "--key", "key", "--new-key"),
    "verify": ("run",),
    "settings": (),
    "datasets": (),
}
"""Commands with arguments beside which options are tried; those that play for minutes are left out."""


@dataclass(frozen=True)
class BadInput:
    """A command with an input that should be refused in one line, or taken."""

    name: str  # what is wrong with the input
    words: tuple[str, ...]  # words of the command line
    prepare: Callable[[], None] = lambda: None  # makes the input, in the working directory


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


def fault_of(words: Sequence[str], seconds: float) -> str | None:
    """Run a command; return what is wrong with its end, or None if it ends in a line or does its work."""
    before, sys.argv = sys.argv, ["fl-audit", *words]
    errors, output = _Captured(), _Captured()
    status: object = 0
    try:
        with limited(seconds), contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
            fl_audit_command()
    except SystemExit as ended:
        status = ended.code or 0
    except TooLateError as late:
        return f"hang: {str(late).strip().splitlines()[-2:]}"
    except BaseException as error:  # whatever it is, it is a traceback of the command
        frames = traceback.extract_tb(error.__traceback__)
        return f"traceback: {type(error).__name__}: {str(error)[:160]} at {frames[-1].filename}:{frames[-1].lineno}"
    finally:
        sys.argv = before
    lines = [line for line in errors.text().splitlines() if line.strip()]
    if "Traceback" in errors.text():
        return f"traceback: {lines[-1][:200]}"
    said = [line for line in lines if not line.startswith(_PROGRESS)]
    if status == 2 and len(said) != 1:
        return f"{len(said)} lines: {said[:3]}"
    if status not in (0, 2, 3, 4, 5):
        return f"status {status}: {lines[:2]}"
    return None


class _Captured(BytesIO):
    """A stream of bytes and text, as standard output is one."""

    encoding, errors = "utf-8", "strict"

    @property
    def buffer(self) -> "_Captured":
        return self

    def write(self, text: Any) -> int:
        return super().write(text.encode("utf-8", "replace") if isinstance(text, str) else text)

    def isatty(self) -> bool:
        return False

    def text(self) -> str:
        return self.getvalue().decode("utf-8", "replace")


def _archive(shape: tuple[int, ...] = (60,), kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", kind) as archive:
        for name in ("x", "y"):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.arange(60.0) % 2)
    return content.getvalue()


def _claiming_archive() -> bytes:
    """Return an archive whose array claims a terabyte."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,), }\n"
    array = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(80)
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", array)
        archive.writestr("y.npy", array)
    return content.getvalue()


def _bomb() -> bytes:
    """Return an archive of a few kilobytes that says that its arrays have 8 GiB."""
    content = bytearray(_archive())
    for start in (b"PK\1\2",):
        place = content.index(start)
        content[place + 24 : place + 28] = struct.pack("<I", 2**32 - 2)
    return bytes(content)


def _encrypted() -> bytes:
    content = bytearray(_archive())
    content[content.index(b"PK\1\2") + 8] |= 1
    return bytes(content)


def _contents(draw: random.Random) -> dict[str, bytes]:
    """Return contents of files that are no good, by what is wrong with them."""
    table = Path("table.csv").read_bytes()
    archive, summary = _archive(), Path("run/summary.json").read_bytes()
    flipped = bytearray(archive)
    flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
    wide = b",".join(b"c%d" % number for number in range(3000)) + b"\n" + b",".join([b"1"] * 3000) + b"\n"
    return {
        "empty": b"",
        "noise": draw.randbytes(500),
        "zeros": bytes(5000),
        "a cut table": table[: draw.randrange(1, len(table))],
        "a table of one row": table[:20] + b"\n1,2,u\n",
        "quotes without end": b'x,y\n"1,2\n' * 50,
        "a wide table": wide,
        "a cell of a megabyte": b"x,y\n" + b"z" * 2**20 + b",u\n1,v\n",
        "numbers that are none": b"x,y\n" + b"nan,u\ninf,v\n1e400,u\n" * 20,
        "an archive": archive,
        "a flipped bit": bytes(flipped),
        "a cut archive": archive[: draw.randrange(1, len(archive))],
        "an encrypted member": _encrypted(),
        "a bomb": _bomb(),
        "a claim of a terabyte": _claiming_archive(),
        "another compression": _archive(kind=zipfile.ZIP_LZMA),
        "a pickle": b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x05hello\x94.",
        "JSON that is deep": b"[" * 100_000,
        "JSON with NaN": summary.replace(b"null", b"NaN"),
        "JSON of another kind": b'{"schema": 1, "verdict": [], "guarantee": 3}',
        "TOML with NaN": _CONFIG.replace("0.9", "nan").encode(),
        "TOML with numbers of 5,000 digits": _CONFIG.replace("40", "4" * 5000).encode(),
        "NUL": b"\0x,y\0\n",
        "UTF-16 that is cut": "x,y\n1,u\n2,v\n".encode("utf-16")[:-1],
        "a Parquet file that is cut": b"PAR1" + draw.randbytes(200) + b"PAR1",
        "gzip that is cut": b"\x1f\x8b\x08\0\0\0\0\0" + draw.randbytes(40),
        "a workbook that is none": _OLD_WORKBOOK + draw.randbytes(900),
        "IDX that claims too much": b"\0\0\x08\x03" + struct.pack(">III", 2**31 - 1, 2**31 - 1, 28) + bytes(100),
        "a program": b"import os\nraise SystemExit(1)\n",
        "a program with a wrong line": b"def factory(:\n",
    }  # fmt: skip


def _in_place_of(path: Path, draw: random.Random) -> tuple[str, Callable[[], None]]:
    """Return what stands at a path in place of a good file, and a function that puts it there."""
    specials: dict[str, Callable[[], object]] = {
        "a pipe": lambda: os.mkfifo(path),
        "a device": lambda: path.symlink_to("/dev/zero"),
        "a loop": lambda: path.symlink_to(path),
        "a directory": lambda: path.mkdir(),
        "messages of the system": lambda: path.symlink_to("/proc/kmsg"),
        "nothing": lambda: None,
    }
    contents = _contents(draw)
    name = draw.choice([*specials, *contents])

    def put() -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if name in specials:
            specials[name]()
        else:
            path.write_bytes(contents[name])

    return name, put


def files(draw: random.Random) -> BadInput:
    """Return a command that reads a file that is damaged, or is no file."""
    command = draw.choice(list(_READERS))
    if command == "review":
        name = draw.choice(["pyproject.toml", "server.py", "sub/__init__.py"])
        kind, put = _in_place_of(Path("project") / name, draw)
        return BadInput(f"{kind} as {name} of a project", tuple(_READERS[command]), put)
    suffix = draw.choice([".csv", ".npz", ".npy", ".toml", ".json", ".py", ""])
    if draw.random() < 0.2:
        path = draw.choice(_PATHS)
        return BadInput(f"path {path[:30]!r}", tuple(word.replace("FILE", path) for word in _READERS[command]))
    kind, put = _in_place_of(Path(f"bad{suffix}"), draw)
    return BadInput(
        f"{kind} as bad{suffix}", tuple(word.replace("FILE", f"bad{suffix}") for word in _READERS[command]), put
    )


def run_directories(draw: random.Random) -> BadInput:
    """Return a command about a finished run of which one file was replaced."""
    if draw.random() < 0.2:
        names = ["round-00001.json", "seed", "guarantee.json", "canary.json"]
        name = draw.choice(names)
        kind, put = _in_place_of(Path("rounds") / name, draw)
        return BadInput(f"{kind} as {name} of a watched federation", ("live", "rounds", "--coins", "scores"), put)
    command = draw.choice(list(_OF_A_RUN))
    stored = sorted(path.relative_to("run").as_posix() for path in Path("run").rglob("*") if path.is_file())
    name = draw.choice(stored)
    kind, put = _in_place_of(Path("run") / name, draw)
    return BadInput(f"{kind} as {name} of a run", tuple(_OF_A_RUN[command]), put)


def configurations(draw: random.Random) -> BadInput:
    """Return a check of a configuration of which two settings have odd values."""
    keys = draw.sample([setting.key for setting in settings()], 2)
    changes = [f"{key}={draw.choice(_VALUES)}" for key in keys]
    words = ("check", "audit.toml", "--no-probe", *(word for change in changes for word in ("--set", change)))
    return BadInput(" and ".join(change[:50] for change in changes), words)


def options(draw: random.Random) -> BadInput:
    """Return a command of which two options have odd values."""
    command = draw.choice(list(_OPTIONS))
    taken = [
        one for one in _ROOT.commands[command].params if one.param_type_name == "option" and one.opts[0] != "--help"
    ]
    words = list[str]()
    for parameter in draw.sample(taken, min(2, len(taken))):
        if isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(parameter.opts[0])
        else:
            value = draw.choice(_PATHS if isinstance(parameter.type, click.Path) else (*_NUMBERS, *_PATHS))
            words.append(f"{parameter.opts[0]}={value}")
    return BadInput(" ".join(word[:40] for word in words), (command, *_OPTIONS[command], *words))


KINDS: dict[str, Callable[[random.Random], BadInput]] = {
    "files": files,
    "runs": run_directories,
    "configurations": configurations,
    "options": options,
}


def make_good_inputs(place: Path) -> None:
    """Write good inputs into a directory: a table, scores, a configuration, a finished run and an app."""
    draw = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'uv'[number % 2]}" for number, (a, b) in enumerate(draw.normal(size=(60, 2)))]
    (place / "table.csv").write_text("\n".join(["x,z,y", *rows]) + "\n")
    (place / "audit.toml").write_text(_CONFIG)
    for name, mean in (("scores", 1.0), ("others", 0.0)):
        (place / name).write_text("\n".join(map(str, draw.normal(mean, size=60).tolist())))
    (place / "bytes").write_bytes(bytes(range(256)))
    (place / "zero").symlink_to("/dev/zero")
    (place / "loop").symlink_to(place / "loop")
    os.mkfifo(place / "pipe")
    (place / "rounds").mkdir()
    (place / "project" / "sub").mkdir(parents=True)
    components = '[tool.flwr.app.components]\nserverapp = "server:app"\nclientapp = "server:client"\n'
    (place / "project" / "pyproject.toml").write_text(f'[project]\nname = "a"\nversion = "1"\n{components}')
    (place / "project" / "server.py").write_text("raise ImportError('no app')\n")
    made = CliRunner().invoke(app, ["run", str(place / "audit.toml"), "--engine", "local", "--out", str(place / "run")])
    assert (place / "run" / "summary.json").is_file(), made.output


def tried(
    kind: str, number: int, seed: int, seconds: float, good: Path
) -> Iterator[tuple[BadInput, str | None, float]]:
    """Yield bad inputs of a kind with the fault of each, or None, and the seconds that it took."""
    here = Path.cwd()
    for case in range(number):
        draw = random.Random(f"{kind} {case} {seed}")
        with TemporaryDirectory() as scratch:
            place = Path(scratch) / "here"
            shutil.copytree(good, place, symlinks=True, ignore=shutil.ignore_patterns("pipe"))
            os.mkfifo(place / "pipe")
            os.chdir(place)
            try:
                bad = KINDS[kind](draw)
                bad.prepare()
                began = time.monotonic()
                fault = fault_of(bad.words, seconds)
                yield bad, fault, time.monotonic() - began
            finally:
                os.chdir(here)


def main(arguments: Sequence[str] | None = None) -> None:
    """Try the bad inputs, and print the faults and their numbers."""
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=30.0, help="Longest time of a command that is no hang.")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="May be repeated.  [default: all]")
    options = parser.parse_args(arguments)
    kinds = options.kind or list(KINDS)
    counts, slowest = Counter[str](), 0.0
    problems = list[str]()
    with TemporaryDirectory() as scratch:
        good = Path(scratch)
        make_good_inputs(good)
        for kind in kinds:
            for bad, fault, took in tried(kind, options.cases // len(kinds), options.seed, options.seconds, good):
                counts["cases"] += 1
                slowest = max(slowest, took)
                if fault is not None:
                    counts[fault.partition(":")[0].split()[-1]] += 1
                    problems.append(f"{kind}: {bad.name}: {' '.join(word[:60] for word in bad.words)}\n    {fault}")
                    print(problems[-1], flush=True)
    print(json.dumps(counts | {"slowest seconds": round(slowest, 1)}))
    exit_with(problems[:0] if not problems else [f"{len(problems)} faults"], "no fault")
