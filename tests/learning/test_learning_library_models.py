"""Models of transformers and peft as factories return them: taken, exact for padded texts, and bounded in memory."""

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn

from fl_audit.data.texts import read_vocabulary
from fl_audit.learning import pass_budgets
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.named_inputs import NamedInput
from fl_audit.learning.private_training import LocalDPSGDSettings, private_updates
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.models import built_model
from tests.builders.refusals import assert_refused
from tests.learning import library_models as library
from tests.learning.gradient_truth import record_gradients

pytest.importorskip("transformers", reason="the extra `text` is not installed")
pytest.importorskip("peft", reason="the extra `text` is not installed")
pytestmark = pytest.mark.long

_MOST_APART = 1e-5


def built(
    factory: Callable[..., nn.Module], records: Tensor, inputs: tuple[NamedInput, ...] = library.INPUTS
) -> StackedModel:
    return built_model(factory, records, library.CLASSES, inputs)


def seeded_module(factory: Callable[..., nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return factory()


def trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def of_text(module: nn.Module, record: Tensor) -> Tensor:
    """As the library's users call it: ids and a mask of whole numbers, in two axes."""
    ids, mask = record.long().split(library.TOKENS, dim=1)
    output = module(input_ids=ids, attention_mask=mask)
    return output if isinstance(output, Tensor) else output.logits  # type: ignore[no-any-return]


def of_pictures(module: nn.Module, record: Tensor) -> Tensor:
    return module(record.double()).logits  # type: ignore[no-any-return]


def require_exact(
    factory: Callable[..., nn.Module], records: Tensor, call: Callable[..., Tensor], inputs: tuple[NamedInput, ...]
) -> None:
    module = seeded_module(factory)
    labels = torch.arange(len(records)) % library.CLASSES
    model = built(lambda: copy.deepcopy(module), records, inputs)
    gradients = record_gradients(module, records, labels, call=call)
    norm = float(gradients.norm(dim=1).median())
    flat = torch.cat([parameter.detach().flatten() for parameter in trained(module)])
    computed_sum = model.clipped_sum(flat.unsqueeze(0), records, labels, norm)[0]
    expected = (gradients * (norm / gradients.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)
    assert gradients.norm(dim=1).min() > 0
    assert float((computed_sum.double() - expected).norm() / expected.norm()) < _MOST_APART
    mean = model.mean_gradients(flat.unsqueeze(0), records, labels)[0]
    assert float((mean.double() - gradients.mean(0)).norm() / gradients.mean(0).norm()) < _MOST_APART


@pytest.mark.parametrize("name", library.OF_TEXT)
def test_a_model_of_a_library_is_taken_as_it_is_and_its_clipped_sums_are_exact(name: str) -> None:
    require_exact(library.OF_TEXT[name], library.texts(), of_text, library.INPUTS)


def test_a_model_of_pictures_of_a_library_is_taken_as_it_is() -> None:
    pictures = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    require_exact(library.vit, pictures, of_pictures, ())


def test_a_text_stands_for_itself_however_much_others_are_padded() -> None:
    records = library.texts()
    model = built(library.bert, records)
    flat = model.layout.flatten(dict(model.template.named_parameters())).unsqueeze(0)
    together = model.logits(flat, records)[0]
    alone = torch.cat([model.logits(flat, record.unsqueeze(0))[0] for record in records])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    altered_records = records.clone()
    padded = altered_records[:, library.TOKENS :] == 0
    altered_records[:, : library.TOKENS][padded] = 7.0  # what stands behind the end of a text is not read
    torch.testing.assert_close(model.logits(flat, altered_records)[0], together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2", "bert with LoRA"])
def test_private_clients_train_it_on_the_same_gradients(name: str) -> None:
    records = library.texts(8)
    labels = torch.arange(8) % library.CLASSES
    model = built(library.OF_TEXT[name], records)
    flat = model.layout.flatten(dict(model.template.named_parameters())).unsqueeze(0)
    steps = LocalDPSGDSettings(
        LocalSchedule(learning_rate=1.0, batch=8, steps=1), clipping_norm=0.5, noise_multiplier=0.0
    )
    updates = private_updates(model, flat, records, labels, steps, [np.random.default_rng(0)]).updates
    expected = model.clipped_sum(flat, records, labels, 0.5) / 8
    torch.testing.assert_close(updates, expected, rtol=1e-3, atol=1e-6)


def frozen_bias(classes: int = 3) -> nn.Module:
    model: nn.Module = library.t5(classes)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("relative_attention_bias" not in name)
    return model


def test_what_opacus_cannot_form_is_refused_with_a_remedy_that_works() -> None:
    records = library.texts(8)
    labels = torch.arange(8) % library.CLASSES
    steps = LocalDPSGDSettings(
        LocalSchedule(learning_rate=1.0, batch=8, steps=1), clipping_norm=0.5, noise_multiplier=1.0
    )

    def train(factory: Callable[..., nn.Module]) -> Tensor:
        model = built(factory, records)
        flat = model.layout.flatten(dict(model.template.named_parameters())).unsqueeze(0)
        return private_updates(model, flat, records, labels, steps, [np.random.default_rng(0)]).updates

    for name in ("t5", "bert with IA3", "bert with a prompt"):
        assert_refused(r"Opacus .*\.requires_grad_\(False\)", train, library.OF_TEXT[name])
    assert bool(torch.isfinite(train(frozen_bias)).all())


@pytest.mark.parametrize(
    ("wrong", "expected_message", "right"),
    [
        ("with_random_masks", r"hidden_dropout_prob=0, attention_probs_dropout_prob=0", "bert"),
        ("without_head", r"no logits: .*ForSequenceClassification with num_labels=3", "bert"),
        ("without_padding_id", r"pad_token_id=0", "gpt2"),
    ],
)
def test_a_model_of_a_library_that_cannot_be_used_is_told_what_fixes_it(
    wrong: str, expected_message: str, right: str
) -> None:
    assert_refused(expected_message, lambda: built(getattr(library, wrong), library.texts()))
    assert built(getattr(library, right), library.texts()).cautions == ()


def test_the_size_of_a_pass_follows_what_a_model_keeps_and_not_what_it_trains() -> None:
    whole = built(library.bert, library.texts())
    adapted = built(library.bert_lora, library.texts())
    assert adapted.layout.size < 0.05 * whole.layout.size
    # Ten tokens, 16 wide: beside three hundred weights it keeps the inputs of some twenty layers.
    assert adapted.activations > 5 * adapted.layout.size
    assert adapted.examples_per_pass * adapted.activations <= pass_budgets.PASS_BUDGET


def long_texts(count: int, tokens: int) -> Tensor:
    source = torch.Generator().manual_seed(7)
    ids = torch.randint(3, library.VOCABULARY, (count, tokens), generator=source)
    return torch.cat([ids, torch.ones_like(ids)], dim=1).float()


@pytest.mark.parametrize("count", [400, 1200])
def test_an_adapter_on_a_large_model_needs_no_more_memory_for_more_records(count: int) -> None:
    tokens = 64
    records = long_texts(count, 64)
    inputs = tuple(replace(named_input, shape=(tokens,)) for named_input in library.INPUTS)
    model = built(lambda: library.bert_lora(wide=True), records[:20], inputs)
    flat = model.layout.flatten(dict(model.template.named_parameters())).unsqueeze(0)
    labels = torch.zeros(count, dtype=torch.int64)
    process = psutil.Process()
    model.clipped_sum(flat, records[:20], labels[:20], 1.0)
    before = process.memory_info().rss
    peak_bytes = [0]
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(0.005):
            peak_bytes[0] = max(peak_bytes[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    model.clipped_sum(flat, records, labels, 1.0)
    is_done.set()
    watcher.join()
    # All records at once would keep some 100,000 scalars for each of them: 160 MB, or half a gigabyte.
    assert 0 < peak_bytes[0] - before < 60 * 2**20


def test_a_vocabulary_is_read_as_the_library_reads_it(tmp_path: Path) -> None:
    from transformers import BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "food", "un", "##happi", "##ness", "-", "'", "s", "!"]
    words += ["cafe", "日", "5", "##0", "$", "a"]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    theirs = BertTokenizer(str(path))
    ours = read_vocabulary(path)
    for text in ("The food's UNHAPPINESS!", "café - 日本 500 $", "a\tthe\n\nzebra-food", "", "un happi ness_the"):
        assert ours.within_ends(ours.pieces(text)) == theirs(text)["input_ids"]
