"""The study of coverage: its list is complete, it finds an interval that is too narrow, and it prints what it found."""

import ast
import json
import math
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.validation import coverage
from tests.validation.coverage import STATEMENTS, CoverageLine, Statement, measured
from tests.validation.coverage_distributions import PrintedStatement

ROOT = Path(__file__).parents[2]
STUDIES = {"studies", "benchmarks", "faulty_mechanisms"}
"""Modules that check the software; they print nothing to a user."""
NAMES = {"confidence", "CONFIDENCE", "_CONFIDENCE"}
TELLS = {"percent", "require", "require_number", "replace", "estimate"}
"""Functions that put a confidence into words, refuse one, store it, or are a name for one of two that are listed."""
COUNTS_GIVEN = {"clopper_pearson"}
"""Intervals that are true only of counts that nothing was chosen by: whoever calls them is listed, too."""
NOT_OF_A_NUMBER = {
    # what a model is sure of, which is called its confidence as well
    "fl_audit.audits.membership.attacks.lira._scores",
    "fl_audit.audits.membership.attacks.rmia._log",
    "fl_audit.experiments.papers.bernau2019.attacked_models.reduced",
    # the setting itself
    "fl_audit.federation.run_plan.RunPlan.confidence",
    # a level that several bounds share
    "fl_audit.app_audits.review.review_result.refutes",
    "fl_audit.app_audits.claim_audit.claim_audit_procedure.audit_claim",
    "fl_audit.app_audits.claim_audit.claim_audit_procedure._tried_by_halves",
    # what most audits with such a level find: a power
    "fl_audit.app_audits.claim_audit.claim_audit_messages.limit_of_detection",
    # the interval of a section of the user's own, stretched as that of a normal distribution
    "fl_audit.statistics.claim_comparisons.interval_by_confidence.at",
    # how often chance alone gives what was found, in words
    "fl_audit.audits.page.gauge._of_verdict",
    "fl_audit.audits.page.engineer_part._insider",
}
LISTED = {function for statement in STATEMENTS for function in statement.functions}


def is_confidence(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id in NAMES) or (
        isinstance(node, ast.Attribute) and node.attr in NAMES and isinstance(node.ctx, ast.Load)
    )


def called(node: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def functions_that_use(tree: ast.AST, safe: set[str], inside: tuple[str, ...] = ()) -> Iterator[str]:
    """Give the functions that do something with a confidence but say it, store it or hand it to what is safe."""
    for node in ast.iter_child_nodes(tree):
        within = inside
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                within = (*inside, name)
            case ast.Assign(value=value) if is_confidence(value):
                continue
            case ast.FormattedValue() | ast.Compare() | ast.arguments() | ast.Dict() | ast.Tuple():
                continue
            case ast.Call() if called(node) in safe or called(node)[:1].isupper() or called(node) == "cls":
                # Handing it on is safe; what else stands between the brackets is looked at.
                operands = [*node.args, *(keyword.value for keyword in node.keywords)]
                for operand in operands:
                    if not is_confidence(operand):
                        yield from functions_that_use(ast.Expression(operand), safe, inside)
                continue
            case _ if is_confidence(node) and inside and isinstance(getattr(node, "ctx", None), ast.Load):
                yield ".".join(inside)
        yield from functions_that_use(node, safe, within)


def sources() -> dict[str, ast.Module]:
    """Return the source of everything that may print something, by module."""
    trees = {}
    for folder in ("fl_audit", "strategies", "clients", "server", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            path_parts = path.relative_to(ROOT).with_suffix("").parts
            text = path.read_text(encoding="utf-8")
            if not STUDIES & set(path_parts) and "confidence" in text.lower():
                trees[".".join(path_parts if folder == "fl_audit" else ("fl_audit", *path_parts))] = ast.parse(text)
    return trees


def takes_confidence(tree: ast.AST) -> set[str]:
    """Return the names of the functions with such a parameter: each of them is looked at by itself."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {
        definition.name
        for definition in functions
        if any(a.arg in NAMES for a in (*definition.args.args, *definition.args.kwonlyargs))
    }


@pytest.mark.long
def test_every_function_that_works_with_a_confidence_is_listed() -> None:
    """A new interval or bound must be added to `STATEMENTS`, with simulated runs of its own."""
    trees = sources()
    safe = set.union(*map(takes_confidence, trees.values())) - COUNTS_GIVEN | TELLS
    function_names = {f"{module}.{name}" for module, tree in trees.items() for name in functions_that_use(tree, safe)}
    assert sorted(function_names - LISTED - NOT_OF_A_NUMBER) == []


@pytest.mark.parametrize("code", ["stdtrit(9, (1 + confidence) / 2)", "interval(x, confidence)", "ppf(run.confidence)"])
def test_the_list_is_held_against_new_intervals(code: str) -> None:
    safe = {"clopper_pearson"} - COUNTS_GIVEN | TELLS
    assert list(functions_that_use(ast.parse(f"def new(x, confidence):\n    return {code}"), safe)) == ["new"]
    assert not list(functions_that_use(ast.parse("def said(confidence):\n    return percent(confidence)"), safe))


@pytest.mark.parametrize("name", sorted(LISTED))
def test_what_is_listed_exists(name: str) -> None:
    module = next(prefix for prefix in _prefixes(name) if (ROOT / f"{prefix.replace('.', '/')}.py").is_file())
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    last = name.rsplit(".", 1)[-1]
    assert any(isinstance(node, ast.FunctionDef) and node.name == last for node in ast.walk(tree))


def _prefixes(name: str) -> Iterator[str]:
    name_parts = name.split(".")
    return (".".join(name_parts[:length]) for length in range(len(name_parts), 0, -1))


@pytest.mark.few_cases(11)
@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.name)
def test_every_setting_of_every_statement_can_be_played(statement: Statement) -> None:
    plays = statement.plays()
    chosen = list(plays) if len(plays) < 5 else list(plays)[:: len(plays) // 4]
    for name in chosen if statement.share > 0.05 else chosen[:1]:
        low, high, truth = plays[name](np.random.default_rng(3))
        assert low <= high
        assert not math.isnan(truth)


def test_an_interval_that_is_too_narrow_falls_short_and_one_that_is_exact_does_not() -> None:
    """400 runs of a known mean of normal numbers; the exact one fails with a probability of 0.1 %."""

    def play(draw: np.random.Generator, reach: float) -> PrintedStatement:
        mean = float(draw.normal())
        return PrintedStatement(mean - reach, mean + reach, 0.0)

    for reach, expected in ((1.96, False), (1.5, True)):
        statement = Statement(
            "mean",
            lambda reach=reach: {"wide": lambda _: PrintedStatement(0, 1, 0.5), "one": partial(play, reach=reach)},
            (),
        )  # type: ignore[misc]
        worst = measured(statement, 400, 50)[0]
        assert worst.setting == "one"
        assert worst.falls_short is expected
    assert not CoverageLine("mean", "one", 2, None, 400, 10).falls_short


def test_command_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["coverage", "--quick", "--only", "share of trials", "--out", str(out)])
    coverage.main()
    assert [row["statement"] for row in json.loads(out.read_text())] == ["share of trials"] * 2
    assert "share of trials" in capsys.readouterr().out
    assert all(0 <= row["coverage"] <= 1 for row in json.loads(out.read_text()))
