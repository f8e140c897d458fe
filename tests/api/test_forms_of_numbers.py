"""Numbers are accepted in every usual form of a table, an array or a tensor, with one answer; others are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fl_audit
from fl_audit import InputError

DRAWS = np.random.default_rng(0)
LOSSES = DRAWS.gamma(1.0, 1.0, (2, 120))
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
    assert answers(*map(written, LOSSES)) == answers(*LOSSES)
    one_run = fl_audit.one_run_bound(written(LOSSES[0]), COINS, 1e-5)
    assert str(one_run) == str(fl_audit.one_run_bound(LOSSES[0], COINS, 1e-5))


@pytest.mark.parametrize("form", REFUSED)
def test_other_forms_are_refused_in_a_line(form: str) -> None:
    values = REFUSED[form](LOSSES[0])
    for function in (fl_audit.lower_bound, fl_audit.epsilon_star):
        with pytest.raises(InputError, match="accepted") as raised:
            function(values, LOSSES[1], 1e-3)
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="accepted"):
        fl_audit.one_run_bound(REFUSED[form](LOSSES[0]), COINS, 1e-5)
