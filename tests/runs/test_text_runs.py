"""From a table with a column of text to a verdict, by the built-in model of texts."""

import csv
import random
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fl_audit.data.catalogue import load_source
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.record_tensors import probe_records
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.serialization import sent_federation
from fl_audit.runs.config import parse_config
from fl_audit.runs.config_file import load_config
from fl_audit.runs.new_config import ConfigRequest, new_config
from fl_audit.runs.planning import plan_run
from fl_audit.runs.stored_run import read_run
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally
from tests.builders.settings import changed_settings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "the", "room", "was", "very", "food"]


@pytest.fixture
def text_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a table of texts and a public vocabulary."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(1)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["review", "liked", "stars"])
        for number in range(80):
            words = [*draw.choices(WORDS[6:], k=draw.randint(1, 5)), ("bad", "good")[number % 2]]
            table.writerow([" ".join(words), ("no", "yes")[number % 2], number])
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path


def text_plan(**changes: dict[str, Any]) -> RunPlan:
    settings = {
        "data": {
            "name": "csv",
            "path": "reviews.csv",
            "label": "liked",
            "text": "review",
            "vocabulary": "vocab.txt",
            "records": 40,
            "clients": 3,
            "tokens": 8,
        },
        "model": {"name": "mean-embedding"},
        "training": {"rounds": 2},
        "privacy": {"epsilon": 2.0, "adjacency": "replace-record", "delta": 0.001},
        "audit": {"trials": 6},
        "run": {"seed": 3},
    }
    return plan_run(parse_config(changed_settings(settings, changes)))


def test_six_lines_of_configuration_lead_from_texts_to_a_verdict(text_directory: Path) -> None:
    # The six are those of [data] and [model]; how many records train is said so that there are enough beside them.
    run_locally(text_plan(), text_directory / "run")
    assert read_run(text_directory / "run").verdict is not None


def test_a_process_without_records_is_told_what_was_found_of_the_model(text_directory: Path) -> None:
    federation = load_federation(text_plan().federation)
    sent = sent_federation(federation, knows_all=False, knows_differing=False)
    assert isinstance(sent, partial)
    assert sent.keywords["spec"].inputs == federation.inputs != ()
    assert sent.keywords["profile"] == federation.model.properties


def test_a_model_is_tried_on_the_shortest_and_the_longest_text_first(text_directory: Path) -> None:
    source = load_source(text_plan().federation.data)
    lengths = source.pool.features[:, 8:].sum(1)
    tried = probe_records(source).features[:, 8:].sum(1)
    assert {float(tried[0]), float(tried[1])} == {float(lengths.min()), float(lengths.max())}


def config_request(text_directory: Path, **options: Any) -> ConfigRequest:
    table = {"text": "review", "vocabulary": str(text_directory / "vocab.txt"), "tokens": 8} | options.pop("table", {})
    return ConfigRequest(str(text_directory / "reviews.csv"), "epsilon", 2.0, "liked", 3, 2, None, 5, table, **options)


def test_init_writes_the_text_its_vocabulary_and_the_model_of_texts(text_directory: Path) -> None:
    text, notes = new_config(config_request(text_directory), text_directory)
    written = tomllib.loads(text)
    assert written["data"]["text"] == "review"
    assert written["data"]["vocabulary"] == "vocab.txt"  # beside the configuration, wherever that is moved to
    assert written["data"]["tokens"] == 8
    assert written["model"]["name"] == "mean-embedding"
    assert any("column review" in note for note in notes)
    (text_directory / "audit.toml").write_text(text)
    assert load_config(text_directory / "audit.toml").data.vocabulary == str(text_directory / "vocab.txt")


def test_init_asks_for_a_model_where_no_vocabulary_says_how_many_tokens_there_are(
    text_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text_directory / "their_tokens.py").write_text(
        "def made(texts):\n    return {'input_ids': [[len(text)] * 3 for text in texts]}\n"
    )
    monkeypatch.syspath_prepend(text_directory)
    table = {"vocabulary": None, "tokens": None, "tokenizer": "their_tokens:made"}
    request = config_request(text_directory, table=table)
    assert_refused(r"accepted is --model package.module:factory", new_config, request, text_directory)


def test_a_text_without_a_vocabulary_is_told_of_both_options(text_directory: Path) -> None:
    request = config_request(text_directory, table={"vocabulary": None, "tokens": None})
    assert_refused(r"--set data.vocabulary, .*public.* --set data.tokenizer, ", new_config, request, text_directory)


@pytest.mark.parametrize(
    ("change", "expected_message"),
    [
        ({"model": {"name": "logistic"}}, "logistic.*texts .*: .*mean-embedding"),
        ({"audit": {"neighbour": "crafted"}}, "crafted.*texts, .*none .*crafted"),
    ],
)
def test_what_is_for_numbers_alone_is_refused_for_texts(
    text_directory: Path, change: dict[str, Any], expected_message: str
) -> None:
    assert_refused(expected_message, lambda: load_federation(text_plan(**change).federation))
