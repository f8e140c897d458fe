"""Statements of Bernau et al. 2019, each expressed as a range in which a measured number must lie.

Phi is the relative loss of the attack's AUC divided by the relative loss of test
accuracy.
"""

from collections.abc import Sequence
from math import inf, isnan, log2
from typing import NamedTuple

from fl_audit.experiments.papers.bernau2019.hyperparameters import (
    CLASSES,
    LFW,
    NOISE_MULTIPLIERS,
    PURCHASES,
    SKEWED,
    TEXAS,
    WHITE_BOX_GAIN,
)
from fl_audit.experiments.papers.bernau2019.membership_runs import ATTACK_NAMES, BLACK_BOX, PRINTED, WHITE_BOX
from fl_audit.experiments.papers.bernau2019.skewed import SKEWED_CLASSES
from fl_audit.experiments.papers.claims import PaperClaim, exact
from fl_audit.experiments.papers.papers import PaperDataset, PaperRun
from fl_audit.statistics.interval_estimates import IntervalEstimate

PHI_AT_CHANCE = "phi where the AUC is .5"
MARGIN = WHITE_BOX_GAIN[0]
"""Largest difference of an AUC or accuracy that counts as none: the smallest one that the paper mentions."""
AT_LIKE_ACCURACY = "under LDP less under CDP, at the same test accuracy"
ACHIEVES_MORE, LITTLE_MORE = "white-box attacks achieve more than black-box ones", "what they achieve more is small"
BASELINE_ON_COLLAB = "the black-box AUC stays at the baseline"
UNTIL_Z = {WHITE_BOX: 6.0, BLACK_BOX: 16.0}
"""The noise on Purchases up to which section 5.2 has the AUC of each attack above one half."""
ABOUT = 0.1
"""Largest distance of a phi from a number printed with "about"."""
_FEW_CLASSES = (10, 20)


class AucDifferenceClaim(NamedTuple):
    """A statement of section 6 of the paper, as a range for a difference of an attack's AUC.

    The difference is the AUC under local DP minus the AUC under central DP, at the same test accuracy.
    """

    statement: str
    lowest: float
    highest: float


def trade_sentence(data: PaperDataset) -> AucDifferenceClaim | None:
    """Return the paper's claim that compares local with central DP at equal accuracy; None if there is no such claim.

    The claim is a range for the attack's AUC under local DP minus that under central DP. Section 6 says that local DP
    has the better trade-off on Purchases and Skewed Purchases with 10 and 20 classes, and that both have the same
    trade-off on LFW, on Texas, and on Purchases with more classes. It says nothing about other data sets.
    """
    if data["classes"] in _FEW_CLASSES and data.study in (PURCHASES, SKEWED):
        return AucDifferenceClaim("local DP trades strictly better with 10 and 20 classes", -inf, 0.0)
    if data.study in (TEXAS, LFW, PURCHASES):
        return AucDifferenceClaim("local and central DP trade privacy for accuracy alike", -MARGIN, MARGIN)
    return None


def above_half(attack: str, where: str, found: IntervalEstimate, trials: int) -> PaperClaim:
    """Return the claim of section 5.2 that the AUC of an attack stays above 1/2 under weak noise of central DP."""
    return PaperClaim("5.2", f"the {ATTACK_NAMES[attack]} stays above .5 until z is {UNTIL_Z[attack]:g}",
                      f"{where}, CDP", f"smallest {ATTACK_NAMES[attack]} over smaller z", found, 0.5,
                      trials=trials)  # fmt: skip


def black_box_baseline(where: str, found: Sequence[IntervalEstimate], trials: int) -> PaperClaim:
    """Return the claim of section 5.3 that the black-box AUC stays near 1/2, tested where it is farthest off."""
    farthest = max(found, key=lambda one: abs(one.value - 0.5))
    return PaperClaim("5.3", BASELINE_ON_COLLAB, where, "black-box AUC, of all levels the farthest from .5", farthest,
                      0.5 - MARGIN, 0.5 + MARGIN, trials=trials)  # fmt: skip


def printed_phi(run: PaperRun, found: IntervalEstimate, trials: int) -> PaperClaim | None:
    """Return the claim that phi is near the value that the paper prints, or None if the paper prints no value.

    phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. The paper prints it at the
    noise at which the AUC falls to 1/2.

    `run`: Section 6 of the paper says that attacks are no better than chance at this level.
    """
    printed = PRINTED(run.data.study, run["method"], PHI_AT_CHANCE)
    if isnan(printed):
        return None
    section = "5.1" if run.data.study == TEXAS else "5.4"
    return PaperClaim(section, f"phi is about {printed:g} where the AUC reaches .5", run.label,
                      "phi (white-box AUC)", found, printed - ABOUT, printed + ABOUT, trials=trials)  # fmt: skip


def entropy_gap(classes: int) -> float:
    """Return how much more entropy a test record of Skewed Purchases has than a training record, in bits per feature.

    One in `classes` features is an indicator bit, alike in both kinds of records. All other features are noise bits: 1
    with probability 0.5 in test and 0.2 in training records.
    """

    def entropy(p: float) -> float:
        return -p * log2(p) - (1 - p) * log2(1 - p)

    return (1 - 1 / classes) * (entropy(0.5) - entropy(0.2))


def closed_forms() -> tuple[PaperClaim, ...]:
    """Return the claims of the paper that are tested without runs, from formulas and from its printed numbers."""
    gaps = [entropy_gap(classes) for classes in SKEWED_CLASSES]
    beside = []
    for z in NOISE_MULTIPLIERS:
        column, quantity = f"CDP, z {z:g}", "epsilon of central DP"
        said = PRINTED(TEXAS, column, quantity)  # of an author's blog
        printed = [PRINTED(TEXAS, f"{classes} classes, {column}", quantity) for classes in CLASSES[TEXAS]]
        beside.append(max(min(printed) - said, said - max(printed), 0.0))
    return (
        PaperClaim("4.5", "test and training records of Skewed Purchases differ in entropy by about .3",
                   "Skewed Purchases, all numbers of classes", "smallest difference in entropy, bits a feature",
                   exact(min(gaps)), 0.25, 0.35),
        PaperClaim("blog", "epsilon on Texas is about 250, 6.5, 2, 1 and .3", "Table 3, Texas",
                   "how far the blog's numbers lie outside the range of the table's columns", exact(max(beside)),
                   highest=0.0),
    )  # fmt: skip
