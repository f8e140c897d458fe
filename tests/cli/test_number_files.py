"""Files of scores, coins and losses: every form in which they are written gives the same numbers."""

import codecs
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fl_audit as fa
from fl_audit.cli.main import app
from fl_audit.cli.score_files import columns_for, read_numbers
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused

pytestmark = pytest.mark.usefixtures("small_working_directory")

VALUES = np.array([0.25, 1e-300, -3.5, 0.1, 7.0])
LINES = "\n".join(map(repr, VALUES.tolist()))


def table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"who": list("abcde"), "loss": VALUES, **columns})


WAYS: dict[str, tuple[str, str | None, Callable[[Path], object]]] = {
    "lines": ("x.txt", None, lambda path: path.write_text(LINES)),
    "lines of Windows": ("x.txt", None, lambda path: path.write_bytes(f"{LINES}\n\n".replace("\n", "\r\n").encode())),
    "blank lines between": ("x.txt", None, lambda path: path.write_text("\n" + LINES.replace("\n", "\n \n"))),
    "a byte-order mark": ("x.txt", None, lambda path: path.write_bytes(codecs.BOM_UTF8 + LINES.encode())),
    "UTF-16, as some shells redirect": ("x.txt", None, lambda path: path.write_text(LINES, encoding="utf-16")),
    "gzipped": ("x.txt.gz", None, lambda path: path.write_bytes(gzip.compress(LINES.encode()))),
    "a name above": ("x.csv", None, lambda path: path.write_text(f"loss\n{LINES}")),
    "a name of two words above": ("x.csv", None, lambda path: path.write_text(f"log loss\n{LINES}")),
    "a quoted name above": ("x.csv", "loss", lambda path: path.write_text(f'"loss"\n{LINES}')),
    "a column": ("x.csv", "loss", lambda path: table().to_csv(path)),
    "a column of a table with a byte-order mark": ("x.csv", "loss", lambda p: table().to_csv(p, encoding="utf-8-sig")),
    "a column between semicolons": ("x.csv", "loss", lambda path: table().to_csv(path, sep=";")),
    "a column named in cp1252": ("x.csv", "Größe", lambda p: table(Größe=VALUES).to_csv(p, encoding="cp1252")),
    "an array": ("x.npy", None, lambda path: np.save(path, VALUES)),
    "an array of one column": ("x.npy", None, lambda path: np.save(path, VALUES[:, None])),
    "an array of one row": ("x.npy", None, lambda path: np.save(path, VALUES[None])),
    "an archive of one array": ("x.npz", None, lambda path: np.savez(path, VALUES)),
    "an archive of two arrays": ("x.npz", "loss", lambda path: np.savez(path, loss=VALUES, other=VALUES[:2])),
}


@pytest.mark.parametrize("format_name", WAYS)
def test_every_way_to_write_numbers_is_read(format_name: str) -> None:
    name, column, write = WAYS[format_name]
    write(Path(name))
    assert read_numbers(Path(name), column).tolist() == VALUES.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64", "bool"])
def test_arrays_of_every_kind_of_real_numbers_are_read(dtype: str) -> None:
    values = np.array([0, 1, 1], dtype=dtype)
    np.save("x.npy", values)
    assert read_numbers(Path("x.npy")).tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("text", ["True\nFalse\n", "true\nfalse", "1\n0\n", "coin\nTrue\nFalse\n"])
def test_coins_as_programs_write_them(text: str) -> None:
    Path("coins.txt").write_text(text)
    assert read_numbers(Path("coins.txt")).tolist() == [1.0, 0.0]
    pd.DataFrame({"score": [0.5, 0.25], "coin": [True, False]}).to_csv("both.csv", index=False)
    assert read_numbers(Path("both.csv"), "coin").tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "content", "column", "expected_message"),
    [
        ("x.txt", "1\nO.5\n2", None, "x.txt line 2 is 'O.5': .*one number"),
        ("x.txt", "O.1\n0.5\n2", None, "x.txt line 1 is 'O.1': .*one number"),
        ("x.txt", "loss\n0.5\nhigh\n", None, "x.txt line 3 is 'high'"),
        ("x.txt", "0,5\n0,25\n", None, "several numbers .*no line of"),
        ("x.csv", "a,b\n1,2\n3,4\n", None, "x.csv .*columns a, b: .* --column"),
        ("x.csv", "a,b\n1,2\n3,4\n", "c", "x.csv .*no column 'c': .* a, b"),
        ("x.csv", "a,b\n1,2\n3,\n", "b", "x.csv .*'' .* b, row 2: .*numbers"),
        ("x.csv", "a,b\n1,2\n3,NA\n", "b", "x.csv .*'NA' .* b, row 2: .*numbers"),
        ("x.csv", "a;b\n1;2,5\n3;4\n", "b", "x.csv .*'2,5' .* b, row 1"),
        ("x.txt", "\n\n", None, "x.txt is empty"),
        ("x.csv", "loss\n", None, "x.csv is empty"),
    ],
)
def test_what_is_no_list_of_numbers_is_named(
    name: str, content: str, column: str | None, expected_message: str
) -> None:
    Path(name).write_text(content)
    assert_refused(expected_message, read_numbers, Path(name), column)


def test_arrays_that_are_no_numbers_are_named() -> None:
    for number, (values, expected_message) in enumerate(
        (
            (np.ones((2, 3)), r"shape \(2, 3\): .*one dimension"),
            (np.array(["a"]), "holds <U1"),
            (np.array([1j]), "holds complex128"),
            (np.array([]), "is empty"),
        )
    ):
        np.save(f"{number}.npy", values)
        assert_refused(expected_message, read_numbers, Path(f"{number}.npy"))
    np.savez("two.npz", a=VALUES, b=VALUES)
    assert_refused(r"2 arrays, a, b: .* --column", read_numbers, Path("two.npz"))
    assert_refused(r"no array 'c': .* a, b", read_numbers, Path("two.npz"), "c")
    Path("broken.npy").write_bytes(b"\x93NUMPY\x01\x00")
    assert_refused(r"broken\.npy .*no readable NumPy", read_numbers, Path("broken.npy"))
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    assert_refused("holds Python objects", read_numbers, Path("objects.npy"))


def test_one_column_for_both_files_or_one_for_each() -> None:
    assert columns_for(None) == (None, None)
    assert columns_for(["a"]) == ("a", "a")
    assert columns_for(["a", "b"]) == ("a", "b")
    assert_refused("given 3 times", columns_for, ["a", "b", "c"])


def test_canaries_in_one_table_give_what_their_arrays_give() -> None:
    draw = np.random.default_rng(0)
    coins = draw.random(400) < 0.5
    scores = coins + draw.normal(size=400)
    pd.DataFrame({"score": scores, "coin": coins}).to_csv("canaries.csv", index=False)
    flags = ["bound", "--one-run", "canaries.csv", "canaries.csv", "--column", "score", "--column", "coin"]
    output = printed_by(*flags, "--delta", "1e-5", "--json")
    expected = fa.one_run_bound(scores, coins, 1e-5).epsilon
    assert json.loads(output)["epsilon"] == pytest.approx(expected)
    np.save("coins.npy", coins)
    np.savetxt("scores.txt", scores)
    ran = CliRunner().invoke(app, ["bound", "--one-run", "scores.txt", "coins.npy", "--delta", "1e-5", "--json"])
    assert json.loads(ran.stdout)["epsilon"] == pytest.approx(expected)
    assert fa.one_run_bound(scores[:, None], coins, 1e-5).epsilon == expected
    assert fa.lower_bound(scores[:, None], (scores - 1)[None], 1e-5) == fa.lower_bound(scores, scores - 1, 1e-5)


def test_losses_in_columns_of_tables() -> None:
    draw = np.random.default_rng(1)
    for name in ("members", "others"):
        pd.DataFrame({"id": range(150), "loss": draw.gamma(2, 1, 150)}).to_csv(f"{name}.csv", index=False)
    flags = ["epsilon-star", "members.csv", "others.csv", "--delta", "1e-3", "--json"]
    refused = CliRunner().invoke(app, flags).exception
    assert re.search("members.csv .*columns id, loss: .* --column", str(refused))
    assert CliRunner().invoke(app, [*flags, "--column", "loss"]).exit_code == 0


def test_few_losses_give_no_value() -> None:
    for name, start in (("members", 0.1), ("others", 2.0)):
        np.savetxt(f"{name}.txt", start + np.arange(3) / 10)
    output = printed_by("epsilon-star", "members.txt", "others.txt", "--delta", "1e-3")
    assert re.search(r"at least, error rates .*0\.001", output)
    assert "0 to no limit" in output
    assert "3 losses" in " ".join(output.split())


def test_a_million_numbers_are_read_fast() -> None:
    import time

    values = np.random.default_rng(0).normal(size=250_000)
    Path("many.txt").write_text("\n".join(map(repr, values.tolist())))
    times = []
    for _ in range(3):
        start = time.process_time()
        numbers = read_numbers(Path("many.txt"))
        times.append(time.process_time() - start)
    assert (numbers == values).all()
    assert min(times) < 0.5  # about .08 s of a quiet core


@pytest.mark.campaign  # alone on the machine: processes beside it slow a core down
@pytest.mark.parametrize("command", [["bound"], ["bound", "--one-run"], ["epsilon-star"]], ids=" ".join)
def test_a_million_numbers_are_answered_in_five_seconds(command: list[str]) -> None:
    """Of a processor that is quiet, with the start of the program; about 3 to 4 s."""
    draw = np.random.default_rng(1)
    Path("one.txt").write_text("\n".join(map(repr, draw.gamma(2, 3, 10**6).tolist())))
    second_numbers = draw.integers(0, 2, 10**6) if "--one-run" in command else draw.gamma(2, 5, 10**6)
    Path("other.txt").write_text("\n".join(map(repr, second_numbers.tolist())))
    called = [sys.executable, "-m", "fl_audit.cli.main", *command, "one.txt", "other.txt", "--delta", "1e-5"]
    times = []
    for _ in range(2):
        before = os.times()
        subprocess.run(called, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 5
