"""Differences between the numbers of a graphics card and those of the CPU, in small audits of all kinds.

    python -m tests.validation device_equality [--only WORDS]

Every audit of the equality command is played on the CPU and on the card with the same seeds. All draws are made on the
CPU, so that both add the same noise; sums of float32 are added in another order. The table shows, for each case, the
columns of its tables whose values differ most, as the largest difference over the largest value of the column. Counts,
labels and decisions are compared as they are. The command ends with status 1 if a column differs by more than
`TOLERANCE`, other than those that follow the last bits: sums over the last bits of the noise themselves, and the scores
of attacks that train networks on the models.
"""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from rich.console import Console

from fl_audit.device import Device
from fl_audit.errors import require
from fl_audit.experiments.studies.study_commands import table_of
from fl_audit.torch_device import require_device
from tests.validation.equality_cases import AUDITS, PlayAudit

TOLERANCE = 1e-3
"""The largest difference of a column over its largest value that is allowed."""
_OF_LAST_BITS = ("residuals.low_bits", "targets.score_white-box")
"""Columns that any change of a last bit changes."""


class ColumnDifference(NamedTuple):
    """Difference of a column between two runs."""

    column: str  # name of the table and of the column
    difference: float  # largest absolute difference over the largest absolute value; a share of rows if no numbers


def column_differences(first: Path, second: Path) -> Iterator[ColumnDifference]:
    """Yield the difference of each column of the tables of two run directories."""
    for name in sorted({path.name for directory in (first, second) for path in directory.glob("*.parquet")}):
        frames = [
            pd.read_parquet(directory / name) if (directory / name).exists() else pd.DataFrame()
            for directory in (first, second)
        ]
        for column in dict.fromkeys([*frames[0].columns, *frames[1].columns]):
            is_in_both = all(column in frame for frame in frames)
            difference = _difference(frames[0][column], frames[1][column]) if is_in_both else float("inf")
            yield ColumnDifference(f"{Path(name).stem}.{column}", difference)


def _difference(first_column: "pd.Series[Any]", second_column: "pd.Series[Any]") -> float:
    """Return the largest difference of numbers over their largest value, or the share of other values that differ."""
    if len(first_column) != len(second_column):
        return float("inf")
    if first_column.dtype.kind != "f":
        return float((first_column.to_numpy() != second_column.to_numpy()).mean()) if len(first_column) else 0.0
    values = first_column.to_numpy(np.float64)
    second_values = second_column.to_numpy(np.float64)
    finite = np.isfinite(values) & np.isfinite(second_values)
    if not np.array_equal(values[~finite], second_values[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = float(max(np.abs(values[finite]).max(), np.abs(second_values[finite]).max()))
    return float(np.abs(values[finite] - second_values[finite]).max()) / largest if largest > 0 else 0.0


def _played(play: PlayAudit) -> list[ColumnDifference]:
    """Play an audit on both devices, and return the differences, the largest first."""
    with tempfile.TemporaryDirectory() as temporary_name:
        directories = {device: Path(temporary_name) / str(device) for device in Device}
        for device, directory in directories.items():
            directory.mkdir()
            play(directory / "run", device=device)
        differences = column_differences(directories[Device.CPU] / "run", directories[Device.CUDA] / "run")
        counted_differences = (
            difference for difference in differences if not difference.column.startswith(_OF_LAST_BITS)
        )
        return sorted(counted_differences, key=lambda difference: -difference.difference)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    options = parser.parse_args()
    require_device(Device.CUDA)
    torch.set_num_threads(1)
    require(
        any(options.only in name for name in AUDITS), f"--only is {options.only!r}: accepted is part of a case's name"
    )
    table = table_of(("case", "columns", "equal", "differs most", "by", "next", "by"), torch.cuda.get_device_name())
    largest = 0.0
    for name, play in AUDITS.items():
        if options.only not in name:
            continue
        try:
            differences = _played(play)
            equal, (worst, after) = sum(difference.difference == 0 for difference in differences), differences[:2]
        except Exception as error:  # the other cases are worth knowing even so
            largest = float("inf")
            table.add_row(name, "", "", f"failed: {type(error).__name__}", str(error).split(chr(10))[0][:60])
            traceback.print_exc()
            continue
        largest = max(largest, worst.difference)
        cells = worst.column, f"{worst.difference:.1e}", after.column, f"{after.difference:.1e}"
        table.add_row(name, str(len(differences)), str(equal), *cells)
    Console(width=160).print(table)
    print(f"largest difference {largest:.1e}, allowed {TOLERANCE:.0e}")
    sys.exit(1 if largest > TOLERANCE else 0)
