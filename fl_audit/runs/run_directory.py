"""The directory of a run, with public files, secrets of the challenger, and results."""

import hmac
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fl_audit.atomic_files import remove_temporary_files, write_json
from fl_audit.errors import InputError, first_line, require
from fl_audit.federation.federation import Federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.run_files import read_json
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.planning import guarantee_of
from fl_audit.runs.run_directory_checks import CONFIGURATION, RESUME, is_begun, require_new_run_path
from fl_audit.runs.run_identity import GROWING, data_digests, differences
from fl_audit.runs.stored_models import MODEL
from fl_audit.runs.trial_batch_store import TrialBatchStore, make_private

SCHEMA = 2
TIMING = "timing.json"
"""Name of the file in a run directory with the durations of the run and the name of its engine."""
_TABLES = ("trials", "rounds", "releases", "clients", "residuals", "targets")
_FILES = (*("summary.json", TIMING, "report.html", "report.pdf", MODEL), *(f"{label}.parquet" for label in _TABLES))
_SEED = Path("challenger") / "seed.json"
_DIRECTORIES = ("public", "challenger", "challenger/batches", "figures")


class _StoredPlan(BaseModel):
    """Content of `public/configuration.json`: the configuration with all defaults, and the federation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    configuration: dict[str, dict[str, Any]]
    federation: dict[str, Any]


class ChallengerSeed(BaseModel):
    """Content of `challenger/seed.json`: the challenger's seed, the run's identity, and digests of the records."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    seed: int = Field(ge=0, lt=2**64)  # determines secret bits, sampling and noise, 0 to 2**64 - 1
    run: str  # random identity of the run
    data: str  # SHA-256 digest of the training and test records
    outside: str | None = None  # SHA-256 digest of the records outside D; None in runs of old versions
    # Key with which the digest of unpublished records is made public, 128 bits in hexadecimal digits; None in runs of
    # old versions.
    data_key: str | None = Field(default=None, pattern="^[0-9a-f]{32}$")

    @property
    def keyed_data(self) -> str | None:
        """Keyed digest (HMAC) of the records; None if there is no key.

        Without the key, nobody can test by this digest whether a guess of the records is right.
        """
        if self.data_key is None:
            return None
        return hmac.new(bytes.fromhex(self.data_key), self.data.encode(), "sha256").hexdigest()


@dataclass(frozen=True)
class RunDirectory:
    """A run directory: the paths of its files, its lock, and the run that it holds."""

    path: Path  # path of the directory

    @property
    def summary(self) -> Path:
        """Path of `summary.json`, which holds the results of the run."""
        return self.path / "summary.json"

    @property
    def is_begun(self) -> bool:
        """Whether the directory holds a run, finished or not."""
        return is_begun(self.path)

    def store(self, config: RunConfig) -> TrialBatchStore:
        """Return the store of the results of the run's trial batches.

        `config` is the configuration of the run. The store takes the prior belief and the number of trials from it.
        """
        return TrialBatchStore(self.path, self.secret().run, config.privacy.prior, config.audit.trials)

    def secret(self) -> ChallengerSeed:
        """Return the challenger's secrets; raise `InputError` if they are missing or damaged."""
        path = self.path / _SEED
        stored = read_json(path)
        try:
            return ChallengerSeed.model_validate(stored)
        except ValidationError:
            # The content of the file is secret, and is not repeated here.
            raise InputError(f"{path} is damaged: without the seed of the run nothing of it can go on") from None

    @contextmanager
    def opened(self, plan: RunPlan, resume: bool) -> Iterator[RunPlan]:
        """Lock the directory, begin or continue a run in it, and yield the plan with the challenger's seed.

        `plan`: If it has no seed, the seed is drawn at random, or is that of the continued run.
        """
        require_new_run_path(self.path, resume)
        if resume:
            self._require_places()
            with self.locked():
                yield self._go_on(plan)
            return
        seed = plan.config.run.seed
        data, outside = data_digests(plan)
        seed_drawn = secrets.randbits(64) if seed is None else seed
        digests = {"data": data, "outside": outside, "data_key": secrets.token_hex(16)}
        chosen = ChallengerSeed(seed=seed_drawn, run=secrets.token_hex(8), **digests)
        with ExitStack() as lock:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                make_private((self.path / _SEED).parent)
                lock.enter_context(self.locked())
                # Another process may have begun one since the place was looked at.
                require(not self.is_begun, f"run directory {self.path} exists: another process has begun a run in it")
                write_json(self.path / _SEED, chosen.model_dump(), private=True)
                write_json(self.path / CONFIGURATION, public_part(plan))
            except OSError as error:
                # Nothing was here before, and half a run could neither go on nor begin.
                shutil.rmtree(self.path, ignore_errors=True)
                raise InputError(f"run directory {self.path} cannot be made: {error.strerror}") from error
            try:
                yield plan.with_seed(chosen.seed)
            except InputError:
                # A fault may show once the run has begun: none of its files may be in the way of the next try.
                if not any((self.path / "challenger" / "batches").glob("batch-*")):
                    shutil.rmtree(self.path, ignore_errors=True)
                raise

    def _go_on(self, plan: RunPlan) -> RunPlan:
        """Return the plan with which to continue the run in the directory, and store its public part there.

        A plan of another run is refused. The pair of D and D' is that of the begun run: a search for a crafted record
        has rounding errors on another machine.
        """
        stored_federation, configuration = read_public(self.path)
        if configuration["audit"]["trials"] == 1:
            # A single trial has more metrics than an audit: with more trials it keeps those that it has.
            plan = replace(plan, config=plan.config.changed(training={"metrics": _metrics_of(configuration)}))
        self._require_same(plan, stored_federation, configuration)
        federation = replace(plan.federation, pair=stored_federation.pair)
        continued_plan = replace(plan, federation=federation).with_seed(self.secret().seed)
        write_json(self.path / CONFIGURATION, public_part(continued_plan))
        return continued_plan

    def _require_same(self, plan: RunPlan, public: Federation, configuration: dict[str, Any]) -> None:
        secret = self.secret()
        seed = plan.config.run.seed
        differing = differences(configuration, plan.config.as_public_dict())
        if seed is not None and seed != secret.seed:
            differing.append("run.seed is another one")
        if not differing:
            data, outside = data_digests(plan)
            if data != secret.data:
                differing.append("the records are others")
            elif secret.outside not in (None, outside):
                differing.append("the records outside the training set are others")
        digests = [
            None if federation.weights is None else federation.weights.digest
            for federation in (public, plan.federation)
        ]
        if not differing and digests[0] != digests[1]:
            differing.append("the weights of the frozen core are others")
        remedy = f"{RESUME} goes on with the same run; {GROWING} may be raised"
        require(not differing, f"{self._holds_another(differing)}. {remedy}")

    def _holds_another(self, differing: list[str]) -> str:
        return f"run directory {self.path} holds a run of another configuration: {'; '.join(differing)}"

    def _require_places(self) -> None:
        """Raise `InputError` if the path of a file of the run is a directory, or the path of a directory is a file."""
        for path in (self.path / name for name in _FILES):
            require(not path.is_dir(), f"{path} is a directory, where a file of the run belongs: move it away")
        for path in (self.path / name for name in _DIRECTORIES):
            is_free = path.is_dir() or not path.exists()
            require(is_free, f"{path} is a file, where a directory of the run belongs: move it away")

    def is_finished(self, config: RunConfig) -> bool:
        """Return whether the directory holds the finished run of a configuration; False if it holds no run.

        Raises `InputError` if it holds the run of another configuration.
        """
        if not self.is_begun:
            return False
        _, stored = read_public(self.path)
        wanted_values = config.as_public_dict()
        # Values that are left out of these are filled in when the run is resolved.
        for section, key in (("run", "trials-per-batch"), ("run", "keep-releases"), ("training", "metrics")):
            wanted_values[section].setdefault(key, stored[section].get(key))
        if config.privacy.stop_at_epsilon is not None:  # the budget may have left fewer rounds
            length = ("rounds", "epochs")
            other_settings = {key: value for key, value in wanted_values["training"].items() if key not in length}
            wanted_values["training"] = other_settings | {
                key: stored["training"][key] for key in length if key in stored["training"]
            }
        differing = differences(stored, wanted_values)
        if config.run.seed not in (None, self.secret().seed):
            differing.append("run.seed is another one")
        require(not differing, f"{self._holds_another(differing)}. Accepted is an empty directory")
        return self.summary.is_file() and stored["audit"]["trials"] == config.audit.trials

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run directory while the block runs, and remove partial files that an interrupted process left.

        The lock is released however the process ends. Raises `InputError` if another process holds the lock.
        """
        with file_lock(self.path / "challenger" / ".lock", f"run directory {self.path} is in use by another process"):
            remove_temporary_files(self.path)
            yield


def _metrics_of(configuration: dict[str, Any]) -> tuple[str, ...] | None:
    return parse_config(configuration).training.metrics


@contextmanager
def file_lock(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a file lock while the block runs."""
    try:
        with FileLock(path, timeout=0, mode=0o600):
            yield
    except Timeout:
        raise InputError(f"{otherwise}: wait for it to end") from None


def public_part(plan: RunPlan) -> dict[str, Any]:
    """Return the public part of a plan as JSON values: the configuration without the seed, and the federation."""
    configuration = plan.config.as_public_dict()
    federation = json.loads(plan.federation.to_json())
    return {"schema": SCHEMA, "configuration": configuration, "federation": federation}


def read_public(path: Path) -> tuple[Federation, dict[str, Any]]:
    """Return the federation of a run and its configuration, with defaults but without the seed, from the run
    directory.
    """
    configuration_path = path / CONFIGURATION
    stored = read_json(configuration_path)
    require(isinstance(stored, dict), f"{configuration_path} is damaged: it holds no configuration of a run")
    schema = stored.pop("schema", None)
    problem = f"run directory {path} was made by another version of fl-audit (schema {schema})"
    remedy = f"this one reads schema {SCHEMA}, so carry the run out anew in a new directory"
    require(schema == SCHEMA, f"{problem}: {remedy}")
    try:
        stored_plan = _StoredPlan.model_validate(stored)
        configuration = parse_config(stored_plan.configuration).as_public_dict()
        return Federation.from_json(json.dumps(stored_plan.federation)), configuration
    except ValueError as error:  # InputError and ValidationError are both
        reason = first_line(error) if isinstance(error, InputError) else "it holds no configuration of a run"
        raise InputError(f"{configuration_path} is damaged: {reason}") from None


def read_plan(path: Path) -> RunPlan:
    """Return the plan of a run, with the challenger's seed; raise `InputError` if the directory holds no run."""
    public, configuration = read_public(path)
    configuration["run"]["seed"] = RunDirectory(path).secret().seed
    config = parse_config(configuration)
    return RunPlan(config, public, guarantee_of(public.mechanism, config))
