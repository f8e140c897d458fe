"""The provenance of a run: the commands, versions and machines with which it was made.

It is recorded in `public/provenance.json` when the run begins and whenever it is continued. A report that is rewritten
on another machine therefore still states the machine of the run.
"""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import psutil
import torch

import fl_audit.errors as errors
from fl_audit.atomic_files import write_json
from fl_audit.data.catalogue import PREFIX, load_source
from fl_audit.errors import InputError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.run_tables import Provenance, RunSession
from fl_audit.package_versions import package_versions
from fl_audit.run_files import read_json
from fl_audit.runs.run_directory import RunDirectory

_PLACE = Path("public") / "provenance.json"
_SMALLEST_TELLING_SEED = 1000  # a smaller seed is part of many a harmless number, such as that of trials


def note_session(run: RunDirectory, plan: RunPlan) -> None:
    """Record the present session in the provenance of a run: command, commit, versions and hardware."""
    secret = run.secret()
    noted = read_provenance(run)
    earlier = () if noted is None else noted.sessions
    # Nothing of it tells the seed.
    here = RunSession(
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command_text(sys.argv, secret.seed),
        commit=commit_of_sources(),
        versions={"Python": platform.python_version(), **package_versions()},
        hardware=_hardware(plan.config.run.device),
    )
    # Of data that not everybody may have, the plain digest stays with the challenger: who knows all records but one
    # could test guesses of the last on it. A data set of the hub may be one of a directory, or one that few may read.
    data = plan.config.data
    is_published = data.path is None and not data.name.startswith(PREFIX)
    digest = secret.data if is_published else secret.keyed_data
    shards = tuple(len(shard) for shard in load_federation(plan.federation).shards)
    pool = len(load_source(plan.federation.data).pool)
    provenance = Provenance(
        (*earlier, here), digest, shards, is_keyed=not is_published and digest is not None, pool=pool
    )
    write_json(run.path / _PLACE, provenance.to_json())


def read_provenance(run: RunDirectory) -> Provenance | None:
    """Return the recorded provenance of a run, or None if it is missing or unreadable."""
    try:
        return Provenance.of_json(read_json(run.path / _PLACE))
    except (InputError, ValueError, KeyError, TypeError):
        return None


def command_text(arguments: Sequence[str], seed: int) -> str | None:
    """Return a command line as text, without the option that sets the challenger's seed.

    Examples
    --------
    >>> command_text(["/bin/fl-audit", "run", "a.toml", "--set", "run.seed=5", "--set", "audit.trials=9"], 5)
    'fl-audit run a.toml --set audit.trials=9'
    """
    program = Path(arguments[0]) if arguments else Path()
    if program.name not in ("fl-audit", "fl-audit.exe") and program.parts[-3:] != ("experiments", "cli", "main.py"):
        return None
    words_kept: list[str] = []
    for word in arguments[1:]:
        if word.removeprefix("--set=").partition("=")[0].strip() != "run.seed":
            words_kept.append(word)
        elif words_kept and words_kept[-1] == "--set":
            words_kept.pop()
    text = shlex.join(["fl-audit", *words_kept])
    return None if seed >= _SMALLEST_TELLING_SEED and str(seed) in text else text


@cache
def commit_of_sources() -> str | None:
    """Return the git commit of the fl_audit sources, with "+" if there are uncommitted changes; None without git."""
    parent = Path(errors.__file__).resolve().parent  # beside the root of the package, which names the API above

    def git(*words: str) -> str:
        command = ["git", "-C", str(parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # not that of a project that only holds an installation
        return git("rev-parse", "--short=12", "HEAD") + "+" * bool(git("status", "--porcelain", "-uno"))
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def _hardware(device: str) -> dict[str, str]:
    lines = list[str]()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model_names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    hardware = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": next(model_names, platform.processor() or platform.machine()),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
    }
    if device.startswith("cuda"):
        hardware["accelerator"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none found"
    return hardware
