"""Finding and report section on attribute inference: accuracies of the adversaries, and the limit of the guarantee."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.audits.membership.attack_limits import largest_auc_within_training
from fl_audit.audits.membership.attack_results import can_compare_targets
from fl_audit.audits.membership.attribute_inference import AttributeGuesses
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section, Table
from fl_audit.statistics.advantage import AdvantageInterval, mean_advantage
from fl_audit.verdict.claim_standing import standing_of_claim, with_standing_in_brackets
from fl_audit.words import number_text, percent, uncapital

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


_GUESSERS = {
    GUESSED_BLINDLY: "Without a model: the commonest value",
    GUESSED: "By the least loss",
    GUESSED_BY_DISTRIBUTION: "By the distribution of members' losses",
}


def _attribute_row(name: str, finding: AttributeFinding, run: FinishedRun) -> ReportNumber:
    advantage = finding.by_name[name].advantage
    basis_text = (
        "share of members guessed right less that of others, mean over trials (Yeom et al. 2018, definition 5); trials "
        "are independent, members and others of one trial share its model; the guarantee allows the total variation "
        "between two trainings, each with one of two records and without the other"
    )
    return ReportNumber(
        f"Advantage on the attribute, {uncapital(_GUESSERS[name])}",
        advantage.advantage,
        basis_text,
        advantage.low,
        advantage.high,
        advantage.confidence,
        finding.largest,
        largest=1.0,
        on_page=name == GUESSED,
        wide=partial(attribute_ends, run, name),
    )


def _attribute_sentence(finding: AttributeFinding, contents: ReportContents) -> str:
    name = max((GUESSED, GUESSED_BY_DISTRIBUTION), key=lambda name: finding.by_name[name].advantage.advantage)
    best = finding.by_name[name]
    aside = _attribute_row(name, finding, contents.run).comparison_in_brackets
    return (
        f"Somebody who knew all of a record but its {_quoted(finding)}, and asked the model how well each possible "
        f"value fits, guessed it right for {percent(best.members)} of the records that were trained with and for "
        f"{percent(best.others)} of the others: the difference{aside} is what training with a record gives away of it."
    )


def _quoted(finding: AttributeFinding) -> str:
    return f"column {finding.attribute}" if finding.attribute.isdecimal() else f"attribute '{finding.attribute}'"


def _attribute_tables(finding: AttributeFinding, contents: ReportContents) -> list[Table]:
    columns = ("Who guesses", "Right, members", "Right, others", "Advantage")
    guessers = [(name, guesser_text, finding.by_name[name]) for name, guesser_text in _GUESSERS.items()]
    rows: list[tuple[Any, ...]] = [
        (
            guesser_text,
            percent(accuracy.members),
            percent(accuracy.others),
            _attribute_row(name, finding, contents.run).text,
        )
        for name, guesser_text, accuracy in guessers
    ]
    if finding.largest is not None:
        whose = with_standing_in_brackets("Anybody, by the guarantee", standing_of_claim(contents))
        rows.append((whose, None, None, f"at most {number_text(finding.largest, 3)}"))
    title = f"Inference of {_quoted(finding)}, intervals at {percent(contents.plan.confidence)} confidence each"
    return [Table(title, columns, tuple(rows))]


ATTRIBUTES = Section(
    "attributes",
    "Attribute inference",
    AttributeFinding,
    measure_attributes,
    keys=("attribute",),
    on_page=True,
    sentence=_attribute_sentence,
    tables=_attribute_tables,
    rows=lambda finding, contents: [
        _attribute_row(name, finding, contents.run) for name in finding.by_name if name != GUESSED_BLINDLY
    ],
)
