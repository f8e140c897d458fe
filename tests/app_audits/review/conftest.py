"""Fixtures of tests of reviews."""

import sys

import pytest


@pytest.fixture
def searched_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are searched after the test where they were searched before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
