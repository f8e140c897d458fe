"""Every option and setting that a message advises exists, and leads to a configuration that is written."""

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from inspect import isfunction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click import Group
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

import fl_audit
from fl_audit.cli.main import app
from fl_audit.data import catalogue, column_encoding, remedies
from fl_audit.errors import InputError
from fl_audit.runs import federation_of_config
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.init_error_messages import OPTIONS, READING
from tests.builders.tables import archive
from tests.builders.workbooks import write_workbook

pytestmark = pytest.mark.usefixtures("small_working_directory")

ROWS = 40
FLAGS = ("--epsilon", "2", "--clients", "3", "--rounds", "3")
SOURCES = Path(fl_audit.__file__).parent.parent
PLACES = ("fl_audit/data", "fl_audit/cli", "fl_audit/runs")
DRAW = np.random.default_rng(0)
Y = ["ill", "well"] * (ROWS // 2)
NUMBERS = DRAW.normal(size=ROWS).round(2)
WORDS = [f"P{row:03d}x" for row in range(ROWS)]


def csv(name: str = "t.csv", above: str = "", sep: str = ",", encoding: str = "utf-8", **cells: object) -> str:
    """Write a table with a label, and return its name."""
    text = pd.DataFrame({**cells, "y": Y}).to_csv(index=False, sep=sep)
    Path(name).write_bytes((above + text).encode(encoding))
    return name


def gaps(every: int) -> list[float | None]:
    return [None if row % every == 0 else float(number) for row, number in enumerate(NUMBERS)]


def with_words(*words: str) -> list[object]:
    return [*words, *NUMBERS.tolist()[len(words) :]]


def pictures(sizes: tuple[int, int]) -> str:
    for name in ("cat", "dog"):
        (Path("pets") / name).mkdir(parents=True)
        for number in range(8):
            size = sizes[number % 2]
            pixels = DRAW.integers(0, 255, (size, size), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("pets") / name / f"{number}.png")
    return "pets"


def workbook() -> str:
    rows = [["x", "y"], *([float(number), label] for number, label in zip(NUMBERS, Y, strict=True))]
    write_workbook(Path("w.xlsx"), {"Data": [["Ward 7"], *rows], "Older": rows})
    return "w.xlsx"


CASES: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {
    "an identifier": (lambda: csv(id=WORDS, x=NUMBERS), ()),
    "an identifier, gaps and dates": (
        lambda: csv(id=WORDS, x=gaps(4), z=NUMBERS, seen=[f"{1 + row % 9}/{1 + row % 28}/24" for row in range(ROWS)]),
        (),
    ),
    "a gap here and there": (lambda: csv(x=gaps(9), z=NUMBERS), ()),
    "gaps in the only column": (lambda: csv(x=gaps(9)), ()),
    "a column that is mostly empty": (lambda: csv(x=[1.5, *[None] * (ROWS - 1)], z=NUMBERS), ()),
    "a word among numbers": (lambda: csv(x=with_words("?"), z=NUMBERS), ()),
    "a word among numbers of the only column": (lambda: csv(x=with_words("?", "unknown")), ()),
    "many words among numbers": (lambda: csv(x=with_words(*"abcdefgh"), z=NUMBERS), ()),
    "many levels": (lambda: csv(x=[f"w{row // 2}" for row in range(ROWS)], z=NUMBERS), ("--set", "data.max-levels=5")),
    "many levels in the only column": (
        lambda: csv(x=[f"w{row // 2}" for row in range(ROWS)]),
        ("--set", "data.max-levels=5"),
    ),
    "many classes": (
        lambda: csv(x=NUMBERS, k=[row % 12 for row in range(ROWS)]),
        ("--label", "k", "--set", "data.max-levels=5"),
    ),
    "numbers that can be meant in two ways": (lambda: csv(x=["1.234", "2.345"] * (ROWS // 2), sep=";"), ()),
    "a title": (lambda: csv(x=NUMBERS, z=NUMBERS, above="Report of 2025\n\n"), ()),
    "a title between the separators": (lambda: csv(x=NUMBERS, z=NUMBERS, above="Report; ward 7\n", sep=";"), ()),
    "a wrong encoding": (
        lambda: csv(x=["Köln", "Würzburg"] * (ROWS // 2), encoding="cp1252"),
        ("--set", "data.encoding=utf-8"),
    ),
    "an encoding and a separator of a workbook": (workbook, ("--set", "data.sheet=Older", "--set", "data.separator=,")),
    "the sheets and the title of a workbook": (workbook, ()),
    "a sheet of a text": (lambda: csv(x=NUMBERS), ("--set", "data.sheet=Data")),
    "infinite numbers": (lambda: csv(x=with_words("inf"), z=NUMBERS), ()),
    "a nameless counter": (lambda: csv(**{"": range(ROWS)}, z=NUMBERS), ()),
    "pictures of two sizes": (lambda: pictures((8, 12)), ()),
    "axes of a table": (lambda: archive(x=np.ones((ROWS, 3)) * NUMBERS[:, None], y=Y), ("--set", "data.axes=sequence")),
}
WARNED: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {
    "records that repeat": (lambda: csv(x=np.tile(NUMBERS[:20], 2), z=np.tile(NUMBERS[20:], 2)), ()),
    "words that differ by case": (lambda: csv(x=["Yes", "yes", "No", "no"] * (ROWS // 4), z=NUMBERS), ()),
    "a column that is the label": (lambda: csv(x=[word.upper() for word in Y], z=NUMBERS), ()),
    "a label that says that there is none": (
        lambda: csv(z=NUMBERS, k=["None", "a", "b", "b"] * (ROWS // 4)),
        ("--label", "k"),
    ),
    "two axes": (lambda: archive(x=DRAW.normal(size=(ROWS, 5, 3)), y=Y), ()),
    "an encoding that is as likely": (
        lambda: csv(x=["Plzeňský", "Jihomoravský", "Praha", "Praha"] * (ROWS // 4), výška=Y, encoding="cp1250"),
        ("--label", "výška", "--drop", "y"),
    ),
}
OPTION = re.compile(
    rf"--({'|'.join(OPTIONS)})(?: ('[^']*'|[^\s;:,]*[^\s;:,.]))?"
    r"|--set (?:'data\.([a-z-]+)=([^']*)'|data\.([a-z-]+)(?:=(\S*\w)| (out))?)"
)


def label(data: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    return () if "--label" in flags or not data.endswith((".csv", ".xlsx")) else ("--label", "y")


def advised(text: str) -> list[list[str]]:
    """Return the ways out that a message names; of `leave --x out` it is the option that is taken back."""
    advice = []
    for match in OPTION.finditer(text):
        name, value, quoted, quoted_value, plain, plain_value, _ = match.groups()
        setting = quoted or plain
        if text[: match.start()].endswith("leave "):
            advice.append(["leave out", f"--{name}" if name else f"data.{setting}="])
        elif name:
            advice.append(shlex.split(f"--{name} {value}"))
        elif quoted_value is not None or plain_value is not None:
            advice.append(["--set", f"data.{setting}={quoted_value if plain_value is None else plain_value}"])
    return advice


def init(data: str, flags: list[str]) -> tuple[bool, str]:
    ran = CliRunner().invoke(app, ["init", "--force", "--data", data, *flags, *FLAGS])
    assert ran.exception is None or isinstance(ran.exception, InputError), ran.output
    return ran.exit_code == 0, ran.stdout if ran.exit_code == 0 else str(ran.exception)


def with_remedy(flags: list[str], remedy: list[str]) -> list[str]:
    """Return the flags with one way out; one that cannot be repeated takes the place of the one that was given."""
    word = remedy[0]
    value = remedy[1]
    if word in ("--drop", "--missing"):
        return [*flags, *remedy]
    gone = value.partition("=")[0] + "=" if "data." in value and word in ("--set", "leave out") else None
    pairs = [flags[index : index + 2] for index in range(0, len(flags), 2)]
    name = value if word == "leave out" else word
    remaining_pairs = [pair for pair in pairs if (not pair[1].startswith(gone) if gone else pair[0] != name)]
    return [*(text for pair in remaining_pairs for text in pair), *([] if word == "leave out" else remedy)]


def follow(data: str, flags: list[str], earlier_texts: tuple[str, ...] = ()) -> set[str]:
    """Follow every way out that refusals name until a configuration is written; return what was advised."""
    done, text = init(data, flags)
    if done:
        return set()
    assert text not in earlier_texts, f"the advice leads nowhere: {text}"
    together, _, needed = text.rpartition("needed: ")
    if together:
        done, message = init(data, [*flags, *shlex.split(needed)])
        assert done, f"not all that is needed: {message}"
    ways = advised(together or text)
    assert ways, f"no way out is named: {text}"
    # Several `--drop` in one sentence belong together.
    drops = [word for remedy in ways if remedy[0] == "--drop" for word in remedy]
    ways = [*(remedy for remedy in ways if remedy[0] != "--drop"), *([drops] if drops else [])]
    option_names = {
        remedy[1].partition("=")[0] if remedy[0] in ("--set", "leave out") else remedy[0].lstrip("-") for remedy in ways
    }
    for remedy in ways:
        option_names |= follow(data, with_remedy(flags, remedy), (*earlier_texts, text))
    return option_names


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_every_way_out_of_a_refusal_leads_out(case: str) -> None:
    write, flags = CASES[case]
    data = write()
    assert follow(data, [*label(data, flags), *flags])


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("case", WARNED)
def test_every_remedy_of_a_warning_is_taken_and_ends_the_warning(case: str) -> None:
    write, flags = WARNED[case]
    data = write()
    base_flags = [*label(data, flags), *flags]
    done, text = init(data, base_flags)
    assert done, text
    warned = [line for line in text.splitlines() if line.startswith("look at: ") and OPTION.search(line)]
    assert warned
    for line in warned:
        for remedy in advised(line):
            done, after = init(data, with_remedy(base_flags, remedy))
            assert done, after
            assert line not in after.splitlines()


def test_all_settings_that_are_remedies_are_tried_here() -> None:
    """The remedies of data stand in one module; a new one needs a case above, and `init` translates it."""
    listed = {name.replace("_", "-") for name, member in vars(remedies).items() if isfunction(member)}
    tried = "axes decimal drop encoding ignore-case image-size max-levels missing sheet skip-lines unique"
    # Those of persons with several records, and of few test records, are tried in `test_patients.py`.
    # Those of quantities and of missing values are tried in `test_data_tables.py` and `test_imputation.py`.
    assert listed == {*tried.split(), "user", "task", "impute"}
    listed.remove("impute")  # a value of `missing`
    elsewhere = {"adjacency", "user-across-clients", "partition", "strategy", "test-records"}
    keys = {key for path, text in sources() for key in re.findall(r'Remedy\(\s*"([a-z-]+)"', text)}
    assert keys == listed | elsewhere
    assert listed <= set(READING)
    readers = [path for path, text in sources() if re.search(r'Remedy\(\s*"', text) and path.parent.name == "data"]
    assert {path.stem for path in readers} == {"remedies", "partition"}


def test_several_columns_are_left_out_with_commas_unless_a_name_has_one() -> None:
    data = csv(x=NUMBERS, a=WORDS, b=WORDS, **{"c, d": WORDS})
    assert init(data, ["--label", "y", "--drop", "a, b", "--drop", "c, d"])[0]
    assert 'drop = ["a", "b", "c, d"]' in Path("audit.toml").read_text()
    done, text = init(data, ["--label", "y", "--drop", "a,z"])
    assert not done
    assert "'z'" in text


def test_every_setting_that_a_message_names_is_one() -> None:
    setting_keys = {setting.key for setting in settings()}
    for path, text in sources():
        for line in messages(text):
            for key, section in re.findall(r"\b([a-z]+(?:-[a-z]+)*)(?: out)? (?:in|of) \[([a-z]+)\]", line):
                setting_name = f"{section}.{key}"
                assert setting_name in setting_keys or key not in {
                    setting.partition(".")[2] for setting in setting_keys
                }, f"{path}: {setting_name}"


def test_every_option_that_a_message_names_is_an_option() -> None:
    command = get_command(app)
    assert isinstance(command, Group)
    options = {flag for item in command.commands.values() for param in item.params for flag in param.opts}
    options |= {flag for param in command.params for flag in param.opts}
    options |= {
        "--object-store-memory",
        "--run-config",
        "--stream",
        "--head",
        "--trusted-entities",
    }  # of Ray and of Flower
    for path, text in sources():
        for line in (item for item in messages(text) if " " in item):
            for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", line):
                assert flag in options | {"--help"}, f"{path} advises {flag}"


def test_every_setting_of_a_data_set_reaches_it() -> None:
    taken_by_name = {name for entry in catalogue._CATALOGUE.values() for name in (*entry.required, *entry.optional)}
    assert {name.replace("-", "_") for name in taken_by_name} <= set(federation_of_config._DATA_OPTIONS)


def sources() -> Iterator[tuple[Path, str]]:
    for directory in PLACES:
        for path in sorted((SOURCES / directory).rglob("*.py")):
            yield path, path.read_text(encoding="utf-8")


def messages(text: str) -> list[str]:
    """Return all literal texts of a module."""
    return [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_text_alone_is_refused_without_useless_advice() -> None:
    done, text = init(csv(text=WORDS), ["--label", "y"])
    assert not done
    assert re.search("no other column is left.*: .*column of numbers", text)
    assert advised(text) == []


def test_too_many_numbers_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_encoding, "LARGEST_TABLE", ROWS)
    assert follow(csv(x=NUMBERS, z=NUMBERS * 2), ["--label", "y"]) == {"drop"}


def test_a_directory_and_a_file_that_are_named_are_taken() -> None:
    done, text = init("adult", [])
    assert not done
    assert "--data-dir" in text
    Path("audit.toml").write_text("mine")
    refused = CliRunner().invoke(app, ["init", "--data", "digits", *FLAGS])
    assert "--force" in str(refused.exception)
    assert init("digits", [])[0]
