"""Which of the paper's data sets are available, and which data sets stand in for missing ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.reproductions.bernau2021.settings import CANDIDATES, DataSetting, Study
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import InputError


@dataclass(frozen=True)
class DataFound:
    """The data sets that are available.

    Parameters
    ----------
    data
        The data sets, in the order of the paper.
    remarks
        A line for every data set that is replaced by another or left out, with the reason.
    """

    data: tuple[DataSetting, ...]
    remarks: tuple[str, ...] = ()


def find_data(data_dir: Path | None, wanted: Iterable[Study] = tuple(Study)) -> DataFound:
    """Look for the paper's data sets, and for data sets that may stand in for missing ones.

    Parameters
    ----------
    data_dir
        Data directory; None means that of the environment.
    wanted
        The data sets of the paper to look for.
    """
    found, remarks = [], []
    for study in wanted:
        reasons = []
        for candidate in CANDIDATES[study]:
            try:
                load_source(DataSpec(candidate.name, None if data_dir is None else str(data_dir.absolute())))
            except InputError as error:
                reasons.append(f"{candidate.name}: {error}")
                continue
            found.append(candidate)
            if candidate.stands_in:
                remarks.append(f"{study} is not there ({'; '.join(reasons)}): {candidate.name} stands in for it")
            break
        else:
            remarks.append(f"{study} is left out ({'; '.join(reasons)})")
    return DataFound(tuple(found), tuple(remarks))
