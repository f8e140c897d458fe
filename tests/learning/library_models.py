"""Small models of transformers and peft with random weights, built from configurations alone, for tests."""

from typing import Any

import torch
from torch import Tensor, nn

from fl_audit.learning.named_inputs import NamedInput

TOKENS = 10
VOCABULARY = 60
CLASSES = 3
INPUTS = (NamedInput("input_ids", (TOKENS,), True, VOCABULARY), NamedInput("attention_mask", (TOKENS,), True))
_SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "pad_token_id": 0,
    "vocab_size": VOCABULARY,
}
_STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def texts(count: int = 20) -> Tensor:
    """Records of token ids and their padding mask: the first has most padding, and some have none."""
    source = torch.Generator().manual_seed(5)
    ids = torch.randint(3, VOCABULARY, (count, TOKENS), generator=source)
    lengths = torch.randint(3, TOKENS + 1, (count,), generator=source)
    lengths[0], lengths[1] = 2, TOKENS
    mask = (torch.arange(TOKENS) < lengths.unsqueeze(1)).long()
    return torch.cat([ids * mask, mask], dim=1).float()


def bert(classes: int = CLASSES, wide: bool = False) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = _SIZES | ({"hidden_size": 64, "intermediate_size": 128} if wide else {})
    return BertForSequenceClassification(BertConfig(**sizes, **_STILL, num_labels=classes))


def distilbert(classes: int = CLASSES) -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    return DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=VOCABULARY,
            dim=16,
            n_layers=2,
            n_heads=2,
            hidden_dim=32,
            dropout=0.0,
            attention_dropout=0.0,
            seq_classif_dropout=0.0,
            num_labels=classes,
        )
    )


def gpt2(classes: int = CLASSES) -> nn.Module:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        num_labels=classes,
    )
    return GPT2ForSequenceClassification(config)


def llama(classes: int = CLASSES) -> nn.Module:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    return LlamaForSequenceClassification(LlamaConfig(**_SIZES, num_key_value_heads=2, num_labels=classes))


class EncoderWithHead(nn.Module):
    """The encoder of T5, the mean over tokens, and a dense layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        from transformers import T5Config, T5EncoderModel

        config = T5Config(
            vocab_size=VOCABULARY,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=2,
            dropout_rate=0.0,
            pad_token_id=0,
            decoder_start_token_id=0,
        )
        self.encoder, self.head = T5EncoderModel(config), nn.Linear(16, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(2).to(states.dtype)
        return self.head((states * weights).sum(1) / weights.sum(1))  # type: ignore[no-any-return]


def t5(classes: int = CLASSES) -> nn.Module:
    return EncoderWithHead(classes)


def _lora(model: nn.Module, *targets: str) -> nn.Module:
    from peft import LoraConfig, TaskType, get_peft_model

    adapted = get_peft_model(model, LoraConfig(task_type=TaskType.SEQ_CLS, r=2, target_modules=list(targets)))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:  # which begins at zero, where the other factor has no gradient
            nn.init.normal_(parameter, std=0.1)
    return adapted


def bert_lora(wide: bool = False) -> nn.Module:
    return _lora(bert(CLASSES, wide), "query", "value")


def llama_lora(classes: int = CLASSES) -> nn.Module:
    return _lora(llama(classes), "q_proj", "v_proj")


def bert_ia3(classes: int = CLASSES) -> nn.Module:
    from peft import IA3Config, TaskType, get_peft_model

    targets = ["key", "value", "output.dense"]
    config = IA3Config(task_type=TaskType.SEQ_CLS, target_modules=targets, feedforward_modules=["output.dense"])
    return get_peft_model(bert(classes), config)


def bert_prompt(classes: int = CLASSES) -> nn.Module:
    from peft import PromptTuningConfig, TaskType, get_peft_model

    return get_peft_model(bert(classes), PromptTuningConfig(task_type=TaskType.SEQ_CLS, num_virtual_tokens=3))


def vit(classes: int = CLASSES) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {key: value for key, value in _SIZES.items() if key not in ("pad_token_id", "vocab_size")}
    config = ViTConfig(**sizes, **_STILL, image_size=8, patch_size=4, num_channels=1, num_labels=classes)
    return ViTForImageClassification(config)


def with_random_masks(classes: int = CLASSES) -> nn.Module:
    """BERT as its configuration is where nobody changes it."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(**_SIZES, num_labels=classes))


def without_head(classes: int = CLASSES) -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**_SIZES, **_STILL))


def without_padding_id(classes: int = CLASSES) -> nn.Module:
    model = gpt2(classes)
    model.config.pad_token_id = None
    return model


OF_TEXT = {
    "bert": bert,
    "distilbert": distilbert,
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "bert with LoRA": bert_lora,
    "llama with LoRA": llama_lora,
    "bert with IA3": bert_ia3,
    "bert with a prompt": bert_prompt,
}
