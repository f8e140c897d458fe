"""The verdict on adapters: a LoRA adapter of a BERT that learns from texts, with honest noise and with half of it.

    python -m tests.validation adapters [--seeds 20] [--trials 25] [--journal FILE] [--minutes M]

Texts of a table, the ids of a public vocabulary, and a BERT from its configuration with random weights, whose frozen
part is the same in all trials; the clients send clipped gradients of the adapter and the head, on the local engine. An
honest server may never be called violated, and one that adds half of the noise that it claims is to be found in nine of
ten runs. The exit status is 1 where either fails. With `--journal` every verdict is kept in a file that only grows, and
a second call goes on after it; `--minutes` ends a call. It needs transformers and peft: pip install 'fl-audit[text]'.
"""

import csv
import random
import tempfile
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from fl_audit.array_types import Floats
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.runs.run import HONEST, ClientAppAndStrategy
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.verdict import Verdict
from tests.validation.journal import append, blocks, read, until

_GOOD = ("bright", "calm", "clean", "friendly", "good", "great", "happy")
_BAD = ("bad", "broken", "cold", "dark", "dirty", "loud", "poor")
_OTHER = ("again", "and", "food", "it", "place", "room", "service", "staff", "stay", "the", "very", "was", "we")
_RECORDS, _TEXTS, _TOKENS = 60, 120, 16
_BLOCK = 5  # seeds of a server before the other server's turn
REQUIRED_SHARE = 0.9


def bert_with_lora(classes: int, vocabulary_size: int) -> nn.Module:
    """Return a BERT of two layers of width 32 whose adapter of rank 4, and head, are trained."""
    from peft import LoraConfig, TaskType, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=vocabulary_size, num_labels=classes, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    adapter = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, target_modules=["query", "value"])
    return get_peft_model(BertForSequenceClassification(config), adapter)


def write_texts(place: Path, texts: int = _TEXTS) -> None:
    """Write a table of texts, `texts.csv`, and a public vocabulary, `vocabulary.txt`, to a directory."""
    draw = random.Random(0)
    with (place / "texts.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["review", "sentiment"])
        for number in range(texts):
            words = draw.choices(_OTHER, k=draw.randint(3, 10)) + draw.choices((_BAD, _GOOD)[number % 2], k=3)
            draw.shuffle(words)
            table.writerow([" ".join(words), ("negative", "positive")[number % 2]])
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted((*_GOOD, *_BAD, *_OTHER))]
    (place / "vocabulary.txt").write_text("\n".join(tokens) + "\n")


def settings_of(place: Path, seed: int, trials: int, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the configuration of an audit of the adapter.

    `place` is the directory of `write_texts`; `changes` are settings that differ, by section.
    """
    sections: dict[str, dict[str, Any]] = {
        "data": {"name": "csv", "path": str(place / "texts.csv"), "label": "sentiment", "text": "review",
                 "vocabulary": str(place / "vocabulary.txt"), "tokens": _TOKENS, "records": _RECORDS, "clients": 3},
        "model": {"name": "tests.validation.adapters:bert_with_lora"},
        "training": {"rounds": 10, "learning-rate": 0.5},
        "privacy": {"epsilon": 2.0, "delta": 1e-3, "adjacency": "replace-record", "clipping-norm": 1.0},
        "audit": {"trials": trials, "epsilon-star": False, "evaluate-every": 10},
        "run": {"seed": seed, "trials-per-batch": trials, "keep-releases": 0},
    }  # fmt: skip
    return {name: section | changes.get(name, {}) for name, section in sections.items()}


class Halved(TrialBatchStrategy):
    """A server that adds half of the noise that it claims."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Return the noised sums of a batch, as `TrialBatchStrategy` does, with half of the noise."""
        return super().noise(batch, server_round, total, 0.5 * sigma)


class Server(NamedTuple):
    """A kind of server, and the verdict that it deserves."""

    name: str  # in words
    parties: ClientAppAndStrategy  # with this server
    is_honest: bool

    def problems(self, violated: int, seeds: int) -> list[str]:
        """Return the contradictions to the claims.

        Of all `seeds` runs so many were called violated.
        """
        least = ceil(REQUIRED_SHARE * seeds)
        if violated == 0 if self.is_honest else violated >= least:
            return []
        expected = "0" if self.is_honest else f"{least} or more"
        return [f"{self.name}: violated in {violated} of {seeds} runs, {expected} expected"]


SERVERS = (Server("honest", HONEST, True), Server("half of the noise", ClientAppAndStrategy(strategy=Halved), False))


def verdict_of(place: Path, seed: int, trials: int, server: Server) -> Verdict:
    """Play an audit of the adapter in a temporary run, and return its verdict.

    `place` is the directory of `write_texts`.
    """
    return Verdict(results_of_run(settings_of(place, seed, trials), server.parties).summary["verdict"])


def _found(
    place: Path, seeds: int, trials: int, path: Path | None, over: Callable[[], bool]
) -> dict[str, dict[int, Verdict]]:
    """Play the runs that a journal lacks until the time is over, and return the verdicts of each server by seed."""
    found: dict[str, dict[int, Verdict]] = {server.name: {} for server in SERVERS}
    for row in read(path, trials=trials):
        found[row["server"]][row["seed"]] = Verdict(row["verdict"])
    servers = {server.name: server for server in SERVERS}
    runs = [(name, seed) for name, seed in blocks(servers, seeds, _BLOCK) if seed not in found[name]]
    for name, seed in track(runs, "runs"):
        if over():
            break
        verdict = found[name][seed] = verdict_of(place, seed, trials, servers[name])
        append(path, {"server": name, "trials": trials, "seed": seed, "verdict": verdict})
    return found


def main() -> None:
    """Print the table; the exit status is 1 where a verdict contradicts the claims."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="runs of each server, each with a seed of its own")
    parser.add_argument("--trials", type=int, default=25, help="trials of a run")
    parser.add_argument("--journal", type=Path, help="file that keeps every run")
    parser.add_argument("--minutes", type=float, help="minutes after which no further run begins")
    options, problems, rows = parser.parse_args(), list[str](), list[tuple[str, ...]]()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        write_texts(Path(directory))
        over = until(options.minutes)
        all_found = _found(Path(directory), options.seeds, options.trials, options.journal, over)
    for server in SERVERS:
        found = list(all_found[server.name].values())
        rows.append((server.name, str(len(found)), *(str(found.count(verdict)) for verdict in Verdict)))
        problems += server.problems(found.count(Verdict.VIOLATED), len(found))
    columns = ("server", "runs", *map(str, Verdict))
    Console(width=100).print(table_of(columns, f"LoRA at {options.trials} trials", columns[:1], rows))
    exit_with(problems, "honest noise is never called violated, and half of it is found")
