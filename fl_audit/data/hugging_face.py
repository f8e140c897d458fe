"""Load data sets by flwr-datasets: from the Hugging Face hub as `name = "hf:OWNER/NAME"`, or from files on disk."""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from datasets import ClassLabel, disable_progress_bars, enable_progress_bars
from datasets import Image as ImageFeature
from flwr_datasets import FederatedDataset

from fl_audit.data import remedies
from fl_audit.data.column_encoding import check_classes, described_names
from fl_audit.data.data_frames import chosen_columns, source_of_frames
from fl_audit.data.encoding import UNKNOWN_OWNERS, build_records, encode_labels, encode_owners
from fl_audit.data.image_folders import ImageSettings, image_features
from fl_audit.data.loaded_dataset import ColumnReadResult, ColumnRole, LoadedDataset
from fl_audit.data.missing_values import missing_value_word_counts, without_words
from fl_audit.data.table_settings import TableSettings
from fl_audit.errors import InputError, first_line, require

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

_PREFIX = "hf:"
_LONGEST_SEQUENCE = 10_000


def load_hub(name: str, options: Mapping[str, Any]) -> LoadedDataset:
    """Load a data set of the Hugging Face hub: its images if it has a column of images, otherwise all its columns.

    Numbers, bools, dates and lists of numbers are scaled to [0, 1], and strings are one-hot encoded. If images are
    read, other features are left out. Raises `InputError` if the data set cannot be loaded, or if a split or a column
    is missing or cannot be used.
    """
    table = TableSettings.of(options).located(None)
    images = ImageSettings.of(options)
    splits = [(Path(name) / split, data) for split, data in _splits(name, options).items()]
    columns = [(column, feature) for column, feature in splits[0][1].features.items() if column not in table.drop]
    pictures = [column for column, feature in columns if isinstance(feature, ImageFeature)]
    drop = remedies.drop(*pictures[1:])
    accepted = f"accepted is one; {drop} keeps the first"
    require(
        len(pictures) <= 1 or table.text is not None,
        f"{name} has several columns of pictures, {', '.join(pictures)}: {accepted}",
        drop,
    )
    if pictures and table.text is None:
        return _of_pictures(pictures[0], splits, table, images)
    written = [chosen_columns(_frame(data, table.drop), path, table) for path, data in splits]
    frames = [without_words(frame, table.missing or ()) for frame in written]
    words = Counter[str]()
    for before, after in zip(written, frames, strict=True):
        words.update(missing_value_word_counts(before, after))
    return source_of_frames(frames, [path for path, _ in splits], table, name, "data set", words)


def _splits(name: str, options: Mapping[str, Any]) -> "dict[str, Dataset]":
    """Return the splits by name: first the training split, then the test split if there is one."""
    split = options.get("split", "train")
    disable_progress_bars()
    try:
        # The library partitions no split here: which records are whose is the business of the federation.
        federated = FederatedDataset(
            dataset=name.removeprefix(_PREFIX), subset=options.get("subset"), partitioners={split: 1}, shuffle=False
        )
        datasets = {split: federated.load_split(split)}
        test = options.get("test-split") or ("test" if split != "test" and _has_test(federated) else None)
        return datasets if test is None else datasets | {test: federated.load_split(test)}
    # The libraries raise whatever the network, the file system and Arrow raise.
    except Exception as error:
        raise InputError(
            f"data set {name} cannot be read ({first_line(error)}): accepted are OWNER/NAME on the Hugging Face hub, "
            "if it can be reached, and directories that load_dataset of the package datasets reads"
        ) from error
    finally:
        enable_progress_bars()


def _has_test(federated: Any) -> bool:
    try:
        federated.load_split("test")
    except (KeyError, ValueError):
        return False
    return True


def _frame(data: "Dataset", drop: Collection[str]) -> pd.DataFrame:
    """Return the data as a table, with names of classes in place of their numbers.

    A column of lists becomes one column for each position in the lists.
    """
    frame = data.to_pandas()
    assert isinstance(frame, pd.DataFrame), "it was not asked for in batches"
    columns: dict[str, Any] = {}
    for name, feature in data.features.items():
        if isinstance(feature, ClassLabel):
            columns[name] = [feature.names[code] if code >= 0 else None for code in frame[name]]
        elif name not in drop and isinstance(frame[name].iloc[0], np.ndarray | list):
            values = _rows_of_numbers(frame[name], name)
            columns |= {f"{name}.{index}": values[:, index] for index in range(values.shape[1])}
        else:
            columns[name] = frame[name]
    return pd.DataFrame(columns)


def _rows_of_numbers(column: "pd.Series[Any]", name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    lengths = {len(row) for row in column}
    lists = f"column {name} holds lists of {min(lengths):,} to {max(lengths):,} values"
    drop = remedies.drop(name)
    accepted = f"accepted are lists of one length up to {_LONGEST_SEQUENCE:,}; {drop} leaves out the column"
    require(len(lengths) == 1 and max(lengths) <= _LONGEST_SEQUENCE, f"{lists}: {accepted}", drop)
    try:
        return np.stack([np.asarray(row, dtype=np.float64).reshape(-1) for row in column])
    except (TypeError, ValueError):
        accepted = f"accepted are numbers; {drop} leaves out the column"
        raise InputError(f"column {name} holds lists of other things than numbers: {accepted}", (drop,)) from None


def _of_pictures(
    column: str, splits: "list[tuple[Path, Dataset]]", table: TableSettings, images: ImageSettings
) -> LoadedDataset:
    label = table.label
    for path, data in splits:
        chosen_columns(pd.DataFrame(columns=data.column_names, index=[0]), path, table)
    labels = [_names(data, label) for _, data in splits]
    path = splits[0][0]
    most_levels = table.most_words if labels[0].dtype.kind in "OUS" else table.most_numbers
    check_classes(labels[0], f"{path}: label column {label}", most_levels)
    codes, test_codes, classes = encode_labels(labels[0], labels[1] if len(labels) > 1 else None, path)
    columns_by_role = {ColumnRole.OWNER: table.owner, ColumnRole.USER: table.user}
    owners = {
        kind: UNKNOWN_OWNERS
        if name is None
        else encode_owners(_names(splits[0][1], name), f"{path}: {kind} column {name}", str(kind))
        for kind, name in columns_by_role.items()
    }
    features, became = image_features(_opened(splits, column), images)
    pool = build_records(
        features[: len(codes)], codes, classes, path, owners[ColumnRole.OWNER], owners[ColumnRole.USER]
    )
    test = None if test_codes is None else build_records(features[len(codes) :], test_codes, classes, splits[-1][0])
    left_out = [name for name in splits[0][1].column_names if name not in (column, *table.kept)]
    uses = (
        ColumnReadResult(column, ColumnRole.IMAGE, became),
        described_names(label, ColumnRole.LABEL, np.unique(labels[0])),
        *(
            described_names(name, kind, owners[kind].names)
            for kind, name in columns_by_role.items()
            if name is not None
        ),
        *(ColumnReadResult(name, ColumnRole.DROPPED, "beside pictures") for name in left_out),
    )
    title = f"data set {os.fspath(path)}, {len(pool):,} pictures, {classes} classes"
    return LoadedDataset(str(path.parent), pool, test, title, uses)


def _names(data: "Dataset", column: str) -> np.ndarray[Any, np.dtype[np.generic]]:
    """Return a column of labels, owners or users: classes by name, integers and bools unchanged, others as text."""
    feature = data.features[column]
    values = data[column]
    if isinstance(feature, ClassLabel):
        return np.array([feature.names[code] for code in values], dtype=np.str_)
    names_found = np.array(list(values))
    return names_found if names_found.dtype.kind in "biu" else names_found.astype(np.str_)


def _opened(splits: "list[tuple[Path, Dataset]]", column: str) -> "Iterator[tuple[str, Image]]":
    for path, data in splits:
        for number, picture in enumerate(data[column]):
            require(picture is not None, f"{path} has no picture in record {number}: accepted are pictures throughout")
            yield f"{path}, record {number}", picture
