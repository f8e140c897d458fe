"""Tests of image folders, and of local data sets in the formats of the Hugging Face hub, without downloads."""

import datetime
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.loaded_dataset import ColumnRole, LoadedDataset
from tests.builders.refusals import assert_refused

DRAW = np.random.default_rng(5)
GREY = DRAW.integers(0, 256, (12, 6, 5), dtype=np.uint8)
COLOUR = DRAW.integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


def load(name: str, **options: Any) -> LoadedDataset:
    option_values = {key.replace("_", "-"): value for key, value in options.items()}
    return load_source(DataSpec(name, options=tuple(option_values.items())))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve grey pictures of two classes, written in an order that is not that of the classes."""
    for number, pixels in enumerate(GREY):
        class_directory = tmp_path / "pictures" / ("dog" if number % 2 else "cat")
        class_directory.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(class_directory / f"{number:02d}.png")
    return tmp_path / "pictures"


def test_a_folder_of_pictures_is_its_pixels(folder: Path) -> None:
    source = load("images", path=str(folder))
    assert source.feature_shape == (1, 6, 5)
    assert source.pool.labels.tolist() == [0] * 6 + [1] * 6
    np.testing.assert_array_equal(source.pool.features[:6, 0], GREY[::2].astype(np.float32) / np.float32(255))
    assert [str(use) for use in source.columns] == [
        "pictures: image, 6x5 pixels, grey, 0 to 1",
        "folders: label, 2 classes: cat, dog",
    ]


def test_colour_size_and_grey(folder: Path) -> None:
    for number, pixels in enumerate(COLOUR):
        Image.fromarray(pixels).save(folder / "cat" / f"colour{number}.png")
    mixed = load("images", path=str(folder))
    assert mixed.feature_shape == (3, 6, 5)
    colours = mixed.pool.features[6:10] * 255
    np.testing.assert_array_equal(np.round(colours).astype(np.uint8), COLOUR.transpose(0, 3, 1, 2))
    small = load("images", path=str(folder), image_size=4, grey=True)
    assert small.feature_shape == (1, 4, 4)
    assert {"4x4 pixels", "grey"} < set(str(small.columns[0]).split(", "))
    # The luminance of ITU-R 601.
    whole = load("images", path=str(folder), grey=True).pool.features[6:10, 0] * 255
    np.testing.assert_allclose(whole, COLOUR @ np.array([0.299, 0.587, 0.114]), atol=1.0)


def test_test_pictures_are_official_test_records(folder: Path) -> None:
    source = load("images", path=str(folder), test_path=str(folder))
    assert source.test is not None
    np.testing.assert_array_equal(source.test.features, source.pool.features)


def test_folders_that_cannot_be_used_are_refused(folder: Path, tmp_path: Path) -> None:
    assert_refused(r"folder .*nowhere not found: .*folder", load, "images", path=str(tmp_path / "nowhere"))
    Image.new("L", (9, 9)).save(folder / "dog" / "large.png")
    assert_refused(r"large.png has 9x9 pixels and .*00.png 6x5: accepted are", load, "images", path=str(folder))
    (folder / "dog" / "large.png").write_bytes(b"no picture")
    assert_refused(r"large\.png is no picture", load, "images", path=str(folder))
    (folder / "empty").mkdir()
    assert_refused(r"empty .*no pictures", load, "images", path=str(folder))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def write(
    directory: Path, columns: Mapping[str, Any], features: Mapping[str, Any] | None = None, split: str = "train"
) -> None:
    import datasets

    data = datasets.Dataset.from_dict(columns, features=None if features is None else datasets.Features(features))
    directory.mkdir(exist_ok=True)
    data.to_parquet(directory / f"{split}-00000-of-00001.parquet")


def test_pictures_of_a_data_set(hub: Path) -> None:
    import datasets

    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["dog", "cat"]),
        "client": datasets.Value("string"),
        "note": datasets.Value("string"),
    }
    columns = {
        "image": [Image.fromarray(pixels) for pixels in GREY],
        "label": [0, 1] * 6,
        "client": ["b", "a", "c"] * 4,
        "note": ["nice"] * 12,
    }
    write(hub, columns, features)
    write(hub, {name: values[:4] for name, values in columns.items()}, features, "test")
    source = load(f"hf:{hub}", label="label", owner="client")
    np.testing.assert_array_equal(source.pool.features[:, 0], GREY.astype(np.float32) / np.float32(255))
    assert source.pool.labels.tolist() == [1, 0] * 6, "classes in the order of their names, as everywhere"
    assert source.pool.owners == ("a", "b", "c")
    assert source.test is not None
    assert len(source.test) == 4
    assert [(use.name, use.kind) for use in source.columns] == [
        ("image", ColumnRole.IMAGE),
        ("label", ColumnRole.LABEL),
        ("client", ColumnRole.OWNER),
        ("note", ColumnRole.DROPPED),
    ]
    details = dict(zip(("image", "label", "client", "note"), (use.detail for use in source.columns), strict=True))
    assert {"6x5 pixels", "grey", "0 to 1"} <= set(details["image"].split(", "))
    assert re.fullmatch(r"2 .*: cat, dog", details["label"])
    assert re.fullmatch(r"3 .*: a, b, c", details["client"])
    assert "pictures" in details["note"]


def test_columns_of_a_data_set(hub: Path) -> None:
    days = [datetime.datetime(2024, 1, 1) + datetime.timedelta(days=10 * n) for n in range(5)]
    columns = {
        "age": [20, 30, 40, 50, 60],
        "smokes": [True, False, True, True, False],
        "town": ["York", "Bath", "York", "Bath", "York"],
        "since": days,
        "profile": [[n, 2.0 * n] for n in range(5)],
        "ill": ["yes", "no", "yes", "no", "no"],
    }
    write(hub, columns)
    source = load(f"hf:{hub}", label="ill")
    quarter = np.linspace(0, 1, 5)
    expected = [quarter, [1, 0, 1, 1, 0], [0, 1, 0, 1, 0], [1, 0, 1, 0, 1], quarter, quarter, quarter]
    np.testing.assert_allclose(source.pool.features, np.transpose(expected), atol=1e-6)
    assert source.pool.labels.tolist() == [1, 0, 1, 0, 0]
    kinds = {use.name: str(use) for use in source.columns}
    assert re.fullmatch(r"since: number, 19723 to 19763 .*1970.* 0 to 1", kinds["since"])
    assert re.fullmatch(r"town: levels, 2 .*: Bath, York", kinds["town"])
    assert set(kinds) == {"ill", "age", "smokes", "town", "since", "profile.0", "profile.1"}


@pytest.mark.parametrize(
    ("options", "expected_message"),
    [
        ({"label": "sick"}, "no label column 'sick': .* x, y"),
        ({"label": "y", "split": "validation"}, "cannot be read"),
        ({"label": "y", "owner": "who"}, "no owner column 'who': "),
        ({}, "needs label in"),
        ({"label": "y", "path": "somewhere"}, "takes no path "),
    ],
)
def test_data_sets_that_cannot_be_used_are_refused(hub: Path, options: dict[str, str], expected_message: str) -> None:
    write(hub, {"x": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
    assert_refused(expected_message, load, f"hf:{hub}", **options)


def test_a_data_set_that_cannot_be_reached_is_refused(hub: Path) -> None:
    assert_refused(r"hf:nobody/nothing .*be read", load, "hf:nobody/nothing", label="y")
