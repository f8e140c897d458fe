"""What the source must not have: circles, two public classes of one name, and files that `flwr run` leaves behind.

Floors are contracts of import-linter.
"""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
from flwr.common.constant import FAB_EXCLUDE_PATTERNS, FAB_INCLUDE_PATTERNS
from pathspec import PathSpec

ROOT = Path(__file__).parents[1]
PACKAGES = ("fl_audit", "clients", "server", "strategies", "experiments")


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("fl_audit", cache_dir=None)
    assert "fl_audit.experiments.cli.main" in graph.modules
    # `prepare` raises CycleError and names the circle.
    drawing = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(drawing).prepare()
    assert len(drawing) > 450


def test_no_two_public_classes_have_one_name() -> None:
    homes = defaultdict(list)
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(homes) > 500
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_flowers_own_command_takes_every_file_along() -> None:
    """Flower packs an app by patterns, which take a module named after tests for a test of the app."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if "__pycache__" not in path.parts]
    names = [str(path.relative_to(ROOT)) for path in files if path.is_file() and path.suffix != ".patch"]
    taken, left = (PathSpec.from_lines("gitignore", one) for one in (FAB_INCLUDE_PATTERNS, FAB_EXCLUDE_PATTERNS))
    assert [one for one in names if not taken.match_file(one) and not one.endswith("py.typed")] == []
    # The app's own description is made again, as part of what is packed.
    assert [one for one in names if left.match_file(one) and not one.endswith("pyproject.toml")] == []
    assert len(names) > 400
