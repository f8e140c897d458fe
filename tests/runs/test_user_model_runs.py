"""A user's model is tried on real records before a run, and what it raises later is one line everywhere."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import FederationError
from fl_audit.federation.record_tensors import probe_records
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.fast_path_checks import ModelExecutionProfile
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.runs.config import parse_config
from fl_audit.runs.config_file import load_values
from fl_audit.runs.planned_run_check import check_plan
from fl_audit.runs.planning import plan_run
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally

LARGEST = 59
MODELS = """
import sys
import torch
from torch import nn

class Text(nn.Module):
    def __init__(self, held, fails_in=None):
        super().__init__()
        self.embed, self.head, self.fails_in = nn.Embedding(held, 8), nn.Linear(8, 2), fails_in

    def forward(self, x):
        frame = sys._getframe()
        while self.fails_in and frame:
            if self.fails_in in frame.f_code.co_filename:
                raise ValueError("late\\nfailure")
            frame = frame.f_back
        return self.head(self.embed(x.long() - 1).mean(1))

def small():
    return Text(50)

def right():
    return Text(60)

def in_clients():
    return Text(60, "/clients/")

def in_server():
    return Text(60, "/server/")

def probable():
    return nn.Sequential(nn.Linear(7, 2), nn.Softmax(1))

NETWORK = Text(60)
"""
CONFIG = """
[data]
name = "npz"
path = "texts.npz"
records = 80
clients = 3
[model]
name = "texts_models:NAME"
[training]
rounds = 2
[privacy]
adjacency = "replace-record"
epsilon = 4
delta = 1e-4
accountant = "gdp"
[audit]
trials = 3
"""


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with texts of seven tokens from 1, of which the largest is in record 150 alone."""
    draw = np.random.default_rng(1)
    tokens = draw.integers(1, 51, (200, 7))
    labels = draw.integers(0, 2, 200)
    tokens[150, 2] = LARGEST
    np.savez(tmp_path / "texts.npz", x=tokens, y=labels, x_test=tokens[:60], y_test=labels[:60])
    (tmp_path / "texts_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "texts_models", raising=False)
    return tmp_path


def plan_of(texts: Path, name: str) -> RunPlan:
    (texts / "audit.toml").write_text(CONFIG.replace("NAME", name))
    return plan_run(parse_config(load_values(texts / "audit.toml")))


def test_a_vocabulary_is_tried_with_the_largest_token_of_all(texts: Path) -> None:
    assert_refused(r"record 150 .*'embed' \(Embedding\).* asked for 58: .*Embedding\(59, 8\)", plan_of, texts, "small")
    plan_check = check_plan(plan_of(texts, "right"), with_probe=False)
    assert [caution for caution in plan_check.cautions if "guarantee" not in caution.text] == []


def test_a_module_in_the_place_of_a_factory_is_told(texts: Path) -> None:
    assert_refused(r"NETWORK.* a Text, .*: .* def build", plan_of, texts, "NETWORK")


def test_probabilities_are_told_before_a_run(texts: Path) -> None:
    cautions = check_plan(plan_of(texts, "probable"), with_probe=False).cautions
    (caution,) = (caution for caution in cautions if "guarantee" not in caution.text)
    assert "without the softmax" in caution.text


def test_what_fails_in_clients_or_in_the_server_is_one_line(texts: Path) -> None:
    expected_error = r"fails on record \d+ .*ValueError: late in texts_models\.py, line \d+"
    with pytest.raises(FederationError, match=f"client \\d failed: .*{expected_error}") as caught:
        run_locally(plan_of(texts, "in_clients"), texts / "one")
    assert "\n" not in str(caught.value)
    assert_refused(expected_error, lambda: run_locally(plan_of(texts, "in_server"), texts / "two"))


def test_a_process_without_records_trusts_the_one_that_had_them(texts: Path) -> None:
    spec = ModelSpec("texts_models:right", (7,), 2)  # it looks up numbers from 1, which random examples do not have
    assert_refused("is asked for -1", StackedModel.of, spec)
    model = StackedModel.of(spec, profile=ModelExecutionProfile(fast=False, activations=77))
    assert (model.fast, model.activations) == (False, 77)


def test_records_to_try_hold_the_extremes_of_every_column_and_are_named(texts: Path) -> None:
    source = load_source(DataSpec("npz", options=(("path", str(texts / "texts.npz")),)))
    tried = probe_records(source)
    assert source.test is not None
    for records in (source.pool, source.test):
        for column, probe_values in zip(records.features.T, tried.features.numpy().T, strict=True):
            assert {column.max(), column.min()} <= set(probe_values)
    assert len(tried.names) == len(tried.features) == len(set(tried.names))
    index = tried.names.index("record 150 (from 0)")
    np.testing.assert_array_equal(tried.features[index], source.pool.features[150])
