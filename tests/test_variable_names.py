"""Shares of vague names, of several assignments in one, and of comments to the formatter, within declared limits."""

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("fl_audit", "clients", "server", "strategies", "experiments")
TESTS = ("tests",)
VAGUE = frozenset(
    [
        "found",
        "told",
        "said",
        "one",
        "many",
        "more",
        "made",
        "held",
        "seen",
        "own",
        "way",
        "asked",
        "wished",
        "wanted",
        "it",
        "its",
        "thing",
        "things",
        "both",
        "each",
        "other",
        "others",
        "rest",
        "part",
        "parts",
        "place",
        "places",
        "what",
        "who",
        "how",
        "some",
        "few",
        "most",
        "least",
        "given",
        "known",
        "left",
        "kept",
        "taken",
        "drawn",
        "shown",
        "named",
        "counted",
    ]
)
"""Words that say nothing about the value that a variable holds."""
pytestmark = pytest.mark.xdist_group("names")  # one worker reads the source once
MOST_VAGUE = 0.01
MOST_FOREIGN = 0.2
MOST_SEVERAL = 0.03


def _files(folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        for directory, below, names in os.walk(ROOT / folder):
            below[:] = [name for name in below if not (Path(directory) / name).is_symlink()]
            yield from (Path(directory) / name for name in names if name.endswith(".py"))


@pytest.fixture(scope="module", params=[FOLDERS, TESTS], ids=["source", "tests"])
def nodes(request: pytest.FixtureRequest) -> list[ast.AST]:
    """All nodes of the syntax trees of the files in folders."""
    trees = (ast.parse(file.read_text(encoding="utf8")) for file in _files(request.param))
    return [node for tree in trees for node in ast.walk(tree)]


def _words(name: str) -> set[str]:
    return {word.lower().rstrip("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _variables(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each variable that is bound, with its annotation."""
    for node in nodes:
        match node:
            case ast.arg(arg=name, annotation=annotation):
                yield name, annotation
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, None


def test_few_variables_have_a_name_that_says_nothing(nodes: list[ast.AST]) -> None:
    names = [name for name, _ in _variables(nodes)]
    vague = [name for name in names if name in VAGUE]
    assert len(vague) < MOST_VAGUE * len(names)


@pytest.mark.parametrize("nodes", [FOLDERS], ids=["source"], indirect=True)
def test_most_parameters_share_a_word_with_their_class(nodes: list[ast.AST]) -> None:
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    typed = [
        (name, kind)
        for name, annotation in _variables(nodes)
        if annotation is not None
        and (kind := ast.unparse(annotation).split("|")[0].strip(" '\"").split(".")[-1]) in classes
        and len(name) > 2
    ]
    foreign = [(name, kind) for name, kind in typed if not _words(name) & _words(kind)]
    assert len(foreign) < MOST_FOREIGN * len(typed)


def test_few_statements_assign_several_values(nodes: list[ast.AST]) -> None:
    assignments = [node for node in nodes if isinstance(node, ast.Assign)]
    several = [
        node for node in assignments if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
    ]
    assert len(several) < MOST_SEVERAL * len(assignments)


def test_the_formatter_is_never_held_back() -> None:
    comment = "# fmt" + ": "  # in two parts, since this file is read too
    assert [file for file in _files([*FOLDERS, *TESTS]) if comment in file.read_text(encoding="utf8")] == []
