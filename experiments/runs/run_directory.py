"""The directory of a run: what is public, what only the challenger has, and what the run found."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.runs.config import RunConfig, parse_config
from experiments.runs.plan import AuditPlan, guarantee_of
from experiments.runs.store import RunStore, write_json
from fl_audit.errors import InputError, require
from fl_audit.game.public import PublicGame

SCHEMA = 1


@dataclass(frozen=True)
class RunDirectory:
    """Paths of a run.

    Parameters
    ----------
    path
        The directory.
    """

    path: Path

    @property
    def configuration(self) -> Path:
        """The resolved configuration and the public game, without the seed of the run."""
        return self.path / "public" / "configuration.json"

    @property
    def secrets(self) -> Path:
        """The seed of the run."""
        return self.path / "challenger" / "seed.json"

    @property
    def summary(self) -> Path:
        """What the run found, in numbers."""
        return self.path / "summary.json"

    def store(self, config: RunConfig) -> RunStore:
        """Return where finished batches go."""
        return RunStore(self.path, config.privacy.prior, config.run.keep_final_models)

    def open(self, plan: AuditPlan, resume: bool) -> None:
        """Begin a run here, or go on with one.

        Raises
        ------
        InputError
            If the directory holds something and `resume` is not asked for, or holds a run of another configuration.
        """
        public, secret = public_part(plan), {"seed": plan.config.run.seed}
        if resume and self.configuration.exists():
            same = _what_decides(read_json(self.configuration)) == _what_decides(public)
            require(
                same and read_json(self.secrets) == secret,
                f"run directory {self.path} holds a run of another configuration: --resume needs the same one",
            )
            return
        require(not resume, f"run directory {self.path} holds no run: --resume goes on with one that was begun there")
        require(
            not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir())),
            f"run directory {self.path} exists: accepted is a new directory, or --resume to go on with the run in it",
        )
        try:
            write_json(self.secrets, secret)
            write_json(self.configuration, public)
        except OSError as error:
            raise InputError(f"run directory {self.path} cannot be made: {error.strerror}") from error

    def is_finished(self, config: RunConfig) -> bool:
        """Return whether the run of a configuration stands here, finished.

        Raises
        ------
        InputError
            If a run of another configuration stands here.
        """
        if not self.configuration.exists():
            return False
        stored, wanted = read_json(self.configuration), {"configuration": _public_configuration(config)}
        same = _what_decides({"configuration": stored["configuration"]}) == _what_decides(wanted)
        require(
            same and read_json(self.secrets) == {"seed": config.run.seed},
            f"run directory {self.path} holds a run of another configuration: accepted is an empty directory",
        )
        return self.summary.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process; the lock goes with the process, however it ends.

        Raises
        ------
        InputError
            If another process holds it.
        """
        with (self.path / "challenger" / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"run directory {self.path} is in use by another process: wait for it to end"
                ) from None
            yield


OPERATIONAL = ("client-time-limit", "actors", "batches-in-flight")
"""Settings that change how a run is carried out and nothing of what comes out: a resumed run may differ in them."""


def _what_decides(public: dict[str, Any]) -> dict[str, Any]:
    """Return the public part without its operational settings, and with defaults of what came after it was written."""
    configuration = parse_config(public["configuration"]).as_dict()
    configuration["run"] = {key: value for key, value in configuration["run"].items() if key not in OPERATIONAL}
    known = public | {"configuration": configuration}
    if "game" in public:
        known["game"] = json.loads(PublicGame.from_json(json.dumps(public["game"])).to_json())
    return known


def public_part(plan: AuditPlan) -> dict[str, Any]:
    """Return what is public of a plan: everything but the seed of the run."""
    game = json.loads(plan.public.to_json())
    return {"schema": SCHEMA, "configuration": _public_configuration(plan.config), "game": game}


def _public_configuration(config: RunConfig) -> dict[str, Any]:
    configuration = config.as_dict()
    del configuration["run"]["seed"]
    return configuration


def read_public(path: Path) -> tuple[PublicGame, dict[str, Any]]:
    """Read the public game and the configuration (without the seed) of a run.

    Raises
    ------
    InputError
        If there is no run.
    """
    stored = read_json(RunDirectory(path).configuration)
    return PublicGame.from_json(json.dumps(stored["game"])), stored["configuration"]


def read_plan(path: Path) -> AuditPlan:
    """Read what a run was to do, from its directory.

    Raises
    ------
    InputError
        If there is no run.
    """
    public, configuration = read_public(path)
    configuration["run"]["seed"] = read_json(RunDirectory(path).secrets)["seed"]
    config = parse_config(configuration)
    return AuditPlan(config, guarantee_of(public.law, config), public)


def read_json(path: Path) -> Any:
    """Read a JSON file of a run.

    Raises
    ------
    InputError
        If it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing: accepted is a directory that 'fl-audit run' made") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
