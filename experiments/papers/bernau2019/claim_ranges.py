"""Statements of Bernau et al. 2019, each expressed as a range in which a measured number must lie.

Phi is the relative loss of the attack's AUC divided by the relative loss of test
accuracy.
"""

from math import isnan, log2

from fl_audit.experiments.papers.bernau2019.hyperparameters import (
    CLASSES,
    LFW,
    NOISE_MULTIPLIERS,
    PURCHASES,
    SKEWED,
    TEXAS,
    WHITE_BOX_GAIN,
)
from fl_audit.experiments.papers.bernau2019.membership_runs import BLACK_BOX, PRINTED, WHITE_BOX
from fl_audit.experiments.papers.bernau2019.skewed import SKEWED_CLASSES
from fl_audit.experiments.papers.claims import PaperClaim, exact, read_claims
from fl_audit.experiments.papers.papers import PaperDataset, PaperRun
from fl_audit.statistics.interval_estimates import IntervalEstimate

PHI_AT_CHANCE = "phi where the AUC is .5"
MARGIN = WHITE_BOX_GAIN[0]
"""Largest difference of an AUC or accuracy that counts as none: the smallest one that the paper mentions."""
CLAIMS = read_claims(__file__)
ABOVE_HALF = {WHITE_BOX: ("white-box-above-half", 6.0), BLACK_BOX: ("black-box-above-half", 16.0)}
"""The claim of section 5.2 on each attack, and the noise on Purchases up to which it has the AUC above one half."""
_FEW_CLASSES = (10, 20)


def trade_claim(data: PaperDataset) -> str | None:
    """Return the key of the paper's claim that compares local with central DP at equal accuracy; None without one.

    The claim is a range for the attack's AUC under local DP minus that under central DP. Section 6 says that local DP
    has the better trade-off on Purchases and Skewed Purchases with 10 and 20 classes, and that both have the same
    trade-off on LFW, on Texas, and on Purchases with more classes. It says nothing about other data sets.
    """
    if data["classes"] in _FEW_CLASSES and data.study in (PURCHASES, SKEWED):
        return "local-trades-better"
    return "trade-alike" if data.study in (TEXAS, LFW, PURCHASES) else None


_ABOUT = {1.1: "phi-about-1-1", 1.5: "phi-about-1-5"}


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
    return CLAIMS[_ABOUT[printed]].on(run.label, found, trials, section=section)


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
        CLAIMS["entropy"].on("Skewed Purchases, all numbers of classes", exact(min(gaps))),
        CLAIMS["blog-epsilons"].on("Table 3, Texas", exact(max(beside))),
    )
