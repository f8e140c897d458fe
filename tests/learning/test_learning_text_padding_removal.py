"""Texts are evaluated without the padding that they share, with the same results, where outputs do not depend on it."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from fl_audit.errors import InputError
from fl_audit.learning.model_adaptation import prepare
from fl_audit.learning.named_inputs import NamedInput
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.learning.text_padding_removal import by_length, lengths

TOKENS, WORDS, CLASSES = 24, 30, 3
INPUTS = (NamedInput("input_ids", (TOKENS,), True, WORDS), NamedInput("attention_mask", (TOKENS,), True))


def texts(count: int, padded: bool = True) -> Tensor:
    source = torch.Generator().manual_seed(2)
    long = torch.randint(3, TOKENS + 1, (count,), generator=source) if padded else torch.full((count,), TOKENS)
    mask = (torch.arange(TOKENS) < long.unsqueeze(1)).long()
    return torch.cat([torch.randint(1, WORDS, (count, TOKENS), generator=source) * mask, mask], dim=1).float()


class Reader(nn.Module):
    """A small model of texts: attention over what is no padding, and what a subclass makes of the states."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.value, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.embed(input_ids) * self.scale
        scores = states @ states.transpose(1, 2)
        weights = scores.masked_fill(attention_mask[:, None, :] == 0, torch.finfo(scores.dtype).min).softmax(2)
        return self.pooled(self.value(weights @ states), attention_mask)

    def pooled(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(states[:, 0])  # type: ignore[no-any-return]


class OverPadding(Reader):
    def pooled(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(states.mean(1))  # type: ignore[no-any-return]


class OfAllTokens(Reader):
    def pooled(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head((states * torch.linspace(0, 1, TOKENS)[:, None]).sum(1))  # type: ignore[no-any-return]


def stacked(kind: type[Reader], records: Tensor) -> StackedModel:
    torch.manual_seed(0)
    module = kind()
    prepare(module, INPUTS)
    return StackedModel(module, (2 * TOKENS,), records)


@pytest.mark.parametrize("worth", [1, 2**20])
def test_losses_are_the_same_in_the_order_of_the_records(worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records, labels = texts(40), torch.arange(40) % CLASSES
    records[7, TOKENS:] = 0  # of padding alone, where attention looks at all of it
    model = stacked(Reader, records)
    assert model.ignores_padding
    monkeypatch.setattr("fl_audit.learning.stacked_model.by_length", partial(by_length, worth=worth))
    models = 0.3 * torch.randn(3, model.layout.size, generator=torch.Generator().manual_seed(1))
    found = model.losses(models, records, labels)
    model.ignores_padding = False
    torch.testing.assert_close(found, model.losses(models, records, labels), rtol=1e-5, atol=1e-6)


def test_a_record_on_which_the_model_fails_is_named_by_its_own_number() -> None:
    records = texts(40)
    model = stacked(Reader, records)
    records[23, 0] = WORDS  # beyond the vocabulary
    with pytest.raises(InputError, match="record 23"):
        model.losses(model.layout.flatten(dict(model.template.named_parameters())).unsqueeze(0), records, records[:, 0])


@pytest.mark.parametrize("kind", [OverPadding, OfAllTokens])
def test_a_model_whose_outputs_depend_on_padding_reads_all_of_it(kind: type[Reader]) -> None:
    assert not stacked(kind, texts(20)).ignores_padding


def test_nothing_is_found_of_texts_without_padding_or_without_records() -> None:
    assert not stacked(Reader, texts(20, padded=False)).ignores_padding


def test_a_process_without_records_reads_as_the_one_with_them() -> None:
    records = texts(20)
    first = stacked(Reader, records)
    module = Reader()
    prepare(module, INPUTS)
    assert StackedModel(module, (2 * TOKENS,), known=first.properties).ignores_padding


def test_groups_hold_every_text_once_and_whole() -> None:
    records = texts(50)
    groups = list(by_length(records, INPUTS, 1, worth=5))
    numbers = torch.cat([some for some, _ in groups])
    assert sorted(numbers.tolist()) == list(range(50))
    for some, rows in groups:
        tokens = rows.shape[1] // 2
        assert tokens >= int(lengths(records[some], INPUTS).max())
        ids, mask = records[some].split(TOKENS, dim=1)
        assert torch.equal(rows, torch.cat([ids[:, :tokens], mask[:, :tokens]], dim=1))
    assert sum(rows.shape[1] * len(rows) for _, rows in groups) < 0.8 * records.numel()
