"""The examples of docstrings say what comes out."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import clients
import experiments
import fl_audit
import server
import strategies

# The apps of examples start federations where they are imported.
APART = "experiments.examples."


def modules() -> Iterator[str]:
    for package in (fl_audit, clients, server, strategies, experiments):
        yield from (found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))


def test_examples_of_docstrings_hold(capsys: pytest.CaptureFixture[str]) -> None:
    failed, tried = [], 0
    for name in modules():
        if name.startswith(APART) or name.endswith("__main__"):
            continue
        result = doctest.testmod(importlib.import_module(name))
        tried += result.attempted
        failed += [name] * bool(result.failed)
    assert not failed, capsys.readouterr().out
    assert tried > 150
