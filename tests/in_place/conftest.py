from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _small_working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Games copy the working directory: not that of this repository."""
    made: Path = tmp_path_factory.mktemp("working-directory")
    monkeypatch.chdir(made)
