"""Tests hold values and numbers: few of them hold the wording of a message."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
_MOST = 53
"""Assertions on four and more words of prose: names of findings, golden messages, and patterns of short pieces."""


def _is_prose(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value.split()) >= 4
        and re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", value) is not None
    )


def _held_wordings(tree: ast.AST) -> Iterator[int]:
    """Yield the line of each assertion, and of each `match` of an expected error, that holds prose."""
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=test):
                if any(isinstance(one, ast.Constant) and _is_prose(one.value) for one in ast.walk(test)):
                    yield node.lineno
            case ast.Call(keywords=keywords):
                yield from (
                    one.value.lineno
                    for one in keywords
                    if one.arg == "match" and isinstance(one.value, ast.Constant) and _is_prose(one.value.value)
                )


def test_a_held_wording_is_seen() -> None:
    lines = [
        'assert said == "the noise is too small"',
        'with pytest.raises(InputError, match="the noise is too small"): ...',
        'assert said == "noise-total"',
        "assert found == 0.5",
    ]
    assert [len(list(_held_wordings(ast.parse(line)))) for line in lines] == [1, 1, 0, 0]


def test_few_tests_hold_the_wording_of_a_message() -> None:
    files = [path for path in TESTS.rglob("*.py") if "validation" not in path.parts and path != Path(__file__)]
    held = [f"{path.name}:{line}" for path in files for line in _held_wordings(ast.parse(path.read_text("utf-8")))]
    assert len(files) > 200
    assert len(held) <= _MOST, held
