"""Comparison of a run with the same training without privacy (option `--without-privacy` of `run` and `report`)."""

import math
import os
from pathlib import Path
from typing import Any

from fl_audit.adjacency import Unit
from fl_audit.atomic_files import write_json
from fl_audit.audits.registry import audit_named
from fl_audit.errors import InputError, require
from fl_audit.federation.run_tables import NonPrivateAccuracy
from fl_audit.learning.metric_names import columns_of
from fl_audit.run_files import read_json, read_summary
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.config.privacy_section import RANDOMIZER_KEYS
from fl_audit.runs.run_directory import RunDirectory, read_public
from fl_audit.runs.run_identity import GROWING, differences

_TRAINING = ("data", "model", "training")
"""Sections that both runs must have in common; privacy and audit may differ."""

_MOST_TRIALS = 20  # as many trainings without privacy give its mean accuracy closely enough
_PLACE = Path("public") / "without-privacy.json"


def unprotected_config(config: RunConfig) -> RunConfig:
    """Return a configuration of the same training, but without privacy, without an insider, and with at most 20 trials.

    Raises `InputError` if the given configuration has no privacy either, or if its kind of audit trains each trial on
    different records, as the membership audit does.
    """
    require(config.privacy.private, "--without-privacy with private = false: the run is one without privacy already")
    problem = f"--without-privacy with kind = {config.audit.kind}, whose trials train on different records"
    require(audit_named(config.audit.kind).chooses_pair, f"{problem}: accepted is kind = identifiability")
    values = config.as_dict()
    privacy_settings = {key: value for key, value in values["privacy"].items() if key in RANDOMIZER_KEYS}
    if config.privacy.adjacency.unit is Unit.USER:  # then D consists of whole users
        privacy_settings["adjacency"] = str(config.privacy.adjacency)
    values["privacy"] = {"private": False, "delta": config.privacy.delta} | privacy_settings
    trials = min(config.audit.trials, _MOST_TRIALS)
    values["audit"] = {"insider": False, "trials": trials, "epsilon-star": False, "membership": False}
    return parse_config(values)


def unprotected_place(directory: Path) -> Path:
    """Return the directory of a run's training without privacy: DIR-without-privacy beside DIR, the run directory."""
    path = Path(os.path.realpath(directory))
    return path.with_name(f"{path.name}-without-privacy")


def note_unprotected(run: Path, path: Path) -> None:
    """Store in the directory of a private run how accurate the same training is without privacy, for the run's report.

    The accuracy is taken from another run. Raises `InputError` if this run has privacy, differs in data, model or
    training, is not finished, or was edited.
    """
    _, mine = read_public(run)
    _, theirs = read_public(path)
    accepted = "accepted for --without-privacy is one with private = false"
    require(theirs["privacy"]["private"] is False, f"{path} is a run with privacy: {accepted}")
    differing = differences(_training_of(mine), _training_of(theirs))
    accepted = "Accepted is a run that differs in [privacy], [audit] and [run] alone"
    require(not differing, f"{path} is no run of the same training: {'; '.join(differing)}. {accepted}")
    write_json(run / _PLACE, _read(path, parse_config(theirs)).to_json())


def read_unprotected(run: RunDirectory) -> NonPrivateAccuracy | None:
    """Return the accuracy without privacy that is stored in a run directory, or None if it is missing or unreadable."""
    try:
        return NonPrivateAccuracy.of_json(read_json(run.path / _PLACE))
    except (InputError, ValueError, KeyError, TypeError):
        return None


def _training_of(configuration: dict[str, Any]) -> dict[str, Any]:
    section, _, key = GROWING.partition(".")
    sections = {name: configuration[name] for name in _TRAINING}
    # Which metrics are computed changes no training.
    training = {
        name: value for name, value in sections["training"].items() if name not in ("metrics", "client-metrics")
    }
    return sections | {"training": training, section: {key: 0}}


def _read(directory: Path, config: RunConfig) -> NonPrivateAccuracy:
    read_summary(directory)  # refuses a run that is not finished
    # Of the batches, whose digests are known: the table that is joined from them may be anybody's.
    releases = RunDirectory(directory).store(config).tables(config.audit.trials)["releases"]
    means = releases[["trial", "round", "test_accuracy"]].dropna().groupby("round")["test_accuracy"].mean()
    name = os.path.basename(os.path.realpath(directory))
    trials = int(releases["trial"].nunique())
    last = releases[releases["round"] == releases["round"].max()]
    columns = columns_of(config.training.metrics or ())
    finals = {str(metric): float(last[column].mean()) for metric, column in columns.items() if column in last}
    metrics = {metric: value for metric, value in finals.items() if math.isfinite(value)}
    unknown = f"{directory} has no metric of any release: accepted is a run that was evaluated"
    require(bool(metrics) or len(means) > 0, unknown)
    return NonPrivateAccuracy(name, trials, tuple(map(int, means.index)), tuple(map(float, means)), metrics)
