"""Mutants of the source: which share of small changes to it do the tests notice?

    python -m tests.validation mutants --record calls.json
    python -m tests.validation mutants --calls calls.json --out mutants.jsonl [--count 100] [--seed 0]
    python -m tests.validation mutants --calls calls.json --out later.jsonl --again mutants.jsonl

A mutant is a module in which one operator, number or condition is another. The tests that call its function are run on
it, in a copy of the repository; the first command records which ones these are. `--again` plays the mutants of an
earlier campaign whose modules are unchanged since, with the test that killed a mutant first: two states of the tests
are so compared on the same mutants.
"""

import ast
import builtins
import json
import os
import random
import shutil
import sys
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any, cast

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("fl_audit", "clients", "server", "strategies")
_COPIED = (*_FOLDERS, "experiments", "tests", "docs", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
_MOST_TESTS = 40
_SECONDS = 200
# Libraries that a process of tests has when it starts: their imports would take longer than most tests.
_PRELOADED = ["pytest", "hypothesis", "numpy", "scipy.stats", "pandas", "torch", "opacus", "flwr.app", "flwr.serverapp"]
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One change to one module, and what the tests said of it."""

    module: str  # path of the module in the repository
    digest: str  # SHA-256 of the module's text without the change
    place: int  # number of the place in the module, in the order of the syntax tree
    line: int  # line of the change
    before: str  # code at the place
    after: str  # code in its stead
    outcome: str = ""  # "killed", "survived" or "untested", where no test calls the function
    tests: Sequence[str] = ()  # tests that were run
    killer: str = ""  # first test that failed


class _Change(ast.NodeTransformer):
    """Changes the place with one number, and counts the places; annotations and docstrings are none."""

    def __init__(self, index: int) -> None:
        self.place = index
        self.places = 0
        self.changed: tuple[int, str, str] | None = None  # line, code before, code after

    def visit(self, node: ast.AST) -> Any:
        changed = _changed(node)
        if changed is not None:
            self.places += 1
            if self.places - 1 == self.place:
                self.changed = (cast(ast.expr, node).lineno, ast.unparse(node), ast.unparse(changed))
                return ast.copy_location(changed, node)
        return super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.defaults = [self.visit(default) for default in node.defaults]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.args = self.visit(node.args)
        node.body = [self.visit(statement) for statement in node.body]
        return node


def _changed(node: ast.AST) -> ast.AST | None:
    """Return what takes the place of a node in a mutant; None if it is not changed."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            return ast.Compare(node.left, [_COMPARISONS[type(operator)]()], node.comparators)
        case ast.BinOp(op=operator) if type(operator) in _OPERATORS and not _is_text(node):
            return ast.BinOp(node.left, _OPERATORS[type(operator)](), node.right)
        case ast.BoolOp():
            return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value)):
            return ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            return ast.Constant(value * 1.5 if value else 1.0)
        case ast.IfExp():
            return ast.IfExp(node.test, node.orelse, node.body)
    return None


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str) for side in sides)


def mutated(text: str, index: int) -> tuple[str, _Change]:
    """Return a module's text with the change at one place, and the change."""
    change = _Change(index)
    tree = change.visit(ast.parse(text))
    return ast.unparse(ast.fix_missing_locations(tree)), change


def sample(count: int, seed: int, folders: Sequence[str]) -> list[Mutant]:
    """Return mutants of modules in the given folders, drawn evenly from all places without replacement."""
    change_sites = list[tuple[Path, int]]()
    for folder in folders:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(_ROOT)):
                change_sites += [(path, index) for index in range(mutated(path.read_text(), -1)[1].places)]
    chosen = random.Random(seed).sample(change_sites, min(count, len(change_sites)))
    mutants = list[Mutant]()
    for path, index in chosen:
        text = path.read_text()
        changed = mutated(text, index)[1].changed
        if changed is not None:
            module = str(path.relative_to(_ROOT))
            mutants.append(Mutant(module, sha256(text.encode()).hexdigest(), index, *changed))
    return mutants


class _CallRecorder:
    """Notes which functions of the repository each test calls: every function says so first."""

    def __init__(self) -> None:
        self.tests = defaultdict[str, list[str]](list)  # tests by the module's path and the function's first line
        self.called = set[str]()  # functions that the running test has called

    def code_of(self, path: str) -> CodeType:
        module = Path(path).resolve().relative_to(_ROOT)
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                note = ast.parse(f"__note__({f'{module}:{node.lineno}'!r})").body[0]
                node.body.insert(ast.get_docstring(node) is not None, note)
        return compile(ast.fix_missing_locations(tree), path, "exec")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.called.clear()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        for function in tuple(self.called):
            self.tests[function].append(nodeid)


def _is_source(file: str) -> bool:
    return any(Path(file).resolve().is_relative_to(_ROOT / folder) for folder in _FOLDERS)


def record_calls(record: Path) -> None:
    """Run the tests in this process, and write which of them call which function of the repository."""
    import pytest

    recorder = _CallRecorder()
    vars(builtins)["__note__"] = recorder.called.add
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        return recorder.code_of(loader.path) if _is_source(loader.path) else original(loader, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceFileLoader, "get_code", get_code)
        pytest.main(["-n", "0", "-p", "no:cacheprovider", "-m", "not long and not ray"], plugins=[recorder])
    record.write_text(json.dumps(recorder.tests))


def tests_of(mutant: Mutant, calls: Mapping[str, Sequence[str]]) -> list[str]:
    """Return at most `_MOST_TESTS` tests that call the function of a mutant, or its module's if it is in none."""
    tree = ast.parse((_ROOT / mutant.module).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    around = [function for function in functions if function.lineno <= mutant.line <= (function.end_lineno or 0)]
    tests = [calls.get(f"{mutant.module}:{function.lineno}", []) for function in around[-1:] or functions]
    return _spread(set(chain.from_iterable(tests)))


def _spread(tests: set[str]) -> list[str]:
    """Return the first cases of as many test functions as possible, then their second ones, and so on."""
    turns = Counter[str]()
    ranked = list[tuple[int, str]]()
    for test in sorted(tests):
        function = test.partition("[")[0]
        ranked.append((turns[function], test))
        turns[function] += 1
    return [test for _, test in sorted(ranked)][:_MOST_TESTS]


class _Selection:
    """Keeps the given tests alone, the first of them first, and writes which of them fails."""

    def __init__(self, tests: Sequence[str], record: Path) -> None:
        self.tests = tests
        self.record = record

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        ranks = {test: rank for rank, test in enumerate(self.tests)}
        items[:] = sorted((item for item in items if item.nodeid in ranks), key=lambda item: ranks[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.record.exists():
            self.record.write_text(report.nodeid)


def _run_tests(copy: Path, tests: Sequence[str], record: Path) -> None:
    """Run tests in a copy of the repository, as the whole work of a process, and end with pytest's status."""
    import pytest

    os.chdir(copy)
    sys.path.insert(0, str(copy))
    os.environ["PYTHONPATH"] = str(copy)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        status = pytest.main([*options, *files], plugins=[_Selection(tests, record)])
    os._exit(int(status))


def play(mutant: Mutant, copy: Path, calls: Mapping[str, Sequence[str]]) -> Mutant:
    """Return a mutant with the outcome of its tests, run in a copy of the repository that is left as it was."""
    tests = tests_of(mutant, calls)
    if not tests:
        return replace(mutant, outcome="untested")
    tests.sort(key=lambda test: test != mutant.killer)
    target = copy / mutant.module
    record = copy / "first_failure.txt"
    text = target.read_text()
    target.write_text(mutated(text, mutant.place)[0])
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    process = context.Process(target=_run_tests, args=(copy, tests, record))
    process.start()
    process.join(_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    target.write_text(text)
    # Status 5: no test was selected.
    outcome = {0: "survived", 5: "untested"}.get(process.exitcode or 0, "killed")
    killer = record.read_text() if record.exists() else ""
    record.unlink(missing_ok=True)
    return replace(mutant, outcome=outcome, tests=tests, killer=killer)


def _again(path: Path) -> Iterator[Mutant]:
    for line in path.read_text().splitlines():
        mutant = Mutant(**json.loads(line))
        module = _ROOT / mutant.module
        if module.is_file() and sha256(module.read_bytes()).hexdigest() == mutant.digest:
            yield mutant


def main() -> None:
    """Play a campaign, write a line of JSON for each mutant, and print the share that the tests noticed."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--record", type=Path, help="file for what the tests call; no mutant is played")
    parser.add_argument("--calls", type=Path, help="file that `--record` wrote")
    parser.add_argument("--again", type=Path, help="file of an earlier campaign whose mutants are played again")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", action="append", help="folders of the mutants; all source by default")
    options = parser.parse_args()
    if options.record:
        record_calls(options.record)
        return
    if not options.calls or not options.out:
        parser.error("--calls and --out are needed to play mutants")
    mutants = (
        list(_again(options.again))
        if options.again
        else sample(options.count, options.seed, options.folder or _FOLDERS)
    )
    calls = json.loads(options.calls.read_text())
    outcomes = list[str]()
    with TemporaryDirectory() as directory, options.out.open("w") as out:
        copy = Path(directory)
        for name in _COPIED:
            source = _ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy / name)
        for number, mutant in enumerate(mutants, 1):
            played = play(mutant, copy, calls)
            outcomes.append(played.outcome)
            out.write(json.dumps(asdict(played)) + "\n")
            out.flush()
            print(f"{number} of {len(mutants)}: {played.outcome}, {played.module}:{played.line}: {played.before}")
    for outcome in sorted(set(outcomes)):
        print(f"{outcome}: {outcomes.count(outcome)} of {len(outcomes)}")
