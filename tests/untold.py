"""The search for the challenger's seed in all files of a run, but those of the challenger."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pandas as pd


def spellings(seed: int) -> list[bytes]:
    """Return a seed as text and as the bytes of an integer or a float."""
    texts = [str(seed), f"{seed:x}", f"{seed:X}", str(float(seed)), str(seed - 2**64)]
    packed = [struct.pack(form, seed) for form in ("<Q", ">Q", "<d", ">d")]
    return [text.encode() for text in texts] + packed


def files_outside_the_challenger(directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*"):
        if path.is_file() and "challenger" not in path.relative_to(directory).parts:
            yield path


def assert_untold(directory: Path, seed: int) -> None:
    seen = 0
    for path in files_outside_the_challenger(directory):
        content, seen = path.read_bytes() + path.name.encode(), seen + 1
        # Compression hides from the search, so what is compressed is read as well.
        if path.suffix == ".parquet":
            content += pd.read_parquet(path).to_csv().encode()
        for spelling in spellings(seed):
            assert spelling not in content, f"{path.name} tells the seed"
    assert seen >= 5
