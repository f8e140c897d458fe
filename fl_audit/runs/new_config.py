"""Generation of a commented configuration for the user's own data, which `fl-audit init` writes."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import floor, log10
from pathlib import Path
from typing import Any

import numpy as np

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.data.catalogue import PREFIX, available_datasets, endings_of_formats, format_of, formats, load_source
from fl_audit.data.loaded_dataset import DataWarning
from fl_audit.data.tables import column_names
from fl_audit.errors import InputError, require
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.training_enums import MEAN_EMBEDDING
from fl_audit.runs.config import parse_config
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.runs.init_error_messages import in_options, text_in_options
from fl_audit.runs.pilot_run import pilot_of_signal
from fl_audit.runs.plan_warnings import plan_warnings_of
from fl_audit.runs.planned_run_check import planned_noise, planned_of_signal, trials_needed
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run_requirements import require_runnable
from fl_audit.runs.time_probe import probe
from fl_audit.value_checks import expanded_path
from fl_audit.words import name_list

_toml = partial(json.dumps, ensure_ascii=False)  # for these kinds of values TOML is as JSON
_MOST_RECORDS = 1000
_FEW_USERS, _OF_EACH = 30, 10  # with so few, more are had by reading so many records of each
_FEWEST_TRIALS, _MOST_TRIALS = 200, 5000  # limits of the default number
_LARGEST_DELTA = 0.01
_ALSO = {
    "data": ("drop", "missing", "decimal", "owner", "user"),
    "model": ("seed",),
    "training": ("sampling-rate", "strategy"),
    "privacy": ("sensitivity", "noise"),
    "audit": ("kind", "epsilon-star"),
    "run": ("seed", "trials-per-batch"),
}
"""Settings that many users want next, written as comments."""
_EXAMPLES = {
    "data.drop": ["patient"],
    "data.missing": ["?"],
    "data.decimal": ",",
    "data.owner": "hospital",
    "data.user": "patient",
    "training.sampling-rate": 0.1,
    "run.seed": 0,
    "run.trials-per-batch": 50,
}


@dataclass(frozen=True)
class ConfigRequest:
    """The options of `fl-audit init` from which a configuration is generated."""

    data: str  # a table, an archive (.npz), a directory of pictures, or the name of a built-in or published data set
    target: str  # target of the claim: a key of [privacy], such as `epsilon`
    value: float  # value of the target
    label: str | None = None  # column of a table that the model learns to predict
    clients: int | None = None  # number of clients; None stands for 10, or for the number of owners
    rounds: int = 30  # number of rounds
    delta: float | None = None  # delta of the claim; None stands for 0.1 / number of records, or of users
    trials: int | None = None  # number of trials; None stands for as many as a conclusive verdict needs
    table: Mapping[str, Any] | None = None  # further settings of [data], by key
    adjacency: str | None = None  # relation between D and D'; None derives it from users and strategy
    strategy: str | None = None  # strategy of the training; None derives it from the adjacency
    model: str | None = None  # name of the model; None stands for a built-in one for the kind of records
    # Further settings of other sections, by section and key.
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def new_config(request: ConfigRequest, directory: Path) -> tuple[str, list[str]]:
    """Return the text of a configuration file that `fl-audit run` accepts, and lines for the user about the data.

    The lines say what the function found in the data. The function also builds the model and computes the noise.
    Messages of errors name options of `fl-audit init`.
    """
    with in_options():
        return _new_config(request, directory)


def _new_config(request: ConfigRequest, directory: Path) -> tuple[str, list[str]]:
    data = _data(request)
    # Settings of reading are checked before anything is read.
    checked = parse_config({"data": data, "privacy": {"adjacency": str(Adjacency.REPLACE_RECORD), "private": False}})
    source = load_source(data_spec(checked.data))
    pool = len(source.pool)
    require(pool >= 8, f"{request.data} has {pool} records for training: at least 8 are needed")
    # The detected format of the file is written down, so that it can be seen and changed.
    users = None if source.pool.user is None else len(np.unique(source.pool.user))
    values = _values(request, {**data, **{remedy.key: remedy.value for remedy in source.found}}, pool, users)
    for section, other_settings in request.others.items():
        values[section] = {**values.get(section, {}), **other_settings}
    plan = plan_run(parse_config(values))
    require_runnable(plan)
    values["audit"]["trials"], remarks = _trials(request, plan)
    for key in ("path", "vocabulary"):
        if key in values["data"]:
            values["data"][key] = os.path.relpath(values["data"][key], directory.absolute())
    text = "\n".join(_lines(values)) + "\n"
    # The number of training records, and why not all train.
    records = plan.federation.records
    halved = "half of them, so that the others can stand for the population"
    remedy = "no more unless records in [data] says so, for every trial trains on all of them again"
    why = halved if 2 * values["data"]["records"] >= pool - 1 else remedy  # whole users have up to so many
    share = f"records: {records:,} of {pool:,} train, {why}"
    if plan.federation.users and users is not None:
        share = f"users: {plan.federation.users:,} of {users:,} train, with {records:,} of {pool:,} records, {why}"
        if plan.federation.users < min(_FEW_USERS, users // 3):
            share += f"; with --set data.records-per-user={_OF_EACH}, the first ones of each, more users train"
    # The detected format of the file is no longer in doubt once it is written down: the doubts stand with the source.
    warned = dict.fromkeys((*plan_warnings_of(plan), *source.cautions))
    cautions = [f"look at: {_in_options(caution)}" for caution in warned]
    return text, [f"read: {source.description}", share, *remarks, *cautions]


def _in_options(warning: DataWarning) -> str:
    return text_in_options(text_in_options(warning.text, warning.remedies), warning.alternatives)


def _trials(request: ConfigRequest, plan: RunPlan) -> tuple[int, list[str]]:
    """Return the requested number of trials; without a request, the number from 200 to 5000 that the run needs.

    The second result is a line that explains a derived number, or no line.
    """
    if request.trials is not None:
        return request.trials, []
    signal = planned_of_signal(plan)
    pilot = None if signal is None else pilot_of_signal(plan, probe(plan))
    if (needed := trials_needed(planned_noise(plan), signal, pilot)) is None:
        return _FEWEST_TRIALS, []
    trials = min(_MOST_TRIALS, max(_FEWEST_TRIALS, needed))
    unit = plan.federation.mechanism.unit
    tells = f"enough to find 1.5 times the guarantee in the size of the noise, and a {unit} that counts 1.5 times"
    if trials < needed:
        tells = f"it takes {needed:,} to tell whether a {unit} counts 1.5 times, fewer for a larger guarantee"
    return trials, [f"trials: {trials:,}, {tells}"]


def data_name(data: str) -> str:
    """Return the setting `data.name` for the data that a user names: a data set, a loader, a file or a directory.

    For a data set or `package.module:loader`, the setting is the given name. For a file or directory, it is the format,
    such as "table". Raises `InputError` if there is no data set or file of this name.
    """
    names = [name for name in available_datasets() if name not in formats()]
    path = expanded_path(data)
    if data in names or data.startswith(PREFIX) or (":" in data and not path.exists()):
        return data
    endings = name_list(endings_of_formats(), "or")
    files = f"a table (CSV, Excel, Parquet), a file {endings}, a directory of pictures, package.module:loader"
    accepted = f"{files}, or one of {name_list(names, 'or')}"
    require(path.exists(), f"--data {data!r}: there is no such file; accepted are {accepted}")
    return format_of(path)


def _values(request: ConfigRequest, data: Mapping[str, Any], pool: int, users: int | None) -> dict[str, dict[str, Any]]:
    # As many records stay outside D: those that could stand in D', and the sample that Epsilon* compares members with.
    records = data.get("records", min(_MOST_RECORDS, pool // 2))
    owned = "owner" in data
    adjacency, strategy = _adjacency_and_strategy(request)
    is_of_users = users is not None and adjacency.endswith(f"-{Unit.USER}")
    units = max(1, users * records // pool) if users is not None and is_of_users else records
    # Two clients are the fewest, a victim and an insider, and each holds a unit at least.
    number = max(2, min(10, units // 2)) if request.clients is None else request.clients
    clients: dict[str, Any] = {"partition": "natural"} if owned else {"clients": number}
    tenth = 0.1 / units
    noise = {"noise": "inside-training"} if strategy == "dp-sgd-clients" else {}
    one_digit = float(f"{tenth:.0e}") if log10(tenth) != floor(log10(tenth)) else tenth
    return {
        "data": {**data, "records": records, **clients, **data},
        "model": {"name": _model(request, data)},
        "training": {**_training(strategy), "rounds": request.rounds, "learning-rate": 1.0, "optimizer": "sgd"},
        "privacy": {
            request.target: request.value,
            "delta": request.delta or min(_LARGEST_DELTA, one_digit),
            "accountant": "pld" if strategy == "dp-sgd-clients" else "gdp",  # gdp accounts for no samples
            "clipping-norm": 1.0,
            **noise,
            "adjacency": adjacency,
        },
        "audit": {"trials": request.trials or _FEWEST_TRIALS, "neighbour": "most-dissimilar", "view": "update"},
        "run": {"device": "cpu"},
    }


def _model(request: ConfigRequest, data: Mapping[str, Any]) -> str:
    """Return the requested model, or the built-in one for tables or for texts; the latter needs a vocabulary."""
    if request.model is not None:
        return request.model
    if "text" not in data:
        return "logistic"
    problem = (
        f"the tokens of {data['text']!r} are those of a tokenizer, and the built-in model of text needs a vocabulary"
    )
    require("vocabulary" in data, f"{problem}: accepted is --model package.module:factory")
    return MEAN_EMBEDDING


def _adjacency_and_strategy(request: ConfigRequest) -> tuple[str, str]:
    """Return the adjacency and the name of the strategy.

    What the user did not request is chosen to fit the rest of the request.
    """
    adjacency = request.adjacency
    strategy = request.strategy
    if strategy is None:
        strategy = "dp-fedavg" if adjacency is not None and adjacency.endswith(f"-{Unit.CLIENT}") else "dp-fedsgd"
    if adjacency is None and strategy == "dp-fedsgd" and (request.table or {}).get("user") is not None:
        adjacency = str(Adjacency.REPLACE_USER)
    if adjacency is None:
        usual = {"dp-fedavg": Adjacency.REPLACE_CLIENT, "dp-sgd-clients": Adjacency.ADD_REMOVE_RECORD}
        adjacency = str(usual.get(strategy, Adjacency.REPLACE_RECORD))
    return adjacency, strategy


def _training(strategy: str) -> dict[str, Any]:
    return {} if strategy == "dp-fedsgd" else {"strategy": strategy, "local-epochs": 1, "local-learning-rate": 0.1}


def _data(request: ConfigRequest) -> dict[str, Any]:
    name = data_name(request.data)
    table = {key: value for key, value in (request.table or {}).items() if value is not None}
    if any("," in word for word in table.get("drop", ())):
        names = column_names(expanded_path(request.data), table) if name == "table" else []
        table["drop"] = _names_of_columns(table["drop"], names)
    if "vocabulary" in table:
        table["vocabulary"] = str(expanded_path(table["vocabulary"]).absolute())
    if name.startswith(PREFIX):
        return {"name": name, **({} if request.label is None else {"label": request.label}), **table}
    if name not in formats():
        require(request.label is None, f"--label {request.label!r} with data set {name}: it goes with a table")
        return {"name": name, **table}
    path = str(expanded_path(request.data).absolute())
    if name != "table":
        return {"name": name, "path": path, **table}
    if request.label is None:
        header = column_names(Path(path), table)
        raise InputError(f"--label is missing: accepted is a column of {request.data}: {', '.join(header)}")
    return {"name": name, "path": path, "label": request.label, **table}


def _names_of_columns(words: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return names of columns, also of words with several names between commas that are no column themselves."""
    split = ([word] if word in columns else [word_part.strip() for word_part in word.split(",")] for word in words)
    return [name for names in split for name in names if name]


def _lines(values: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "# What each setting is for stands above it; `fl-audit settings` lists all there are."
    yield "# `fl-audit check FILE` looks at this run, `fl-audit run FILE` plays it."
    for section, chosen in values.items():
        yield f"\n[{section}]"
        described = {setting.key: setting for setting in settings(section)}
        for key, value in chosen.items():
            setting = described[f"{section}.{key}"]
            yield f"# {setting.explanation}"
            if setting.choices:
                yield f"# One of: {', '.join(setting.choices)}."
            yield f"{key} = {_toml(value)}"
        for key in (key_name for key_name in _ALSO.get(section, ()) if key_name not in chosen):
            setting = described[f"{section}.{key}"]
            yield f"# {setting.explanation}"
            yield f"# {key} = {_toml(_EXAMPLES.get(setting.key, setting.default))}"
