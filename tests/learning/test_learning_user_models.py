"""Small models as people write them: right ones are taken, wrong ones get a line whose remedy makes them right."""

import re
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fl_audit.learning import stacked_model
from fl_audit.learning.named_inputs import NamedInput
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.models import Model, built_model
from tests.builders.refusals import assert_refused
from tests.learning.gradient_truth import clip_and_sum, record_gradients

CLASSES = 3


@dataclass
class Answer:
    """As some models answer: what they return beside it has other names."""

    loss: Tensor | None
    scores: Tensor


@dataclass
class Hidden:
    """As models of the Hugging Face library without a head answer."""

    last_hidden_state: Tensor


Pair = namedtuple("Pair", ["hidden", "scores"])
Factory = Callable[[], nn.Module]


def built(factory: Factory, records: Tensor, inputs: tuple[NamedInput, ...] = ()) -> StackedModel:
    """Build a model as a run does, with the records as those of the data."""
    return built_model(factory, records, CLASSES, inputs)


def rows(*shape: int) -> Tensor:
    return torch.rand(6, *shape, generator=torch.Generator().manual_seed(3)) + 0.5


def tokens() -> Tensor:
    """Texts of seven tokens, of which the largest is 59."""
    texts = torch.randint(0, 50, (6, 7), generator=torch.Generator().manual_seed(3)).float()
    texts[4, 2] = 59
    return texts


def lookup(vocabulary_size: int, before: Callable[[Tensor], Tensor] = lambda x: x.long()) -> Factory:
    return lambda: Model(
        lambda m, x: m.head(m.embed(before(x)).mean(1)), embed=nn.Embedding(vocabulary_size, 8), head=nn.Linear(8, 3)
    )


def dense(inputs: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, 3))


def returning(answer: Callable[[Tensor], Any]) -> Factory:
    return lambda: Model(lambda m, x: answer(m.body(x)), body=dense())


def recurrent(kind: type[nn.RNNBase], **options: Any) -> Factory:
    width = (options.get("proj_size") or 4) * (2 if options.get("bidirectional") else 1)
    options = {"batch_first": True, **options}
    return lambda: Model(
        lambda m, x: m.head(m.cells(x)[0][:, -1]), cells=kind(2, 4, **options), head=nn.Linear(width, 3)
    )


def cells(before: Callable[[Tensor], Tensor], width: int = 2) -> Factory:
    return lambda: Model(
        lambda m, x: m.head(m.cells(before(x))[0][:, -1]),
        cells=nn.GRU(width, 4, batch_first=True),
        head=nn.Linear(4, 3),
    )


def cells_with_first_state() -> nn.Module:
    return Model(
        lambda m, x: m.head(m.cells(x, torch.zeros(1, len(x), 4))[0][:, -1]),
        cells=nn.GRU(2, 4, batch_first=True),
        head=nn.Linear(4, 3),
    )


def step_by_step(kind: type[nn.RNNCellBase]) -> Factory:
    def way(model: Any, x: Tensor) -> Any:
        state = None
        for step in x.unbind(1):
            state = model.cell(step, state)
        return model.head(state[0] if isinstance(state, tuple) else state)

    return lambda: Model(way, cell=kind(2, 4), head=nn.Linear(4, 3))  # type: ignore[call-arg]


def picture(*first: nn.Module, channels: int = 1) -> Factory:
    return lambda: nn.Sequential(*first, nn.Conv2d(channels, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))


def normed(norm: Callable[[nn.Module], nn.Module]) -> Factory:
    return lambda: nn.Sequential(norm(nn.Linear(8, 5)), nn.Tanh(), nn.Linear(5, 3))


def attentive(batch_first: bool) -> Factory:
    return lambda: Model(
        lambda m, x: m.head(m.mixed(x, x, x)[0].mean(1)),
        mixed=nn.MultiheadAttention(2, 1, batch_first=batch_first),
        head=nn.Linear(2, 3),
    )


@dataclass
class Output:
    """As models of the Hugging Face library answer."""

    loss: Tensor | None
    logits: Tensor


def padded() -> Tensor:
    """Texts of seven tokens, of which most end early: 0 is padding."""
    texts = tokens() + 1
    texts[1, 3:], texts[2, 5:], texts[4, 6:] = 0, 0, 0
    return texts


def encoder(**options: Any) -> Factory:
    """A transformer of torch that is given the padding mask, and the first token's state."""
    layer: Callable[[], nn.Module] = lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)  # noqa: E731
    return lambda: Model(
        lambda m, x: m.head(m.mixed(m.embed(x.long()), src_key_padding_mask=x == 0)[:, 0]),
        embed=nn.Embedding(61, 8),
        mixed=nn.TransformerEncoder(layer(), 2, **options),  # type: ignore[arg-type]
        head=nn.Linear(8, 3),
    )


def packing(is_packed: bool) -> Factory:
    """A recurrent network that reads a text to its end."""

    def way(m: Any, x: Tensor) -> Any:
        lengths = (x > 0).sum(1)
        if is_packed:
            steps = nn.utils.rnn.pack_padded_sequence(
                m.embed(x.long()), lengths, batch_first=True, enforce_sorted=False
            )
            return m.head(m.cells(steps)[1][-1])
        h = m.cells(m.embed(x.long()))[0]
        last = lengths - 1
        return m.head(torch.take_along_dim(h, last[:, None, None], 1).squeeze(1))

    return lambda: Model(way, embed=nn.Embedding(61, 8), cells=nn.GRU(8, 4, batch_first=True), head=nn.Linear(4, 3))


def under_autocast(is_narrow: bool) -> Factory:
    def way(m: Any, x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_narrow):
            return (torch.tanh(x @ m.first.weight.T) @ m.last.weight.T).float()

    return lambda: Model(way, first=nn.Linear(8, 5, bias=False), last=nn.Linear(5, 3, bias=False))


def steps_of_channels(before: Callable[[Tensor], Tensor]) -> Factory:
    return lambda: Model(lambda m, x: m.head(m.over(before(x)).mean(2)), over=nn.Conv1d(4, 5, 3), head=nn.Linear(5, 3))


def quantised(is_so: bool) -> Factory:
    def made() -> nn.Module:
        network = Model(lambda m, x: m.head(m.embed(x.long()).mean(1)), embed=nn.Embedding(61, 8), head=nn.Linear(8, 3))
        if is_so:
            torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, inplace=True)
        return network

    return made


def cut_off(is_so: bool) -> Factory:
    """A part that is trained and does not reach the logits, and one that does and is frozen."""

    def made() -> nn.Module:
        network = Model(
            lambda m, x: m.head(m.body(x).detach() if is_so else m.body(x)), body=nn.Linear(8, 4), head=nn.Linear(4, 3)
        )
        network.head.requires_grad_(False)  # type: ignore[union-attr]
        return network

    return made


def only_where_tokens_differ(mixing: Callable[[Any, Tensor], Tensor]) -> Factory:
    """A fault that random numbers below 1 do not show, for each of them is the token 0."""
    return lambda: Model(
        lambda m, x: m.head(mixing(m, m.embed(x.long())).mean(1)),
        embed=nn.Embedding(61, 8, padding_idx=0),
        head=nn.Linear(8, 3),
    )


RIGHT: dict[str, tuple[Factory, Tensor]] = {
    "dense": (dense, rows(8)),
    "tokens": (lookup(60), tokens()),
    "tokens that are counted from one": (lookup(60, lambda x: x.long() - 1), tokens() + 1),
    "convolutions": (picture(), rows(1, 8, 8)),
    "log-softmax": (lambda: nn.Sequential(dense(), nn.LogSoftmax(1)), rows(8)),
    "LSTM": (recurrent(nn.LSTM), rows(5, 2)),
    "LSTM with projections": (recurrent(nn.LSTM, proj_size=3), rows(5, 2)),
    "GRU": (recurrent(nn.GRU), rows(5, 2)),
    "GRU of two layers, both ways": (recurrent(nn.GRU, num_layers=2, bidirectional=True), rows(5, 2)),
    "RNN": (recurrent(nn.RNN), rows(5, 2)),
    "RNN of rectified units": (recurrent(nn.RNN, nonlinearity="relu"), rows(5, 2)),
    "LSTM cell": (step_by_step(nn.LSTMCell), rows(5, 2)),
    "GRU cell": (step_by_step(nn.GRUCell), rows(5, 2)),
    "RNN cell": (step_by_step(nn.RNNCell), rows(5, 2)),
    "attention": (attentive(True), rows(5, 2)),
    "weight normalisation": (normed(nn.utils.parametrizations.weight_norm), rows(8)),
    "encoder with a padding mask": (encoder(), padded()),
    "logits among other things": (lambda: returning(lambda layer_output: Output(None, layer_output))(), rows(8)),
    "a dictionary with logits": (
        lambda: returning(lambda layer_output: {"loss": None, "logits": layer_output})(),
        rows(8),
    ),
}


def _logits(module: nn.Module, record: Tensor) -> Tensor:
    answer = module(record)
    logits: Tensor = answer["logits"] if isinstance(answer, dict) else getattr(answer, "logits", answer)
    return logits


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_model_is_taken_and_every_record_has_its_own_gradient(name: str) -> None:
    factory, records = RIGHT[name]
    model = built(factory, records)
    assert model.cautions == ()
    flat = model.layout.flatten(dict(model.template.named_parameters()))
    models = torch.stack([flat, 0.5 * flat])
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    sums = model.clipped_sum(models, records, labels, 0.3)
    truth = torch.stack([record_gradients(factory(), records, labels, weights, _logits) for weights in models])
    torch.testing.assert_close(sums.double(), clip_and_sum(truth, 0.3), rtol=1e-3, atol=1e-5)
    mean = model.mean_gradients(models, records, labels).double()
    torch.testing.assert_close(mean, truth.mean(1), rtol=1e-3, atol=1e-5)


def flattened(expression: str) -> Factory:
    """A convolution behind what a message names."""
    return picture(eval(expression, {"torch": torch}))


def wrapped(inner: Factory, line: str) -> Factory:
    """The two lines of a message, around the class that they name."""
    first, second = re.findall(r"'([^']*(?:class|def) .*?)'(?= and|$)", line)
    namespace: dict[str, Any] = {"Model": type(inner())}
    exec(f"{first}\n{second}", namespace)
    return lambda: namespace["Logits"](inner().way, **dict(inner().named_children()))


def bare_model() -> nn.Module:
    return Model(lambda m, x: m.head(x), head=nn.Linear(8, 3))


ANSWERS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "tuple": (lambda layer_output: (layer_output, layer_output.mean(1)), "a tuple: return"),
    "list": (lambda layer_output: [layer_output.mean(1), layer_output], "a list"),
    "dictionary": (lambda layer_output: {"loss": None, "scores": layer_output}, "a dict"),
    "dataclass": (lambda layer_output: Answer(None, layer_output), "an Answer"),
    "named tuple": (lambda layer_output: Pair(layer_output.mean(1), layer_output), "a Pair"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_two_lines_of_the_message_take_the_logits_out_of_an_answer(name: str) -> None:
    answer, expected_phrase = ANSWERS[name]
    error = assert_refused(f"returns {expected_phrase}", built, returning(answer), rows(8))
    built(wrapped(returning(answer), str(error)), rows(8))


WRONG: dict[str, tuple[Factory, Tensor, str, Factory]] = {
    "vocabulary": (
        lookup(50),
        tokens(),
        r"record 4: layer 'embed' \(Embedding\).* 0 to 49.* Embedding\(60, 8\)",
        lookup(60),
    ),
    "negative": (lookup(60, lambda x: x.long() - 1), tokens(), r"-1: .*from 0", lookup(60)),
    "no long": (lookup(60, lambda x: x), tokens(), r"layer 'embed' .* call \.long\(\) on", lookup(60)),
    "long before a dense layer": (
        lambda: Model(lambda m, x: m.body(x.long()), body=dense()),
        rows(8),
        r"layer 'body\.0' \(Linear\) .* call \.float\(\)",
        lambda: Model(lambda m, x: m.body(x.long().float()), body=dense()),
    ),
    "pixels in a row": (
        picture(),
        rows(64),
        r"layer '0' \(Conv2d\).* put torch\.nn\.Unflatten\(1, \(1, 8, 8\)\) before",
        flattened("torch.nn.Unflatten(1, (1, 8, 8))"),
    ),
    "no channels": (
        picture(),
        rows(8, 8),
        r"layer '0' \(Conv2d\).* put torch\.nn\.Unflatten\(1, \(1, 8\)\) before",
        flattened("torch.nn.Unflatten(1, (1, 8))"),
    ),
    "channels last": (
        picture(channels=4),
        rows(8, 8, 4),
        r"\.movedim\(-1, 1\)",
        lambda: Model(lambda m, x: m.body(x.movedim(-1, 1)), body=picture(channels=4)()),
    ),
    "no flatten": (
        lambda: dense(64),
        rows(1, 8, 8),
        r"layer '0' \(Linear\) .* put torch\.nn\.Flatten\(\) before it",
        lambda: nn.Sequential(nn.Flatten(), dense(64)),
    ),
    "other width": (lambda: dense(9), rows(8), r"accepted is torch\.nn\.Linear\(8, 5\)", dense),
    "pixel map": (
        lambda: nn.Conv2d(1, 3, 3),
        rows(1, 8, 8),
        r"returns shape \(6, 3, 6, 6\) for 6 records.* \.mean\(\(2, 3\)\)",
        lambda: Model(lambda m, x: m.body(x).mean((2, 3)), body=nn.Conv2d(1, 3, 3)),
    ),
    "every step": (
        lambda: nn.Linear(2, 3),
        rows(5, 2),
        r"returns shape \(6, 5, 3\).* \.mean\(1\)",
        lambda: Model(lambda m, x: m.body(x).mean(1), body=nn.Linear(2, 3)),
    ),
    "classes that are chosen": (
        returning(lambda layer_output: layer_output.argmax(1, keepdim=True)),
        rows(8),
        "int64",
        dense,
    ),
    "detached": (
        returning(lambda layer_output: layer_output.detach()),
        rows(8),
        r"no gradient, as after \.detach\(\)",
        dense,
    ),
    "two arguments": (lambda: Masked(), rows(8), r"forward .*one tensor.* defaults", lambda: Masked.with_default()),
    "in place": (
        lambda: Model(
            lambda m, x: m.head(torch.zeros(len(x), 5).add_(m.body(x))), body=nn.Linear(8, 5), head=nn.Linear(5, 3)
        ),
        rows(8),
        r"tensor in place.* h = h \+ x",
        lambda: Model(
            lambda m, x: m.head(torch.zeros(len(x), 5) + m.body(x)), body=nn.Linear(8, 5), head=nn.Linear(5, 3)
        ),
    ),
    "branch": (
        lambda: Model(lambda m, x: m.body(x) if x.sum() > 0 else m.body(-x), body=dense()),
        rows(8),
        r"torch\.where\(condition, one, other\)",
        lambda: Model(lambda m, x: torch.where(x.sum() > 0, m.body(x), m.body(-x)), body=dense()),
    ),
    "steps first": (
        recurrent(nn.GRU, batch_first=False),
        rows(6, 2),
        r"layer 'cells' \(GRU\).* batch_first=True",
        recurrent(nn.GRU),
    ),
    "attention, steps first": (attentive(False), rows(6, 2), r"layer 'mixed' .* batch_first=True", attentive(True)),
    "spectral normalisation": (
        normed(nn.utils.parametrizations.spectral_norm),
        rows(8),
        r"moves its buffer '0\.parametrizations\.weight\.0\._u'.* torch\.nn\.utils\.parametrizations\.weight_norm",
        normed(nn.utils.parametrizations.weight_norm),
    ),
    "old spectral normalisation": (
        normed(nn.utils.spectral_norm),
        rows(8),
        r"spectral_norm, torch\.nn\.utils\.parametrizations\.weight_norm",
        normed(nn.utils.parametrizations.weight_norm),
    ),
    "old weight normalisation": (
        normed(nn.utils.weight_norm),
        rows(8),
        r"cannot be copied .* accepted is torch\.nn\.utils\.parametrizations\.weight_norm",
        normed(nn.utils.parametrizations.weight_norm),
    ),
    "packed sequences": (
        packing(True),
        padded(),
        r"pack_padded_sequence does.* torch\.take_along_dim\(h, last\[:, None, None\], 1\)\.squeeze\(1\)",
        packing(False),
    ),
    "nested tensors": (
        lambda: Model(
            lambda m, x: m.head(torch.nested.to_padded_tensor(torch.nested.as_nested_tensor(list(x)), 0.0)),
            head=nn.Linear(8, 3),
        ),
        rows(8),
        r"nested tensors.* their mask",
        bare_model,
    ),
    "autocast": (
        under_autocast(True),
        rows(8),
        r"computes in bfloat16.* leave out torch\.autocast",
        under_autocast(False),
    ),
    "quantised": (quantised(True), padded(), r"layer 'head' .*layer of torch\.nn", quantised(False)),
    "cut off": (cut_off(True), rows(8), r"no gradient, as after \.detach\(\)", cut_off(False)),
    "a picture of steps": (
        steps_of_channels(lambda x: x),
        rows(1, 4, 9),
        r'axes = "sequence" in \[data\].* or call \.squeeze\(1\)',
        steps_of_channels(lambda x: x.squeeze(1)),
    ),
    "mixed where tokens differ": (
        only_where_tokens_differ(lambda m, layer_output: layer_output - layer_output.mean(0)),
        padded(),
        "or mixes examples",
        only_where_tokens_differ(lambda m, layer_output: layer_output),
    ),
    "dropout behind a padding index": (
        only_where_tokens_differ(lambda m, layer_output: nn.functional.dropout(layer_output, 0.3, m.training)),
        padded(),
        r"random numbers .*training mode",
        only_where_tokens_differ(lambda m, layer_output: layer_output),
    ),
    "other channels": (
        picture(channels=2),
        rows(3, 8, 8),
        r"layer '0' \(Conv2d\).* C = 2, and is given \(3, 8, 8\): .* change C",
        picture(channels=3),
    ),
    "a picture of steps for cells": (
        recurrent(nn.GRU),
        rows(1, 5, 2),
        r'layer \'cells\'.* axes = "sequence" in \[data\].* or call \.squeeze\(1\)',
        lambda: Model(lambda m, x: m.body(x.squeeze(1)), body=recurrent(nn.GRU)()),
    ),
    "steps without an axis of numbers": (
        cells(lambda x: x, 1),
        rows(5),
        r"layer 'cells' \(GRU\).* call \.unsqueeze\(2\)",
        cells(lambda x: x.unsqueeze(2), 1),
    ),
    "one step without its axis": (
        cells_with_first_state,
        rows(2),
        r"layer 'cells' \(GRU\).* call \.unsqueeze\(1\)",
        cells(lambda x: x.unsqueeze(1)),
    ),
    "other numbers of a step": (
        cells(lambda x: x, 3),
        rows(5, 2),
        r"layer 'cells' \(GRU\).* accepted is GRU\(2, 4, batch_first=True\)",
        cells(lambda x: x),
    ),
    "records taken for one sequence": (
        lambda: Model(lambda m, x: m.head(m.cells(x)[0]), cells=nn.GRU(2, 4, batch_first=True), head=nn.Linear(4, 3)),
        rows(2),
        r"layer 'cells' \(GRU\) takes two axes for one sequence: give it records of \(steps, numbers\)",
        cells(lambda x: x.unsqueeze(1)),
    ),
    "a table without long": (
        lambda: Model(lambda m, x: m.head(m.embed.weight[x].mean(1)), embed=nn.Embedding(60, 8), head=nn.Linear(8, 3)),
        tokens(),
        r"its forward .* call \.long\(\) on what is looked up",
        lookup(60),
    ),
    "out of torch": (
        lambda: Model(lambda m, x: m.body(torch.from_numpy(np.log1p(x.numpy()))), body=dense()),
        rows(8),
        r"leaves torch, as \.numpy\(\) does",
        lambda: Model(lambda m, x: m.body(torch.log1p(x)), body=dense()),
    ),
    "classes first": (
        lambda: Model(lambda m, x: m.body(x).T, body=dense()),
        rows(8),
        r"returns shape \(3, 6\) for 6 records, or mixes examples: accepted is \(6, 3\)",
        dense,
    ),
    "no axis of classes": (
        lambda: nn.Linear(2, 4),
        rows(5, 2),
        r"shape \(6, 5, 4\).* none of whose axes has 3 classes: .* head of 3 outputs",
        lambda: Model(lambda m, x: m.body(x).mean(1), body=nn.Linear(2, 3)),
    ),
    "hidden states": (
        returning(lambda layer_output: Hidden(layer_output)),
        rows(8),
        r"hidden states and no logits: .* with a head",
        dense,
    ),
    "running mean": (lambda: Centred(), rows(8), r"buffer 'middle'", dense),
    "a class": (lambda: nn.Linear, rows(8), r"class Linear: return", lambda: nn.Linear(8, 3)),  # type: ignore[dict-item, return-value]
}


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = dense()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.body(x * mask)  # type: ignore[no-any-return]

    @staticmethod
    def with_default() -> nn.Module:
        class Defaulted(Masked):
            def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
                return super().forward(x, torch.ones(()) if mask is None else mask)

        return Defaulted()


class Centred(nn.Module):
    """Takes from its records a mean that moves after it was taken away."""

    middle: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = dense()
        self.register_buffer("middle", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.body(x - self.middle)
        if self.training:
            self.middle = 0.9 * self.middle + 0.1 * x.detach().mean(0)
        return outputs  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_is_told_what_fixes_it_and_that_does(name: str) -> None:
    factory, records, expected_message, fixed = WRONG[name]
    assert_refused(expected_message, built, factory, records)
    assert built(fixed, records).cautions == ()


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.Sigmoid()])
def test_probabilities_before_the_loss_are_told(last: nn.Module) -> None:
    kind = type(last).__name__.lower()
    (line,) = built(lambda: nn.Sequential(dense(), last), rows(8)).cautions
    assert f"without the {kind}" in line
    assert built(dense, rows(8)).cautions == ()


def test_what_fails_in_training_alone_is_one_line_with_layer_and_record() -> None:
    model = built(lookup(60), tokens())
    flat = model.layout.flatten(dict(model.template.named_parameters()))
    models = torch.stack([flat, flat])
    labels = torch.zeros(6, dtype=torch.int64)
    later = tokens()
    later[5, 0] = 77
    ways: list[Callable[[], object]] = [
        lambda: model.clipped_sum(models, later, labels, 1.0),
        lambda: model.mean_gradients(models, later, labels),
        lambda: model.mean_gradients(models[:1], later, labels),
        lambda: model.logits(models, later),
    ]
    for call in ways:
        assert_refused(r"record 5 of 6 .* layer 'embed' \(Embedding\) .*77.*Embedding\(78, 8\)", call)


def test_named_arrays_reach_a_model_by_name() -> None:
    """Whole numbers as int64, others as float32, each in its own shape."""
    inputs = (NamedInput("ids", (4,), True), NamedInput("weight", (), False), NamedInput("table", (2, 3), False))
    forms = list[tuple[Any, ...]]()

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

        def forward(self, ids: Tensor, weight: Tensor, table: Tensor) -> Tensor:
            forms.append((ids.dtype, ids.shape[1:], weight.shape[1:], table.shape[1:]))
            return self.head(self.embed(ids).mean(1) * weight.unsqueeze(1) + table.flatten(1))  # type: ignore[no-any-return]

    class Other(Named):
        def forward(self, ids: Tensor) -> Tensor:  # type: ignore[override]
            return self.head(self.embed(ids).mean(1))  # type: ignore[no-any-return]

    class Tolerant(Other):
        def forward(self, ids: Tensor, **ignored_inputs: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(ids)

    records = torch.cat([torch.arange(24).reshape(6, 4) % 9, torch.rand(6, 7)], dim=1)
    model = built(Named, records, inputs)
    assert forms
    assert set(forms) <= {(torch.int64, (4,), (), (2, 3))}
    flat = model.layout.flatten(dict(model.template.named_parameters())).unsqueeze(0)
    module = Named()
    nn.utils.vector_to_parameters(flat[0], module.parameters())
    with torch.no_grad():
        expected = module(records[:, :4].long(), records[:, 4], records[:, 5:].reshape(6, 2, 3))
    torch.testing.assert_close(model.logits(flat, records)[0], expected)
    assert_refused(r"ids, weight, table .*\*\*others", built, Other, records, inputs)
    built(Tolerant, records, inputs)


def test_the_built_in_model_of_texts_leaves_padding_out() -> None:
    inputs = (NamedInput("input_ids", (5,), True, 30), NamedInput("attention_mask", (5,), True))
    spec = stacked_model.ModelSpec("mean-embedding", (10,), CLASSES, inputs)
    model = StackedModel.of(spec)
    flat = model.layout.flatten(dict(model.template.named_parameters())).unsqueeze(0)
    short = torch.tensor([[3, 4, 0, 0, 0, 1, 1, 0, 0, 0]]).float()
    changed_texts = torch.tensor([[3, 4, 9, 9, 9, 1, 1, 0, 0, 0]]).float()
    torch.testing.assert_close(model.logits(flat, short), model.logits(flat, changed_texts))
    assert model.layout.size == 30 * 16 + 16 * CLASSES + CLASSES
    for name, text_inputs, expected_message in (
        ("logistic", inputs, r"accepted are mean-embedding and 'package\.module:factory'"),
        ("mean-embedding", (), r"vocabulary in \[data\]"),
    ):
        spec = stacked_model.ModelSpec(name, (10,), CLASSES, text_inputs)
        assert_refused(expected_message, StackedModel.of, spec)


def test_what_reaches_no_logit_is_refused() -> None:
    """The logits have a gradient, but none of it comes to what is trained."""

    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x).detach() + 0.0 * self.body.weight.sum()  # type: ignore[no-any-return]

    assert_refused("no trained parameter", built, Idle, rows(8))
    built(bare_model, rows(8))
