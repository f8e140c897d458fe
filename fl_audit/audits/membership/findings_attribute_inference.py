"""Findings on attribute inference: the accuracies of the adversaries, and the limit that the guarantee sets."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.audits.membership.attack_limits import largest_auc_within_training
from fl_audit.audits.membership.attribute_inference import AttributeGuesses
from fl_audit.audits.membership.one_target_per_trial import can_compare_targets
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.statistics.advantage import AdvantageInterval, mean_advantage

TRUTH = "attribute"
GUESSED_BLINDLY = "attribute_prior"
GUESSED = "attribute_loss"
GUESSED_BY_DISTRIBUTION = "attribute_distribution"
"""Columns of the table of targets: index of the attribute's true value, and the value that each adversary guesses."""
GUESSERS = (GUESSED_BLINDLY, GUESSED, GUESSED_BY_DISTRIBUTION)


@dataclass(frozen=True)
class AttributeGuessAccuracy:
    """The accuracy of one adversary that guesses an attribute of each target, for members and for nonmembers."""

    members: float  # share of correct guesses among members, over all trials
    others: float  # share of correct guesses among nonmembers, over all trials
    advantage: AdvantageInterval  # share among members minus share among nonmembers in a trial, mean over trials


@dataclass(frozen=True)
class AttributeFinding:
    """The accuracies of all adversaries that guess an attribute of the targets, and the bound from the guarantee."""

    attribute: str  # name or number of the attribute's column
    values: int  # number of different values of the attribute
    by_name: dict[str, AttributeGuessAccuracy]  # results of each adversary, keyed by the column of its guesses
    # The largest advantage that the guarantee allows; None without a guarantee. Members and nonmembers are of the same
    # training, as for `largest_auc_within_training`.
    largest: float | None

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `attribute`, for `summary.json`."""
        values = {name.removeprefix("attribute_"): json_of(accuracy) for name, accuracy in self.by_name.items()}
        numbers = {"attribute": self.attribute, "values": self.values, "largest_advantage": self.largest}
        return {"attribute": numbers | {"by_name": values}}


def measure_attributes(run: FinishedRun, _: Findings) -> AttributeFinding | None:
    """Return the accuracies of the adversaries that guess an attribute; None if no attribute was guessed.

    Also None if the trials are too few to measure attacks (`can_compare_targets`).
    """
    table = run.tables.targets
    guarantee = run.plan.guarantee
    if table is None or TRUTH not in table or not can_compare_targets(run):
        return None
    accuracies = {name: _guesser(table, name, run.plan.confidence) for name in GUESSERS}
    truth = table[TRUTH].to_numpy()
    largest = None if guarantee is None else 2 * largest_auc_within_training(guarantee.claim.profile) - 1
    return AttributeFinding(str(run.plan.config.audit.attribute), len(np.unique(truth)), accuracies, largest)


def _guesser(table: pd.DataFrame, name: str, confidence: float) -> AttributeGuessAccuracy:
    """Return the accuracy of the adversary whose guesses are in column `name`; rows must be sorted by trial."""
    trials = table["trial"].nunique()
    is_in = table["is_in"].to_numpy(dtype=np.bool_).reshape(trials, -1)
    values, truth = (table[column].to_numpy().reshape(trials, -1) for column in (name, TRUTH))
    guesses = AttributeGuesses(values, values == truth)
    advantages = guesses.advantage(TargetMembership(is_in))
    known_advantages = advantages[~np.isnan(advantages)]  # a trial with everybody in, or nobody, has no advantage
    shares = float(guesses.right[is_in].mean()), float(guesses.right[~is_in].mean())
    return AttributeGuessAccuracy(*shares, mean_advantage(known_advantages, confidence))


def attribute_ends(run: FinishedRun, name: str, confidence: float) -> tuple[float, float]:
    """Return the two ends of a confidence interval for an adversary's advantage at guessing an attribute."""
    assert run.tables.targets is not None, "an attribute is guessed of targets"
    advantage = _guesser(run.tables.targets, name, confidence).advantage
    return advantage.low, advantage.high
