"""Read Parquet files, whose sizes are checked before memory is taken for them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_audit.ordinary_files import LARGEST_FILE, read_file, readable, require_size

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = 8  # bytes of a number or of a reference to a word


def parquet_table(content: bytes, path: Path) -> Any:
    """Return the `pyarrow.Table` in the content of a Parquet file; `path` is for error messages."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    with readable(path, "a Parquet file that cannot be read", "a complete file"):
        file = parquet.ParquetFile(pa.BufferReader(content))
        sizes = file.metadata
        written = sum(sizes.row_group(group).total_byte_size for group in range(sizes.num_row_groups))
        # A value that repeats is written once, so the number of cells counts too.
        require_size(path, max(written, sizes.num_rows * sizes.num_columns * _NUMBER), LARGEST_FILE, "decompressed ")
        return file.read()


def read_frame(path: Path) -> "pd.DataFrame":
    """Return the table in a Parquet file; raise `InputError` if the file is missing or damaged."""
    with readable(path, "a Parquet file that cannot be read", "a complete file"):
        frame: pd.DataFrame = parquet_table(read_file(path), path).to_pandas()
        return frame
