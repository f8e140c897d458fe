"""Load the UCI Adult data set from its published CSV files; the label is an income of over 50,000 dollars a year."""

import csv
import io
from pathlib import Path

import numpy as np

from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.data.data_files import locate, read_text
from fl_audit.data.encoding import build_records, min_max
from fl_audit.data.loaded_dataset import LoadedDataset, side_by_side
from fl_audit.errors import InputError, require
from fl_audit.words import name_list

# Columns of the published files in order, each with its levels; numeric columns have none. The levels are those that
# occur in complete rows: with "Never-worked" (whose rows all lack an occupation) there would be 105 features instead of
# the usual 104.
_Columns = dict[str, tuple[str, ...]]
_COLUMNS: _Columns = {
    name: tuple(levels.split())
    for name, levels in {
        "age": "",
        "workclass": "Federal-gov Local-gov Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
        "fnlwgt": "",
        "education": "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad "
        "Masters Preschool Prof-school Some-college",
        "education-num": "",
        "marital-status": "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated "
        "Widowed",
        "occupation": "Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
        "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
        "Transport-moving",
        "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
        "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
        "sex": "Female Male",
        "capital-gain": "",
        "capital-loss": "",
        "hours-per-week": "",
        "native-country": "Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France "
        "Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica "
        "Japan Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland "
        "South Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia",
    }.items()
}
_LABELS = ("<=50K", ">50K")
_MISSING = "?"
_FIELDS = len(_COLUMNS) + 1


def find_adult(directory: Path | None) -> list[Path]:
    """Return the paths of `adult.data` and `adult.test` in a directory; raise `InputError` if one is missing."""
    return locate(directory, "adult", "adult.data", "adult.test")


def load_adult(directory: Path | None, incomplete: bool = False) -> LoadedDataset:
    """Return the UCI Adult data set with 104 features in [0, 1] and 2 classes: 30,162 training and 15,060 test records.

    The first 6 features are numeric, scaled by their range in `adult.data`. The other 98 are one-hot codes. Raises
    `InputError` if a file is missing or does not have the published format.
    """
    paths = find_adult(directory)
    columns = _COLUMNS
    if incomplete:  # the levels of incomplete rows too, `?` last where it occurs
        added = {"workclass": ("Never-worked", _MISSING), "occupation": (_MISSING,), "native-country": (_MISSING,)}
        columns = {name: (*levels, *added.get(name, ())) for name, levels in _COLUMNS.items()}
    rows, test_rows = (_read_rows(path, incomplete) for path in paths)
    numbers, test_numbers = min_max(_numeric(rows, paths[0]), _numeric(test_rows, paths[1]))
    assert test_numbers is not None
    pool, test = (
        build_records(_features(rows_of_part, scaled, path, columns), _labels(rows_of_part, path), len(_LABELS), path)
        for rows_of_part, scaled, path in zip((rows, test_rows), (numbers, test_numbers), paths, strict=True)
    )
    features = pool.features.shape[1]
    description = f"UCI Adult, {len(pool):,} + {len(test):,} records, {features} features, 2 classes"
    # Numeric columns come first, then columns with levels; each group is in the order of the file.
    in_order = sorted(columns.items(), key=lambda column: bool(column[1]))
    placed = side_by_side((name, max(1, len(levels))) for name, levels in in_order)
    return LoadedDataset("adult-all" if incomplete else "adult", pool, test, description, placed=placed)


def _read_rows(path: Path, incomplete: bool) -> list[tuple[int, list[str]]]:
    rows = []
    reader = csv.reader(io.StringIO(read_text(path)), skipinitialspace=True)
    try:
        for row in reader:
            # The published test file opens with "|1x3 Cross validator", and both end in an empty line.
            if not row or row[0].startswith("|"):
                continue
            fields = [field.strip() for field in row]
            where = f"in line {reader.line_num}: accepted are {_FIELDS}"
            require(len(fields) == _FIELDS, f"{path} has {len(fields)} fields {where}")
            if incomplete or _MISSING not in fields:
                rows.append((reader.line_num, fields))
    except csv.Error as error:
        raise InputError(f"{path} is no CSV in line {reader.line_num} ({error})") from error
    require(bool(rows), f"{path} has no complete row: at least 1 is needed")
    return rows


def _numeric(rows: list[tuple[int, list[str]]], path: Path) -> Floats:
    positions = [position for position, levels in enumerate(_COLUMNS.values()) if not levels]
    values = np.empty((len(rows), len(positions)))
    for index, (line, fields) in enumerate(rows):
        try:
            values[index] = [float(fields[position]) for position in positions]
        except ValueError as error:
            raise InputError(f"{path} has a wrong number in line {line} ({error}): accepted are numbers") from error
        require(bool(np.isfinite(values[index]).all()), f"{path} has a number that is not finite in line {line}")
    return values


def _features(rows: list[tuple[int, list[str]]], numbers: Floats, path: Path, columns: _Columns) -> Floats32:
    """Return all features, float32 (records, features): scaled `numbers` first, then one-hot columns from `rows`."""
    blocks = [numbers.astype(np.float32)]
    for position, (name, levels) in enumerate(columns.items()):
        if levels:
            codes = _codes(rows, position, levels, f"{path} has {name}")
            blocks.append(np.eye(len(levels), dtype=np.float32)[codes])
    return np.concatenate(blocks, axis=1)


def _labels(rows: list[tuple[int, list[str]]], path: Path) -> Integers:
    # Labels of the published test file end in a full stop.
    bare = [(line, [fields[-1].removesuffix(".")]) for line, fields in rows]
    return _codes(bare, 0, _LABELS, f"{path} has label")


def _codes(rows: list[tuple[int, list[str]]], position: int, levels: tuple[str, ...], name: str) -> Integers:
    order = {level: code for code, level in enumerate(levels)}
    try:
        return np.array([order[fields[position]] for _, fields in rows], dtype=np.int64)
    except KeyError as error:
        line = next(line for line, fields in rows if fields[position] not in order)
        raise InputError(f"{name} {error.args[0]!r} in line {line}: accepted are {name_list(levels)}") from error
