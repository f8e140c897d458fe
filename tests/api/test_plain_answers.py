"""Tests that a value that is no number is refused in one line, and that answers print as one line."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.serverapp.strategy import FedAvg

import fl_audit
import fl_audit as fa
from fl_audit.app_audits.black_box import Audit, AuditedSystem, StatedClaim
from fl_audit.app_audits.live.canary import Canary, canary_of_node
from fl_audit.app_audits.live.observer_store import TrainingObserver
from fl_audit.privacy.stated_releases import StatedReleases
from tests.builders.refusals import assert_refused

CLAIM = StatedClaim("add-remove-client", epsilon=4.0)
SCORES = np.arange(60.0)
LOSSES = np.linspace(0.1, 1.0, 50)
GUARANTEE = {"rounds": 30, "delta": 1e-3, "adjacency": "replace-record"}
CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "account": (fa.account, GUARANTEE | {"noise_multiplier": 5.0, "sampling_rate": 1.0, "prior": 0.5}),
    "calibrate": (fa.calibrate, GUARANTEE | {"belief": 0.9, "sampling_rate": 1.0, "prior": 0.5}),
    "epsilon": (fa.calibrate, GUARANTEE | {"epsilon": 1.0}),
    "advantage": (fa.calibrate, GUARANTEE | {"advantage": 0.2}),
    "lower_bound": (
        fa.lower_bound,
        {"member_scores": SCORES + 30, "nonmember_scores": SCORES, "delta": 0.0, "confidence": 0.95},
    ),
    "epsilon_star": (
        fa.epsilon_star,
        {"member_losses": LOSSES, "population_losses": 2 * LOSSES, "delta": 1e-3, "confidence": 0.95},
    ),
    "one_run_bound": (fa.one_run_bound, {"scores": SCORES, "coins": SCORES >= 30, "delta": 1e-5, "confidence": 0.95}),
    "gaussian_rounds": (fa.gaussian_rounds, {"noise_multiplier": 5.0, "rounds": 30, "sampling_rate": 0.5}),
    "laplace": (fa.LaplaceRelease, {"sensitivity": 1.0, "scale": 2.0, "count": 3}),
    "stated": (StatedClaim, {"adjacency": "add-remove-client", "epsilon": 4.0, "delta": 1e-5, "rounds": 3}),
    "stated noise": (StatedClaim, {"adjacency": "add-remove-client", "noise_multiplier": 1.0}),
    "audit": (Audit, {"claim": CLAIM, "trials": 220, "target": 0, "length": 10.0, "confidence": 0.95}),
    "audit in parts": (partial(Audit, CLAIM), {"trials_per_run": 5}),
    "terms": (
        StatedReleases,
        {"adjacency": "add-remove-client", "noise_multiplier": 1, "rounds": 9, "sampling_rate": 1},
    ),
    "watch": (TrainingObserver, {"directory": "rounds", "directions": 1, "canaries": 3, "delta": 1e-5}),
    "watch with guarantee": (partial(TrainingObserver, "rounds", 1, 3), {"terms": None}),
    "canary": (Canary, {"number": 0, "directions": 1, "coins": 2, "clipping_norm": 1.0}),
    "canary of a node": (canary_of_node, {"directions": 1, "clipping_norm": 1.0}),
    "subject": (partial(AuditedSystem, FedAvg), {"clients": 4, "norm": 1.0}),
}
OF_OTHER_KINDS = (("one_run_bound", "coins"), ("watch", "directory"))
WRONG = ["ten", None, float("nan"), 1 + 2j, [[1], [2, 3]]]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (call, name)
        for call, (_, good) in CALLS.items()
        for name in good
        if name not in ("adjacency", "claim") and (call, name) not in OF_OTHER_KINDS
    ],
)
def test_what_is_no_number_is_refused_in_one_line(call: str, name: str) -> None:
    function, good = CALLS[call]
    for wrong in (value for value in WRONG if value is not None or name not in ("trials_per_run", "terms")):
        error = assert_refused(None, function, **{**good, name: wrong})
        assert len(str(error)) > 20


@pytest.mark.parametrize("call", ["account", "calibrate", "lower_bound", "epsilon_star", "one_run_bound"])
def test_an_answer_prints_as_one_line(call: str) -> None:
    function, good = CALLS[call]
    answer_text = str(function(**good))
    assert answer_text.startswith(("epsilon", "Epsilon*"))
    assert "\n" not in answer_text
    assert "=" not in answer_text
    assert len(answer_text) < 300


# --- Numbers are accepted in every usual form of a table, an array or a tensor, with one answer; others are refused


DRAWS = np.random.default_rng(0)
DRAWN_LOSSES = DRAWS.gamma(1.0, 1.0, (2, 120))
COINS = np.arange(120) % 2 == 0
FORMS: dict[str, Callable[[Any], Any]] = {
    "list": lambda values: values.tolist(),
    "series with an index": lambda values: pd.Series(values, index=range(7, 7 + len(values))),
    "series with missing values": lambda values: pd.Series(values, dtype="Float64"),
    "frame of a column": lambda values: pd.DataFrame({"loss": values}),
    "column": lambda values: values[:, None],
    "objects": lambda values: values.astype(object),
    "tensor": torch.tensor,
    "tensor with a gradient": lambda values: torch.tensor(values, requires_grad=True),
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "masked": lambda values: np.ma.array(values, mask=values > 2),
    "complex": lambda values: values + 1j,
    "dates": lambda values: pd.date_range("2020", periods=len(values)),
    "words": lambda values: ["word"] * len(values),
    "missing": lambda values: [None, *values],
    "not a number": lambda values: [np.nan, *values],
    "of several lengths": lambda values: [[1, 2], [3]],
    "none": lambda values: None,
    "a generator": iter,
}


def answers(members: Any, population: Any) -> tuple[str, str]:
    bound = fl_audit.lower_bound(members, population, 1e-5)
    star = fl_audit.epsilon_star(members, population, 1e-3, rng=np.random.default_rng(1))
    return str(bound), str(star)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_answer(form: str) -> None:
    written = FORMS[form]
    assert answers(*map(written, DRAWN_LOSSES)) == answers(*DRAWN_LOSSES)
    one_run = fl_audit.one_run_bound(written(DRAWN_LOSSES[0]), COINS, 1e-5)
    assert str(one_run) == str(fl_audit.one_run_bound(DRAWN_LOSSES[0], COINS, 1e-5))


@pytest.mark.parametrize("form", REFUSED)
def test_other_forms_are_refused_in_a_line(form: str) -> None:
    values = REFUSED[form](DRAWN_LOSSES[0])
    for function in (fl_audit.lower_bound, fl_audit.epsilon_star):
        assert_refused("accepted", function, values, DRAWN_LOSSES[1], 1e-3)
    assert_refused("accepted", lambda: fl_audit.one_run_bound(REFUSED[form](DRAWN_LOSSES[0]), COINS, 1e-5))
