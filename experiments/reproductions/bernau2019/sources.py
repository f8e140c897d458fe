"""Which of the paper's data sets are available, and which data sets stand in for missing ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.reproductions.bernau2019.published import Study
from experiments.reproductions.bernau2019.settings import CANDIDATES, DataSetting
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import InputError


@dataclass(frozen=True)
class DataFound:
    """The data sets that are available, in the order of the paper, and a line for each that is replaced or left out."""

    data: tuple[DataSetting, ...]
    remarks: tuple[str, ...] = ()


def find_data(data_dir: Path | None, wanted: Iterable[Study] = tuple(Study)) -> DataFound:
    """Look for the paper's data sets, and for data sets that may stand in for missing ones.

    Of a data set with several numbers of classes all forms are taken that are there.

    Parameters
    ----------
    data_dir
        Data directory; None means that of the environment.
    wanted
        The data sets of the paper to look for.
    """
    found: list[DataSetting] = []
    remarks: list[str] = []
    for study in wanted:
        reasons: list[str] = []
        for forms in CANDIDATES[study]:
            missing = {one: reason for one in forms if (reason := _missing(one, data_dir)) is not None}
            there = [one for one in forms if one not in missing]
            if there:
                found.extend(there)
                if reasons:
                    remarks.append(f"{study} cannot be had here ({reasons[0]}): {there[0].name} stands in for it")
                break
            reasons.extend(missing.values())
        else:
            remarks.append(f"{study} is left out ({reasons[0]})")
    return DataFound(tuple(found), tuple(remarks))


def _missing(data: DataSetting, data_dir: Path | None) -> str | None:
    """Return why a data set cannot be loaded; None if it can."""
    place = None if data_dir is None else str(data_dir.absolute())
    try:
        load_source(DataSpec(data.name, place, tuple(data.options.items())))
    except InputError as error:
        return str(error)
    return None
