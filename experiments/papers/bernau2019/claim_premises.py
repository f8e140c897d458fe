"""Common parts of the paper's claims that are tested on runs: their confidence, and the premises they rest on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fl_audit.experiments.papers.bernau2019 import tradeoffs
from fl_audit.experiments.papers.bernau2019.attacked_models import AttackedModels, DatasetModels
from fl_audit.experiments.papers.bernau2019.hyperparameters import WHITE_BOX_GAIN
from fl_audit.experiments.papers.bernau2019.membership_runs import ATTACK_NAMES, key_of
from fl_audit.experiments.papers.claims import PaperClaim, read_claims
from fl_audit.experiments.papers.statistics import reproducible_generator
from fl_audit.statistics.interval_estimates import IntervalEstimate

CLAIMS = read_claims(__file__)
MARGIN = WHITE_BOX_GAIN[0]
"""Largest difference of an AUC or accuracy that counts as none: the smallest one that the paper mentions."""
CONFIDENCE = 0.95
"""Confidence of the intervals of all claims."""


def on_runs(
    key: str, models: DatasetModels, settings: Sequence[AttackedModels], interval: IntervalEstimate, **details: Any
) -> PaperClaim:
    """Return a claim that is tested on settings of a data set; its number of trials is that of the smallest."""
    trials = min(setting.trials for setting in settings)
    return CLAIMS[key].on(details.pop("where", models.data.title), interval, trials, **details)


def attack_premise(models: DatasetModels, attack: str) -> PaperClaim:
    """Return the claim that the AUC of an attack on the model without DP is at least 1/2 + `MARGIN`.

    Claims with this premise cannot be tested if it fails.
    """
    interval = tradeoffs.area_of(models.original, attack, CONFIDENCE)
    return on_runs("attack-premise", models, [models.original], interval, quantity=ATTACK_NAMES[attack])


def model_premise(models: DatasetModels) -> PaperClaim:
    """Return the claim that the test accuracy of the model without DP is at least 1 / classes + `MARGIN`.

    Claims with this premise cannot be tested if it fails.
    """
    interval = tradeoffs.mean_interval(models.original.test_accuracy, CONFIDENCE)
    lowest = 1 / models.data["classes"] + MARGIN
    return on_runs("model-premise", models, [models.original], interval, lowest=lowest)


def confidence_of_each(runs: int) -> float:
    """Return the confidence of each of `runs` intervals that makes all of them hold at `CONFIDENCE` (Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / runs


def claim_resampling(label: str, models: DatasetModels, attack: str) -> np.random.Generator:
    """Return the random generator for a claim's bootstrap, seeded by the claim, the data set and the attack."""
    return reproducible_generator(f"{label} {key_of(models.data)} {attack}")


def is_guessing(models: DatasetModels, setting: AttackedModels) -> bool:
    """Return whether a model is at chance: the interval of its test accuracy ends at or below 1 / classes +
    `MARGIN`."""
    guessing = 1 / int(models.data["classes"])
    return tradeoffs.mean_interval(setting.test_accuracy, CONFIDENCE).high <= guessing + MARGIN
