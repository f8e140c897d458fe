"""The hash of an app's bundle is that of the file which Flower names after it."""

import subprocess
import sys
from pathlib import Path

from fl_audit.app_audits.launchers.app_bundle import bundle_hash

_PROJECT = """
[project]
name = "small-app"
version = "1.0.0"
description = "An app."
license = "Apache-2.0"
dependencies = ["flwr>=1.30"]

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "small_app.server:app"
clientapp = "small_app.client:app"
"""


def _app(directory: Path, line: str) -> Path:
    app = directory / "small-app"
    (app / "small_app").mkdir(parents=True)
    (app / "pyproject.toml").write_text(_PROJECT)
    for name in ("server", "client"):
        (app / "small_app" / f"{name}.py").write_text(f"{line}\napp = None\n")
    return app


def test_the_hash_is_flowers_and_changes_with_the_code(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    app = _app(tmp_path / "one", "first = 1")
    before = sorted(path for path in app.rglob("*"))
    digest = bundle_hash(app, tmp_path / "bundle")
    assert digest is not None
    assert sorted(path for path in app.rglob("*")) == before
    subprocess.run([Path(sys.executable).with_name("flwr"), "build", "--app", app], cwd=tmp_path, check=True)
    (bundle,) = tmp_path.glob("*.fab")
    assert bundle.name.split(".")[-2] == digest[:8]
    assert bundle_hash(_app(tmp_path / "two", "second = 2"), tmp_path / "other") != digest
    assert bundle_hash(tmp_path / "one", tmp_path / "none") is None
