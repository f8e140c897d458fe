"""Tests of texts and other named arrays: models get what is loaded, and no record affects how another one is read."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.multi_array_records import array_of, comparable
from fl_audit.data.records import Records
from fl_audit.data.texts import read_vocabulary
from fl_audit.learning.model_adaptation import unpacked
from tests.builders.refusals import assert_refused
from tests.builders.tables import load_table

WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "food",
    "was",
    "good",
    "bad",
    "un",
    "##happy",
    "##ly",
    ",",
    "!",
    "cafe",
)
TEXTS = ("The food was good!", "the FOOD was bad", "unhappyly, zebra", "good", "bad bad food", "café was the good food")


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.csv"
    rows = [f'"{text}",{("no", "yes")[number % 2]},{number}' for number, text in enumerate(TEXTS)]
    path.write_text("\n".join(["review,liked,stars", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def tokenizer_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tokenizers as users write them."""
    (tmp_path / "text_tokenizers.py").write_text(
        "import numpy as np\n"
        "def fixed(texts):\n"
        "    ids = np.array([[len(word) for word in (text.split() + [''] * 5)[:5]] for text in texts])\n"
        "    return {'input_ids': ids, 'attention_mask': (ids > 0).astype(int)}\n"
        "def longest(texts):\n"
        "    most = max(len(text.split()) for text in texts)\n"
        "    return {'input_ids': [[1] * len(text.split()) + [0] * (most - len(text.split())) for text in texts]}\n"
        "def ragged(texts):\n"
        "    return {'input_ids': [[1] * len(text.split()) for text in texts]}\n"
        "def fitted(texts):\n"
        "    words = {w: n for n, w in enumerate(sorted({w for text in texts for w in text.split()}), 1)}\n"
        "    return {'input_ids': [[words[w] for w in text.split()[:1]] for text in texts]}\n"
        "def alone(texts):\n"
        "    return [1, 2]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("text_tokenizers", None)


def loaded(path: Path, **extra_options: Any) -> LoadedDataset:
    return load_table(path, "liked", **{"text": "review"} | extra_options)


def test_a_column_of_text_becomes_the_ids_of_a_public_vocabulary(table: Path, vocabulary: Path) -> None:
    source = loaded(table, vocabulary=str(vocabulary), tokens=8)
    word_ids = {word: number for number, word in enumerate(WORDS)}
    expected = [
        ["[CLS]", "the", "food", "was", "good", "!", "[SEP]", "[PAD]"],
        ["[CLS]", "the", "food", "was", "bad", "[SEP]", "[PAD]", "[PAD]"],
        ["[CLS]", "un", "##happy", "##ly", ",", "[UNK]", "[SEP]", "[PAD]"],
        ["[CLS]", "good", "[SEP]", *["[PAD]"] * 5],
        ["[CLS]", "bad", "bad", "food", "[SEP]", *["[PAD]"] * 3],
        ["[CLS]", "cafe", "was", "the", "good", "food", "[SEP]", "[PAD]"],
    ]
    ids = array_of(source.pool, "input_ids")
    assert ids.dtype == np.int64
    assert ids.tolist() == [[word_ids[word] for word in row] for row in expected]
    assert np.array_equal(array_of(source.pool, "attention_mask"), ids != word_ids["[PAD]"])
    assert source.pool.labels.tolist() == [0, 1] * 3
    assert [model_input.count for model_input in source.pool.inputs] == [len(WORDS), None]
    assert not source.is_table


def test_every_text_is_as_long_as_the_configuration_says(table: Path, vocabulary: Path) -> None:
    for tokens in (4, 8, 50):
        assert loaded(table, vocabulary=str(vocabulary), tokens=tokens).feature_shape == (2 * tokens,)
    assert loaded(table, vocabulary=str(vocabulary)).feature_shape == (2 * 128,)
    cut = array_of(loaded(table, vocabulary=str(vocabulary), tokens=4).pool, "input_ids")
    assert cut[0].tolist() == [2, 4, 5, 3]  # what ends a text stands behind what is left of it
    assert_refused(r"tokens is 2 .* from 3", loaded, table, vocabulary=str(vocabulary), tokens=2)


def test_no_vocabulary_is_built_from_the_records(table: Path, tokenizer_module: None) -> None:
    assert_refused(r"vocabulary in \[data\].* tokenizer in \[data\].* no vocabulary", loaded, table)
    assert_refused(r"text .*is alone.* public and fixed", loaded, table, tokenizer="text_tokenizers:fitted")


def test_a_tokenizer_of_ones_own_is_taken(table: Path, tokenizer_module: None) -> None:
    source = loaded(table, tokenizer="text_tokenizers:fixed")
    assert array_of(source.pool, "input_ids").tolist()[0] == [3, 4, 3, 5, 0]
    assert [model_input.name for model_input in source.pool.inputs] == ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("name", "expected_message"),
    [
        ("longest", 'the longest .* padding="max_length"'),
        ("ragged", 'input_ids .*unequal lengths: .*padding="max_length"'),
        ("alone", "a list: .*arrays .*names"),
    ],
)
def test_a_tokenizer_that_tells_of_other_records_is_refused(
    table: Path, tokenizer_module: None, name: str, expected_message: str
) -> None:
    assert_refused(expected_message, loaded, table, tokenizer=f"text_tokenizers:{name}")


@pytest.mark.parametrize(
    ("extra_options", "expected_message"),
    [
        ({"vocabulary": "v.txt", "tokenizer": "a:b"}, "both vocabulary and tokenizer"),
        ({"tokenizer": "a:b", "tokens": 3}, "the length .*: leave tokens out"),
        ({"text": "liked", "tokenizer": "a:b"}, "text is 'liked', .*label"),
        ({"text": "revue", "tokenizer": "a:b"}, "no text column 'revue': .* 'review'"),
        ({"vocabulary": "nowhere.txt"}, "nowhere.txt not found"),
    ],
)
def test_settings_of_text_that_contradict_each_other_are_refused(
    table: Path, extra_options: dict[str, Any], expected_message: str
) -> None:
    assert_refused(expected_message, loaded, table, **extra_options)


def test_settings_of_text_without_a_text_are_refused(table: Path) -> None:
    assert_refused(r"tokens is 8 in .*no column .*text", load_table, table, "liked", tokens=8)


@pytest.mark.parametrize(
    ("content", "expected_message"),
    [
        ('{"version": "1.0"}', 'is JSON, .*tokenizer = "module:function"'),
        ("the\nfood\n", r"no line \[PAD\] and \[UNK\]"),
        ("[PAD]\n[UNK]\nfood\nfood\n", "'food' .*two lines"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path, content: str, expected_message: str) -> None:
    (tmp_path / "v.txt").write_text(content)
    assert_refused(expected_message, read_vocabulary, tmp_path / "v.txt")


def test_a_column_of_free_text_is_told_of_the_setting(tmp_path: Path) -> None:
    rows = [f"a text of number {number},{number % 2}" for number in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["review,liked", *rows]) + "\n")
    assert_refused(r"text in \[data\] .*column of text", load_table, tmp_path / "t.csv", "liked")


def archive(path: Path, **arrays: Any) -> LoadedDataset:
    np.savez(path, **arrays)
    return load_source(DataSpec("npz", options=(("path", str(path)),)))


def arrays() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 2**24, (12, 7))
    return {"input_ids": ids, "attention_mask": ids > 2**22, "size": draw.normal(size=12), "labels": np.arange(12) % 3}


def test_named_arrays_of_an_archive_reach_the_model_as_they_are(tmp_path: Path) -> None:
    named_arrays = arrays()
    source = archive(tmp_path / "a.npz", **named_arrays)
    unpacked_arrays = dict(unpacked(torch.from_numpy(source.pool.features.copy()), source.pool.inputs))
    assert [*unpacked_arrays] == ["input_ids", "attention_mask", "size"]
    assert unpacked_arrays["input_ids"].dtype == unpacked_arrays["attention_mask"].dtype == torch.int64
    assert torch.equal(unpacked_arrays["input_ids"], torch.from_numpy(named_arrays["input_ids"]))  # exact up to 2^24
    assert torch.equal(unpacked_arrays["attention_mask"], torch.from_numpy(named_arrays["attention_mask"]).long())
    assert torch.equal(unpacked_arrays["size"], torch.from_numpy(named_arrays["size"]).float())
    assert source.pool.labels.tolist() == named_arrays["labels"].tolist()


def test_official_test_records_of_named_arrays_are_read(tmp_path: Path) -> None:
    named_arrays = arrays()
    arrays_with_test = named_arrays | {f"{key}_test": value[:4] for key, value in named_arrays.items()}
    source = archive(tmp_path / "b.npz", **arrays_with_test)
    assert source.test is not None
    assert source.test.inputs == source.pool.inputs
    assert np.array_equal(array_of(source.test, "input_ids"), named_arrays["input_ids"][:4])
    del arrays_with_test["attention_mask_test"]
    assert_refused(r"attention_mask_test .* all of", archive, tmp_path / "c.npz", **arrays_with_test)


@pytest.mark.parametrize(
    ("change", "expected_message"),
    [
        ({"input_ids": np.full((12, 7), 2**24 + 1)}, "16,777,217: .*whole numbers .*16,777,216"),
        ({"input_ids": np.zeros((11, 7), np.int64)}, "12 records .*input_ids has 11: .*equal"),
        ({"input_ids": np.full((12, 7), "a")}, "input_ids .* <U1: .*whole or real"),
    ],
)
def test_named_arrays_that_cannot_be_read_are_refused(
    tmp_path: Path, change: dict[str, Any], expected_message: str
) -> None:
    assert_refused(expected_message, lambda: archive(tmp_path / "d.npz", **(arrays() | change)))


def test_an_archive_of_x_and_y_is_read_as_before(tmp_path: Path) -> None:
    source = archive(tmp_path / "e.npz", x=np.ones((8, 3)), y=np.arange(8) % 2, input_ids=np.zeros((8, 2), np.int64))
    assert source.pool.inputs == ()
    assert source.feature_shape == (3,)


def test_records_keep_their_named_arrays_wherever_they_are_chosen(table: Path, vocabulary: Path) -> None:
    pool = loaded(table, vocabulary=str(vocabulary), tokens=8).pool
    assert pool.take([2, 0]).inputs == pool.inputs
    assert_refused("named arrays", Records, pool.features[:, 1:], pool.labels, 2, inputs=pool.inputs)


def test_texts_are_compared_by_the_tokens_that_one_of_them_has(table: Path, vocabulary: Path) -> None:
    pool = loaded(table, vocabulary=str(vocabulary), tokens=8).pool
    sets = [set(row) for row in array_of(pool, "input_ids").tolist()]
    rows = comparable(pool).features
    for first, first_row in zip(sets, rows, strict=True):
        for second, second_row in zip(sets, rows, strict=True):
            assert np.square(first_row - second_row).sum() == len(first ^ second)
