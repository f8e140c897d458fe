"""Missing values are filled as scikit-learn fills them, and what is filled is marked and told."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer

from fl_audit.data.column_encoding import SourceFileRows
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.missing_values import imputed
from fl_audit.data.table_settings import TableSettings
from tests.builders.refusals import assert_refused
from tests.builders.tables import load_table

KNOWN = """age,ward,score,label
10,a,1,yes
20,,2,no
,b,3,yes
40,b,,no
50,a,NA,yes
70,,6,no
"""


def load(path: Path, **options: str) -> LoadedDataset:
    return load_table(path, "label", **{"missing": "impute"} | options)


def column(source: LoadedDataset, name: str) -> np.ndarray:
    """Return the features of a column, (records, width)."""
    (positions,) = [placement.places for placement in source.placed if placement.name == name]
    return source.pool.features[:, positions]


def test_a_table_with_known_gaps(tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text(KNOWN)
    source = load(tmp_path / "known.csv")
    assert len(source.pool) == 6, "no record is left out"
    assert column(source, "age")[:, 0] * 60 + 10 == pytest.approx([10, 20, 40, 40, 50, 70])
    assert column(source, "age is missing")[:, 0].tolist() == [0, 0, 1, 0, 0, 0]
    of_a_tie_the_first_word = [[1, 0], [1, 0], [0, 1], [0, 1], [1, 0], [1, 0]]
    assert column(source, "ward").tolist() == of_a_tie_the_first_word
    assert column(source, "ward is missing")[:, 0].tolist() == [0, 1, 0, 0, 0, 1]
    assert column(source, "score")[:, 0] * 5 + 1 == pytest.approx([1, 2, 3, 2.5, 2.5, 6])
    (warning,) = [caution for caution in source.cautions if "filled" in caution.text]
    assert warning.in_report
    assert warning.text.startswith("5 missing values in column age, ward, score are filled")
    assert "guarantee does not cover" in warning.text


def test_a_record_without_a_label_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "label.csv").write_text(KNOWN + "80,a,9,\n")
    source = load(tmp_path / "label.csv")
    assert len(source.pool) == 6
    assert "1 records with a missing value" in source.description


def test_test_records_get_what_the_training_records_teach(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("age,dose,label\n10,1,a\n30,2,b\n,3,a\n")
    (tmp_path / "test.csv").write_text("age,dose,label\n,1,a\n90,,b\n")
    source = load(tmp_path / "train.csv", **{"test-path": str(tmp_path / "test.csv")})
    assert source.test is not None
    names = [placement.name for placement in source.placed]
    assert names == ["age", "dose", "age is missing"], "a gap in test records alone gets no column"
    assert source.test.features[:, names.index("age")].tolist() == [0.5, 1.0], "the median is 20, of 10 and 30"
    assert source.test.features[:, names.index("dose")].tolist() == [0.0, 0.5]


def test_a_column_without_any_value_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("age,dose,label\n10,,a\n30,,b\n")
    assert_refused(r'has no value in column dose.*drop = \["dose"\]', load, tmp_path / "empty.csv")


def test_a_table_with_gaps_is_refused_with_the_settings_that_help(tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text(KNOWN.replace("NA", ""))
    error = assert_refused(None, load_table, tmp_path / "known.csv", "label")
    (fill,) = [choice for choice in error.choices if choice.value == "impute"]
    assert str(fill) in str(error)


@given(st.integers(0, 10**6))
def test_fillings_are_those_of_scikit_learn(seed: int) -> None:
    draw = np.random.default_rng(seed)
    train, records = 12, 16
    numbers = pd.Series(draw.normal(size=records).round(2)).mask(draw.random(records) < 0.3)
    words = pd.Series(draw.choice(["c", "a", "b"], records), dtype=object).mask(draw.random(records) < 0.3)
    if numbers[:train].isna().all() or words[:train].isna().all():
        return
    joint = pd.DataFrame({"numbers": numbers, "words": words, "label": "x"})
    origin = SourceFileRows("file", "file", train, np.arange(records) + 1)
    filled, _ = imputed(joint, origin, TableSettings("label", missing=(), imputes=True))
    median = SimpleImputer(strategy="median", add_indicator=True)
    expected = median.fit(numbers[:train].to_frame().to_numpy()).transform(numbers.to_frame().to_numpy())
    np.testing.assert_allclose(filled["numbers"], expected[:, 0])
    frequent = SimpleImputer(strategy="most_frequent", missing_values=np.nan)
    fitted = frequent.fit(words[:train].to_frame().to_numpy())
    assert filled["words"].tolist() == fitted.transform(words.to_frame().to_numpy())[:, 0].tolist()
    assert ("numbers is missing" in filled) == (expected.shape[1] == 2)
    if expected.shape[1] == 2:
        assert filled["numbers is missing"].tolist() == expected[:, 1].tolist()
