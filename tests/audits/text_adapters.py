"""Audits of a LoRA adapter of a BERT that learns from texts: its data, its configuration and two servers."""

import csv
import random
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.runs.run import HONEST, ClientAppAndStrategy
from fl_audit.verdict.verdict import Verdict
from tests.builders.settings import changed_settings
from tests.builders.strategies import HalvedNoise

_GOOD = ("bright", "calm", "clean", "friendly", "good", "great", "happy")
_BAD = ("bad", "broken", "cold", "dark", "dirty", "loud", "poor")
_OTHER = ("again", "and", "food", "it", "place", "room", "service", "staff", "stay", "the", "very", "was", "we")


def bert_with_lora(classes: int, vocabulary_size: int) -> nn.Module:
    """Return a BERT of two layers of width 32 whose adapter of rank 4, and head, are trained."""
    from peft import LoraConfig, TaskType, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=vocabulary_size,
        num_labels=classes,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    adapter = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, target_modules=["query", "value"])
    return get_peft_model(BertForSequenceClassification(config), adapter)


def write_texts(directory: Path, texts: int = 120) -> None:
    """Write a table of texts, `texts.csv`, and a public vocabulary, `vocabulary.txt`, to a directory."""
    draw = random.Random(0)
    with (directory / "texts.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["review", "sentiment"])
        for number in range(texts):
            words = draw.choices(_OTHER, k=draw.randint(3, 10)) + draw.choices((_BAD, _GOOD)[number % 2], k=3)
            draw.shuffle(words)
            table.writerow([" ".join(words), ("negative", "positive")[number % 2]])
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted((*_GOOD, *_BAD, *_OTHER))]
    (directory / "vocabulary.txt").write_text("\n".join(tokens) + "\n")


def settings_of(place: Path, seed: int, trials: int, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the configuration of an audit of the adapter.

    `place` is the directory of `write_texts`; `changes` are settings that differ, by section.
    """
    sections: dict[str, dict[str, Any]] = {
        "data": {
            "name": "csv",
            "path": str(place / "texts.csv"),
            "label": "sentiment",
            "text": "review",
            "vocabulary": str(place / "vocabulary.txt"),
            "tokens": 16,
            "records": 60,
            "clients": 3,
        },
        "model": {"name": "tests.audits.text_adapters:bert_with_lora"},
        "training": {"rounds": 10, "learning-rate": 0.5},
        "privacy": {"epsilon": 2.0, "delta": 1e-3, "adjacency": "replace-record", "clipping-norm": 1.0},
        "audit": {"trials": trials, "epsilon-star": False, "evaluate-every": 10},
        "run": {"seed": seed, "trials-per-batch": trials, "keep-releases": 0},
    }
    return changed_settings(sections, changes)


class Server(NamedTuple):
    """A kind of server, and the verdict that it deserves."""

    name: str  # in words
    parties: ClientAppAndStrategy  # with this server
    is_honest: bool


SERVERS = (
    Server("honest", HONEST, True),
    Server("half of the noise", ClientAppAndStrategy(strategy=HalvedNoise), False),
)


def verdict_of(place: Path, seed: int, trials: int, server: Server) -> Verdict:
    """Play an audit of the adapter in a temporary run, and return its verdict.

    `place` is the directory of `write_texts`.
    """
    return Verdict(results_of_run(settings_of(place, seed, trials), server.parties).summary["verdict"])
