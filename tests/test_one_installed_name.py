"""Only `fl_audit` comes into an environment, so apps may have packages and folders of any other name."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.builders.settings import tiny_toml

NAMES = ("server", "clients", "strategies", "experiments", "tests")
CONFIG = tiny_toml(data={"name": "experiments.loading:load"}, model={"name": "server.nets:build"})
MODULES = {
    "server/nets.py": """
        from torch import nn
        from tests.sizes import HIDDEN
        def build(feature_shape, classes):
            return nn.Sequential(nn.Linear(feature_shape[0], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
    """,
    "tests/sizes.py": "HIDDEN = 4\n",
    "experiments/loading.py": """
        import numpy as np
        from fl_audit.data.loaded_dataset import LoadedDataset
        from fl_audit.data.records import Records
        def load():
            draw = np.random.default_rng(0)
            features = draw.normal(size=(80, 3)).astype(np.float32)
            return LoadedDataset("own", Records(features, draw.integers(0, 2, 80), classes=2), None, "80 records")
    """,
    "strategies/own.py": """
        from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
        def make():
            return DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), 1.0, 1.0, 4)
    """,
    "clients/app.py": """
        from flwr.clientapp import ClientApp
        from fl_audit.app_audits.live.canary import Canary, canary_mod
        app = ClientApp()
    """,
    "server/app.py": """
        import numpy as np
        from flwr.app import ArrayRecord
        from flwr.serverapp import ServerApp
        from strategies.own import make
        app = ServerApp()
        @app.main()
        def main(grid, context):
            make().start(grid, ArrayRecord([np.zeros((3, 4), np.float32)]), num_rounds=5)
    """,
    "pyproject.toml": """
        [project]
        name = "collides"
        [tool.flwr.app.components]
        serverapp = "server.app:app"
        clientapp = "clients.app:app"
        [tool.flwr.app.config]
        num-server-rounds = 5
    """,
}
REVIEW = """
import sys
from pathlib import Path
from fl_audit.app_audits.review.app_loading import StubImportFinder, read_app
from fl_audit.app_audits.review.strategy_capture import capture_strategy
caught = capture_strategy(read_app(Path.cwd()), 10, StubImportFinder(Path.cwd()))
print(caught)
import server, clients, strategies
print([name for name in ("server.app", "clients.app", "strategies.own") if name not in sys.modules])
"""
PLAYED = """
import sys
from pathlib import Path
from fl_audit.audits.page import report_files
from fl_audit.cli.main import main
report_files.draw_all = lambda *_, **__: []
report_files.write_pdf = lambda *_: None
sys.argv = ["fl-audit", "run", "audit.toml", "--engine", sys.argv[1], "--out", "run"]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
import fl_audit
ours = Path(fl_audit.__file__).resolve().parent
folders = [ours, *(path.resolve() for path in ours.iterdir() if path.is_symlink())]
files = {name: Path(one.__file__) for name, one in list(sys.modules.items()) if getattr(one, "__file__", None)}
from_ours = [name for name, path in files.items() if any(path.resolve().is_relative_to(one) for one in folders)]
print([name for name in from_ours if name.partition(".")[0] != "fl_audit"], len(from_ours) > 100)
"""
IN_PLACE = """
import sys
sys.path.insert(0, sys.argv[1])
sys.path.append(sys.argv[2])
from pathlib import Path
from strategies.own import make
from toy_app import toy_audit, toy_run
toy_run(make, toy_audit(Path("kept"), trials=41))
import strategies
print(next(iter(strategies.__path__)), sorted(one.name for one in Path("kept").rglob("campaign.json")))
"""


@pytest.fixture(params=[pytest.param("packages", marks=pytest.mark.long), "plain folders"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A Flower app whose folders have names that folders of this repository have."""
    directory = tmp_path / "app"
    for name, text in MODULES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    if request.param == "packages":
        for name in NAMES:
            (directory / name / "__init__.py").touch()
    (directory / "audit.toml").write_text(CONFIG)
    return directory


def python(directory: Path, *arguments: str) -> str:
    """Run Python as an installed command does, with nothing but its environment in the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", *arguments]
    ran = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_nothing_else_can_be_imported(tmp_path: Path) -> None:
    code = f"from importlib.util import find_spec; print([one for one in {NAMES!r} if find_spec(one)])"
    assert python(tmp_path, "-c", code).strip() == "[]"


def test_an_app_is_reviewed_with_its_own_packages(app: Path) -> None:
    heard, absent = python(app, "-c", REVIEW).strip().rsplit("\n", 1)
    assert absent == "[]"
    assert "Server-Side Fixed Clipping" in heard
    assert "cannot be imported" not in heard


@pytest.mark.long
def test_an_app_is_audited_in_place_with_its_own_packages(app: Path) -> None:
    toys = Path(__file__).parent / "app_audits" / "black_box"
    assert python(app, "-c", IN_PLACE, str(app), str(toys)).strip() == f"{app / 'strategies'} ['campaign.json']"


@pytest.mark.long
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.ray)])
def test_models_and_loaders_import_such_packages_and_ours_are_modules_of_the_one_name(app: Path, engine: str) -> None:
    """Each module of ours is loaded once, under one name, wherever its file lies."""
    assert python(app, "-c", PLAYED, engine).strip().splitlines()[-1] == "[] True"
    assert (app / "run" / "summary.json").is_file()
