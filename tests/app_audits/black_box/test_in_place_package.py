"""Imports of a client: numpy and Flower alone, in about the time of Flower, also from the small package."""

import os
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.builders.wheels import unpacked_wheel

# One worker makes what tests of this file share.
pytestmark = pytest.mark.xdist_group("small package")
ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "pandas", "scipy", "sklearn", "ray", "opacus", "pydantic", "matplotlib", "pyarrow", "filelock")
CLIENTS = {
    "canary": "from fl_audit.app_audits.live.canary import Canary, canary_mod, canary_of_node, watching_mod",
    "budget": (
        "from fl_audit.app_audits.live.budget_guard import budget_mod; "
        "from fl_audit.privacy.stated_releases import StatedReleases"
    ),
    "in-place": (
        "from fl_audit.app_audits.black_box import Audit, StatedClaim, held, insider; "
        "Audit(StatedClaim('add-remove-client', epsilon=4.0, delta=1e-5)).insider()"
    ),
}
LONGEST, LARGEST = 1.2, 120
"""Times Flower's own import, and megabytes."""


def test_a_client_loads_numpy_and_flower_alone() -> None:
    """Of all clients in one process, which says after each of them what is there."""
    tell = f"print([name for name in {HEAVY!r} if name in sys.modules])"
    module_listing = "print(*(name for name in sys.modules if name.split('.')[0] == 'fl_audit'))"
    ledger = "import fl_audit.privacy.ledger"
    code = "\n".join(["import sys", *(f"{client}\n{tell}" for client in CLIENTS.values()), ledger, module_listing])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *heavy, modules = ran.stdout.splitlines()
    assert dict(zip(CLIENTS, heavy, strict=True)) == dict.fromkeys(CLIENTS, "[]")
    small = tomllib.loads((ROOT / "packaging" / "in-place" / "pyproject.toml").read_text())
    packed = small["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values()
    names = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in packed}
    whole = tuple(path.replace("/", ".") + "." for path in packed if "." not in path)
    missing = [name for name in modules.split() if name not in names and not name.startswith(whole)]
    assert missing == [], "packaging/in-place/pyproject.toml lists what the small package has"


@pytest.mark.long
def test_a_client_loads_about_as_fast_as_flower() -> None:
    """In one process, first Flower and then the client: what else the machine does then falls on both alike."""
    cpu = "u = resource.getrusage(resource.RUSAGE_SELF)\nprint(u.ru_utime + u.ru_stime)\n"
    memory = "print([one for one in open('/proc/self/status') if 'VmHWM' in one][0].split()[1])\n"
    for name, client in CLIENTS.items():
        code = f"import resource\nimport flwr.clientapp\n{cpu}{client}\n{cpu}{memory}"
        ratios = []
        for _ in range(5):
            ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            flower, total_seconds, kilobytes = map(float, ran.stdout.split())
            ratios.append(total_seconds / flower)
            assert kilobytes / 1024 < LARGEST, f"{name}: {kilobytes / 1024:.0f} MB"
        assert statistics.median(ratios) < LONGEST, (name, ratios)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_wheel(ROOT / "packaging" / "in-place", tmp_path_factory.mktemp("package"))


@pytest.mark.long
def test_the_small_package_is_enough(unpacked: Path) -> None:
    """Nothing that it does not bring can be imported, and a ledger is kept with it as well."""
    absent = ("torch", "pandas", "sklearn", "ray", "opacus", "pyarrow", "matplotlib", "flwr_datasets")
    code = (
        "import sys\n"
        f"for name in {absent!r}: sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(unpacked)!r})\n" + "\n".join(CLIENTS.values()) + "\n"
        "import fl_audit\n"
        f"assert fl_audit.__file__.startswith({str(unpacked)!r})\n"
        "from fl_audit.privacy.ledger import LedgerTraining, composed_epsilon\n"
        "from fl_audit.privacy.stated_releases import StatedReleases\n"
        "line = LedgerTraining('', StatedReleases('add-remove-record', 2.0, 30, 0.1))\n"
        "print(round(composed_epsilon((line,), 1e-5).epsilon, 3))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "1.295"


def test_both_packages_ask_for_the_same_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    small = tomllib.loads((ROOT / "packaging" / "in-place" / "pyproject.toml").read_text())["project"]
    assert small["version"] == project["version"]
    assert {dependency.replace("[simulation]", "") for dependency in project["dependencies"]} >= set(
        small["dependencies"]
    )
