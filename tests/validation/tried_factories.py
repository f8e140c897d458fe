"""The models that `tests.validation.tried_models` tries, small and with random weights."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fl_audit.learning.named_inputs import NamedInput
from tests.learning import library_models as library


class TriedModel(NamedTuple):
    """A model that is tried, and its records."""

    make: Callable[[], nn.Module]
    records: Callable[[int], Tensor]
    call: Callable[[nn.Module, Tensor], Tensor]  # as users of the library call it, on records
    inputs: tuple[NamedInput, ...] = ()


def _of_text(make: Callable[[], nn.Module]) -> TriedModel:
    def call(module: nn.Module, records: Tensor) -> Tensor:
        ids, mask = records.long().split(library.TOKENS, dim=1)
        return _logits(module(input_ids=ids, attention_mask=mask))

    return TriedModel(make, library.texts, call, library.INPUTS)


def _of_pictures(make: Callable[[], nn.Module], side: int = 32, channels: int = 3) -> TriedModel:
    def records(count: int) -> Tensor:
        return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(2))

    return TriedModel(make, records, lambda module, records: _logits(module(records)))


def _of_ids(make: Callable[[], nn.Module]) -> TriedModel:
    """A network of torch alone, which reads the ids of a text as numbers."""
    return TriedModel(make, lambda count: library.texts(count)[:, : library.TOKENS], lambda module, ids: module(ids))


def _logits(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits  # type: ignore[no-any-return]


def _roberta() -> nn.Module:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    sizes = library._SIZES | library._STILL | {"max_position_embeddings": 40}
    return RobertaForSequenceClassification(RobertaConfig(**sizes, num_labels=library.CLASSES))


def _electra() -> nn.Module:
    from transformers import ElectraConfig, ElectraForSequenceClassification

    config = ElectraConfig(
        **library._SIZES, **library._STILL, embedding_size=16, classifier_dropout=0.0, num_labels=library.CLASSES
    )
    return ElectraForSequenceClassification(config)


def _adapted(model: Callable[[], nn.Module], kind: str, **settings: Any) -> nn.Module:
    import peft

    config = getattr(peft, f"{kind}Config")(**{"task_type": peft.TaskType.SEQ_CLS, **settings})
    return peft.get_peft_model(model(), config)  # type: ignore[no-any-return]


def _frozen(model: Callable[[], nn.Module], *trained_names: str, kind: torch.dtype = torch.float32) -> nn.Module:
    """Return a model whose parameters are frozen, in numbers of a kind, but for some."""
    network = model()
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(any(fragment in name for fragment in trained_names))
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(kind)
    return network


def _with_wide_rest(model: nn.Module) -> nn.Module:
    """Return a model whose frozen part is in bfloat16."""
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)
    return model


def _timm(name: str, **settings: Any) -> nn.Module:
    import timm

    return timm.create_model(name, num_classes=library.CLASSES, **settings)  # type: ignore[no-any-return]


def _grouped(model: nn.Module) -> nn.Module:
    """Return a network with group normalisation in place of batch normalisation."""
    for path, layer in list(model.named_modules()):
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            parent_path, _, name = path.rpartition(".")
            channels = layer.num_features
            norm = nn.GroupNorm(next(groups for groups in (4, 3, 2, 1) if channels % groups == 0), channels)
            after = getattr(layer, "act", nn.Identity())  # layers of timm have their activation in themselves
            setattr(model.get_submodule(parent_path), name, nn.Sequential(norm, after))
    return model


class _Steps(nn.Module):
    """A recurrent network over the tokens of a text."""

    def __init__(self, kind: type[nn.RNNBase], is_packed: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(library.VOCABULARY, 8), nn.Linear(8, library.CLASSES)
        self.cells, self.is_packed = kind(8, 8, batch_first=True), is_packed  # type: ignore[call-arg, arg-type]

    def forward(self, ids: Tensor) -> Tensor:
        steps: Any = self.embed(ids.long())
        lengths = (ids > 0).sum(1)
        if self.is_packed:
            packed = nn.utils.rnn.pack_padded_sequence(steps, lengths, batch_first=True, enforce_sorted=False)
            return self.head(self.cells(packed)[1][-1])  # type: ignore[no-any-return]
        states = self.cells(steps)[0]
        last = lengths - 1
        return self.head(torch.take_along_dim(states, last[:, None, None], 1).squeeze(1))  # type: ignore[no-any-return]


class _Encoder(nn.Module):
    """A transformer of torch with its padding mask; by default it makes nested tensors of padded texts."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.embed, self.mixed = nn.Embedding(library.VOCABULARY, 8), nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, library.CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        states = self.mixed(self.embed(ids.long()), src_key_padding_mask=ids == 0)
        return self.head(states[:, 0])  # type: ignore[no-any-return]


class _Nested(nn.Module):
    """A network that makes nested tensors itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(library.VOCABULARY, 8), nn.Linear(8, library.CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        rows = [sequence[sequence > 0].long() for sequence in ids]
        nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
        padded = torch.nested.to_padded_tensor(nested, 0, (len(ids), ids.shape[1]))
        return self.head(self.embed(padded).mean(1))  # type: ignore[no-any-return]


class _Autocast(nn.Module):
    """A network that computes in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(library.VOCABULARY, 8), nn.Linear(8, library.CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.head(self.embed(ids.long()).mean(1)).float()  # type: ignore[no-any-return]


def _quantised() -> nn.Module:
    network = nn.Sequential(nn.Embedding(library.VOCABULARY, 8), nn.Flatten(), nn.Linear(80, library.CLASSES))
    return torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, torch.qint8)  # type: ignore[no-any-return]


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {key: value for key, value in library._SIZES.items() if key not in ("pad_token_id", "vocab_size")}
    return ViTForImageClassification(
        ViTConfig(**sizes, **library._STILL, image_size=32, patch_size=8, num_labels=library.CLASSES)
    )


FACTORIES: dict[str, TriedModel] = {
    "BERT": _of_text(library.bert),
    "DistilBERT": _of_text(library.distilbert),
    "RoBERTa": _of_text(_roberta),
    "ELECTRA": _of_text(_electra),
    "GPT-2": _of_text(library.gpt2),
    "Llama": _of_text(library.llama),
    "T5 encoder with a head": _of_text(library.t5),
    "BERT with LoRA": _of_text(library.bert_lora),
    "BERT with LoRA on all dense layers": _of_text(
        partial(_adapted, library.bert, "Lora", r=2, target_modules=["query", "key", "value", "dense"])
    ),
    "BERT in bfloat16 with LoRA in bfloat16": _of_text(
        lambda: _adapted(lambda: library.bert().to(torch.bfloat16), "Lora", r=2, target_modules=["query", "value"])
    ),
    "BERT in bfloat16 with LoRA in float32": _of_text(lambda: _with_wide_rest(FACTORIES["BERT with LoRA"].make())),
    "DistilBERT with LoRA": _of_text(partial(_adapted, library.distilbert, "Lora", r=2, target_modules=["q_lin"])),
    "GPT-2 with LoRA": _of_text(
        partial(_adapted, library.gpt2, "Lora", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    ),
    "Llama with LoRA": _of_text(library.llama_lora),
    "BERT with IA3": _of_text(library.bert_ia3),
    "BERT with prompt tuning": _of_text(library.bert_prompt),
    "BERT with P-tuning": _of_text(partial(_adapted, library.bert, "PromptEncoder", num_virtual_tokens=3)),
    "BERT with prefix tuning": _of_text(partial(_adapted, library.bert, "PrefixTuning", num_virtual_tokens=3)),
    "Llama with prefix tuning": _of_text(partial(_adapted, library.llama, "PrefixTuning", num_virtual_tokens=3)),
    "head of a frozen BERT": _of_text(partial(_frozen, library.bert, "classifier")),
    "head of a frozen GPT-2": _of_text(partial(_frozen, library.gpt2, "score")),
    "head of a frozen BERT in bfloat16": _of_text(partial(_frozen, library.bert, "classifier", kind=torch.bfloat16)),
    "BERT as configured by default, with dropout": _of_text(library.with_random_masks),
    "BERT without a head": _of_text(library.without_head),
    "GPT-2 without an id of padding": _of_text(library.without_padding_id),
    "ViT": _of_pictures(_vit),
    "ViT with LoRA": _of_pictures(
        lambda: _adapted(
            _vit, "Lora", task_type=None, r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["classifier"]
        )
    ),
    "timm: ViT tiny": _of_pictures(
        partial(_timm, "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=2)
    ),
    "timm: MobileNetV3": _of_pictures(partial(_timm, "mobilenetv3_small_050")),
    "timm: MobileNetV3 with GroupNorm": _of_pictures(lambda: _grouped(_timm("mobilenetv3_small_050", drop_rate=0.0))),
    "timm: EfficientNet": _of_pictures(partial(_timm, "efficientnet_lite0")),
    "timm: EfficientNet with GroupNorm": _of_pictures(lambda: _grouped(_timm("efficientnet_lite0", drop_rate=0.0))),
    "timm: ConvNeXt": _of_pictures(partial(_timm, "convnext_atto", depths=(1, 1, 2, 1), dims=(8, 16, 32, 64))),
    "timm: ResNet": _of_pictures(partial(_timm, "resnet18")),
    "timm: ResNet with GroupNorm": _of_pictures(
        lambda: _timm("resnet18", norm_layer=lambda channels, **keywords: nn.GroupNorm(4, channels))
    ),
    "timm: ResNet of a frozen BatchNorm": _of_pictures(partial(_frozen, partial(_timm, "resnet18"), "fc")),
    "GRU": _of_ids(partial(_Steps, nn.GRU)),
    "LSTM": _of_ids(partial(_Steps, nn.LSTM)),
    "GRU on packed sequences": _of_ids(partial(_Steps, nn.GRU, is_packed=True)),
    "TransformerEncoder with a padding mask": _of_ids(_Encoder),
    "nested tensors": _of_ids(_Nested),
    "autocast": _of_ids(_Autocast),
    "quantize_dynamic": _of_ids(_quantised),
}
