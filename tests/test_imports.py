"""What the source must not have: circles among its modules, and two public classes of one name.

Floors are contracts of import-linter.
"""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("fl_audit", "clients", "server", "strategies", "experiments")


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    # `prepare` raises CycleError and names the circle.
    drawing = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(drawing).prepare()
    assert len(drawing) > 200


def test_no_two_public_classes_have_one_name() -> None:
    homes = defaultdict(list)
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(homes) > 500
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
