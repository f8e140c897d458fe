"""The runs of Bernau et al. 2019: data sets and their substitutes, base configuration, kinds of DP and noise levels."""

import zlib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from itertools import count
from math import ceil, sqrt
from typing import assert_never

from fl_audit.audits.membership.shadow_sums import FEWEST, fewest_on_a_side
from fl_audit.experiments.papers.bernau2019.hyperparameters import (
    COLLAB,
    LFW,
    NOISE_MULTIPLIERS,
    PURCHASES,
    SKEWED,
    Hyperparameters,
    record_epsilons,
)
from fl_audit.experiments.papers.papers import PaperDataset, PaperRun, PrintedNumbers, Settings
from fl_audit.strategies.secret_draws import SeededChallenger

PRINTED = PrintedNumbers(__file__)
PHI_AT_CHANCE = "phi where the AUC is .5"
BLACK_BOX = "shadow"
WHITE_BOX = "white-box"
STRONGEST = "lira"
INSIDER = "insider"
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
ATTACKS = ("loss", BLACK_BOX, STRONGEST, "rmia", WHITE_BOX)
WITH_INSIDER = (PURCHASES, SKEWED)
"""Data sets whose central runs also have an insider."""
REPETITIONS = 5
"""The paper repeats each experiment five times. Every trial is such a repetition, as all others are its shadows."""
PATIENCE = 8  # epochs without a smaller loss that end the training of a trial; the paper does not state its own
EPOCHS_A_ROUND = 2
"""Epochs between two evaluations of the loss where no noise is added; Adam's moments start anew there."""
BASE: Settings = {
    "privacy.adjacency": "add-remove-record",
    "audit.kind": "membership",
    "audit.attacks": list(ATTACKS),
    "audit.epsilon-star": False,
    "run.keep-releases": 0,
    "run.actors": 1,  # runs are played side by side instead
}
"""Settings of every run."""


class PrivacyMethod(StrEnum):
    """The kind of privacy of a run: none, local DP or central DP."""

    ORIGINAL = "original"
    LOCAL = "LDP"
    CENTRAL = "CDP"


def key_of(dataset: PaperDataset) -> str:
    """Return the prefix of the names of a data set's run directories."""
    name = dataset.name.rpartition(":")[2].replace("_", "-")
    return f"{dataset.study.lower().replace(' ', '-')}-{name}-{dataset['classes']}"


def membership_run(dataset: PaperDataset, method: PrivacyMethod, level: float = 0.0, repetition: int = 0) -> PaperRun:
    """Return a run: a kind of privacy at a noise level, which is epsilon_i of local DP, z of central DP, or else 0.

    Each of several parts has the same number of trials, so that the attacks in them are equally strong: an attack on a
    trial uses the models of the other trials of the same run as shadow models.
    """
    is_central = method is PrivacyMethod.CENTRAL
    hyperparameters = dataset["hyperparameters"]
    at_level = "" if method is PrivacyMethod.ORIGINAL else f"-{level:g}"
    name = f"{key_of(dataset)}-{method.lower()}{at_level}-part{repetition}"
    seed = _first_seed(name, dataset["data.records"], dataset["audit.trials"])
    settings = {
        **BASE,
        **dataset.settings,
        "data.clients": 2 if is_central else 1,  # which changes nothing: all records of a sample take part
        "model.seed": seed,
        **(_with_noise(hyperparameters, dataset) if is_central else _without_noise(hyperparameters, dataset)),
        **_privacy(dataset, method, level),
        "audit.targets": dataset["data.records"],
        "audit.insider": is_central and dataset.study in WITH_INSIDER,
        "run.seed": seed,
        "run.trials-per-batch": dataset["audit.trials"],
        "method": method,
        "level": level,
    }
    return PaperRun(dataset, name, f"{dataset.title}, {_level_name(method, level)}", settings)


def _level_name(method: PrivacyMethod, level: float) -> str:
    match method:
        case PrivacyMethod.ORIGINAL:
            return "original"
        case PrivacyMethod.LOCAL:
            return f"LDP, epsilon_i {level:g}"
        case PrivacyMethod.CENTRAL:
            return f"CDP, z {level:g}"
        case _:
            assert_never(method)


@cache  # the digest of the paper's settings asks for it in every comparison, and it takes draws for all records
def _first_seed(name: str, records: int, trials: int) -> int:
    """Return the seed of a run, derived from its name.

    A seed is skipped if it makes some target a member in too few or too many trials for shadow models.
    """
    for offset in count():
        seed = zlib.crc32(f"{name}{f'-seed{offset}' if offset else ''}".encode())
        if fewest_on_a_side(SeededChallenger(seed, records).membership(range(trials))).min() >= FEWEST:
            break
    return seed


def _with_noise(hyperparameters: Hyperparameters, dataset: PaperDataset) -> Settings:
    """Return the training settings of central DP, in which each round is one step.

    The paper samples batches of b from n members. Here each of 2n targets is a member with probability 1/2. To get the
    same sampling rate, the batch is 2b, but at most a quarter of the records. The loss is evaluated once an epoch.
    """
    batch = min(2 * hyperparameters.central_batch, dataset["data.records"] // 4)
    return {
        "training.optimizer": "adam",
        "training.learning-rate": hyperparameters.central_rate,
        "training.expected-batch": batch,
        "training.epochs": dataset["central-epochs"],
        "training.early-stopping": PATIENCE,
        "audit.evaluate-every": max(1, round(dataset["data.records"] / batch)),
    }


def _without_noise(hyperparameters: Hyperparameters, dataset: PaperDataset) -> Settings:
    """Return the training settings without central DP; the loss is evaluated once a round."""
    epochs = min(EPOCHS_A_ROUND, dataset["epochs"])
    return {
        "training.strategy": "dp-fedavg",
        "training.rounds": ceil(dataset["epochs"] / epochs),
        "training.local-epochs": epochs,
        "training.local-batch": min(hyperparameters.batch, dataset["data.records"] // 8),
        "training.local-optimizer": "adam",
        "training.local-learning-rate": hyperparameters.rate,
        "training.early-stopping": ceil(PATIENCE / epochs),
        "audit.evaluate-every": 1,
    }


_RANDOMIZERS: Mapping[str, str] = {COLLAB: "randomised-edges", LFW: "pixelation"}


def _privacy(dataset: PaperDataset, method: PrivacyMethod, level: float) -> Settings:
    common = {"privacy.delta": 2 / dataset["data.records"]}
    match method:
        case PrivacyMethod.ORIGINAL:
            return common | {"privacy.private": False}
        case PrivacyMethod.CENTRAL:
            return common | {
                "privacy.noise-multiplier": level,
                "privacy.clipping-norm": dataset["hyperparameters"].clipping_norm,
                "privacy.accountant": "rdp-classic",
            }
        case PrivacyMethod.LOCAL:
            # b = 1 keeps every pixel; m is the square root of the number of pixels (section 4.4).
            pixels = {"privacy.pixelation-block": 1, "privacy.pixelation-pixels": round(sqrt(dataset["values"]))}
            return common | {
                "privacy.private": False,
                "privacy.local-randomizer": _RANDOMIZERS.get(dataset.study, "randomised-response"),
                "privacy.record-epsilon": level,
                **(pixels if dataset.study == LFW else {}),
            }
        case _:
            assert_never(method)


def runs_of(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return all parts of all settings: without DP, then local and central DP, each by falling epsilon."""
    local = record_epsilons(dataset.study)
    central = NOISE_MULTIPLIERS
    settings = (
        (PrivacyMethod.ORIGINAL, 0.0),
        *((PrivacyMethod.LOCAL, local[level]) for level in dataset["levels"]),
        *((PrivacyMethod.CENTRAL, central[level]) for level in dataset["levels"]),
    )
    return tuple(membership_run(dataset, *setting, index) for setting in settings for index in range(dataset["parts"]))


def position_of(run: PaperRun) -> int:
    """Return the index in the paper's lists of results: 0 for the model without DP, then 1 to 5 by falling epsilon."""
    method: PrivacyMethod = run["method"]
    match method:
        case PrivacyMethod.ORIGINAL:
            return 0
        case PrivacyMethod.LOCAL:
            return 1 + record_epsilons(run.data.study).index(run["level"])
        case PrivacyMethod.CENTRAL:
            return 1 + NOISE_MULTIPLIERS.index(run["level"])
        case _:
            assert_never(method)


def is_at_chance(run: PaperRun) -> bool:
    """Return whether section 6 of the paper says that attacks at this noise level are no better than chance.

    Texas: epsilon 6382 and .9 (100 classes) to .3 (300). Purchases: 60 and .4 to .3. COLLAB: 2000 and 1.7. LFW: 6250
    and 2.1 to 1.5.
    """
    return PRINTED(run.data.study, _level_name(run["method"], run["level"]), "AUC") == 0.5
