"""The wheel has all that an audit needs, and works beside modules of the user that have the names of ours."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.wheels import unpacked_wheel

# One worker makes what tests of this file share.
pytestmark = pytest.mark.xdist_group("wheel")
ROOT = Path(__file__).parents[1]
APART = ("benchmarks", "examples", "studies")
"""Parts of `experiments` that stay in the repository: they show that the software is right."""
PARTS = {"clients", "server", "strategies", "experiments"}
"""Folders that are installed inside fl_audit and stand beside it in the repository."""
OF_TESTS = ("dp_accounting", "pytest", "hypothesis", "mpmath", "skimage", "grimp")
TRAP = "raise RuntimeError('a module of the user was imported in the place of ours')\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


def files(directory: Path, packages: set[str]) -> set[Path]:
    paths = {
        path.relative_to(directory) for name in packages for path in (directory / name).rglob("*") if path.is_file()
    }
    return {path for path in paths if "__pycache__" not in path.parts}


def test_it_holds_the_packages_and_nothing_else(installed: Path) -> None:
    (information,) = installed.glob("fl_audit-*.dist-info")
    assert {entry.name for entry in installed.iterdir()} == {"fl_audit", information.name}
    assert (installed / "fl_audit" / "py.typed").is_file()
    assert (information / "entry_points.txt").read_text() == "[console_scripts]\nfl-audit = fl_audit.cli.main:main\n"
    there = files(installed, {"fl_audit"})
    project_files = {
        Path("fl_audit", path)
        for path in files(ROOT, PARTS)
        if path.parts[:2] not in {("experiments", n) for n in APART}
    }
    assert there == files(ROOT, {"fl_audit"}) | project_files


def test_nothing_that_is_installed_needs_what_is_not(installed: Path) -> None:
    """Neither what stays in the repository alone, nor a package that only the tests need."""
    stay = ("tests", *(f"fl_audit.experiments.{name}" for name in APART))
    for path in installed.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert not name.startswith(stay), f"{path} imports {name}"
                assert name.partition(".")[0] not in OF_TESTS, f"{path} imports {name}"
    (information,) = installed.glob("fl_audit-*.dist-info")
    needed = [line for line in (information / "METADATA").read_text().splitlines() if line.startswith("Requires-Dist:")]
    assert not [line for line in needed if "dp-accounting" in line and "extra ==" not in line]


@pytest.mark.long
def test_commands_run_from_it_beside_modules_of_the_same_names(installed: Path, tmp_path: Path) -> None:
    for name in ("server", "clients", "strategies", "tests"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").write_text(TRAP)
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "from fl_audit.cli.main import main\n"
        "import fl_audit\n"
        f"assert fl_audit.__file__.startswith({str(installed)!r}), fl_audit.__file__\n"
        "from fl_audit.runs.config_file import load_config\n"
        "from pathlib import Path\n"
        f"load_config(Path({str(installed)!r}) / 'fl_audit' / 'experiments' / 'configs' / 'demo.toml')\n"
        "sys.argv = 'fl-audit account --noise-multiplier 9.95 --delta 0.001 --rounds 30 --accountant gdp'.split()\n"
        "sys.argv += ['--adjacency', 'replace-record']\n"
        "main()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # As the installed command does: -P keeps the working directory out of the path.
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "noise multiplier 9.95 guarantees" in ran.stdout
