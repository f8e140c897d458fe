"""List all data sets by name, and load a data set by its name and options."""

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from inspect import Parameter, formatannotation, signature
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from fl_audit.data.adult import find_adult, load_adult
from fl_audit.data.builtin import load_breast_cancer, load_digits
from fl_audit.data.data_files import data_directory
from fl_audit.data.femnist import FEMNIST_FILE, find_femnist, load_femnist
from fl_audit.data.idx_images import WRITERS_FILE, find_mnist, load_mnist
from fl_audit.data.loaded_dataset import (
    OWNER,
    RECORDS_PER_USER,
    LoadedDataset,
    with_fewer_per_user,
    with_owners_as_users,
)
from fl_audit.data.shokri_tables import LOCATION30, PURCHASE100, TEXAS100, BinaryTable, load_binary
from fl_audit.errors import InputError, require
from fl_audit.user_modules import import_function, meant_name, title_of_named
from fl_audit.words import name_list

OptionValue = str | int | float | tuple[str, ...]
"""Type of the value of an option: a string, a number, or several strings."""
_Loader = Callable[[Path | None, Mapping[str, Any]], LoadedDataset]
OLD_NAMES: Mapping[str, str] = {"csv": "table"}
"""Earlier names of data sets, which are still read."""
_Finder = Callable[[Path | None], object]


@dataclass(frozen=True)
class DataSpec:
    """Name and options of a data set to load; equal specifications are loaded once."""

    name: str  # name in the catalogue, see `available_datasets`
    data_dir: str | None = None  # data directory; None takes the environment variable FL_AUDIT_DATA, if it is set
    options: tuple[tuple[str, OptionValue], ...] = ()  # pairs of option and value, such as `("path", "patients.csv")`

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", OLD_NAMES.get(self.name, self.name))

    @property
    def title(self) -> str:
        """The name as shown in titles.

        For files of the user it is the name of the file or folder, and for a loader `package.module:name` only the part
        after the colon.
        """
        path = dict(self.options).get("path") if self.name in formats() else None
        if isinstance(path, str):
            return Path(path).name or self.name
        return self.name if self.name.startswith(PREFIX) else title_of_named(self.name)


@dataclass(frozen=True)
class CatalogueEntry:
    """A data set, or a kind of data sets, that can be loaded by name."""

    description: str
    load: _Loader  # function that loads it from a data directory with the given options
    needs_files: bool = True
    # Function that finds its files in a data directory; None if they are named by an option.
    find: _Finder | None = None
    required: tuple[str, ...] = ()  # options that must be given
    optional: tuple[str, ...] = ()  # other options that it accepts
    suffixes: tuple[str, ...] = ()  # endings of the names of files in this format of a user's files
    whose: str = ""  # description of the owners, if the data set comes with owners, who can be the users

    @property
    def summary(self) -> str:
        """The description, with the names of the options where some must be given."""
        if not self.required:
            return self.description
        return f"{self.description}: {', '.join(self.required)} and, if need be, {', '.join(self.optional)}"


def _published(description: str, load: Callable[[Path | None], LoadedDataset], finder: _Finder) -> CatalogueEntry:
    return CatalogueEntry(description, lambda directory, _: load(directory), find=finder)


def _binary_entry(table: BinaryTable) -> CatalogueEntry:
    description = f"{table.title}, 0/1 features, {table.classes} classes: {' or '.join(table.files)}"
    return _published(description, lambda directory: load_binary(directory, table), table.find)


def _table(directory: Path | None, options_given: Mapping[str, Any]) -> LoadedDataset:
    from fl_audit.data.tables import load_csv  # noqa: PLC0415

    return load_csv(directory, options_given)


def _npz(directory: Path | None, options_given: Mapping[str, Any]) -> LoadedDataset:
    from fl_audit.data.numpy_archives import load_npz  # noqa: PLC0415

    return load_npz(directory, options_given)


def _images(directory: Path | None, options_given: Mapping[str, Any]) -> LoadedDataset:
    from fl_audit.data.image_folders import ImageSettings, load_image_folder  # noqa: PLC0415

    settings = ImageSettings.of(options_given)
    return load_image_folder(directory, options_given["path"], options_given.get("test-path"), settings)


_TEXT_OPTIONS = ("text", "vocabulary", "tokenizer", "tokens")
_TABLE_OPTIONS = ("task", "owner", "user", "drop", "missing", "max-levels", "ignore-case", "unique", *_TEXT_OPTIONS)
_IMAGE_OPTIONS = ("image-size", "grey")
PREFIX = "hf:"
"""Prefix of the name of a data set of the Hugging Face hub."""
_HUB_NAME = f"{PREFIX}OWNER/NAME"


_CATALOGUE: Mapping[str, CatalogueEntry] = {
    "digits": CatalogueEntry("handwritten digits 8x8, built in", lambda _, __: load_digits(), needs_files=False),
    "breast-cancer": CatalogueEntry(
        "tumour measurements, built in", lambda _, __: load_breast_cancer(), needs_files=False
    ),
    "adult": _published("UCI Adult: adult.data and adult.test, plain or gzipped", load_adult, find_adult),
    "adult-all": _published(
        "the same with its incomplete rows, ? a level of its own", partial(load_adult, incomplete=True), find_adult
    ),
    "mnist": CatalogueEntry(
        f"MNIST: the four IDX files, plain or gzipped; with user, {WRITERS_FILE} of QMNIST too",
        lambda directory, options_given: load_mnist(directory, options_given.get("user")),
        find=find_mnist,
        optional=("user",),
    ),
    "femnist": replace(
        _published(f"FEMNIST digits of 12 natural clients: {FEMNIST_FILE}", load_femnist, find_femnist),
        whose="its 12 clients; it does not name writers",
    ),
    **{table.name: _binary_entry(table) for table in (LOCATION30, PURCHASE100, TEXAS100)},
    "table": CatalogueEntry(
        "your table, as CSV (plain or gzipped), Excel workbook or Parquet file",
        _table,
        required=("path", "label"),
        optional=("test-path", "separator", "decimal", "encoding", "skip-lines", "sheet", *_TABLE_OPTIONS),
    ),
    "npz": CatalogueEntry(
        "your NumPy archive with x, y and optionally x_test, y_test, or with labels and named inputs of a model",
        _npz,
        required=("path",),
        suffixes=(".npz",),
        optional=("task", "owner", "user", "axes"),
    ),
    "images": CatalogueEntry(
        "your pictures, a folder for each class", _images, required=("path",), optional=("test-path", *_IMAGE_OPTIONS)
    ),
}


def formats() -> tuple[str, ...]:
    """Return the names of the formats of a user's files, whose option `path` names the file or folder."""
    return tuple(name for name, entry in _CATALOGUE.items() if "path" in entry.required)


def endings_of_formats() -> tuple[str, ...]:
    """Return the endings of the names of files by which formats other than tables are known."""
    return tuple(ending for entry in _CATALOGUE.values() for ending in entry.suffixes)


def format_of(path: Path) -> str:
    """Return the format of a user's file or folder, by the ending of its name; a table if no format has this ending."""
    if path.is_dir():
        return "images"
    return next((name for name, entry in _CATALOGUE.items() if path.suffix in entry.suffixes), "table")


def _hub_entry(name: str) -> CatalogueEntry:
    def load(_: Path | None, options_given: Mapping[str, Any]) -> LoadedDataset:
        from fl_audit.data.hugging_face import load_hub  # noqa: PLC0415

        return load_hub(name, options_given)

    return CatalogueEntry(
        "a data set of the Hugging Face hub, or a directory in its formats",
        load,
        required=("label",),
        optional=("subset", "split", "test-split", *_TABLE_OPTIONS, *_IMAGE_OPTIONS),
    )


def _user_entry(name: str) -> CatalogueEntry:
    """Return the catalogue entry of a function that a user wrote to load a data set.

    The keyword-only parameters of the function are settings of `[data]`, or stand in its `loader-parameters`.
    """
    loader = import_function(name, "data loader")
    parameters = signature(loader).parameters.values()
    settings = {
        parameter.name.replace("_", "-"): parameter
        for parameter in parameters
        if parameter.kind is Parameter.KEYWORD_ONLY
    }
    try:
        hints = get_type_hints(loader)
    except (NameError, TypeError, AttributeError):  # annotations that name what is imported for type checkers alone
        hints = {}

    def load(directory: Path | None, options_given: Mapping[str, Any]) -> LoadedDataset:
        directory_argument = (directory,) if len(parameters) > len(settings) else ()
        bound = {settings[one].name: _of_type(name, one, value, hints) for one, value in options_given.items()}
        dataset_loaded = loader(*directory_argument, **bound)
        accepted = "accepted is a fl_audit.data.loaded_dataset.LoadedDataset"
        require(
            isinstance(dataset_loaded, LoadedDataset),
            f"data loader {name!r} returned a {type(dataset_loaded).__name__}: {accepted}",
        )
        dataset: LoadedDataset = replace(dataset_loaded, name=name)
        return dataset

    required = tuple(option for option, setting in settings.items() if setting.default is Parameter.empty)
    optional = tuple(option for option in settings if option not in required)
    return CatalogueEntry("a loader of your own", load, needs_files=False, required=required, optional=optional)


def _of_type(loader: str, option: str, value: OptionValue, hints: Mapping[str, Any]) -> Any:
    """Return a setting, converted to the type that the loader annotates for it; a string never becomes a number."""
    hint = hints.get(option.replace("-", "_"), Any)

    # Only loaders of a user's own have annotations to hold settings against.
    from pydantic import PydanticUserError, TypeAdapter, ValidationError  # noqa: PLC0415

    try:
        return TypeAdapter(hint).validate_json(json.dumps(value, default=str), strict=True)
    except PydanticUserError:  # a type that no setting can have
        return value
    except ValidationError as error:
        accepted = f"accepted by data loader {loader!r} is {formatannotation(hint)}"
        raise InputError(f"{option} is {value!r} in [data]: {accepted}") from error


def available_datasets() -> Mapping[str, CatalogueEntry]:
    """Return all data sets that can be loaded, by name."""
    return {**_CATALOGUE, _HUB_NAME: _hub_entry(_HUB_NAME)}


def _entry(name: str) -> CatalogueEntry:
    name = OLD_NAMES.get(name, name)
    if name.startswith(PREFIX) and name != PREFIX:
        return _hub_entry(name)
    if ":" in name and meant_name(name) is None:
        return _user_entry(name)
    if name not in _CATALOGUE and (meant := meant_name(name)) is not None:
        raise InputError(f"data set {name!r} names no function: accepted is package.module:loader, here {meant!r}")
    if name not in _CATALOGUE:
        raise InputError(f"data set is {name!r}: {_accepted(name, (*_CATALOGUE, _HUB_NAME))}")
    return _CATALOGUE[name]


def is_found(name: str, data_dir: str | None = None) -> bool:
    """Return True if the files of a published data set are in the data directory; they are not read.

    The result is also True for a data set that has no files. It is False for a data set whose files the user must name.

    Parameters
    ----------
    name
        Name of the data set, see `available_datasets`.
    data_dir
        Data directory; None takes the environment variable FL_AUDIT_DATA, if it is set.
    """
    entry = _entry(name)
    if entry.find is None:
        return not entry.needs_files
    try:
        entry.find(data_directory(data_dir))
    except InputError:
        return False
    return True


_BROUGHT: dict[DataSpec, LoadedDataset] = {}  # handed to this process in place of what files on its machine may hold


def bring_source(spec: DataSpec, dataset: LoadedDataset) -> None:
    """Make `load_source` return the given data for a specification, in this process only.

    Only the data of the latest call are kept.

    Parameters
    ----------
    spec
        Name and options of the data.
    dataset
        Data set to return.
    """
    _BROUGHT.clear()
    _BROUGHT[spec] = dataset


def load_source(spec: DataSpec) -> LoadedDataset:
    """Load and return the data set with the given name and options; equal calls share read-only arrays.

    Raises `InputError` if the name or an option is unknown, if a required option or a file is missing, if a file is
    damaged, or if all records have the same class.

    Examples
    --------
    >>> load_source(DataSpec("digits")).feature_shape
    (64,)
    """
    if spec in _BROUGHT:
        return _BROUGHT[spec]
    directory = data_directory(spec.data_dir)
    # The cache must see the directory itself: the environment variable may change between calls.
    return _load(replace(spec, data_dir=None if directory is None else str(directory)))


@lru_cache(maxsize=4)
def _load(spec: DataSpec) -> LoadedDataset:
    entry = _entry(spec.name)
    options_given = dict(spec.options)
    per_user = options_given.pop(RECORDS_PER_USER, None)
    # If a data set comes with owners, as FEMNIST does with its clients, the owners can be the users.
    owners_are_users = "user" not in (*entry.required, *entry.optional) and options_given.get("user") == OWNER
    if owners_are_users:
        del options_given["user"]
    options = _checked_options(replace(spec, options=tuple(options_given.items())), entry)
    source = entry.load(None if spec.data_dir is None else Path(spec.data_dir), options)
    source = with_owners_as_users(source) if owners_are_users else source
    source = source if per_user is None else with_fewer_per_user(source, per_user)
    require(np.unique(source.pool.labels).size >= 2, f"data set {spec.name} has one class only: at least 2 are needed")
    is_learnable = source.pool.classes > 1 or source.pool.has_quantities
    require(is_learnable, f"data set {spec.name} has 1 class: accepted are 2 and more, or floating-point quantities")
    for records in filter(None, (source.pool, source.test)):
        for array in (records.features, records.labels, records.owner, records.user):
            if array is not None:
                array.setflags(write=False)
    return source


def _checked_options(spec: DataSpec, entry: CatalogueEntry) -> Mapping[str, OptionValue]:
    names = (*entry.required, *entry.optional)
    for name, value in spec.options:
        accepted = f"accepted of {spec.name} is {OWNER!r}, {entry.whose}"
        require(name != "user" or name in names or not entry.whose, f"user is {value!r} in [data]: {accepted}")
        require(name in names, f"data set {spec.name} takes no {name} in [data]: {_accepted(name, names)}")
    options = dict(spec.options)
    for name in entry.required:
        takes = f"it takes {name_list(names)}"
        require(options.get(name) not in (None, ""), f"data set {spec.name} needs {name} in [data]: {takes}")
    return options


def _accepted(value_given: str, names: tuple[str, ...]) -> str:
    if not names:
        return "it has no settings of its own"
    if len(names) == 1:
        return f"its only setting of its own is {names[0]}"
    nearest = difflib.get_close_matches(value_given.lower(), names, n=1)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"{hint}accepted are {name_list(names)}"
