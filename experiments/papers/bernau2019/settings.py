"""Settings of the runs for Bernau et al. 2019: data sets and their substitutes, kinds of DP, noise levels and sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, assert_never

from fl_audit.experiments.papers.bernau2019 import published
from fl_audit.experiments.papers.bernau2019.published import NOISE_MULTIPLIERS, RECIPES, TABLE_2, MembershipDatasetName
from fl_audit.experiments.papers.bernau2019.small_faces_network import SMALL_FACES
from fl_audit.experiments.papers.papers import ComputeExtent

BLACK_BOX, WHITE_BOX, STRONGEST, INSIDER = "shadow", "white-box", "lira", "insider"
"""The paper's two attacks (Shokri et al. 2017, Nasr et al. 2019), one that came after it (Carlini et al. 2022), and the
insider of Bernau et al. 2021, who knows all records but one and sees every round."""
ATTACK_NAMES = {
    BLACK_BOX: "black-box AUC",
    WHITE_BOX: "white-box AUC",
    STRONGEST: "AUC of LiRA",
    "loss": "AUC of the loss",
    "rmia": "AUC of RMIA",
    INSIDER: "AUC of the insider",
}
_HERE = __name__.rpartition(".")[0]
WITH_INSIDER = (MembershipDatasetName.PURCHASES, MembershipDatasetName.SKEWED)
"""Data sets whose central runs also have an insider."""
REPETITIONS = 5
"""The paper repeats each experiment five times. Every trial is such a repetition, as all others are its shadows."""


class PrivacyMethod(StrEnum):
    """The kind of privacy of a run: none, local DP or central DP."""

    ORIGINAL = "original"
    LOCAL = "LDP"
    CENTRAL = "CDP"


class Randomizer(StrEnum):
    """The randomizer with which data owners perturb their records under local DP, named as in a configuration."""

    BITS = "randomised-response"
    EDGES = "randomised-edges"
    PIXELS = "pixelation"


@dataclass(frozen=True)
class DataSetRunExtent:
    """Size of the experiment on one data set, in a full or a quick run: records, epochs, trials and noise levels."""

    records: int  # targets, of which half are members on average
    epochs: int  # largest number of passes over the members without central DP
    central_epochs: int  # largest number of passes over the members with central DP
    trials: int = 24  # target models of a part, which are each other's shadow models
    test_records: int = 1000  # largest number of records for test accuracy
    population_records: int = 500  # largest number of records for the loss by which training ends early
    levels: tuple[int, ...] = (0, 1, 2, 3, 4)  # indices of the played values among the five epsilon_i and the five z
    parts: int = 2  # number of runs of each setting, whose trials are pooled


@dataclass(frozen=True)
class MembershipDatasetRecipe:
    """A data set of the reproduction, with its number of classes, model, sizes and hyper-parameters."""

    study: MembershipDatasetName  # the data set of the paper
    name: str  # its name in a configuration
    title: str  # its name in tables; it says where one data set stands in for another
    classes: int
    model: str
    column: int  # the column of Table 3 whose hyper-parameters are used
    values: int  # values in a record, as the paper counts them for epsilon of local DP
    full: DataSetRunExtent  # size of the full form
    quick: DataSetRunExtent | None = None  # size of the quick form; None leaves the data set out of it
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # more settings of `[data]`
    rates: tuple[float, float] | None = None  # learning rates without and with central DP, None for those of Table 3

    @property
    def recipe(self) -> published.Hyperparameters:
        """The hyper-parameters of Table 3, with the learning rates `rates` if given."""
        recipe = RECIPES[self.study, self.column]
        return recipe if self.rates is None else recipe._replace(rate=self.rates[0], central_rate=self.rates[1])

    @property
    def key(self) -> str:
        """Prefix of the names of this data set's run directories."""
        name = self.name.rpartition(":")[2].replace("_", "-")
        return f"{self.study.lower().replace(' ', '-')}-{name}-{self.classes}"

    @property
    def local_randomizer(self) -> Randomizer:
        """The randomizer that perturbs this data set's records under local DP."""
        match self.study:
            case MembershipDatasetName.COLLAB:
                return Randomizer.EDGES
            case MembershipDatasetName.LFW:
                return Randomizer.PIXELS
            case MembershipDatasetName.TEXAS | MembershipDatasetName.PURCHASES | MembershipDatasetName.SKEWED:
                return Randomizer.BITS
            case _:
                assert_never(self.study)

    def parts(self, extent: ComputeExtent) -> int:
        """Return the number of runs of each setting in a form; 0 if the form leaves the data set out."""
        size = self.size(extent)
        return 0 if size is None else size.parts

    def size(self, extent: ComputeExtent) -> DataSetRunExtent | None:
        """Return the sizes in the full or the quick form; None if the quick form leaves the data set out."""
        return self.full if extent is ComputeExtent.FULL else self.quick


_FEW = (0, 4)  # the levels of the quick form
# Levels of the full form; Skewed Purchases and LFW have all of them with the fewest classes only.
_ALL = (0, 1, 2, 3, 4)


def _skewed(classes: int) -> MembershipDatasetRecipe:
    return MembershipDatasetRecipe(
        MembershipDatasetName.SKEWED,
        f"{_HERE}.skewed:skewed_purchases",
        f"Skewed Purchases, {classes} classes",
        classes,
        "dense-128",
        classes,
        600,
        DataSetRunExtent(800, 40, 40, levels=_ALL if classes == 10 else _FEW),
        DataSetRunExtent(240, 12, 12, test_records=300, population_records=200, levels=_FEW, parts=1)
        if classes == 10
        else None,
        {"classes": classes, "generated-records": 10_000},
    )


_PURCHASES_LOCATION = MembershipDatasetRecipe(
    MembershipDatasetName.PURCHASES, "location30", "Location-30 for Purchases", 30, "dense-128", 50, 446,
    DataSetRunExtent(800, 48, 40),
    DataSetRunExtent(240, 10, 10, test_records=300, population_records=200, levels=_FEW, parts=1),
)  # fmt: skip
_TEXAS_LOCATION = MembershipDatasetRecipe(
    MembershipDatasetName.TEXAS, "location30", "Location-30 for Texas", 30, "dense-512-128", 100, 446,
    DataSetRunExtent(800, 20, 24),
    rates=(0.001, 0.001),  # the rate of Table 3, .01, is Texas's with 6,169 features
)  # fmt: skip
COLLAB = MembershipDatasetRecipe(
    MembershipDatasetName.COLLAB, f"{_HERE}.collab:collab", "COLLAB", 3, f"{_HERE}.graph_convolutions:dgcnn", 3, 64,
    DataSetRunExtent(400, 12, 12, population_records=200, test_records=400, levels=(0, 2, 4)),
    DataSetRunExtent(80, 2, 2, test_records=50, population_records=50, levels=(4,), parts=1), {"graph-nodes": 64},
    rates=(0.003, 0.003),
)  # fmt: skip


def _faces(people: int) -> MembershipDatasetRecipe:
    members = RECIPES[MembershipDatasetName.LFW, people].members
    assert members is not None
    return MembershipDatasetRecipe(
        MembershipDatasetName.LFW,
        f"{_HERE}.labeled_faces:lfw",
        f"LFW at 64 x 64, {people} people",
        people,
        SMALL_FACES,
        people,
        64 * 64,
        DataSetRunExtent(
            2 * members, 16, 10, test_records=500, population_records=300, levels=_ALL if people == 20 else _FEW
        ),
        DataSetRunExtent(240, 5, 5, test_records=200, population_records=100, levels=_FEW, parts=1)
        if people == 20
        else None,
        # A small network from random weights needs larger steps than the last layer of a trained one.
        {"classes": people},
        rates=(0.003, 0.003),
    )


def _published(study: MembershipDatasetName, name: str, model: str, classes: int) -> MembershipDatasetRecipe:
    recipe, title = RECIPES[study, classes], f"{study}, {classes} classes"
    assert recipe.members is not None, study
    size = DataSetRunExtent(2 * recipe.members, recipe.epochs, recipe.central_epochs)
    return MembershipDatasetRecipe(
        study,
        f"{_HERE}.purchases_and_texas_loaders:{name}",
        title,
        classes,
        model,
        classes,
        TABLE_2[study].values,
        size,
        options={"classes": classes},
    )


CANDIDATES: dict[MembershipDatasetName, tuple[tuple[MembershipDatasetRecipe, ...], ...]] = {
    **{
        study: (tuple(_published(study, name, model, classes) for classes in TABLE_2[study].classes), (location,))
        for study, name, model, location in (
            (MembershipDatasetName.TEXAS, "texas", "dense-512-128", _TEXAS_LOCATION),
            (MembershipDatasetName.PURCHASES, "purchases", "dense-128", _PURCHASES_LOCATION),
        )
    },
    MembershipDatasetName.COLLAB: ((COLLAB,),),
    MembershipDatasetName.LFW: (tuple(map(_faces, (20, 50))),),  # the archive has no 100 people with 20 images
    MembershipDatasetName.SKEWED: (tuple(map(_skewed, TABLE_2[MembershipDatasetName.SKEWED].classes)),),
}
"""The data sets that may be used for each data set of the paper, best first, each in one or several forms."""


@dataclass(frozen=True)
class MembershipSetting:
    """A data set with a kind of privacy (none, local or central DP) and its noise level."""

    data: MembershipDatasetRecipe  # the data set
    method: PrivacyMethod = PrivacyMethod.ORIGINAL  # the kind of privacy
    level: float = 0.0  # epsilon_i of local DP, z of central DP, 0 of the original model

    @property
    def name(self) -> str:
        """Name of the setting, the prefix of the names of its run directories."""
        method = str(self.method).lower()
        return f"{self.data.key}-{method}" + ("" if self.method is PrivacyMethod.ORIGINAL else f"-{self.level:g}")

    @property
    def label(self) -> str:
        """Name of the setting in tables: data set, kind of privacy and noise level."""
        match self.method:
            case PrivacyMethod.ORIGINAL:
                return f"{self.data.title}, original"
            case PrivacyMethod.LOCAL:
                return f"{self.data.title}, LDP, epsilon_i {self.level:g}"
            case PrivacyMethod.CENTRAL:
                return f"{self.data.title}, CDP, z {self.level:g}"
            case _:
                assert_never(self.method)

    @property
    def position(self) -> int:
        """Index in the paper's lists of results: 0 for the model without DP, then 1 to 5 by falling epsilon."""
        match self.method:
            case PrivacyMethod.ORIGINAL:
                return 0
            case PrivacyMethod.LOCAL:
                return 1 + published.record_epsilons(self.data.study).index(self.level)
            case PrivacyMethod.CENTRAL:
                return 1 + NOISE_MULTIPLIERS.index(self.level)
            case _:
                assert_never(self.method)

    @property
    def is_at_chance(self) -> bool:
        """Whether section 6 of the paper says that attacks at this noise level are no better than chance."""
        local, central = published.AT_CHANCE.get(self.data.study, (None, ()))
        return self.level in {PrivacyMethod.LOCAL: (local,), PrivacyMethod.CENTRAL: central}.get(self.method, ())


@dataclass(frozen=True)
class SettingRun:
    """One of several runs of a setting, whose results are pooled.

    The attack on a trial uses the models of the other trials of the same run as shadow models. All runs have the same
    number of trials, so that the attacks in them are equally strong.
    """

    setting: MembershipSetting  # the setting
    number: int = 0  # number of its part

    @property
    def name(self) -> str:
        """Name of the run's directory."""
        return f"{self.setting.name}-part{self.number}"

    @property
    def label(self) -> str:
        """Name of the run in progress displays, with the number of the part, from 1."""
        return f"{self.setting.label}, part {self.number + 1}"


def settings_of(data: MembershipDatasetRecipe, extent: ComputeExtent) -> tuple[MembershipSetting, ...]:
    """Return the settings on a data set: without DP, then local and central DP, each by falling epsilon.

    The result is empty if the quick form leaves the data set out.
    """
    size = data.size(extent)
    if size is None:
        return ()
    local = (
        MembershipSetting(data, PrivacyMethod.LOCAL, published.record_epsilons(data.study)[level])
        for level in size.levels
    )
    central = (MembershipSetting(data, PrivacyMethod.CENTRAL, NOISE_MULTIPLIERS[level]) for level in size.levels)
    return (MembershipSetting(data), *local, *central)
