"""Fixtures that tests of runs share."""

from pathlib import Path

import pytest

from fl_audit.runs.signed_statement import new_key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return new keys of an officer and an engineer, by these names."""
    directory = tmp_path_factory.mktemp("keys")
    paths = {name: directory / name for name in ("officer", "engineer")}
    for path in paths.values():
        new_key(path)
    return paths
