"""Which of the paper's data sets are there, and what stands in for one that is not."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.reproductions.bernau2021.settings import CANDIDATES, DataSetting, Study
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import InputError


@dataclass(frozen=True)
class DataFound:
    """Which data sets are there.

    Parameters
    ----------
    data
        In the order of the paper.
    remarks
        One line for every data set that is replaced by another or left out, with the reason.
    """

    data: tuple[DataSetting, ...]
    remarks: tuple[str, ...] = ()


def find_data(data_dir: Path | None, wanted: Iterable[Study] = tuple(Study)) -> DataFound:
    """Look for the paper's data sets, and for what may stand in for them.

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
