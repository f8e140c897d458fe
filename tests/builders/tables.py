"""Tables as files, loaded as a run loads them."""

from pathlib import Path

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
    given = [("path", "table.csv"), ("label", label), *options]
    if test is not None:
        (directory / "test.csv").write_text(test)
        given.append(("test-path", "test.csv"))
    return load_source(DataSpec("csv", str(directory), tuple(given)))
