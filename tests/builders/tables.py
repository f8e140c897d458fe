"""Tables as files, loaded as a run loads them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.loaded_dataset import LoadedDataset


def load_csv(
    directory: Path,
    text: str,
    *options: tuple[str, str | tuple[str, ...]],
    test: str | None = None,
    label: str = "outcome",
) -> LoadedDataset:
    """Write a table, and test records where they are given, and load them."""
    (directory / "table.csv").write_text(text)
    settings = [("path", "table.csv"), ("label", label), *options]
    if test is not None:
        (directory / "test.csv").write_text(test)
        settings.append(("test-path", "test.csv"))
    return load_source(DataSpec("csv", str(directory), tuple(settings)))


def load_table(path: Path, label: str, **options: object) -> LoadedDataset:
    """Load the file of a table with settings of [data], whose hyphens are underscores here."""
    settings = {"path": str(path.absolute()), "label": label, **options}
    return load_source(DataSpec("csv", None, tuple((key.replace("_", "-"), value) for key, value in settings.items())))  # type: ignore[misc]


def archive(**arrays: object) -> str:
    """Write arrays into a file of the working directory, and return its name."""
    np.savez("a.npz", **arrays)  # type: ignore[arg-type]
    return "a.npz"


def write_people(path: Path, visits: int, classes: int) -> None:
    """Write a table of 300 people, with whether they came to each of some visits, whether they smoke, and the label."""
    draw = np.random.default_rng(0)
    columns: dict[str, Any] = {f"visit {number}": draw.integers(0, 2, 300) for number in range(visits)}
    columns |= {"smokes": draw.choice(["no", "yes"], 300), "ill": draw.integers(0, classes, 300)}
    pd.DataFrame(columns).to_csv(path, index=False)
