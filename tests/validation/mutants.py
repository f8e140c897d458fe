"""Mutants of the source: which share of small changes to it do the tests notice?

    python -m tests.validation mutants --record calls.json
    python -m tests.validation mutants --calls calls.json --out mutants.jsonl [--count 100] [--seed 0]
    python -m tests.validation mutants --calls calls.json --out later.jsonl --again mutants.jsonl

A mutant is a module in which one operator, number or condition is another. It is played in a copy of the repository
against the tests that call its function; the first command records which ones these are. All tests are collected once,
and each mutant is a fork in which the function has the code of the mutant. What a module computes as it is imported is
played by a new process, with the files of tests that call most of the module. `--again` plays the mutants of an earlier
campaign whose modules are unchanged since, with the test that killed a mutant first: two states of the tests are so
compared on the same mutants.
"""

import ast
import builtins
import gc
import inspect
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType
from typing import Any, cast

import pytest

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("fl_audit", "clients", "server", "strategies")
_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__")
_MOST_TESTS = 25
_MOST_FILES = 4
_SECONDS = 200
_OPTIONS = ["-q", "--disable-warnings", "-n", "0", "-p", "no:cacheprovider", "-m", "not long and not ray"]
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


def _absolute(path: str) -> Path:
    return Path(path).absolute()


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
        module = _module_of(path)
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


@cache
def _module_of(file: str) -> str:
    """Return the path of a source file in the repository; an empty one for any other file."""
    path = Path(file).resolve()
    is_source = any(path.is_relative_to(_ROOT / folder) for folder in _FOLDERS)
    return str(path.relative_to(_ROOT)) if is_source else ""


def record_calls(record: Path) -> None:
    """Run the tests in this process, and write which of them call which function of the repository."""
    recorder = _CallRecorder()
    vars(builtins)["__note__"] = recorder.called.add
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        return recorder.code_of(loader.path) if _module_of(loader.path) else original(loader, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceFileLoader, "get_code", get_code)
        pytest.main(_OPTIONS, plugins=[recorder])
    record.write_text(json.dumps(recorder.tests))


def _functions(text: str) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]


def _functions_around(line: int, text: str) -> list[ast.FunctionDef]:
    """Return the functions that have a line in their body, from the outermost to the innermost."""
    return [
        function for function in _functions(text) if function.body[0].lineno <= line <= (function.end_lineno or line)
    ]


def tests_of(mutant: Mutant, calls: Mapping[str, Sequence[str]]) -> list[str]:
    """Return at most `_MOST_TESTS` tests that call the function of a mutant, or its module's if it is in none."""
    text = (_ROOT / mutant.module).read_text()
    functions = _functions_around(mutant.line, text)[-1:] or _functions(text)
    tests = [calls.get(f"{mutant.module}:{function.lineno}", []) for function in functions]
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


class _FirstFailure:
    """Notes the first test that fails."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid


class _Player:
    """Plays mutants against the tests that pytest has collected, in place of its own loop."""

    def __init__(self, mutants: Sequence[Mutant], calls: Mapping[str, Sequence[str]], out: Path) -> None:
        self.mutants = mutants
        self.calls = calls
        self.out = out
        self.items = dict[str, pytest.Item]()  # tests by name
        self.functions = defaultdict[str, list[FunctionType]](list)  # imported functions, by the path of their module

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # frozen objects are not listed
        for item in gc.get_objects():
            if isinstance(item, FunctionType):
                self.functions[_module_of(item.__code__.co_filename)].append(item)
        outcomes = Counter[str]()
        capture: Any = session.config.pluginmanager.get_plugin("capturemanager")
        with self.out.open("w") as out, capture.global_and_fixture_disabled():
            for number, mutant in enumerate(self.mutants, 1):
                played = self._play(mutant, session.config)
                outcomes[played.outcome] += 1
                out.write(json.dumps(asdict(played)) + "\n")
                out.flush()
                place = f"{mutant.module}:{mutant.line}: {mutant.before}"
                print(f"{number} of {len(self.mutants)}: {played.outcome}, {place}", flush=True)
            print(", ".join(f"{outcome}: {count}" for outcome, count in outcomes.items()))
        return True

    def _play(self, mutant: Mutant, config: pytest.Config) -> Mutant:
        """Return a mutant with the outcome of its tests; its module is left as it was."""
        tests = [test for test in tests_of(mutant, self.calls) if test in self.items]
        if not tests:
            return replace(mutant, outcome="untested")
        tests.sort(key=lambda test: test != mutant.killer)
        module = _ROOT / mutant.module
        text = module.read_text()
        # The file is for processes that tests start, and for modules that are imported later.
        module.write_text(mutated(text, mutant.place)[0])
        try:
            killer = _in_fork(lambda: self._first_failure(mutant, text, tests, config))
        finally:
            module.write_text(text)
        return replace(mutant, outcome="killed" if killer else "survived", tests=tests, killer=killer)

    def _first_failure(self, mutant: Mutant, text: str, tests: Sequence[str], config: pytest.Config) -> str:
        """Return the first test that fails with a mutant; the process is a fork, and need not be left as it was."""
        if not _functions_around(mutant.line, text):
            return _first_failure_of_files(tests)
        self._exchange(mutant, text)
        failure = _FirstFailure()
        config.pluginmanager.register(failure)
        for test, following in zip(tests, [*tests[1:], ""], strict=True):
            hook = config.hook
            hook.pytest_runtest_protocol(item=self.items[test], nextitem=self.items.get(following))
            if failure.test:
                break
        return failure.test

    def _exchange(self, mutant: Mutant, text: str) -> None:
        """Give the functions of a module the code of a mutant."""
        tree = ast.fix_missing_locations(_Change(mutant.place).visit(ast.parse(text)))
        codes = _function_codes(compile(tree, mutant.module, "exec"))
        code_by_place = {(code.co_name, code.co_firstlineno): code for code in codes}
        for function in self.functions[mutant.module]:
            code = code_by_place.get((function.__code__.co_name, function.__code__.co_firstlineno))
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code


def _function_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of the functions and methods of a module, without functions inside them."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            else:
                yield from _function_codes(constant)


def _first_failure_of_files(tests: Sequence[str]) -> str:
    """Return the first test that fails in a new process, with the files that most of the given tests stand in."""
    files = Counter(test.partition("::")[0] for test in tests)
    chosen = [file for file, _ in files.most_common(_MOST_FILES)]
    command = [sys.executable, "-m", "pytest", *_OPTIONS, "-x", *chosen]
    process = subprocess.run(command, capture_output=True, text=True)
    failures = [line for line in process.stdout.splitlines() if line.startswith("FAILED ")]
    if process.returncode == 0:
        return ""
    return failures[0].removeprefix("FAILED ").partition(" - ")[0] if failures else "import"


def _in_fork(first_failure: Callable[[], str]) -> str:
    """Return what a call in a fork of this process returns; if it ends or takes too long, what happened to it."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.setsid()
        try:
            answer = first_failure()
            os.write(writing, f"{answer}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    is_ready = bool(select.select([reading], [], [], _SECONDS)[0])
    answer = os.read(reading, 10_000).decode() if is_ready else "time\n"
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(reading)
    return answer.removesuffix("\n") if answer else "the process ended"


def _play_in_copy(arguments: Sequence[str]) -> None:
    """Play a campaign in a copy of the repository."""
    with TemporaryDirectory() as directory:
        shutil.copytree(_ROOT, directory, symlinks=True, ignore=_NOT_COPIED, dirs_exist_ok=True)
        # With -P the campaign is that of the copy, while files are named from the working directory.
        command = [sys.executable, "-B", "-P", "-m", "tests.validation", "mutants", *arguments, "--in-place"]
        subprocess.run(command, env=os.environ | {"PYTHONPATH": directory}, check=True)


def _again(path: Path) -> Iterator[Mutant]:
    for line in path.read_text().splitlines():
        mutant = Mutant(**json.loads(line))
        module = _ROOT / mutant.module
        if module.is_file() and sha256(module.read_bytes()).hexdigest() == mutant.digest:
            yield mutant


def main() -> None:
    """Play a campaign, write a line of JSON for each mutant, and print the share that the tests noticed."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=_absolute)
    parser.add_argument("--record", type=_absolute, help="file for what the tests call; no mutant is played")
    parser.add_argument("--calls", type=_absolute, help="file that `--record` wrote")
    parser.add_argument("--again", type=_absolute, help="file of an earlier campaign whose mutants are played again")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", action="append", help="folders of the mutants; all source by default")
    parser.add_argument("--in-place", action="store_true", help="change modules of this repository, not of a copy")
    options = parser.parse_args()
    if options.record:
        record_calls(options.record)
        return
    if not options.calls or not options.out:
        parser.error("--calls and --out are needed to play mutants")
    if not options.in_place:
        _play_in_copy(sys.argv[1:])
        return
    mutants = (
        list(_again(options.again))
        if options.again
        else sample(options.count, options.seed, options.folder or _FOLDERS)
    )
    calls = json.loads(options.calls.read_text())
    os.chdir(_ROOT)
    pytest.main(_OPTIONS, plugins=[_Player(mutants, calls, options.out)])
