"""Closed sets are closed: a match over one ends in `assert_never`, and a mechanism refuses parts that are none of its
own.
"""

import ast
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.learning.optimizers import ServerOptimizer
from fl_audit.mechanisms.contribution import Everybody, FixedClipping, RecordGradients
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.noises.central import CentralGaussian
from tests.builders.refusals import assert_refused

ROOT = Path(__file__).parent.parent
SOURCE = ("fl_audit", "clients", "server", "strategies", "experiments", "tests/validation")

OPEN = {
    "tests/validation/breach_truths.py": "names of breaches",
    "tests/validation/coverage_distributions.py": "words for what is played",
    "tests/validation/equality.py": "values of a summary",
    "fl_audit/runs/config_errors.py": "what a user wrote, and kinds of problems and schemas that pydantic has",
    "fl_audit/app_audits/local_training/output_tracing.py": "what a training returned",
    "strategies/simulated_grid.py": "what a client app returned",
    "fl_audit/runs/trial_batch_store.py": "what a worker found: a single pattern that takes it apart",
    "fl_audit/data/table_text.py": "values of the cells of a workbook",
    "fl_audit/api/running.py": "what a user gave",
    "fl_audit/app_audits/local_training/edited_datasets.py": "data sets and items of any kind",
    "fl_audit/app_audits/local_training/opacus_introspection.py": "samplers of any loader",
    "fl_audit/app_audits/local_training/training_function_audit.py": "what a user's function returned",
    "fl_audit/learning/layers.py": "modules of torch",
    "fl_audit/learning/stacked_layers.py": "modules of torch",
    "fl_audit/learning/unit_norms.py": "layers of any kind, most of which have no way of their own",
    "fl_audit/audits/common/sections_record_guarantee.py": "tuples of events of any length",
    "fl_audit/words.py": "values of any type",
    "tests/validation/faulty_mechanisms/mechanism.py": "kinds of dtypes of numpy",
    "tests/validation/mutants.py": "nodes of Python code",
    "fl_audit/app_audits/black_box/audited_system.py": "objects of an app",
    "fl_audit/app_audits/review/privacy_mentions.py": "nodes of Python code",
}
"""Files with a match that is not over a closed set, and over what it is."""


def ends_in_assert_never(match: ast.Match) -> bool:
    last = match.cases[-1]
    is_wild = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
    first = last.body[0]
    return is_wild and isinstance(first, ast.Expr) and ast.unparse(first).startswith("assert_never(")


def open_ends(path: Path) -> list[int]:
    text = path.read_text(encoding="utf-8")
    # Most files have no `match`, and parsing is what takes long.
    tree = ast.parse(text if re.search(r"^ *match .+:", text, re.MULTILINE) else "")
    matches = [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    return [match.lineno for match in matches if not ends_in_assert_never(match)]


def test_every_match_over_a_closed_set_ends_in_assert_never() -> None:
    lines_by_file = {}
    for path in (file for name in SOURCE for file in sorted((ROOT / name).rglob("*.py"))):
        if lines := open_ends(path):
            lines_by_file[path.relative_to(ROOT).as_posix()] = lines
    unknown = {path: lines for path, lines in lines_by_file.items() if path not in OPEN}
    assert not unknown, "end these in `case _: assert_never(...)`, or say in OPEN over which open set they are"
    assert set(lines_by_file) == set(OPEN), "files of OPEN without such a match: take them out"


def test_the_rule_sees_an_open_end(tmp_path: Path) -> None:
    for ends, body in ((True, "assert_never(x)"), (False, "pass")):
        path = tmp_path / "module.py"
        path.write_text(f"match x:\n    case 1:\n        pass\n    case _:\n        {body}\n")
        assert open_ends(path) == ([] if ends else [1])


@dataclass(frozen=True)
class Foreign:
    """An object with the attributes of every part of a mechanism."""

    kind: str = "foreign"
    norm: float = 1.0
    multiplier: float = 1.0
    unit = RecordGradients().unit


class Halved(CentralGaussian):
    """Noise that calls itself central and could do anything else."""


RECORD_SUMS = Mechanism(
    adjacency=Adjacency.REPLACE_RECORD,
    clipping=FixedClipping(1.0),
    participation=Everybody(),
    noise=CentralGaussian(1.0),
    denominator=10.0,
    optimizer=ServerOptimizer("sgd", 0.1),
)


@pytest.mark.parametrize("component", ["noise", "participation", "clipping", "contribution", "optimizer"])
def test_a_foreign_part_is_refused_when_the_distribution_is_made(component: str) -> None:
    assert_refused(f"^{component} is Foreign.*: .*values of ", lambda: replace(RECORD_SUMS, **{component: Foreign()}))


def test_a_subclass_is_foreign_too() -> None:
    assert_refused(r"^noise is Halved", lambda: replace(RECORD_SUMS, noise=Halved(1.0)))
