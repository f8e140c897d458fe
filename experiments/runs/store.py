"""Finished batches of worlds on disk: written whole or not at all, joined into the tables of a run."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import save_file
from torch import Tensor

from fl_audit.whole_files import whole_file
from fl_audit.worlds import WorldBatch
from server.results import BatchResult

FRAMES = ("worlds", "rounds", "releases")
"""Tables of a run, each stored per batch and joined at the end."""

CLIENTS = "clients"
"""Table of a run whose clients tell their own Epsilon*."""

RESIDUALS = "residuals"
"""Table of a run with an insider, who measures the noise."""


@dataclass(frozen=True)
class RunStore:
    """The run directory, as far as the federation writes it.

    Parameters
    ----------
    directory
        The run directory.
    prior
        The insider's prior belief in D.
    keep_final_models
        Whether the final models of all worlds are kept.
    """

    directory: Path
    prior: float
    keep_final_models: bool = True

    @property
    def public(self) -> Path:
        """What every client of the federation saw."""
        return self.directory / "public"

    @property
    def batches(self) -> Path:
        """Finished batches, with the bits."""
        return self.directory / "challenger" / "batches"

    def is_finished(self, batch: WorldBatch) -> bool:
        """Whether a batch is stored."""
        return (self.batches / batch.name).is_dir()

    def finish(self, result: BatchResult) -> None:
        """Store a batch; its directory appears last, complete, and is the mark that it need not be computed again."""
        name = result.batch.name
        if result.kept:
            write_tensors(self.public / f"releases-{name}.safetensors", result.kept)
        if self.keep_final_models:
            write_tensors(self.public / f"models-{name}.safetensors", {"models": result.final_models})
        partial = self.batches / f".{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for label, frame in result.frames(self.prior).items():
            frame.to_parquet(partial / f"{label}.parquet", index=False)
        partial.rename(self.batches / name)

    def frame(self, label: str) -> pd.DataFrame:
        """Return one table of all finished batches, worlds in order."""
        parts = sorted(path for path in self.batches.iterdir() if not path.name.startswith("."))
        return pd.concat([pd.read_parquet(part / f"{label}.parquet") for part in parts], ignore_index=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors, whole or not at all."""
    with whole_file(path) as file:
        save_file({name: value.contiguous() for name, value in tensors.items()}, file)


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    with whole_file(path) as file:
        file.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
