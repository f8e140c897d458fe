"""Numbers printed in Bernau, Grassal, Robl and Kerschbaum 2019 (arXiv:1912.11328), with which we compare ours.

Table 2 prints epsilon of local DP. Table 3 prints training accuracies, epsilon of central DP and hyper-parameters. The
paper shows test accuracies, AUCs and phi (the relative loss of AUC divided by the relative loss of accuracy) in figures
only; a few of them are printed in its text.
"""

from enum import StrEnum
from typing import NamedTuple


class MembershipDatasetName(StrEnum):
    """The five data sets of the paper, by name."""

    TEXAS = "Texas"
    PURCHASES = "Purchases"
    COLLAB = "COLLAB"
    LFW = "LFW"
    SKEWED = "Skewed Purchases"


NOISE_MULTIPLIERS = (0.5, 2.0, 4.0, 6.0, 16.0)
"""z of central DP. Section 5 names {2, 4, 6, 8, 16}, the head of Table 3 .5 to 16: only with these five does the
accountant reproduce the rows of LFW."""
RECORD_EPSILONS = (3.0, 2.0, 1.0, 0.5, 0.1)  # epsilon_i of each randomised bit or edge
PIXEL_EPSILONS = (1000.0, 100.0, 10.0, 1.0, 0.1)
"""epsilon_i of each pixel: Table 2 gives the first and the last, the three between them are not stated."""


def record_epsilons(study: MembershipDatasetName) -> tuple[float, ...]:
    """Return the values of epsilon_i, the epsilon of local DP for one value of a record, in descending order."""
    return PIXEL_EPSILONS if study is MembershipDatasetName.LFW else RECORD_EPSILONS


class LocalEpsilonRow(NamedTuple):
    """A row of Table 2: the number of values of a record, and the epsilon of local DP for the whole record.

    The epsilon of a single value is epsilon_i. `largest` is the record's epsilon at the largest epsilon_i of the paper,
    and `smallest` is the record's epsilon at the smallest one.
    """

    values: int
    largest: float
    smallest: float
    classes: tuple[int, ...]
    model: str


TABLE_2 = {
    MembershipDatasetName.TEXAS: LocalEpsilonRow(6382, 19125, 638, (100, 150, 200, 300), "512-128-C"),
    MembershipDatasetName.PURCHASES: LocalEpsilonRow(600, 1800, 60, (10, 20, 50, 100), "128-C"),
    MembershipDatasetName.COLLAB: LocalEpsilonRow(2000, 6000, 200, (3,), "graph convolutions (DGCNN)"),
    MembershipDatasetName.LFW: LocalEpsilonRow(250 * 250, 62.5e6, 6250, (20, 50, 100), "VGG-16"),
    MembershipDatasetName.SKEWED: LocalEpsilonRow(600, 1800, 60, (10, 20, 50, 100), "128-C"),
}


class Hyperparameters(NamedTuple):
    """The hyper-parameters in a column of Table 3; local DP has the same ones as the model without DP.

    `members` is the number of training records of the target model (section 4), or None if the paper does not state it.
    Fields whose names begin with `central_` hold for central DP. `rate`, `batch` and `epochs` hold without central DP.
    """

    members: int | None
    rate: float
    central_rate: float
    batch: int
    central_batch: int
    epochs: int
    central_epochs: int
    clipping_norm: float


def _faces(members: int, central_rate: float) -> Hyperparameters:
    return Hyperparameters(members, 0.001, central_rate, 32, 16, 30, 110, 3.0)


_TEXAS = Hyperparameters(10_000, 0.01, 0.01, 128, 128, 200, 1000, 4.0)
_PURCHASES = Hyperparameters(8_000, 0.001, 0.01, 128, 128, 200, 200, 4.0)
_SKEWED = Hyperparameters(None, 0.001, 0.001, 100, 100, 200, 200, 4.0)
RECIPES: dict[tuple[MembershipDatasetName, int], Hyperparameters] = {
    **{(MembershipDatasetName.TEXAS, classes): _TEXAS for classes in TABLE_2[MembershipDatasetName.TEXAS].classes},
    **{
        (MembershipDatasetName.PURCHASES, classes): _PURCHASES
        for classes in TABLE_2[MembershipDatasetName.PURCHASES].classes
    },
    (MembershipDatasetName.COLLAB, 3): Hyperparameters(2_500, 0.0001, 0.001, 50, 50, 300, 100, 3.0),
    (MembershipDatasetName.LFW, 20): _faces(368, 0.001),
    (MembershipDatasetName.LFW, 50): _faces(544, 0.0008),
    (MembershipDatasetName.LFW, 100): _faces(720, 0.0008),
    **{(MembershipDatasetName.SKEWED, classes): _SKEWED for classes in TABLE_2[MembershipDatasetName.SKEWED].classes},
}


class AccuracyAndEpsilonColumn(NamedTuple):
    """The numbers in a column of Table 3: training accuracies of local and central DP, and epsilons of central DP.

    `local` and `central` begin with the accuracy without DP, and continue with one number per epsilon, descending.
    """

    local: tuple[float, ...]
    central: tuple[float, ...]
    epsilon: tuple[float, ...]


_COLUMNS = {
    MembershipDatasetName.TEXAS: {
        100: ((0.86, 1.0, 1.0, 1.0, 0.99, 0.82), (0.86, 0.74, 0.57, 0.35, 0.22, 0.05), (222.6, 6.3, 2.3, 0.9, 0.3)),
        150: ((0.92, 1.0, 1.0, 1.0, 0.95, 0.71), (0.92, 0.75, 0.54, 0.31, 0.19, 0.04), (259.8, 6.6, 2.0, 1.1, 0.2)),
        200: ((0.83, 1.0, 1.0, 0.98, 0.86, 0.59), (0.83, 0.69, 0.48, 0.26, 0.16, 0.03), (251.5, 7.3, 2.2, 1.0, 0.3)),
        300: ((0.81, 1.0, 1.0, 0.92, 0.72, 0.53), (0.81, 0.62, 0.42, 0.22, 0.13, 0.02), (259.8, 7.4, 2.1, 1.1, 0.3)),
    },
    MembershipDatasetName.PURCHASES: {
        10: ((0.99, 0.97, 0.88, 0.64, 0.58, 0.44), (1.0, 0.95, 0.91, 0.80, 0.69, 0.28), (88.1, 4.6, 2.0, 1.3, 0.4)),
        20: ((1.0, 0.97, 0.85, 0.58, 0.47, 0.38), (1.0, 0.91, 0.84, 0.69, 0.51, 0.14), (88.1, 4.1, 1.8, 1.2, 0.4)),
        50: ((1.0, 0.95, 0.86, 0.69, 0.62, 0.49), (1.0, 0.82, 0.71, 0.46, 0.28, 0.05), (88.1, 4.1, 1.8, 1.2, 0.4)),
        100: ((0.99, 0.94, 0.90, 0.79, 0.75, 0.51), (0.99, 0.63, 0.51, 0.27, 0.14, 0.02), (88.1, 4.1, 1.8, 1.2, 0.3)),
    },
    MembershipDatasetName.COLLAB: {
        3: ((0.74, 0.72, 0.72, 0.61, 0.59, 0.59), (0.74, 0.67, 0.59, 0.56, 0.54, 0.52), (98.4, 6.1, 2.6, 1.7, 0.6))
    },
    MembershipDatasetName.LFW: {
        20: ((1.0, 1.0, 1.0, 0.22, 0.24, 0.25), (1.0, 0.99, 0.76, 0.44, 0.36, 0.32), (84.3, 4.8, 2.1, 1.3, 0.5)),
        50: ((1.0, 1.0, 0.96, 0.18, 0.17, 0.17), (1.0, 0.87, 0.5, 0.28, 0.23, 0.19), (70.4, 3.9, 1.7, 0.8, 0.4)),
        100: ((1.0, 1.0, 1.0, 0.13, 0.13, 0.13), (1.0, 0.79, 0.35, 0.25, 0.18, 0.13), (62.4, 3.4, 1.5, 1.0, 0.3)),
    },
    MembershipDatasetName.SKEWED: {
        10: ((1.0, 1.0, 1.0, 1.0, 0.93, 0.52), (1.0, 1.0, 1.0, 0.92, 0.89, 0.66), (28.9, 1.6, 0.7, 0.9, 0.4)),
        20: ((1.0, 1.0, 1.0, 0.99, 0.98, 0.55), (1.0, 1.0, 0.96, 0.8, 0.64, 0.24), (29.8, 1.7, 1.6, 0.9, 0.4)),
        50: ((1.0, 1.0, 1.0, 0.97, 0.9, 0.71), (1.0, 0.97, 0.6, 0.25, 0.12, 0.03), (42.2, 3.5, 1.3, 0.7, 0.3)),
        100: ((1.0, 0.99, 0.97, 0.89, 0.80, 0.45), (1.0, 0.58, 0.1, 0.02, 0.02, 0.01), (73.5, 2.1, 1.3, 0.6, 0.3)),
    },
}
TABLE_3: dict[tuple[MembershipDatasetName, int], AccuracyAndEpsilonColumn] = {
    (study, classes): AccuracyAndEpsilonColumn(*column)
    for study, columns in _COLUMNS.items()
    for classes, column in columns.items()
}

EPSILON_DECIMALS = 1  # decimals to which Table 3 gives epsilon

AT_CHANCE: dict[MembershipDatasetName, tuple[float, tuple[float, ...]]] = {
    MembershipDatasetName.TEXAS: (1.0, (6.0, 16.0)),
    MembershipDatasetName.PURCHASES: (0.1, (16.0,)),
    MembershipDatasetName.COLLAB: (1.0, (6.0,)),
    MembershipDatasetName.LFW: (0.1, (4.0,)),
}
"""Settings in which section 6 has attacks no better than chance: epsilon_i, and the z of an epsilon of Table 3.

Texas: epsilon 6382 and .9 (100 classes) to .3 (300). Purchases: 60 and .4 to .3. COLLAB: 2000 and 1.7. LFW: 6250 and
2.1 to 1.5."""

WHITE_BOX_GAIN = (0.03, 0.05)  # by how much white-box attacks exceed black-box ones, "about 3 to 5 %" (section 6)
MAJORITY_OF_COLLAB = 0.52  # test accuracy on COLLAB under strong noise: the share of the largest class (section 5.3)

PHI_AT_CHANCE: dict[MembershipDatasetName, tuple[float | None, float | None]] = {
    MembershipDatasetName.TEXAS: (1.5, 1.5),
    MembershipDatasetName.LFW: (1.1, 1.5),
}
"""phi of local and of central DP where the AUC reaches one half (sections 5.1 and 5.4)."""

BLOG_TEXAS = (250.0, 6.5, 2.0, 1.0, 0.3)
"""Epsilon of central DP on Texas by rising z, of an author's blog ("Introduction to differential privacy")."""
