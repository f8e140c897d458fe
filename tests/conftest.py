"""What tests share: small configurations, and where the published data files are."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import experiments  # noqa: F401  # sets the environment before Flower is imported
from experiments.config import parse_config
from experiments.plan import AuditPlan, resolve

MakePlan = Callable[..., AuditPlan]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def published_data() -> Path:
    """The directory with published data files, or a skip where there is none."""
    named = os.environ.get("FL_AUDIT_DATA")
    directory = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not directory.is_dir():
        pytest.skip("no published data files: set FL_AUDIT_DATA")
    return directory


def small_settings(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration that runs in a second: breast-cancer, logistic regression; sections may be changed."""
    settings: dict[str, Any] = {
        "data": {"name": "breast-cancer", "records": 60, "clients": 3, "test-records": 50},
        "model": {"name": "logistic"},
        "training": {"rounds": 4, "learning-rate": 1.0},
        "privacy": {"belief": 0.9, "delta": 0.01, "clipping-norm": 1.0, "sensitivity": "local"},
        "audit": {"worlds": 6, "epsilon-star": True},
        "run": {"worlds-per-batch": 3, "keep-releases": 4, "client-time-limit": 60.0},
    }
    for section, values in changes.items():
        settings[section] = settings.get(section, {}) | values
    return settings


@pytest.fixture
def small_plan() -> MakePlan:
    """Return a function that resolves the small configuration with some changes."""
    return lambda **changes: resolve(parse_config(small_settings(**changes)))
