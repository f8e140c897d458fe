import pytest


@pytest.fixture(autouse=True)
def _small_working_directory(small_working_directory: None) -> None:
    """Be in an empty directory, and not in that of this repository."""
