"""Opacus tells of its generator, and of hooks, in warnings that say nothing of these tests."""

import pytest


@pytest.fixture(autouse=True)
def _no_warnings(recwarn: pytest.WarningsRecorder) -> None:
    """Take up warnings."""
