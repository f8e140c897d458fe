"""Storage of the results of trial batches (trials that are trained together), verified by digests.

Trials of other people's code have a store of transcripts (`app_audits/black_box/transcript_store.py`), which are stored
one by one. A batch is tables with the same columns and stacked tensors. Its store remembers nothing but which batches
are whole: the choices of a run follow from its configuration.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from pyarrow import Table
from pyarrow.parquet import write_table as write_parquet
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import save_file
from torch import Tensor

from fl_audit.array_files import read_tensors
from fl_audit.atomic_files import atomic_file, write_json
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_file, sha256_of
from fl_audit.parquet_files import read_frame
from fl_audit.runs.run_directory_checks import RESUME
from fl_audit.runs.stored_models import MODELS, TRIALS, are_final_models_kept, checkpoint_name
from fl_audit.server.trial_batch_results import BatchResult
from fl_audit.trial_batches import TrialBatch, remaining_batches

_MANIFEST = "manifest.json"
_OUTPUTS = "outputs.safetensors"
_OF_A_BATCH = re.compile(r"(?:releases|models|checkpoints)-(batch-\d{5,})\.safetensors")


class _BatchManifest(BaseModel):
    """Content of a finished batch's `manifest.json`: its trials, and the SHA-256 digests of its files."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    run: str
    index: int
    first: int
    count: int
    files: dict[str, str]
    seal: str = ""

    def sealed(self) -> "_BatchManifest":
        """Return a copy in which `seal` is the digest of all other fields."""
        content = self.model_dump_json(exclude={"seal"}).encode()
        return self.model_copy(update={"seal": hashlib.sha256(content).hexdigest()})

    @property
    def batch(self) -> TrialBatch:
        return TrialBatch(self.index, self.first, self.count)


def write_table(frame: pd.DataFrame, file: Path) -> None:
    """Write a table as a Parquet file, compressed without loss.

    Measured noise hardly repeats, so dictionary encoding would waste space. But the signs and exponents of numbers
    repeat. Byte-stream-split encoding, which groups the bytes of all numbers by position, therefore compresses well.
    """
    floats = [name for name, kind in frame.dtypes.items() if kind.kind == "f"]
    write_parquet(
        # Pandas' own metadata on its columns takes as much space as four of them, and no reader here needs it.
        Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None),
        file,
        compression="zstd",
        compression_level=12,
        use_dictionary=False,
        use_byte_stream_split=floats,
        write_statistics=False,
    )


@dataclass(frozen=True)
class TrialBatchStore:
    """Results of a run's trial batches (trials that are trained together): stored, checked, and joined to tables."""

    directory: Path  # the run directory
    run: str  # random identity of the run, by which batches of other runs are recognised
    prior: float  # the insider's prior belief in D
    trials: int  # number of trials of the run

    @property
    def public(self) -> Path:
        """Folder `public` of the run directory, which every client of the federation may see."""
        return self.directory / "public"

    @property
    def batches(self) -> Path:
        """Folder of the finished batches. It is secret, because it contains the trials' secret bits."""
        return self.directory / "challenger" / "batches"

    def pending(self, trials: int, per_batch: int) -> tuple[TrialBatch, ...]:
        """Return the batches that are still to be trained: together with the finished ones they cover all trials."""
        return remaining_batches(trials, per_batch, tuple(manifest.batch for manifest in self._manifests(trials)))

    def clear(self, trials: int) -> None:
        """Remove files of unfinished batches from the folder `public`.

        A batch is unfinished if it is incomplete, damaged, or overlaps with a finished batch. `trials` is the number of
        trials of the run. Raises `InputError` if a directory has the name of such a file.
        """
        names = {manifest.batch.name for manifest in self._manifests(trials)}
        for path in self.public.glob("*-batch-*.safetensors"):
            named_batch = _OF_A_BATCH.fullmatch(path.name)
            if named_batch is None or named_batch.group(1) in names:
                continue
            require(not path.is_dir(), f"{path} is a directory, where a file of the run belongs: move it away")
            path.unlink()

    def finish(self, result: BatchResult) -> None:
        """Store the tables, releases, models and outputs of a batch, which then counts as finished.

        The last step renames the batch's directory. If the process is interrupted before, the batch is not finished.
        """
        batch = result.batch
        digests = {}
        secret = list[Path]()
        partial = self.batches / f".{batch.name}.partial"
        batch_directory = self.batches / batch.name
        checkpoints = {checkpoint_name(number): model for number, model in result.checkpoints.items()}
        models = self._final_models(result)
        for label, tensors in (("releases", result.kept), ("models", models), ("checkpoints", checkpoints)):
            if tensors:
                path = self.public / f"{label}-{batch.name}.safetensors"
                _write_tensors(path, tensors)
                digests[path.relative_to(self.directory).as_posix()] = sha256_of(path)
        _remove(partial)
        make_private(partial)
        for label, frame in result.frames(self.prior).items():
            secret.append(partial / f"{label}.parquet")
            with atomic_file(secret[-1], private=True) as file:
                write_table(frame, file)
        if result.outputs:
            secret.append(partial / _OUTPUTS)
            _write_tensors(secret[-1], result.outputs, private=True)
        for path in secret:
            digests[(batch_directory / path.name).relative_to(self.directory).as_posix()] = sha256_of(path)
        manifest = _BatchManifest(run=self.run, index=batch.index, first=batch.first, count=batch.count, files=digests)
        write_json(partial / _MANIFEST, manifest.sealed().model_dump(), private=True)
        _remove(batch_directory)
        partial.rename(batch_directory)

    def _final_models(self, result: BatchResult) -> dict[str, Tensor]:
        """Return the final models of a batch that are kept, and the numbers of their trials; empty if none are."""
        keeps_all = are_final_models_kept(self.trials, result.final_models.shape[1])
        trials = [trial for trial in result.batch.trials if keeps_all or trial == 0]
        return {MODELS: result.final_models[: len(trials)], TRIALS: torch.tensor(trials)} if trials else {}

    def tables(self, trials: int) -> dict[str, pd.DataFrame]:
        """Return the joined tables of all batches by name, such as "trials", with rows in the order of trials."""
        manifests = self._manifests(trials)
        trials_held = sum(manifest.count for manifest in manifests)
        if trials_held != trials:
            damages = (damage for path in self._directories() if isinstance(damage := self._inspected(path), str))
            first = next((f" ({damage})" for damage in damages), "")
            problem = f"run directory {self.directory} holds {trials_held} of {trials} trials whole"
            raise InputError(f"{problem}{first}: 'fl-audit run' with {RESUME} plays the others")
        frames_by_label: dict[str, list[pd.DataFrame]] = {}
        for manifest in manifests:
            for name in manifest.files:
                if name.endswith(".parquet"):
                    frames_by_label.setdefault(Path(name).stem, []).append(read_frame(self.directory / name))
        return {label: pd.concat(frames, ignore_index=True) for label, frames in frames_by_label.items()}

    def outputs(self, trials: int) -> list[dict[str, Tensor]]:
        """Return the outputs of the final models, one dictionary for each batch, in the order of trials.

        The outputs, such as logits and losses, are tensors by name, whose first axis is the trial. `trials` is the
        number of trials of the run.
        """
        return [read_tensors(self.batches / manifest.batch.name / _OUTPUTS) for manifest in self._manifests(trials)]

    def _manifests(self, trials: int) -> list[_BatchManifest]:
        """Return the manifests of the batches whose files are unchanged, in the order of trials.

        A batch is left out if it has a trial beyond the first `trials`, or a trial that is also in a batch found
        before.
        """
        manifests: list[_BatchManifest] = []
        for path in self._directories():
            match self._inspected(path):
                case _BatchManifest() as manifest if manifest.batch.trials.stop <= trials:
                    if not any(set(manifest.batch.trials) & set(other.batch.trials) for other in manifests):
                        manifests.append(manifest)
        return sorted(manifests, key=lambda manifest: manifest.first)

    def _directories(self) -> list[Path]:
        return sorted(path for path in self.batches.glob("batch-*") if path.is_dir())

    def _inspected(self, path: Path) -> _BatchManifest | str:
        """Return the manifest of the batch in a directory, or the first problem in words if a file was changed."""
        try:
            manifest = _BatchManifest.model_validate_json(read_file(path / _MANIFEST))
        except (OSError, InputError, ValidationError):
            return f"{path.name} has no manifest that can be read"
        if manifest != manifest.sealed():
            return f"the manifest of {path.name} is damaged"
        if manifest.run != self.run:
            return f"{path.name} is of another run"
        if manifest.batch.name != path.name:
            return f"{path.name} stands in another's place"
        for name, digest in manifest.files.items():
            with suppress(OSError, InputError):
                if sha256_of(self.directory / name) == digest:
                    continue
            return f"{name} is missing or damaged"
        return manifest


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_private(path: Path) -> None:
    """Create a directory, with its missing parents, that only the user may read; an existing one is left as it is."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)


def _write_tensors(path: Path, tensors: Mapping[str, Tensor], private: bool = False) -> None:
    """Write tensors, given by name, atomically as a safetensors file."""
    with atomic_file(path, private) as file:
        save_file({name: value.contiguous() for name, value in tensors.items()}, file)
