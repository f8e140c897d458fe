"""A user's directory may hold any names: theirs are found, ours are not hidden, and nothing of theirs runs unasked."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_audit import user_modules
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import FederationError
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.runs.config import parse_config
from fl_audit.user_modules import PortableValue, import_user_module, meant_name, require_named, search_last
from tests.builders.refusals import assert_refused
from tests.builders.settings import small_settings, tiny_toml

ROOT = Path(__file__).parents[1]
OF_PARTIES = ("server", "clients", "strategies", "experiments")
CONFIG = tiny_toml(model={"name": "my_models:build"})
TRAP = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"
BUILD = "from torch import nn\ndef build(feature_shape, classes):\n    return nn.Linear(feature_shape[0], classes)\n"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A directory with modules that are named as the parties of a federation are."""
    directory = tmp_path / "theirs"
    for package in ("strategies", "experiments", "plain"):
        (directory / package).mkdir(parents=True)
    for name in ("server.py", "clients.py", "strategies/__init__.py", "experiments/__init__.py"):
        (directory / name).write_text(TRAP + BUILD)
    (directory / "code.py").write_text(TRAP + BUILD)
    (directory / "my_models.py").write_text("from my_helpers import build\nNUMBER = 3\n")
    (directory / "my_helpers.py").write_text(BUILD)
    (directory / "plain" / "models.py").write_text(BUILD)
    (directory / "audit.toml").write_text(CONFIG)
    return directory


@pytest.fixture
def searched(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # An installation puts nothing of the repository into the path; modules of tests that are packages do.
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    monkeypatch.setattr(sys, "path", [str(theirs), *elsewhere])
    monkeypatch.setattr(user_modules, "_searched", [])
    names = ("my_models", "my_helpers", "plain", "plain.models", *OF_PARTIES)
    saved_modules = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    search_last(theirs)
    yield theirs
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(saved_modules)


def python(program: str, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that stands beside nothing, as an installed command does."""
    script = cwd.parent / "command" / "fl-audit"
    script.parent.mkdir(exist_ok=True)
    script.write_text(program)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.long
def test_the_command_line_imports_ours_and_finds_theirs(theirs: Path) -> None:
    program = "from fl_audit.cli.main import main\nmain()\n"
    # The model is refused after all parties of the federation have been imported, and theirs has been found.
    ran = python(program, theirs, "run", "audit.toml", "--engine", "local", "--set", "model.name=my_models:NUMBER")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.search("'my_models:NUMBER' .*not callable", ran.stderr)
    assert list(theirs.rglob("imported")) == []


def test_what_travels_to_a_worker_that_looks_here_first_is_ours(searched: Path, tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(PortableValue(FederationError, pickle.dumps)))
    program = (
        f"import pickle, sys\nsys.path.insert(0, {str(searched)!r})\n"
        f"print(pickle.loads(open({str(pickled)!r}, 'rb').read()).__module__)\n"
        "from fl_audit import strategies\nprint(strategies.__file__)\n"
    )
    ran = python(program, searched)
    assert ran.returncode == 0, ran.stderr
    assert str(searched) not in ran.stdout
    assert list(searched.rglob("imported")) == []


@pytest.mark.parametrize("name", ["my_models", "my_helpers", "plain.models", *OF_PARTIES])
def test_their_own_modules_are_found(searched: Path, name: str) -> None:
    module = import_user_module(name)
    assert str(searched) in str(module.__file__)
    assert import_user_module(name) is module
    assert sys.path.count(str(searched)) == 1
    assert sys.path[-1] == str(searched)


@pytest.mark.parametrize(
    ("name", "expected_message"),
    [
        ("fl_audit.mine", "fl_audit .*this name: .*rename .*fl_audit.py"),
        ("code", r"taken by .*code\.py: .*rename .*theirs/code\.py"),
    ],
)
def test_a_name_that_cannot_be_had_is_said_in_one_line(searched: Path, name: str, expected_message: str) -> None:
    (searched / "fl_audit.py").write_text(TRAP)
    assert_refused(expected_message, import_user_module, name)
    assert list(searched.rglob("imported")) == []


def test_the_directory_of_fl_audit_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.setattr(user_modules, "_searched", [])
    before = list(sys.path)
    search_last(ROOT)
    assert sys.path == before


def test_modules_beside_fl_audit_are_found_where_an_installation_maps_fl_audit_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An editable install puts nothing of the repository into the path, and users may stand there."""
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    monkeypatch.setattr(sys, "path", [*elsewhere])
    monkeypatch.setattr(user_modules, "_searched", [])
    search_last(ROOT)
    assert sys.path == [*elsewhere, str(ROOT)]
    search_last(ROOT)
    assert sys.path == [*elsewhere, str(ROOT)]
    search_last(ROOT / "tests")
    assert str(ROOT) not in sys.path


def test_a_dot_for_the_colon_is_answered_with_the_name_that_is_meant(searched: Path) -> None:
    """Names of functions of the user's: a model, data, an attack or a strategy."""
    for wrong, meant in (
        ("my_models.build", "my_models:build"),
        ("my_models.py:build", "my_models:build"),
        ("plain.models.build", "plain.models:build"),
        ("plain/models.py:build", "plain.models:build"),
    ):
        assert meant_name(wrong) == meant
        for read in (
            require_named,
            lambda name: build_model(ModelSpec(name, (4,), 2)),
            lambda name: load_source(DataSpec(name)),
            lambda name: parse_config(small_settings(audit={"dissimilarity": name})),
        ):
            assert_refused(rf"'{re.escape(wrong)}'.*here '{re.escape(meant)}'$", read, wrong)
    build_model(ModelSpec("my_models:build", (4,), 2))
    for name in ("my_models:build", "my.csv", "logistic", "my_models.py", "nowhere.build"):
        assert meant_name(name) is None
