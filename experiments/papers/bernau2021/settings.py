"""Settings of the runs for Bernau et al. 2021, section 6, and their configurations.

rho_beta is the claimed upper bound on the insider's belief in the true data set.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, assert_never

from fl_audit.adjacency import Adjacency
from fl_audit.data.neighbours import NeighbourChoice
from fl_audit.experiments.papers.papers import ComputeExtent
from fl_audit.privacy.accounting_enums import SensitivityKind

ROUNDS = 30
CLIPPING_NORM = 3.0
LEARNING_RATE = 0.005
OPTIMIZER = "adam"
ACCOUNTANT = "rdp-classic"
BELIEFS = (0.75, 0.9, 0.99)  # the values of rho_beta, without the smallest one, which differs between the data sets
MAIN_BELIEF = 0.9

SCALINGS = (SensitivityKind.LOCAL, SensitivityKind.GLOBAL)
RELATIONS = (Adjacency.REPLACE_RECORD, Adjacency.ADD_REMOVE_RECORD)
RELATION_LETTERS = {Adjacency.REPLACE_RECORD: "B", Adjacency.ADD_REMOVE_RECORD: "U"}
"""The paper calls replacing a record bounded DP (B), and adding or removing one unbounded DP (U)."""
SCALING_LETTERS = {SensitivityKind.LOCAL: "LS", SensitivityKind.GLOBAL: "GS"}


class InsiderDatasetName(StrEnum):
    """The names of the paper's three data sets."""

    MNIST = "MNIST"
    PURCHASE = "Purchase-100"
    ADULT = "Adult"


@dataclass(frozen=True)
class InsiderDatasetRecipe:
    """A data set of the paper, and the settings of its runs: sizes, model, delta, and measure of dissimilarity."""

    study: InsiderDatasetName  # the paper's data set that it is, or stands in for
    name: str  # name in the catalogue of data sets
    title: str  # name as shown, which says so if it stands in for another data set
    records: int  # n, the number of records in D
    delta: float  # delta of the guarantee
    model: str  # name of the model
    dissimilarity: str  # measure by which the neighbour is chosen
    smallest_belief: float  # rho_beta of the first column of Table 3
    test_records: int  # number of held-out records for the test accuracy, which the paper does not state
    trials_per_batch: int  # number of trials in a batch, which bounds the memory
    # Numbers of trials in the quick form: at rho_beta = 0.9, at other rho_beta, and for each neighbour of Figure 4.
    quick: tuple[int, int, int]
    # Measure in the quick form; it differs from the paper's where a search by that takes minutes.
    quick_dissimilarity: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # more settings of `[data]`

    @property
    def beliefs(self) -> tuple[float, ...]:
        """The values of rho_beta in Table 3, ascending."""
        return (self.smallest_belief, *BELIEFS)

    @property
    def short_title(self) -> str:
        """The title, with a line break before the name of the data set that it replaces."""
        return self.title.replace(" for ", "\nfor ")

    @property
    def is_substitute(self) -> bool:
        """Whether this data set is a substitute for a data set of the paper."""
        return self.title != self.study


MNIST = InsiderDatasetRecipe(
    InsiderDatasetName.MNIST, "mnist", "MNIST", 100, 0.01, "mnist-cnn", "ssim", 0.52, 200, 250,
    (6, 2, 2), "euclidean",
)  # fmt: skip
PURCHASE = InsiderDatasetRecipe(
    InsiderDatasetName.PURCHASE, "purchase100", "Purchase-100", 1000, 0.001, "dense-128", "hamming", 0.53, 1000,
    125, (12, 4, 2), "hamming",
)  # fmt: skip
LOCATION = replace(PURCHASE, name="location30", title="Location-30 for Purchase-100")
ADULT = InsiderDatasetRecipe(
    InsiderDatasetName.ADULT, "adult", "Adult", 1000, 0.001, "adult-mlp", "manhattan", 0.53, 1000, 250,
    (60, 30, 10), "manhattan",
)  # fmt: skip
CANDIDATES: dict[InsiderDatasetName, tuple[tuple[InsiderDatasetRecipe], ...]] = {
    InsiderDatasetName.MNIST: ((MNIST,),),
    InsiderDatasetName.PURCHASE: ((PURCHASE,), (LOCATION,)),
    InsiderDatasetName.ADULT: ((ADULT,),),
}
"""The data sets that may be used for each data set of the paper, best first."""


@dataclass(frozen=True)
class InsiderSetting:
    """The setting of one audit run: data set, noise scaling, adjacency, bound on the belief, and neighbour."""

    data: InsiderDatasetRecipe  # the data set, with all that the paper fixes for it
    scaling: SensitivityKind  # whether noise follows the local or the global sensitivity
    relation: Adjacency  # relation of D and D'
    belief: float = MAIN_BELIEF  # rho_beta, the claimed bound on the insider's belief
    neighbour: str = "most-dissimilar"  # kind of neighbour, such as `most-dissimilar` or `least-dissimilar`
    rank: int = 1  # rank of the neighbour among those of its kind, from 1

    @property
    def name(self) -> str:
        """Name of the directory of the setting's run."""
        common = f"{self.data.name}-{self.scaling}-{self.relation}-{self.belief:g}"
        return common if self.is_standard_neighbour else f"{common}-{self.neighbour}-{self.rank}"

    @property
    def letters(self) -> str:
        """The paper's abbreviations of noise scaling and adjacency, such as "LS B" (local sensitivity, bounded DP)."""
        return f"{SCALING_LETTERS[self.scaling]} {RELATION_LETTERS[self.relation]}"

    @property
    def label(self) -> str:
        """Name of the setting in tables: data set, noise scaling, adjacency and rho_beta.

        The settings of Figure 4 also name the neighbour D'.
        """
        which = "" if self.is_standard_neighbour else f", {self.neighbour} {self.rank}"
        return f"{self.data.title}, {self.letters}, rho_beta {self.belief:g}{which}"

    @property
    def is_local(self) -> bool:
        """Whether noise is scaled by the local sensitivity."""
        return self.scaling is SensitivityKind.LOCAL

    @property
    def is_standard_neighbour(self) -> bool:
        """Whether D' is the most dissimilar neighbour of D, as in all tables and figures except Figure 4."""
        return self.neighbour == "most-dissimilar" and self.rank == 1

    @property
    def seed(self) -> int:
        """Seed of the run, derived from its name."""
        return zlib.crc32(self.name.encode())


def _trials_of(setting: InsiderSetting, extent: ComputeExtent) -> int:
    """Return the number of trials of a setting.

    In the full form there are 1000 trials at rho_beta = 0.9 and 250 at other values, as published. Settings with
    another neighbour D', which only Figure 4 needs, have 100 trials each, because the paper states no number.
    """
    match extent:
        case ComputeExtent.FULL:
            main, other, neighbour = 1000, 250, 100
        case ComputeExtent.QUICK:
            main, other, neighbour = setting.data.quick
        case _:
            assert_never(extent)
    if not setting.is_standard_neighbour:
        return neighbour
    return main if setting.belief == MAIN_BELIEF else other


def all_values(extent: ComputeExtent) -> dict[str, Any]:
    """Return the configurations of all runs on all data sets that may be used, keyed by the run's name."""
    data = [one for group in CANDIDATES.values() for (one,) in group]
    return {one.name: values_of(one, extent, None) for one in all_settings(data)}


def values_of(setting: InsiderSetting, extent: ComputeExtent, data_dir: Path | None) -> dict[str, Any]:
    """Return the configuration of a setting's run as nested dictionaries that are not validated yet."""
    data = setting.data
    quick = extent is ComputeExtent.QUICK
    place = {} if data_dir is None else {"data-dir": str(data_dir.absolute())}
    ranked = {} if setting.is_standard_neighbour else {"neighbour-rank": setting.rank}
    return {
        "data": {
            "name": data.name,
            "records": data.records,
            "test-records": min(100, data.test_records) if quick else data.test_records,
            "clients": 10,
            **place,
        },
        "model": {"name": data.model, "seed": setting.seed},
        "training": {"rounds": ROUNDS, "learning-rate": LEARNING_RATE, "optimizer": OPTIMIZER},
        "privacy": {
            "belief": setting.belief,
            "delta": data.delta,
            "accountant": ACCOUNTANT,
            "clipping-norm": CLIPPING_NORM,
            "sensitivity": str(setting.scaling),
            "adjacency": str(setting.relation),
        },
        "audit": {
            "trials": _trials_of(setting, extent),
            "neighbour": setting.neighbour,
            "dissimilarity": data.quick_dissimilarity if quick else data.dissimilarity,
            "epsilon-star": False,
            "evaluate-every": ROUNDS,
            **ranked,
        },
        "run": {
            "seed": setting.seed,
            "trials-per-batch": data.trials_per_batch,
            "keep-releases": 0,
            "keep-final-models": False,
        },
    }


def main_settings(data: Iterable[InsiderDatasetRecipe]) -> tuple[InsiderSetting, ...]:
    """Return the settings of Table 2 and Figures 5 and 6: rho_beta = 0.9, both noise scalings and both adjacencies."""
    each = product(data, SCALINGS, RELATIONS)
    return tuple(InsiderSetting(one, scaling, relation) for one, scaling, relation in each)


def audit_settings(data: Iterable[InsiderDatasetRecipe]) -> tuple[InsiderSetting, ...]:
    """Return the settings of Figures 7 to 9: bounded DP (replaced record), both noise scalings and all rho_beta."""
    each = ((one, scaling, belief) for one in data for scaling in SCALINGS for belief in one.beliefs)
    return tuple(InsiderSetting(one, scaling, Adjacency.REPLACE_RECORD, belief) for one, scaling, belief in each)


def neighbour_settings(data: Iterable[InsiderDatasetRecipe]) -> tuple[InsiderSetting, ...]:
    """Return the settings of Figure 4: the most and the least dissimilar neighbours of each data set."""
    return tuple(
        InsiderSetting(one, SensitivityKind.LOCAL, relation, MAIN_BELIEF, neighbour, rank)
        for one in data
        for relation in RELATIONS
        for neighbour, rank in neighbours_shown(one, relation)
    )


def all_settings(data: Iterable[InsiderDatasetRecipe]) -> tuple[InsiderSetting, ...]:
    """Return the settings of all tables and figures; a setting that several of them share occurs several times."""
    own = tuple(data)
    return (*main_settings(own), *audit_settings(own), *neighbour_settings(own))


def neighbours_shown(data: InsiderDatasetRecipe, relation: Adjacency) -> tuple[tuple[str, int], ...]:
    """Return the neighbours of D in one panel of Figure 4 as (kind, rank), from most to least dissimilar.

    On MNIST with replaced records there are three of each kind, otherwise one. In the paper's figure, the local
    sensitivities on MNIST exceed the clipping norm C. This is only possible if the paper replaces records. We add
    panels for removed records.
    """
    three = data.study is InsiderDatasetName.MNIST and relation is Adjacency.REPLACE_RECORD
    ranks = (1, 2, 3) if three else (1,)
    most = tuple((str(NeighbourChoice.MOST_DISSIMILAR), rank) for rank in ranks)
    return most + tuple(("least-dissimilar", rank) for rank in reversed(ranks))
