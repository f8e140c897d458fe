"""The table of models that were tried: every number is within what is promised."""

import csv

import pytest

from tests.validation import tried_models
from tests.validation.tried_factories import FACTORIES

_APART = {"timm: EfficientNet with GroupNorm": 2e-3}
"""Largest distance of a model whose units lie at the kink of a ReLU, as the page says."""


def rows() -> list[list[str]]:
    with tried_models.TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_every_model_is_taken_exactly_and_in_time_or_is_told_what_fixes_it() -> None:
    head, *model_rows = rows()
    assert tuple(head) == tried_models.COLUMNS
    assert [row[0] for row in model_rows] == list(FACTORIES)
    assert len(model_rows) >= 25
    for name, _, _, answer, exactness, time, _ in model_rows:
        if answer == "accepted":
            assert float(exactness) < _APART.get(name, 1e-5)
            assert float(time) <= 3.0
        else:
            assert answer.startswith("refused: ")
            assert (exactness, time) == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("name", ["BERT in bfloat16 with LoRA in float32", "head of a frozen BERT in bfloat16"])
def test_a_frozen_part_in_16_bits_is_computed_in_full(name: str) -> None:
    pytest.importorskip("peft", reason="the extra `text` is not installed")
    pytest.importorskip("transformers", reason="the extra `text` is not installed")
    attempt = tried_models.tried(name, FACTORIES[name])
    assert attempt.answer == "accepted"
    assert attempt.exactness is not None
    assert attempt.exactness < 1e-5
