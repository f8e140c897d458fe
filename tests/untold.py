"""The search for the challenger's seed in all files of a run, but those of the challenger."""

import base64
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

_WRITTEN_LONG = 2**20
"""A smaller seed is part of many a number that has nothing to do with it."""


def spellings(seed: int) -> list[bytes]:
    """Return a seed as text and as the bytes of an integer or a float."""
    assert seed >= _WRITTEN_LONG, "a short number turns up by chance"
    texts = [str(seed), f"{seed:,}", f"{seed:x}", f"{seed:X}", str(float(seed)), str(seed - 2**64)]
    packed = [struct.pack(form, seed) for form in ("<Q", ">Q", "<d", ">d")]
    coded = [base64.b64encode(str(seed).encode()).rstrip(b"=")[:-1]]
    return [text.encode() for text in texts] + packed + coded


def files_outside_the_challenger(directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*"):
        if path.is_file() and "challenger" not in path.relative_to(directory).parts:
            yield path


def content_of(path: Path) -> bytes:
    """Return what a file holds and is called; what is compressed in it as well, for compression hides from a search."""
    raw = path.read_bytes()
    content = raw + path.name.encode()
    match path.suffix:
        case ".parquet":
            table = pd.read_parquet(path)
            columns = [table[name].to_numpy() for name in table]
            numbers = b"".join(column.tobytes() for column in columns if column.dtype != object)
            content += table.to_csv().encode() + numbers + str(pq.read_schema(path)).encode()
        case ".html":
            for coded in re.findall(rb"base64,([A-Za-z0-9+/=]+)", raw):
                content += opened(base64.b64decode(coded))
        case ".png" | ".pdf":
            content += opened(raw)
    return content


def opened(raw: bytes) -> bytes:
    """Return all that zlib has packed into a file, at whatever place: texts of a PNG, streams of a PDF."""
    chunks = [raw]
    for start in (match.start() for match in re.finditer(rb"x[\x01\x5e\x9c\xda]", raw)):
        unpacking = zlib.decompressobj()
        try:
            chunks.append(unpacking.decompress(raw[start:]))
        except zlib.error:
            continue
    return b"".join(chunks)


def assert_untold(directory: Path, seed: int) -> None:
    file_count = 0
    for path in files_outside_the_challenger(directory):
        content = content_of(path)
        file_count = file_count + 1
        for spelling in spellings(seed):
            assert spelling not in content, f"{path.name} tells the seed"
    assert file_count >= 5
