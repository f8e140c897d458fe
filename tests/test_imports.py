"""The drawing of imports: no circle among the modules of the project. (Floors are contracts of import-linter.)"""

from graphlib import TopologicalSorter

import grimp

PACKAGES = ("fl_audit", "clients", "server", "strategies", "experiments")


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None, exclude_type_checking_imports=True)
    # `prepare` raises CycleError and names the circle.
    drawing = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(drawing).prepare()
    assert len(drawing) > 200
