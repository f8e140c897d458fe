"""Search for a paper's data sets, and for substitutes of those that are missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import InputError
from fl_audit.experiments.papers.legacy_papers import OldPaperItem
from fl_audit.experiments.papers.papers import ReproductionOptions


class CatalogueDataset(Protocol):
    """A data set, given by its name in the catalogue and by further settings of a configuration's section [data]."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Any]: ...


class StudyDataset(Protocol):
    """A data set of the paper, or a substitute for one; `study` says which data set of the paper it is for."""

    @property
    def study(self) -> str: ...


D = TypeVar("D", bound=CatalogueDataset)
S = TypeVar("S")
StudyDatasetT = TypeVar("StudyDatasetT", bound=StudyDataset)


@dataclass(frozen=True)
class DatasetItem(OldPaperItem):
    """A table or figure of a paper, with the data sets whose runs it shows."""

    studies: tuple[str, ...] = field(default=(), kw_only=True)  # data sets of the paper; empty if it needs no data

    def data_of(self, found: Iterable[StudyDatasetT]) -> tuple[StudyDatasetT, ...]:
        """Return, in their order, those data sets in `found` that the table or figure shows."""
        return tuple(one for one in found if one.study in self.studies)


def find_data_of_items(
    items: Iterable[DatasetItem], candidates: Mapping[S, Sequence[Sequence[D]]], context: ReproductionOptions
) -> tuple[tuple[D, ...], tuple[str, ...]]:
    """Return the available data sets of tables and figures, and a sentence on each one that is substituted or missing.

    The sentences are also passed to the announcing function of `context`.
    """
    studies: Any = dict.fromkeys(study for item in items for study in item.studies)
    found, remarks = find_data(candidates, context.data_dir, studies)
    for remark in remarks:
        context.announce(remark)
    return found, remarks


def find_data(
    candidates: Mapping[S, Sequence[Sequence[D]]], data_dir: Path | None, wanted: Iterable[S] | None = None
) -> tuple[tuple[D, ...], tuple[str, ...]]:
    """Return the available data sets of a paper, and a sentence on each one that is substituted or missing.

    `candidates`: The first alternative that is available is used. An alternative may have several versions, such as
    numbers of classes: all available versions are used.
    """
    found: list[D] = []
    remarks: list[str] = []
    for study in candidates if wanted is None else wanted:
        reasons: list[str] = []
        for forms in candidates[study]:
            missing = {one: reason for one in forms if (reason := _missing(one, data_dir)) is not None}
            there = [one for one in forms if one not in missing]
            if there:
                found.extend(there)
                if reasons:
                    remarks.append(f"{study} is not there ({'; '.join(reasons)}): {there[0].name} stands in for it")
                break
            reasons.extend(f"{one.name.rpartition(':')[2]}: {reason}" for one, reason in missing.items())
        else:
            remarks.append(f"{study} is left out ({'; '.join(reasons)})")
    return tuple(found), tuple(remarks)


def _missing(data: CatalogueDataset, data_dir: Path | None) -> str | None:
    """Return the reason why a data set cannot be loaded; None if it can."""
    place = None if data_dir is None else str(data_dir.absolute())
    try:
        load_source(DataSpec(data.name, place, tuple(data.options.items())))
    except InputError as error:
        return str(error)
    return None
