"""Opacus tells of its generator, and of hooks, in warnings that say nothing of these tests.

These tests also run with older versions of Opacus, put before the installed one on the path of Python; what an older
version does not have is skipped.
"""

from collections.abc import Callable

import opacus
import pytest


@pytest.fixture(autouse=True)
def _no_warnings(recwarn: pytest.WarningsRecorder) -> None:
    """Take up warnings."""


@pytest.fixture
def needs_opacus() -> Callable[[int, int, str], None]:
    """Return what skips a test with an older version of Opacus than it needs, with the reason."""

    def skip(major: int, minor: int, why: str) -> None:
        version = tuple(int(component) for component in opacus.__version__.split(".")[:2])
        if version < (major, minor):
            pytest.skip(f"Opacus {opacus.__version__}: {why}")

    return skip
