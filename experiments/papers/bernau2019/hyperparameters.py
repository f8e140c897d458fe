"""Trainings of Bernau, Grassal, Robl and Kerschbaum 2019 (arXiv:1912.11328), as they state them: noise, sizes, rates.

The numbers that they print as results are in `printed.csv`: epsilons of local DP (Table 2), training accuracies and
epsilons of central DP (Table 3). Test accuracies, AUCs and phi (the relative loss of AUC divided by the relative loss
of accuracy) are shown in figures only; a few of them are printed in the text.
"""

from typing import NamedTuple

TEXAS = "Texas"
PURCHASES = "Purchases"
COLLAB = "COLLAB"
LFW = "LFW"
SKEWED = "Skewed Purchases"
"""The five data sets of the paper."""
STUDIES = (TEXAS, PURCHASES, COLLAB, LFW, SKEWED)
CLASSES = {
    TEXAS: (100, 150, 200, 300),
    PURCHASES: (10, 20, 50, 100),
    COLLAB: (3,),
    LFW: (20, 50, 100),
    SKEWED: (10, 20, 50, 100),
}
"""Numbers of classes: each is a version of the data set."""
VALUES = {TEXAS: 6382, PURCHASES: 600, COLLAB: 2000, LFW: 250 * 250, SKEWED: 600}
"""Values in a record, each of which has an epsilon_i of local DP (Table 2)."""
NETWORKS = {
    TEXAS: "512-128-C",
    PURCHASES: "128-C",
    COLLAB: "graph convolutions (DGCNN)",
    LFW: "VGG-16",
    SKEWED: "128-C",
}
NOISE_MULTIPLIERS = (0.5, 2.0, 4.0, 6.0, 16.0)
"""z of central DP. Section 5 names {2, 4, 6, 8, 16}, the head of Table 3 .5 to 16: only with these five does the
accountant reproduce the rows of LFW."""
RECORD_EPSILONS = (3.0, 2.0, 1.0, 0.5, 0.1)  # epsilon_i of each randomised bit or edge
PIXEL_EPSILONS = (1000.0, 100.0, 10.0, 1.0, 0.1)
"""epsilon_i of each pixel: Table 2 gives the first and the last, the three between them are not stated."""
WHITE_BOX_GAIN = (0.03, 0.05)  # by how much white-box attacks exceed black-box ones, "about 3 to 5 %" (section 6)


def record_epsilons(study: str) -> tuple[float, ...]:
    """Return the values of epsilon_i, the epsilon of local DP for one value of a record, in descending order."""
    return PIXEL_EPSILONS if study == LFW else RECORD_EPSILONS


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


HYPERPARAMETERS: dict[tuple[str, int], Hyperparameters] = {
    **{(TEXAS, classes): Hyperparameters(10_000, 0.01, 0.01, 128, 128, 200, 1000, 4.0) for classes in CLASSES[TEXAS]},
    **{
        (PURCHASES, classes): Hyperparameters(8_000, 0.001, 0.01, 128, 128, 200, 200, 4.0)
        for classes in CLASSES[PURCHASES]
    },
    (COLLAB, 3): Hyperparameters(2_500, 0.0001, 0.001, 50, 50, 300, 100, 3.0),
    (LFW, 20): Hyperparameters(368, 0.001, 0.001, 32, 16, 30, 110, 3.0),
    (LFW, 50): Hyperparameters(544, 0.001, 0.0008, 32, 16, 30, 110, 3.0),
    (LFW, 100): Hyperparameters(720, 0.001, 0.0008, 32, 16, 30, 110, 3.0),
    **{(SKEWED, classes): Hyperparameters(None, 0.001, 0.001, 100, 100, 200, 200, 4.0) for classes in CLASSES[SKEWED]},
}
"""By data set and number of classes."""
