"""Convert texts to token ids, by a public vocabulary or by the user's own tokenizer.

The vocabulary is never built from the records: its words would reveal facts about them, outside any guarantee. For the
same reason all records have a configured length, and not the length of the longest record.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats32
from fl_audit.data.data_files import read_text
from fl_audit.data.loaded_dataset import ColumnReadResult, ColumnRole, DataWarning
from fl_audit.data.multi_array_records import packed
from fl_audit.errors import InputError, require
from fl_audit.learning.named_inputs import MASK, TOKENS, NamedInput
from fl_audit.user_modules import import_function

DEFAULT_TOKENS = 128
_WORDS = re.compile(r"\w+|[^\w\s]")
_LONGEST_WORD = 100  # characters; longer ones are unknown, as in WordPiece
_PADDING = ("[PAD]", "<pad>")
_UNKNOWN = ("[UNK]", "<unk>")
_FIRST = ("[CLS]", "<s>")
_LAST = ("[SEP]", "</s>")
_CONTINUES = "##"
_TRIED = 2  # texts that a tokenizer is given alone
_MANY = 0.2  # share of texts that are cut, or of tokens that are unknown, from which a person should look
_WAYS = (
    "accepted is one of vocabulary in [data], a public file of one token a line, and tokenizer in [data], your own "
    "package.module:function; no vocabulary is built from the records, since its words would tell of them"
)


def require_one_tokenization(
    column: str, vocabulary: str | Path | None, tokenizer: str | None, tokens: int | None
) -> None:
    """Raise `InputError` unless the settings name exactly one way in which the texts of a column become tokens."""
    problem = f"text is {column!r} in [data], and nothing says how it becomes tokens"
    if vocabulary is not None and tokenizer is not None:
        problem = f"text is {column!r} in [data] with both vocabulary and tokenizer"
    require((vocabulary is None) != (tokenizer is None), f"{problem}: {_WAYS}")
    problem_of_tokens = f"tokens is {tokens} in [data] with tokenizer = {tokenizer!r}, which decides the length itself"
    require(tokenizer is None or tokens is None, f"{problem_of_tokens}: leave tokens out")


@dataclass(frozen=True)
class TextSettings:
    """Settings of a column of text: its name, and a vocabulary or a tokenizer.

    Raises `InputError` unless exactly one of `vocabulary` and `tokenizer` is given.
    """

    column: str  # name of the column
    vocabulary: Path | None  # public file with one token on each line
    tokenizer: str | None  # name of the user's function, `package.module:function`
    tokens: int | None = None  # length of every record in tokens; None is 128

    def __post_init__(self) -> None:
        require_one_tokenization(self.column, self.vocabulary, self.tokenizer, self.tokens)


@dataclass(frozen=True)
class EncodedTexts:
    """A column of text encoded as features, with the layout of the features and warnings."""

    features: Floats32  # named arrays in rows, (n, width)
    inputs: tuple[NamedInput, ...]  # name and shape of each array in a row
    use: ColumnReadResult  # how the column was read
    cautions: tuple[DataWarning, ...] = ()  # warnings about cut texts and unknown tokens


def encode_texts(texts: Sequence[str], settings: TextSettings, name: str) -> EncodedTexts:
    """Encode texts as token ids with an attention mask, which is 1 at tokens and 0 at padding.

    If the settings name a tokenizer of the user, it encodes the texts instead.
    """
    if settings.vocabulary is None:
        return _by_tokenizer(texts, settings)
    vocabulary = read_vocabulary(settings.vocabulary)
    length = settings.tokens or DEFAULT_TOKENS
    fewest_ids = len(vocabulary.ends) + 1
    require(length >= fewest_ids, f"tokens is {length} in [data]: accepted are whole numbers from {fewest_ids}")
    pieces = [vocabulary.pieces(text) for text in texts]
    ids = np.full((len(texts), length), vocabulary.padding, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, piece in enumerate(pieces):
        placed = vocabulary.within_ends(piece[: length - len(vocabulary.ends)])
        ids[row, : len(placed)], mask[row, : len(placed)] = placed, 1
    rows, inputs = packed({TOKENS: ids, MASK: mask}, name)
    inputs = tuple(
        replace(named_input, count=len(vocabulary.ids)) if named_input.name == TOKENS else named_input
        for named_input in inputs
    )
    return EncodedTexts(rows, inputs, *_became(pieces, vocabulary, length, settings))


def _became(
    pieces: Sequence[Sequence[int]], vocabulary: "Vocabulary", length: int, settings: TextSettings
) -> tuple[ColumnReadResult, tuple[DataWarning, ...]]:
    """Return how a column of text was read, with warnings if many texts are cut or many tokens unknown.

    `pieces` are the token ids of each text before cutting, without tokens such as [CLS].
    """
    counts = np.array([len(piece) for piece in pieces])
    cut = float((counts > length - len(vocabulary.ends)).mean())
    unknown = sum(piece.count(vocabulary.unknown) for piece in pieces) / max(1, int(counts.sum()))
    detail = f"{length} tokens of a vocabulary of {len(vocabulary.ids):,}; {cut:.0%} of the texts are longer and cut"
    detail += f", {unknown:.0%} of the tokens are unknown"
    cautions = list[DataWarning]()
    location = f"column {settings.column}"
    if cut > _MANY:
        cautions.append(DataWarning(f"{location}: {cut:.0%} of the texts are longer than {length} tokens and are cut"))
    if unknown > _MANY:
        problem = f"{location}: {unknown:.0%} of the tokens are in no line of {settings.vocabulary}"
        cautions.append(DataWarning(f"{problem}: is it of another language or spelling?"))
    return ColumnReadResult(settings.column, ColumnRole.TEXT, detail, odd=bool(cautions)), tuple(cautions)


@dataclass(frozen=True)
class Vocabulary:
    """A public vocabulary of tokens with their ids, which splits texts into tokens as WordPiece does.

    If no token has a capital, texts become lower-case without accents, as in uncased BERT. Tokens that begin with ##
    continue a word. If the vocabulary has such tokens, a word that is no token is split greedily into the longest
    tokens.
    """

    ids: Mapping[str, int]  # id of each token
    padding: int  # id of the token that fills up a short text
    unknown: int  # id of the token for words that are not in the file
    ends: tuple[int, ...] = ()  # ids of the first and the last token; none if the file has no such tokens

    @cached_property
    def _is_lower(self) -> bool:
        special = (*_PADDING, *_UNKNOWN, *_FIRST, *_LAST, "[MASK]", "<mask>")
        return all(token == token.lower() for token in self.ids if token not in special and not _is_reserved(token))

    @cached_property
    def _has_parts(self) -> bool:
        return any(token.startswith(_CONTINUES) and len(token) > len(_CONTINUES) for token in self.ids)

    def within_ends(self, ids: Sequence[int]) -> list[int]:
        """Return the ids of a text's tokens without the special first and last token, such as [CLS] and [SEP].

        A vocabulary without such tokens leaves the ids unchanged.
        """
        return [self.ends[0], *ids, self.ends[1]] if self.ends else [*ids]

    def pieces(self, text: str) -> list[int]:
        """Return the token ids of a text, without a first and a last token such as [CLS] and [SEP]."""
        return [piece for word in _words(text, self._is_lower) for piece in self._pieces_of(word)]

    def _pieces_of(self, word: str) -> Iterator[int]:
        if word in self.ids:
            yield self.ids[word]
            return
        pieces = list[int]()
        start = 0
        while self._has_parts and start < len(word) <= _LONGEST_WORD:
            ends = range(len(word), start, -1)
            before = _CONTINUES if start else ""
            end = next((end for end in ends if before + word[start:end] in self.ids), None)
            if end is None:
                break
            pieces.append(self.ids[before + word[start:end]])
            start = end
        yield from pieces if start == len(word) else [self.unknown]


def _is_reserved(token: str) -> bool:
    return token.startswith(("[unused", "[UNUSED")) and token.endswith("]")


def _words(text: str, is_lower: bool) -> list[str]:
    """Return the words and punctuation marks of a text, split as by BERT's basic tokenizer.

    With `is_lower`, letters become lower-case and lose their accents.
    """
    if is_lower:
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(character for character in text if unicodedata.category(character) != "Mn")
    text = "".join(f" {character} " if _stands_alone(character) else character for character in text)
    return _WORDS.findall(text)


def _stands_alone(character: str) -> bool:
    """Return True if a character is always a token of its own: an underscore or a Chinese character."""
    return character == "_" or 0x4E00 <= ord(character) <= 0x9FFF or 0x3400 <= ord(character) <= 0x4DBF


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary from a file with one token on each line; the id of a token is its line number from 0."""
    text = read_text(path)
    remedy = 'tokenizer = "module:function" in [data] names a function of your own that reads it'
    is_json = text.lstrip().startswith("{")
    require(not is_json, f"{path} is JSON, as tokenizer.json is: accepted is a file of one token a line, or {remedy}")
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    ids = {token: number for number, token in reversed(list(enumerate(lines)))}
    doubled = next((line for number, line in enumerate(lines) if ids[line] != number), None)
    require(doubled is None, f"{path} has the token {doubled!r} in two lines: accepted is each token once, or {remedy}")

    def placed(names: tuple[str, ...]) -> int | None:
        return next((ids[name] for name in names if name in ids), None)

    padding = placed(_PADDING)
    unknown = placed(_UNKNOWN)
    if padding is None or unknown is None:
        lacking = " and ".join(
            names[0] for names, token_id in ((_PADDING, padding), (_UNKNOWN, unknown)) if token_id is None
        )
        raise InputError(f"vocabulary {path} has no line {lacking}: accepted is a file with both [PAD] and [UNK]")
    first = placed(_FIRST)
    last = placed(_LAST)
    return Vocabulary(ids, padding, unknown, () if first is None or last is None else (first, last))


def _by_tokenizer(texts: Sequence[str], settings: TextSettings) -> EncodedTexts:
    name = settings.tokenizer or ""
    tokenize = import_function(name, "tokenizer")
    arrays = _arrays(tokenize(list(texts)), name, len(texts))
    _require_own(tokenize, texts, arrays, name)
    rows, inputs = packed(arrays, f"tokenizer {name!r}")
    length = next(iter(arrays.values())).shape[1:]
    arrays_text = f"{', '.join(arrays)} of {'x'.join(map(str, length)) or 'one number'} by {name}"
    return EncodedTexts(rows, inputs, ColumnReadResult(settings.column, ColumnRole.TEXT, arrays_text))


def _arrays(returned: Any, name: str, count: int) -> dict[str, NDArray[np.generic]]:
    accepted = (
        'accepted are arrays by their names, such as {"input_ids": (n, tokens), "attention_mask": (n, tokens)}, as '
        'tokenizer(texts, padding="max_length", truncation=True, max_length=64) of transformers gives them'
    )
    problem = f"tokenizer {name!r} returned a {type(returned).__name__}"
    require(isinstance(returned, Mapping) and bool(returned), f"{problem}: {accepted}")
    arrays = {}
    for key, values in returned.items():
        try:
            arrays[str(key)] = np.asarray(values)
        except ValueError as error:
            raise InputError(f"tokenizer {name!r} made {key} of unequal lengths: {accepted}") from error
        shape = arrays[str(key)].shape
        kind = arrays[str(key)].dtype.kind
        fits = kind in "biuf" and len(shape) >= 1 and shape[0] == count
        require(fits, f"tokenizer {name!r} made {key} of shape {shape} for {count} texts: {accepted}")
    return arrays


def _require_own(tokenize: Any, texts: Sequence[str], arrays: Mapping[str, NDArray[np.generic]], name: str) -> None:
    """Refuse a tokenizer that encodes a text differently when it gets this text alone.

    Its tokens then depend on other records. `arrays` are its outputs for all texts.
    """
    for index in range(min(_TRIED, len(texts))):
        alone = _arrays(tokenize([texts[index]]), name, 1)
        same = alone.keys() == arrays.keys()
        lengths = same and all(alone[key].shape[1:] == arrays[key].shape[1:] for key in arrays)
        longest = (
            f"tokenizer {name!r} makes texts as long as the longest that it is given, which tells of other records"
        )
        require(
            lengths or not same, f'{longest}: accepted is one length, such as by padding="max_length", max_length=64'
        )
        equal = same and all(np.array_equal(alone[key][0], arrays[key][index]) for key in arrays)
        require(
            equal,
            f"tokenizer {name!r} makes other tokens of a text that is alone, as one does that builds its vocabulary "
            "from what it is given, which tells of other records: accepted is one whose vocabulary is public and fixed",
        )
